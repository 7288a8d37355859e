"""The parameters and costs of S/R/G mixers with given ranks.

Symbols: d is the width of the model, L the maximum length, H the number of heads, and H_q the number of query heads,
2 H for G and D and otherwise H. d_qk and d_vo are the widths of one head, and r is the rank of R(1) and R(2). Ranks are
summed over heads: r_qk = H_q d_qk and r_vo = H d_vo.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from madbench.errors import BudgetError
from madbench.mixers import Size
from madbench.mixers.ranks import CONV_TAPS
from madbench.mixers.srg.grammar import SrgLabel

GROUPS = {
    "k_conv": "mixer conv",
    "v_conv": "mixer conv",
    "qk_gate": "mixer gates",
    "vo_gate": "mixer gates",
    "head_gate": "mixer gates",
    "contrast_gate": "mixer gates",
    "sink": "mixer gates",
    "mix1.gate": "mixing gates",
    "mix2.gate": "mixing gates",
    "mix1": "mixing tables",
    "mix2": "mixing tables",
    "head_norm": "norms",
    "q_norm": "norms",
    "k_norm": "norms",
}
"""The group under which a parameter is counted for display, by parameter name. See
:attr:`madbench.mixers.Traits.groups`.
"""


@dataclass(frozen=True)
class Term:
    """One term of the parameter count of a mixer, such as the parameters of a gate.

    ``count`` computes the number from an allocation. ``formula`` and ``tensors``, the names of the tensors that are
    counted, are texts for display.
    """

    formula: str
    tensors: str
    count: Callable[[SrgAllocation], int | Fraction]
    is_table: bool = False
    """True if the term counts mixing tables, which grow with the maximum length. The paper does not count these."""


TERMS = {
    "qk": Term("2 d r_qk", "W_q, W_k", lambda a: a.d * (a.r_qk + a.key_width)),
    "vo": Term("2 d r_vo", "W_v, W_o", lambda a: a.d * (a.value_width + a.r_vo)),
    "conv": Term("2 * 4 d", "taps of K and of V", lambda a: 2 * CONV_TAPS * a.d),
    "qk_gate": Term("(d + 1) r_qk", "W_M1 and its bias", lambda a: (a.d + 1) * a.r_qk),
    "vo_gate": Term("(d + 1) r_vo", "W_M2 and its bias", lambda a: (a.d + 1) * a.r_vo),
    "contrast": Term("4 d_qk", "lambda_q1, k1, q2, k2", lambda a: 4 * a.qk_width),
    "head_norm": Term("d_vo", "gain of the heads' norm", lambda a: a.vo_width),
    "contrast_gate": Term("d H", "W_lambda", lambda a: a.d * a.size.n_head),
    "registers": Term("k d", "register rows", lambda a: a.registers * a.d),
    "adapters": Term(
        "2 r_a (d + r_vo)", "A_v, B_v, A_o, B_o", lambda a: a.adapter_rank * (2 * a.d + a.value_width + a.r_vo)
    ),
    "sink": Term("H_q", "s", lambda a: a.query_heads),
    "qk_norm": Term("2 d_qk", "gains of queries and of keys", lambda a: 2 * a.qk_width),
    "head_gate": Term("d H", "W_h", lambda a: a.d * a.size.n_head),
    "mix1": Term("H_q r (d + 1)", "W_S1 and its bias", lambda a: a.query_heads * a.r * (a.d + 1)),
    "mix1_tables": Term("H_q L (2 r + 1)", "A1, B1, p1", lambda a: a.query_heads * a.slots * (2 * a.r + 1), True),
    "mix2": Term("H r (d + 1)", "W_S2 and its bias", lambda a: a.size.n_head * a.r * (a.d + 1)),
    "mix2_tables": Term("H L (2 r + 1)", "A2, B2, p2", lambda a: a.size.n_head * a.slots * (2 * a.r + 1), True),
}
"""All terms of the parameter count, by name. Every label has ``qk`` and ``vo``. The grammar lists the terms of each
letter."""
SHARED_FORMULAS = {"qk": "d (r_qk + r_k)", "vo": "d (r_v + r_vo)", "adapters": "r_a (2 d + r_v + r_vo)"}
"""Formulas that replace those of ``TERMS`` if heads share keys or values, by name of the term.

