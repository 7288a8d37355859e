"""What a mixer costs: the parameters of each part, the decoding cache and the forward FLOPs.

Ranks are summed over heads: with d_qk and d_vo the widths of one head and H_q the query heads (2 H for G, else H),
r_qk = H_q d_qk and r_vo = H d_vo; r is the rank of R(1) and R(2), L the maximum length. The parameters of one mixer are

=============  ==================================  ===============================================
term           parameters                          tensors
=============  ==================================  ===============================================
qk             2 d r_qk                            W_q, W_k
vo             2 d r_vo                            W_v, W_o
conv           2 * 4 d                             taps of the K and of the V input
qk_gate        d r_qk + r_qk                       W_M1 and its bias
vo_gate        d r_vo + r_vo                       W_M2 and its bias
mix1           H_q r (d + 1)                       W_S1 and its bias
mix1_tables    H_q L (2 r + 1)                     A1, B1, p1
mix2           H r (d + 1)                         W_S2 and its bias
mix2_tables    H L (2 r + 1)                       A2, B2, p2
=============  ==================================  ===============================================
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from madbench.errors import BudgetError
from madbench.labels.grammar import Variant

Counting = Literal["strict", "published"]

CONV_TAPS = 4


@dataclass(frozen=True)
class Ranks:
    """Ranks of one mixer; ``qk`` and ``vo`` are summed over heads, ``mix`` is r, 0 without mixing."""

    qk: int
    vo: int
    mix: int


@dataclass(frozen=True)
class Allocation:
    """What a mixer is built from and what it costs. Every count is exact for the built module."""

    variant: Variant
    d_model: int
    n_head: int
    max_len: int
    counting: Counting
    ranks: Ranks

    @functools.cached_property
    def terms(self) -> dict[str, int]:
        """Parameters by term, only the terms the label has."""
        variant, ranks, d = self.variant, self.ranks, self.d_model
        terms = {"qk": 2 * d * ranks.qk, "vo": 2 * d * ranks.vo}
        if variant.conv:
            terms["conv"] = 2 * CONV_TAPS * d
        if variant.gates:
            terms["qk_gate"] = (d + 1) * ranks.qk
            terms["vo_gate"] = (d + 1) * ranks.vo
        for name, present, heads in (("mix1", variant.mix1, self.query_heads), ("mix2", variant.mix2, self.n_head)):
            if present:
                terms[name] = heads * ranks.mix * (d + 1)
                terms[f"{name}_tables"] = heads * self.max_len * (2 * ranks.mix + 1)
        return terms

    @property
    def total(self) -> int:
        """Every parameter of the mixer."""
        return sum(self.terms.values())

    @property
    def published_total(self) -> int:
        """Parameters without the length-indexed tables A, B and p."""
        return sum(size for name, size in self.terms.items() if not name.endswith("_tables"))

    @property
    def target(self) -> int:
        """The budget: 4 d^2, plus the conv taps when the label has them."""
        return budget(self.variant, self.d_model)

    @property
    def ratio(self) -> float:
        """``total / target``."""
        return self.total / self.target

    @property
    def published_ratio(self) -> float:
        """``published_total / target``."""
        return self.published_total / self.target

    @property
    def slack(self) -> int:
        """Parameters left in the budget; negative when it is exceeded."""
        return self.target - self.total

    @property
    def query_heads(self) -> int:
        """H_q: twice ``n_head`` for G."""
        return self.variant.query_heads(self.n_head)

    @property
    def qk_width(self) -> int:
        """d_qk, the width of one query head."""
        return self.ranks.qk // self.query_heads

    @property
    def vo_width(self) -> int:
        """d_vo, the width of one value head."""
        return self.ranks.vo // self.n_head

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> int:
        """Bytes the decoding cache grows by with each token: one key and one value of every head.

        The conv keeps three inputs whatever the length, so they are not part of it.
        """
        return (self.ranks.qk + self.ranks.vo) * bytes_per_element

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
        variant, ranks, d = self.variant, self.ranks, self.d_model
        if seq_len < 1 or (variant.has_mixing and seq_len > self.max_len):
            limit = f" to max_len {self.max_len}" if variant.has_mixing else ""
            raise BudgetError(f"{variant}: seq_len must be from 1{limit}, got {seq_len}")
        widths = ranks.qk + ranks.vo
        mixing_heads = self.query_heads * variant.mix1 + self.n_head * variant.mix2
        per_token = 4 * d * widths + 4 * CONV_TAPS * d * variant.conv + 2 * d * widths * variant.gates
        per_token += 2 * d * mixing_heads * ranks.mix
        per_pair = 2 * widths + mixing_heads * (4 * ranks.mix + 2)
        return per_token + per_pair * (seq_len + 1) / 2


def budget(variant: Variant, d_model: int) -> int:
    """Parameters a mixer may have: those of softmax attention, 4 d^2, plus its conv taps when the label has them."""
    return 4 * d_model**2 + 2 * CONV_TAPS * d_model * variant.conv
