"""The ranks and costs of HyperAttention.

With r_qk = r_vo = d, there are 4 d^2 parameters with shared slots, and 2 n d^2 with unshared slots, for degree n and
width d.
"""

from __future__ import annotations

from collections import Counter

from madbench.papers.interactions.mixers.budget import InteractionAllocation
from madbench.papers.interactions.mixers.ha.grammar import HaLabel
from madbench.papers.interactions.mixers.tuples import ALL, STRICT, count_tuples


class HaAllocation(InteractionAllocation):
    """The ranks and costs of a mixer of ``ha:``. See :class:`InteractionAllocation`.

    Head h has degree n_h. It has m_h slots with their own keys and values: 1 if slots are shared, n_h - 1 if unshared.
    """

    label: HaLabel

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degree n of each head: the number of tokens of an interaction, including the row's own."""
        return self.label.by_head(self.size.n_head)

    @property
    def slots(self) -> int:
        """The number of slots with their own keys and values, summed over heads."""
        return sum(map(self._slots, self.degrees))

    def _slots(self, degree: int) -> int:
        return degree - 1 if self.label.unshared else 1

    @property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        d, heads, n = self.size.d_model, self.size.n_head, self.label.degree
        if self.label.base == "C":
            return {
                "c": (heads * d**n, f"H d^{n}", "C of every head"),
                "w": (heads * d**n, f"H d^{n}", "W of every head"),
            }
        of_every_slot = " of every slot" if self.slots > heads else ""
        formulas = "d r_qk + sum_h m_h d d_qk", "sum_h m_h d d_vo"
        if self.slots % heads == 0:
            m = self.slots // heads
            formulas = f"{1 + m} d r_qk", f"{m} d r_vo" if m > 1 else "d r_vo"
        return {
            "qk": (d * (self.r_qk + self.slots * self.widths["qk"]), formulas[0], "W_q, W_k" + of_every_slot),
            "v": (d * self.slots * self.widths["vo"], formulas[1], "W_v" + of_every_slot),
            "o": (d * self.r_vo, "d r_vo", "W_o"),
        }

    def flops_of_tuples(self, seq_len: int, causal: bool = True) -> float:
        """The FLOPs per token of the effects and values of tuples.

        Tuples are built slot by slot, from the newest token on. n is the degree of a head, and d the width. A tuple has
        n - 1 slots. A prefix is its first m slots.

        - Base ``C``: each prefix that a row sees takes 2 d^(n - m) for couplings. Each prefix of the sequence takes 2
          d^(n - m + 1) for values if m > 1. Each tuple that a row sees takes 2 d for the readout.
        - Other bases: each tuple that a row sees takes 2 d_qk and 2 d_vo. Each shorter prefix takes d_qk for the
          product of keys and 2 d_vo for the sum of values. With RoPE keys are complex, so 2 d_qk becomes 4 d_qk, and
          d_qk becomes 6 d_qk.
        """
        counted = Counter(self.degrees).items()
        return sum(heads * self._flops_of_head(n, seq_len, causal) for n, heads in counted) / seq_len

    def _flops_of_head(self, n: int, seq_len: int, causal: bool) -> int:
        """The FLOPs that one head of degree n spends on tuples, summed over all rows of a sequence."""

        def starts(tokens: int, slots: int) -> int:
            """The number of distinct prefixes of the tuples of a row that sees ``tokens`` tokens.

            A prefix is the first ``slots`` slots of a tuple.
            """
            is_strict = self.label.tuples == STRICT
            seen = max(tokens - (n - 1 - slots), 0) if is_strict else tokens
            return count_tuples(seen, slots, self.label.tuples)

        d, lengths = self.size.d_model, range(1, seq_len + 1) if causal else [seq_len] * seq_len
        *outer, every = (sum(starts(tokens, m) for tokens in lengths) for m in range(1, n))
        if self.label.base != "C":
            of_tuple, of_outer = (4, 6) if self.label.rope else (2, 1)
            d_qk, d_vo = self.widths["qk"], self.widths["vo"]
            return (of_tuple * d_qk + 2 * d_vo) * every + (of_outer * d_qk + 2 * d_vo) * sum(outer)
        flops = 2 * d * every
        for slots, count in enumerate((*outer, every), start=1):
            of_values = d * starts(seq_len, slots) if slots > 1 else 0
            flops += 2 * d ** (n - slots) * (count + of_values)
        return flops

    def flops_of_sums(self) -> float:
        """The FLOPs per token of the running sums of all heads, which replace a loop over tuples.

        For each entry of its sums, a head of degree n takes 1 FLOP per slot with its own keys and values, for the
        product of key and value; n - 2 to multiply across the n - 1 slots of a tuple; 1 per running sum to add the
        token; and 2 to read the result with the query. With RoPE entries are complex: n - 2 becomes 6 (n - 2), and the
        other counts double.
        """
        return sum(map(self._operations, self.degrees)) * self.widths["qk"] * self.widths["vo"]

    def numbers_of_sums(self) -> int:
        """The number of entries in the running sums of all heads. With RoPE entries are complex and count as two."""
        each = self.widths["qk"] * self.widths["vo"] * (1 + self.label.rope)
        return sum(map(self._sums, self.degrees)) * each

    def _sums(self, n: int) -> int:
        """The number of running sums of a head of degree n.

        There is one per slot, or only one if all slots have the same sum.
        """
        return 1 if self._slots(n) == 1 and self.label.tuples == ALL else n - 1

    def _operations(self, n: int) -> int:
        """The FLOPs per token for one of the d_qk d_vo entries of the running sums of a head of degree n."""
        turns = self.label.rope
        return (self._slots(n) + self._sums(n) + 2) * (1 + turns) + (n - 2) * (6 if turns else 1)