r_k and r_v are the widths of all separate heads of keys and of values together.
"""
ADAPTER_OUTPUTS = ("v_up", "o_up")
"""The second factors of the low-rank adapters of W_v and W_o: linear maps that start at zero."""
ABSENT_TERMS = {
    ("gates", "qk"): ("vo_gate",),
    ("gates", "vo"): ("qk_gate",),
    ("differential", "v1"): ("contrast_gate",),
    ("differential", "v2"): ("contrast", "head_norm"),
}
"""Names of terms that a letter does not add if one of its settings has a certain value, by (setting, value)."""


@dataclass(frozen=True)
class SrgAllocation:
    """The ranks and the cost of an S/R/G mixer. Every count is exact for the built module.

    The fields after the ranks are settings of letters, named as in the family's ``Settings``. Their defaults are those
    of a label without the letter.
    """

    label: SrgLabel
    size: Size
    ranks: dict[str, int]
    """``qk`` and ``vo``, the ranks summed over heads, and ``mix``, the rank r of the mixing matrices (0 without
    mixing)."""
    registers: int = 0
    """Letter k: number of registers, which are learned rows besides the tokens."""
    adapter_rank: int = 0
    """Letter a: rank r_a of the adapters, low-rank matrices that are added to W_v and W_o."""
    gates: str = "both"
    """Letter g: the sides of the mixer that are gated, ``qk``, ``vo`` or ``both``."""
    window: int = 0
    """Letter w: number of tokens that a row sees. 0 if it sees all earlier tokens."""
    kv_heads: int = 0
    """Letter m: number of heads of keys and values. 0 if each head has its own keys and values."""
    rope_share: float = 1.0
    """Letter p: share of the channels of a head that RoPE rotates."""
    differential: str = "v1"
    """Base D: version of differential attention, ``v1`` or ``v2``. In ``v2`` both sets of query heads share their
    keys."""

    @functools.cached_property
    def terms(self) -> dict[str, int]:
        """The numbers of parameters of the terms that the label has, by name of the term (:data:`TERMS`)."""
        names = ("qk", "vo", *(term for row in self.label.letters for term in row.terms))
        absent = {
            term for (name, value), terms in ABSENT_TERMS.items() if getattr(self, name) == value for term in terms
        }
        counts = {name: TERMS[name].count(self) for name in names if name not in absent}
        return cast("dict[str, int]", counts)  # whole numbers for the ranks of a mixer

    @property
    def formulas(self) -> dict[str, tuple[str, str]]:
        """The formula of each term in :attr:`terms` and the names of the tensors that it counts, by name of the term.

        Both are texts for display.
        """
        slots = "w" if self.slots < self.length + self.registers else "L"
        slots = f"({slots} + k)" if self.registers else slots
        shared = SHARED_FORMULAS if self.shares_heads else {}
        formulas = {name: shared.get(name, TERMS[name].formula).replace("L", slots) for name in self.terms}
        return {name: (formula, TERMS[name].tensors) for name, formula in formulas.items()}

    @property
    def target(self) -> int:
        """The budget: 4 d^2, plus the terms of the letters with ``raises_budget``."""
        raising = (term for row in self.label.letters if row.raises_budget for term in row.terms)
        return 4 * self.d**2 + sum(self.terms.get(term, 0) for term in raising)

    @property
    def paper_total(self) -> int:
        """The number of parameters without the mixing tables A, B and p, which grow with the maximum length."""
        return sum(count for name, count in self.terms.items() if not TERMS[name].is_table)

    @property
    def d(self) -> int:
        return self.size.d_model

    @property
    def length(self) -> int:
        return self.size.max_len

    @property
    def has_slots_of_window(self) -> bool:
        """True if a row of scores has slots only for the tokens in its window: for labels with w in the lag layout."""
        return self.window > 0 and self.label.layout == "lag"

    @property
    def slots(self) -> int:
        """The number of rows of the mixing tables: one per token, or per token of the window, and one per register."""
        return self.tokens(self.length) + self.registers

    @property
    def r_qk(self) -> int:
        return self.ranks["qk"]

    @property
    def r_vo(self) -> int:
        return self.ranks["vo"]

    @property
    def r(self) -> int:
        return self.ranks["mix"]

    @property
    def value_heads(self) -> int:
        """The number of value heads: ``kv_heads``, or if it is 0, the number of heads."""
        return self.kv_heads or self.size.n_head

    @property
    def key_heads(self) -> int:
        """The number of key heads.

        G and D have two sets of query heads with separate keys, and so twice as many key heads as value heads. In DIFF
        V2 both sets share the keys.
        """
        return (
            self.query_heads // self.size.n_head * self.value_heads if self.differential == "v1" else self.value_heads
        )

    @property
    def shares_heads(self) -> bool:
        """True if heads may share keys or values: for labels with the letter m, and for DIFF V2.

        It is true for m even if ``kv_heads`` is the number of heads. The parameters that sharing saves increase the
        rank of QK.
        """
        return self.kv_heads > 0 or self.differential == "v2"

    @property
    def key_width(self) -> int | Fraction:
        """The width of all key heads together: ``r_qk * key_heads / query_heads``.

        A key head is as wide as a query head, and ``r_qk`` is the width of all query heads together. The result is a
        fraction if the division leaves a remainder; no mixer can have such ranks.
        """
        return _share(self.r_qk, self.key_heads, self.query_heads)

    @property
    def value_width(self) -> int | Fraction:
        """The width of all value heads together: ``r_vo * value_heads / n_head``.

        The result is a fraction if the division leaves a remainder. No mixer can have such ranks.
        """
        return _share(self.r_vo, self.value_heads, self.size.n_head)

    @property
    def r_k(self) -> int:
        """The width of all key heads together, for ranks that a mixer can have.

        Raises ``BudgetError`` if :attr:`key_width` is a fraction.
        """
        return _whole(self.key_width)

    @property
    def r_v(self) -> int:
        """The width of all value heads together, for ranks that a mixer can have.

        Raises ``BudgetError`` if :attr:`value_width` is a fraction.
        """
        return _whole(self.value_width)

    @property
    def total(self) -> int:
        """The number of parameters of the mixer."""
        return sum(self.terms.values())

    @property
    def slack(self) -> float:
        """The unused part of the budget: parameters, or with ``--match`` FLOPs per token or elements of the state.

        Negative if the mixer exceeds the budget.
        """
        return self.size.rule.room(self)

    @property
    def ratio(self) -> float:
        """The number of parameters divided by the budget: ``total / target``."""
        return self.total / self.target

    @property
    def query_heads(self) -> int:
        """The number of query heads, H_q: twice ``n_head`` for the bases G and D, otherwise ``n_head``."""
        return self.label.query_heads(self.size.n_head)

    @property
    def qk_width(self) -> int:
        """d_qk, the width of one query head."""
        return self.r_qk // self.query_heads

    @property
    def rotated(self) -> int:
        """The number of leading channels of a query head that RoPE rotates. It is even, and at least 2."""
        return max(2, 2 * math.floor(self.qk_width * self.rope_share / 2 + 1e-9))

    @property
    def vo_width(self) -> int:
        """d_vo, the width of one value head."""
        return self.r_vo // self.size.n_head

    @property
    def widths(self) -> dict[str, int]:
        """The widths of one head: d_qk by the name ``qk``, and d_vo by the name ``vo``."""
        return {"qk": self.qk_width, "vo": self.vo_width}

    def tokens(self, length: int) -> int:
        """The number of slots for tokens in a row of scores, for ``length`` tokens. Registers are not counted."""
        return min(length, self.window) if self.has_slots_of_window else length

    @property
    def most_tokens(self) -> float:
        """The length of the longest sequence that the mixing tables allow. Infinite if any length is possible."""
        is_limited = self.label.has_mixing and self.tokens(self.length + 1) > self.tokens(self.length)
        return self.length if is_limited else math.inf

    def pairs_per_token(self, length: int, causal: bool = True) -> float:
        """The mean number of slots (tokens and registers) that a row of a sequence of ``length`` tokens sees."""
        seen = min(length, self.window) if self.window else length
        earlier = seen - seen * (seen - 1) / (2 * length)  # the first rows see fewer
        return (earlier if causal else 2 * earlier - 1) + self.registers

    def state_bytes_per_token(self, bytes_per_element: int = 2) -> float:
        """Bytes that each token adds to the decoding cache: its keys in all key heads, its values in all value heads.

        Inputs that are kept for the convolution are not counted, since they do not grow. For labels with w, the cache
        has at most ``window`` tokens. The result is then the size of this cache divided by ``max_len``.
        """
        share = min(1, self.window / self.length) if self.window else 1
        return (self.key_width + self.value_width) * bytes_per_element * share

    def state(self, seq_len: int) -> int:
        """The number of elements that decoding keeps per sequence after ``seq_len`` tokens.

        These are the keys and values of all tokens, or for labels with w of the tokens in the window. Labels with c
        also keep the last three inputs. Keys and values of registers are computed from parameters and are not counted.
        """
        inputs = (CONV_TAPS - 1) * self.d * self.label.conv
        elements = inputs + (self.key_width + self.value_width) * min(seq_len, self.window or seq_len)
        return cast(int, elements)

    def flops_per_token(self, seq_len: int, causal: bool = True) -> float:
        """Forward FLOPs per token of a sequence of ``seq_len`` tokens. A multiply-add counts as two.

        d is ``d_model``, H the number of heads, and H_q that of query heads. P is the mean number of visible tokens:
        (seq_len + 1) / 2 if causal, else seq_len; fewer with a window. k is the number of registers, r the rank of the
        mixing, and r_a that of the adapters. h is the number of mixing heads: H_q for mixing 1 plus H for mixing 2.

        - projections 4 d r_qk + 4 d r_vo, or 2 d (r_qk + r_k + r_v + r_vo) if heads share keys or values
        - convolutions 2 * 2 * 4 d; gates 2 d r_qk + 2 d r_vo, of the gated sides
        - mixing gates 2 d h r; gates per head 2 d H, and as many for lambda of DIFF V2
        - adapters 4 r_a (d + r_vo), or 2 r_a (2 d + r_v + r_vo) if heads share keys or values
        - pairs (P + k) (2 r_qk + 2 r_vo): scores and readout, including registers
        - mixing (P + k) h (4 r + 2): the products with A and B, and the diagonal I + Diag(p)

        Only visible pairs are counted. Not counted are activations, norms, biases, RoPE, the elementwise products of
        gates, and the keys and values of registers, which are computed once per batch. Raises ``BudgetError`` if
        ``seq_len`` is below 1 or above :attr:`most_tokens`.
        """
        label, d = self.label, self.d
        if not 1 <= seq_len <= self.most_tokens:
            limit = f" to max_len {self.length}" if self.most_tokens < math.inf else ""
            raise BudgetError(f"{label}: seq_len must be from 1{limit}, got {seq_len}")
        widths = self.r_qk + self.r_vo
        mixing_heads = self.query_heads * label.mix1 + self.size.n_head * label.mix2
        gated = self.r_qk * ("qk_gate" in self.terms) + self.r_vo * ("vo_gate" in self.terms)
        per_token = (
            2 * d * (widths + self.key_width + self.value_width) + 4 * CONV_TAPS * d * label.conv + 2 * d * gated
        )
        per_token += (
            2 * d * (mixing_heads * self.r + self.size.n_head * (label.head_gate + (self.differential == "v2")))
        )
        per_token += 2 * self.adapter_rank * (2 * d + self.value_width + self.r_vo)
        per_pair = 2 * widths + mixing_heads * (4 * self.r + 2)
        return per_token + per_pair * self.pairs_per_token(seq_len, causal)


def _share(rank: int, heads: int, of_heads: int) -> int | Fraction:
    """Convert the total width of ``of_heads`` heads to that of ``heads`` heads of the same width.

    The result is an exact fraction if it is not a whole number.
    """
    share = Fraction(rank * heads, of_heads)
    return share if share.denominator > 1 else operator.index(share.numerator)


def _whole(width: int | Fraction) -> int:
    if isinstance(width, Fraction):
        raise BudgetError(f"no mixer has shared heads whose widths sum to {width}")
    return width
