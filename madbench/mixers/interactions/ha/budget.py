"""What HyperAttention costs: 4 d^2 with shared slots for any degree, 2 n d^2 unshared, at ranks of d."""

from __future__ import annotations

from madbench.mixers.interactions.budget import InteractionAllocation
from madbench.mixers.interactions.ha.grammar import Label
from madbench.mixers.interactions.tuples import ALL, STRICT, count_tuples


class Allocation(InteractionAllocation):
    """See :class:`madbench.mixers.interactions.budget.InteractionAllocation`; m slots, 1 shared, n - 1 unshared."""

    label: Label

    @property
    def slots(self) -> int:
        return self.label.degree - 1 if self.label.unshared else 1

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, n, m = self.size.d_model, self.size.n_head, self.label.degree, self.slots
        if self.label.base == "C":
            return {
                "c": (heads * d**n, f"H d^{n}", "C of every head"),
                "w": (heads * d**n, f"H d^{n}", "W of every head"),
            }
        return {
            "qk": ((1 + m) * d * self.r_qk, f"{1 + m} d r_qk", "W_q, W_k" + " of every slot" * (m > 1)),
            "v": (m * d * self.r_vo, f"{m} d r_vo" if m > 1 else "d r_vo", "W_v" + " of every slot" * (m > 1)),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    def starts(self, tokens: int, slots: int) -> int:
        """How many starts of ``slots`` tokens the tuples of a row have that sees so many tokens."""
        kind, missing = self.label.tuples, self.label.degree - 1 - slots
        return count_tuples(max(tokens - missing, 0) if kind == STRICT else tokens, slots, kind)

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """FLOPs of a row: sums over one slot after the other, j1 first; fewer slots have fewer and wider tuples.

        With m slots of tokens, base ``C`` contracts d^(n - m) couplings of a row, and d^(n - m + 1) values once for all
        rows; else a product of keys takes r_qk and a weighted sum of values 2 r_vo. The last slot takes 2 r_qk and 2
        r_vo; of base ``C`` 2 d more for the readout. With RoPE keys are complex: a product takes 6 for 1, a sum of them
        4 for 2.
        """
        d, heads, n, turns = self.size.d_model, self.size.n_head, self.label.degree, self.label.rope
        of_last_row = [self.starts(seq_len, m) for m in range(1, n)]
        lengths = range(1, seq_len + 1) if causal else [seq_len] * seq_len
        *outer, every = (sum(self.starts(tokens, m) for tokens in lengths) for m in range(1, n))
        if self.label.base != "C":
            of_tuple, of_outer = (4, 6) if turns else (2, 1)
            flops = (of_tuple * self.r_qk + 2 * self.r_vo) * every
            return (flops + (of_outer * self.r_qk + 2 * self.r_vo) * sum(outer)) / seq_len
        flops = 2 * d * every
        for slots, count in enumerate((*outer, every), start=1):
            flops += 2 * d ** (n - slots) * (count + d * of_last_row[slots - 1] * (slots > 1))
        return heads * flops / seq_len

    def flops_of_sums(self) -> float:
        """d_qk d_vo numbers a head: made of each slot, multiplied with inner ones, added to each sum, and read."""
        n, turns = self.label.degree, self.label.rope
        sums = 1 if self.slots == 1 and self.label.tuples == ALL else n - 1
        of_number = (self.slots + sums + 2) * (1 + turns) + (n - 2) * (6 if turns else 1)
        return of_number * self.r_qk * self.widths["vo"]
