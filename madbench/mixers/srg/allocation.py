"""What an S/R/G mixer costs: the parameters of each part, the decoding cache and the forward FLOPs.

Ranks are summed over heads: with d_qk and d_vo the widths of one head, H the heads and H_q the query heads (2 H for G,
else H), r_qk = H_q d_qk and r_vo = H d_vo; d is the width of the model, r the rank of R(1) and R(2), L the maximum
length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from madbench.errors import BudgetError
from madbench.labels import Variant
from madbench.mixers.family import Size

CONV_TAPS = 4


@dataclass(frozen=True)
class Term:
    """One term of the parameter count."""

    formula: str
    tensors: str
    count: Callable[[Allocation], int]
    is_table: bool = False
    """Whether it grows with the maximum length; the paper does not count these."""


TERMS = {
    "qk": Term("2 d r_qk", "W_q, W_k", lambda a: 2 * a.d * a.r_qk),
    "vo": Term("2 d r_vo", "W_v, W_o", lambda a: 2 * a.d * a.r_vo),
    "conv": Term("2 * 4 d", "taps of K and of V", lambda a: 2 * CONV_TAPS * a.d),
    "qk_gate": Term("(d + 1) r_qk", "W_M1 and its bias", lambda a: (a.d + 1) * a.r_qk),
    "vo_gate": Term("(d + 1) r_vo", "W_M2 and its bias", lambda a: (a.d + 1) * a.r_vo),
    "mix1": Term("H_q r (d + 1)", "W_S1 and its bias", lambda a: a.query_heads * a.r * (a.d + 1)),
    "mix1_tables": Term("H_q L (2 r + 1)", "A1, B1, p1", lambda a: a.query_heads * a.length * (2 * a.r + 1), True),
    "mix2": Term("H r (d + 1)", "W_S2 and its bias", lambda a: a.size.n_head * a.r * (a.d + 1)),
    "mix2_tables": Term("H L (2 r + 1)", "A2, B2, p2", lambda a: a.size.n_head * a.length * (2 * a.r + 1), True),
}
"""Every term of :attr:`Allocation.terms`; the letters of a label name those it adds to ``qk`` and ``vo``."""


@dataclass(frozen=True)
class Allocation:
    """What a mixer is built from and what it costs. Every count is exact for the built module."""

    label: Variant
    size: Size
    ranks: dict[str, int]
    """``qk`` and ``vo``, summed over heads, and ``mix``, which is r, 0 without mixing."""

    @functools.cached_property
    def terms(self) -> dict[str, int]:
        """Parameters by term, only the terms the label has."""
        names = ("qk", "vo", *(term for row in self.label.letters for term in row.terms))
        return {name: TERMS[name].count(self) for name in names}

    @property
    def formulas(self) -> dict[str, tuple[str, str]]:
        """Formula and tensors of every term, for display."""
        return {name: (TERMS[name].formula, TERMS[name].tensors) for name in self.terms}

    @property
    def target(self) -> int:
        """The budget: 4 d^2, plus the conv taps when the label has them."""
        raising = (term for row in self.label.letters if row.raises_budget for term in row.terms)
        return 4 * self.d**2 + sum(self.terms[term] for term in raising)

    @property
    def paper_total(self) -> int:
        """Parameters without the length-indexed tables A, B and p."""
        return sum(count for name, count in self.terms.items() if not TERMS[name].is_table)

    d = property(lambda self: self.size.d_model)
    length = property(lambda self: self.size.max_len)
    r_qk = property(lambda self: self.ranks["qk"])
    r_vo = property(lambda self: self.ranks["vo"])
    r = property(lambda self: self.ranks["mix"])
    total = property(lambda self: sum(self.terms.values()), doc="Every parameter of the mixer.")
    slack = property(lambda self: self.target - self.total, doc="Parameters left; negative when over budget.")
    ratio = property(lambda self: self.total / self.target, doc="``total / target``.")
    query_heads = property(lambda self: self.label.query_heads(self.size.n_head), doc="H_q: twice ``n_head`` for G.")
    qk_width = property(lambda self: self.r_qk // self.query_heads, doc="d_qk, the width of one query head.")
    vo_width = property(lambda self: self.r_vo // self.size.n_head, doc="d_vo, the width of one value head.")
    widths = property(lambda self: {"qk": self.qk_width, "vo": self.vo_width}, doc="Widths of one head, by side.")

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes the decoding cache grows by with each token: one key and one value of every head.

        The conv keeps three inputs whatever the length, so they are not part of it.
        """
        return (self.r_qk + self.r_vo) * bytes_per_element

    def flops_per_token(self, seq_len: int) -> float:
        """Forward FLOPs per token of a sequence of ``seq_len`` tokens, two for each multiply-add.

        With P = (seq_len + 1) / 2 the mean causal prefix and h = H_q [1] + H [2] the mixing heads:

        - projections 4 d r_qk + 4 d r_vo; conv 2 * 2 * 4 d; gates 2 d r_qk + 2 d r_vo
        - mixing gates 2 d h r
        - pairs P (2 r_qk + 2 r_vo): scores and readout
        - mixing P h (4 r + 2): the products with A and B, and the diagonal I + Diag(p)

        Only the P pairs that causality keeps are counted. Activations, norms, biases, RoPE and the elementwise
        products of gates are left out. Raises ``BudgetError`` beyond ``max_len`` for a label with mixing.
        """
        variant, d = self.label, self.d
        if seq_len < 1 or (variant.has_mixing and seq_len > self.length):
            limit = f" to max_len {self.length}" if variant.has_mixing else ""
            raise BudgetError(f"{variant}: seq_len must be from 1{limit}, got {seq_len}")
        widths = self.r_qk + self.r_vo
        mixing_heads = self.query_heads * variant.mix1 + self.size.n_head * variant.mix2
        per_token = 4 * d * widths + 4 * CONV_TAPS * d * variant.conv + 2 * d * widths * variant.gates
        per_token += 2 * d * mixing_heads * self.r
        per_pair = 2 * widths + mixing_heads * (4 * self.r + 2)
        return per_token + per_pair * (seq_len + 1) / 2
