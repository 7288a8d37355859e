"""What a mixer of coefficient dynamics costs, and the ranks at which it costs what softmax attention costs.

Ranks are summed over heads: N = H n and M = H d_v, with n and d_v the key and value widths of one head and H the heads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from madbench.errors import BudgetError, ConfigError
from madbench.mixers import Size
from madbench.mixers.cd.grammar import Label
from madbench.mixers.ranks import RankAllocation

CONV_TAPS = 4
LOW_RANK = 16  # of dg


@dataclass(frozen=True)
class Allocation(RankAllocation):
    """See :class:`madbench.mixers.ranks.RankAllocation`; N is r_qk and M r_vo."""

    label: Label
    value_skip: bool = False
    """Whether a head adds its own value to what it reads, times D."""
    other_rank: ClassVar = {"": "v", "v": ""}
    ways_to_fit: ClassVar = ("fewer heads",)

    key_width = property(lambda self: self.r_qk // self.size.n_head, doc="n, the key width of one head.")
    value_width = property(lambda self: self.r_vo // self.size.n_head, doc="d_v, the value width of one head.")

    def payment(self) -> tuple[int, int]:
        return self.size.d_model, -(-self.size.d_model // 4)

    @functools.cached_property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """Parameters, formula and tensors of every term that the label has."""
        label, d, heads, n, m = self.label, self.size.d_model, self.size.n_head, self.r_qk, self.r_vo
        rows = {
            "qk": (2 * d * n, "2 d r_qk", "W_q, W_k"),
            "vo": (2 * d * m, "2 d r_vo", "W_v, W_o"),
        }
        if label.conv:
            rows["conv"] = (CONV_TAPS * (2 * n + m), "4 (2 r_qk + r_vo)", "taps of q, k and v")
        if label.gate in ("ss", "sg", "se"):
            rows["gate"] = (heads * (d + 1), "H (d + 1)", "w and c of lambda")
        elif label.gate == "sm":
            rows["gate"] = (heads * (d + 2), "H (d + 2)", "w and c of Delta, and a")
        elif label.gate == "dm":
            rows["gate"] = (heads * (d + 1) + n, "H (d + 1) + r_qk", "w and c of Delta, and a")
        elif label.gate == "dg":
            count = LOW_RANK * (d + n) + n
            rows["gate"] = (count, "16 (d + r_qk) + r_qk", "W1, W2 and c of lambda")
        if label.mirror not in ("", "hkr"):
            strength, direction = label.mirror[2] != "r", label.mirror[1] == "z"
            formula = " + ".join(["H d"] * strength + ["d r_qk"] * direction)
            tensors = " and ".join(["w of beta"] * strength + ["W_z"] * direction)
            rows["mirror"] = (heads * d * strength + d * n * direction, formula, tensors)
        if label.scaling.startswith("bz"):
            rows["scaling"] = (heads * d, "H d", "w_z of b")
        elif label.scaling.startswith("bi"):
            rows["scaling"] = (heads * (d + 1), "H (d + 1)", "w and c of b")
        if label.norm == "wx":
            rows["norm"] = (heads * d, "H d", "w_eta")
        if self.value_skip:
            rows["skip"] = (heads, "H", "D")
        if label.output == "g":
            rows["out_gate"] = (d * m + self.value_width, "d r_vo + d_v", "W_G and the gain")
        elif label.output == "o":
            rows["out_gate"] = (d * m + m, "(d + 1) r_vo", "W_O and its bias")
        return rows

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes the decoding cache grows by with each token: none for a recurrent label.

        What A acts on is held in float32 at least, values of softmax attention as they come.
        """
        if self.label.is_recurrent:
            return 0
        wide = max(bytes_per_element, 4)
        return self.r_qk * wide + self.r_vo * (bytes_per_element if self.label.is_softmax else wide)

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a sequence of ``seq_len`` tokens, about, two for each multiply-add.

        Twice the parameters, and per head 4 n d_v for the state of a recurrent label (n d_v more for a gate, 4 n d_v
        for a mirror, and d_v + 1 for d_v where a sum is kept), or for each of (seq_len + 1) / 2 pairs 2 (n + d_v) (4 n
        more for a mirror, which leaves the newest key as it is). Only the pairs that causality keeps are counted; the
        gate of a score, readouts and norms are left out.
        """
        label, n, m = self.label, self.r_qk, self.r_vo
        if label.is_recurrent:
            columns = self.value_width + (label.norm in ("sum", "max"))
            return 2 * self.total + (4 + bool(label.gate) + 4 * bool(label.mirror)) * n * columns
        return 2 * self.total + (n + m) * (seq_len + 1) + 2 * n * bool(label.mirror) * (seq_len - 1)


def solve(label: Label, size: Size, qk_rank: int = 0, value_skip: bool = False) -> Allocation:
    """The ranks of ``label`` at this size.

    Strict budget, as :meth:`Allocation.matched` has it, QK paying (``v`` exchanges the sides): starts at N = M = d, N
    pays down to d/4 before M does. What is then left goes to M, past d where there is enough.

    Paper's budget, and ``!``: N = M = d, or N = ``qk_rank`` where it is not 0. Nothing is enforced.

    Raises ``BudgetError`` for a size no mixer can have, and under the strict budget where the smallest mixer exceeds
    it; ``ConfigError`` for a ``qk_rank`` where the budget decides.
    """
    d, heads = size.d_model, size.n_head
    unit = heads * (2 if label.rope else 1)
    if label.over or size.budget == "paper":
        if d % unit or qk_rank % unit:
            what, rank = ("qk_rank", qk_rank) if d % unit == 0 else ("d_model", d)
            why = f"the {heads} heads" + " times the pairs of RoPE" * label.rope
            raise BudgetError(f"{label}: {what} {rank} is not a multiple of {unit}, {why}")
        return Allocation(label, size, qk_rank or d, d, value_skip)
    if qk_rank:
        raise ConfigError(
            f"{label}: qk_rank {qk_rank} has no effect where the budget decides the ranks;"
            " use --budget paper or leave it out"
        )
    widest = Allocation(label, size, value_skip=value_skip)
    return widest.match_budget(*widest.sides())
