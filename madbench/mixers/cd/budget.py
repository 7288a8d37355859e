"""Costs of mixers of coefficient dynamics, and the ranks that meet a budget.

Ranks are summed over heads: N = H n and M = H d_v. n and d_v are the key and value widths of one head, and H is the
number of heads.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

from madbench.errors import BudgetError, ConfigError
from madbench.mixers import Size
from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.ranks import CONV_TAPS, RankAllocation

LOW_RANK = 16  # rank of dg


@dataclass(frozen=True)
class CdAllocation(RankAllocation):
    """The ranks and the cost of the mixer of a ``cd:`` label.

    ``r_qk`` is the rank N of queries and keys, and ``r_vo`` is the rank M of values and outputs: the number of their
    channels, summed over heads.
    """

    label: CdLabel
    value_skip: bool = False
    """True if each row's own value, times a number D per head, is added to its output."""
    other_rank: ClassVar = {"": "v", "v": ""}
    ways_to_fit: ClassVar = ("fewer heads",)

    @property
    def key_width(self) -> int:
        """The key width n of one head."""
        return self.r_qk // self.size.n_head

    @property
    def value_width(self) -> int:
        """The value width d_v of one head."""
        return self.r_vo // self.size.n_head

    @property
    def columns(self) -> int:
        """The number of columns in the state of a recurrent head.

        There is one per channel of the values, and one more if the state also keeps the sum of the coefficients.
        """
        return self.value_width + (self.label.norm in ("sum", "max"))

    @property
    def full(self) -> int:
        """The rank from which the search for the ranks of QK and VO starts: d_model.

        If a recurrent label must match a state of a given size, it is the rank r for which QK and VO of rank r have a
        state of this size, which is r^2 / H for H heads.
        """
        if self.size.rule.quantity == "state" and self.label.is_recurrent:
            return max(1, math.isqrt(int(self.size.rule.target(self)) * self.size.n_head))
        return self.size.d_model

    def payment(self) -> tuple[int, int]:
        return self.full, -(-self.full // 4)

    @functools.cached_property
    def rows(self) -> dict[str, tuple[int, str, str]]:
        """The number of parameters, the formula and the names of the tensors of each term, by term.

        A term is a part of the mixer, such as ``gate``.
        """
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
            terms = [("H d", "w of beta", strength), ("d r_qk", "W_z", direction)]
            formula = " + ".join(formula for formula, _, applies in terms if applies)
            tensors = " and ".join(tensor for _, tensor, applies in terms if applies)
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
        """Bytes that each token adds to the decoding cache. Zero for a recurrent label.

        ``bytes_per_element`` is the size of a number in the mixer's dtype. Only the values of softmax attention are
        kept in this dtype. All keys, and the values of other labels, are kept in float32 or wider.
        """
        if self.label.is_recurrent:
            return 0
        wide = max(bytes_per_element, 4)
        return self.r_qk * wide + self.r_vo * (bytes_per_element if self.label.is_softmax else wide)

    def state(self, seq_len: int) -> int:
        """The size of the decoding state after ``seq_len`` tokens, as a count of numbers.

        With head widths n and d_v, a recurrent label carries n d_v numbers per head, or n (d_v + 1) if it also keeps a
        sum of coefficients. It may also carry a running maximum per head. Other labels keep all keys and values.
        Convolutions keep their last three inputs.
        """
        label, heads = self.label, self.size.n_head
        windows = (CONV_TAPS - 1) * (2 * self.r_qk + self.r_vo) * label.conv
        if not label.is_recurrent:
            return windows + (self.r_qk + self.r_vo) * seq_len
        return windows + self.r_qk * self.columns + heads * label.has_maximum

    def flops_per_token(self, seq_len: int) -> float:
        """Approximate forward FLOPs per token of a sequence of ``seq_len`` tokens. A multiply-add counts as two.

        They are twice the number of parameters, plus for each head, with key width n and value width d_v:

        - recurrent labels: 4 n c for the state, n c more with a gate, and 4 n c more with a mirror, where c is d_v, or
          d_v + 1 if a sum is kept
        - other labels: 2 (n + d_v) for each of (seq_len + 1) / 2 causal pairs, and with a mirror 4 n more for each of
          these pairs except that of a token with itself

        Gates of scores, readouts and norms are not counted.
        """
        label, n, m = self.label, self.r_qk, self.r_vo
        if label.is_recurrent:
            return 2 * self.total + (4 + bool(label.gate) + 4 * bool(label.mirror)) * n * self.columns
        return 2 * self.total + (n + m) * (seq_len + 1) + 2 * n * bool(label.mirror) * (seq_len - 1)


def solve(label: CdLabel, size: Size, qk_rank: int = 0, value_skip: bool = False) -> CdAllocation:
    """Return the allocation of ``label``: the rank N of queries and keys, and the rank M of values and outputs.

    Budgets in parameters (``strict``, ``compute``): the search starts at N = M = d_model. Only as far as needed, N is
    reduced to d_model / 4, then M to d_model / 2, then N to its smallest value. Parameters left over go to M, which may
    exceed d_model. If the label has the letter ``v``, N and M change places. See :meth:`CdAllocation.match_budget`. The
    budgets ``flops`` and ``state`` do the same, with :attr:`CdAllocation.full` in place of d_model.

    Budget ``paper``, and labels with ``!``: M is d_model, and N is ``qk_rank``, or d_model if ``qk_rank`` is 0. No
    budget is enforced.

    If ``value_skip`` is true, the mixer has one more parameter per head (:attr:`CdAllocation.value_skip`).

    Raises ``BudgetError`` for a size or ``qk_rank`` that no mixer can have, and if the smallest mixer exceeds an
    enforced budget. Raises ``ConfigError`` for a ``qk_rank`` if the budget determines the ranks.
    """
    d, heads = size.d_model, size.n_head
    unit = heads * (2 if label.rope else 1)
    if label.over or not size.rule.chooses_ranks:
        if d % unit or qk_rank % unit:
            what, rank = ("qk_rank", qk_rank) if d % unit == 0 else ("d_model", d)
            why = f"the {heads} heads{' times the pairs of RoPE' if label.rope else ''}"
            raise BudgetError(f"{label}: {what} {rank} is not a multiple of {unit}, {why}")
        return CdAllocation(label, size, qk_rank or d, d, value_skip)
    if qk_rank:
        raise ConfigError(
            f"{label}: qk_rank {qk_rank} has no effect because the budget determines the ranks;"
            " use --budget paper or leave it out"
        )
    widest = CdAllocation(label, size, value_skip=value_skip)
    return widest.match_budget(widest.sides())
