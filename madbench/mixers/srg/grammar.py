"""The S/R/G grammar. A label specifies one HyperMLP-style mixer completely, and each mixer has exactly one label.

::

    label    = base, [ "-" features ], [ "-" rank ], [ "-" mixing ], [ "!" ]
    base     = "S" | "R" | "G" | "D" | "L"
    features = the letters of the segment ``features``, each at most once, in the order of ``LETTERS``
    rank     = "q" | "v"
    mixing   = ("1" | "2" | "12"), ["o"]

Three rules hold besides the syntax. ``q`` and ``v`` meet the budget and ``!`` lifts it, so they exclude each other. A
label that adds parameters (``g``, ``k``, ``a``, ``1``, ``2``) must say which side shrinks for them (``q`` or ``v``), or
that they exceed the budget (``!``). ``!`` is an error if nothing adds parameters. 504 labels use only letters of the
HyperMLP paper's Table 1, for which ``is_in_table1`` is true.

The syntax, the messages, the suggested labels, the explanations, the help and the factors of labels all derive from
``LETTERS``. The field ``source`` of a letter is a place in the HyperMLP paper (arXiv 2602.12601), unless it names
another paper.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from madbench.errors import LabelError, did_you_mean
from madbench.labels.diagnosis import quoted_choices
from madbench.labels.family import Explanation

ALIASES = {
    "SoftmaxAttn": "S",
    "ReLUAttn": "R",
    "HyperMLP": "R-cg-q-12o",
    "HyperGLU": "G-cg-q-12o",
}
"""Names of the HyperMLP paper for four labels: name to label. They are accepted in upper or lower case."""

SEGMENTS = ("base", "features", "rank", "mixing", "budget")
"""Segments of a label, in order."""


@dataclass(frozen=True)
class Letter(Explanation):
    """A row of ``LETTERS``: what a letter means, where it stands in a label, and what it adds to a mixer."""

    segment: str
    """The segment of a label in which the letter stands: one of ``SEGMENTS``."""
    field: str
    """Field of :class:`SrgLabel` that the letter sets."""
    value: str | bool = True
    """Value to which the letter sets its ``field``."""
    needs: str = ""
    """Letters of which the label must have at least one, if it has this letter. Empty if the letter needs no other."""
    terms: tuple[str, ...] = ()
    """Names of the parameters that the letter adds, as in :data:`madbench.mixers.srg.allocation.TERMS`."""
    raises_budget: bool = False
    """True if the budget grows by the parameters that the letter adds, so that no rank must shrink for them."""
    acts_on_scores: bool = True
    """False if the letter changes only steps before the scores are computed, or after the values are read out."""
    settings: tuple[str, ...] = ()
    """Settings of the family that have an effect on every label with the letter."""
    beside: tuple[tuple[str, Explanation], ...] = ()
    """Pairs of another letter and the explanation that replaces this one if the label has the other letter too."""
    is_in_table1: bool = True
    """True if the letter is in the paper's Table 1."""

    @property
    def factor(self) -> str:
        """Name of the factor of which the letter is a level, such as ``rank`` for q and v."""
        return "budget" if self.field == "over" else self.field

    @property
    def is_paid(self) -> bool:
        """True if the letter adds parameters and the budget stays the same.

        A label with such a letter also needs q or v, which save parameters elsewhere, or ``!``, which lifts the budget.
        """
        return bool(self.terms) and not self.raises_budget


_ROPE_THEN_GATE = Explanation("p", "RoPE",
    "Queries and keys are rotated by position; the QK gate then scales the rotated query, so that a score depends on"
    " absolute positions too, and Theorem 2.3 does not hold. rope_order=after_gate reverses the order.",
    "q_t . k_i -> (q_t Rot(t) M(1)(x_t)) . (k_i Rot(i))", "RoPE as an edit of W(1), Section 2.2",
)  # fmt: skip
LETTERS = (
    Letter("S", "softmax",
        "Scores are divided by sqrt(d_qk) and become weights that sum to one over the prefix.",
        "a_t = softmax(h_t)", "softmax attention, Section 2.2, eq. 2",
        "base", "base", "S"),
    Letter("R", "ReLU after L2Norm",
        "Scores are normalized over the prefix without a gain; the positive ones select their tokens.",
        "a_t = ReLU(h_t / sqrt(|h_t|^2 + eps))", "ReLU attention and HyperMLP, Section 2.4, eq. 8",
        "base", "base", "R"),
    Letter("G", "GLU",
        "Two sets of query heads: one selects tokens as R does, the other says how strongly each counts.",
        "a_t = Softplus(h_t^scale) * ReLU(L2Norm(h_t^gate))", "HyperGLU, Section 2.4, eq. 11",
        "base", "base", "G"),
    Letter("D", "differential softmax",
        "Two sets of query heads, each with a softmax: the second is subtracted, times a learned scalar. What a head"
        " reads out is normalized. With differential=v2, lambda is sigmoid(x_t w_lambda) per head, both softmaxes share"
        " keys, and nothing is normalized.",
        "a_t = softmax(h_t^1) - lambda softmax(h_t^2), o_t <- (1 - lambda_init) RMSNorm(o_t)",
        "DiffTrans, Table 2; Ye et al. 2024, eq. 1-3",
        "base", "base", "D", terms=("contrast", "head_norm", "contrast_gate"), raises_budget=True,
        settings=("differential", "lambda_init"),
        is_in_table1=False),
    Letter("L", "L2Norm without a gate",
        "Scores are normalized over the prefix and weigh their tokens with their signs: every slot is read, none is"
        " selected.",
        "a_t = h_t / sqrt(|h_t|^2 + eps)", "linear attention, Proposition 2.6 (iii) and H.10",
        "base", "base", "L", is_in_table1=False),
    Letter("p", "RoPE",
        "Queries and keys are rotated by position, so a score sees positions only through the distance of two tokens."
        " With rope_share below 1, only the first channels of each head are rotated.",
        "q_t . k_i -> q_t Rot(t - i) k_i", "RoPE as an edit of W(1), Section 2.2",
        "features", "rope", acts_on_scores=False, settings=("rope", "rope_share"),
        beside=(("g", _ROPE_THEN_GATE),)),
    Letter("c", "short convolution",
        "Depthwise causal convolutions over 4 tokens run on the inputs of K and of V, each with its own taps.",
        "k_i = conv_k(x)_i W_k, v_i = conv_v(x)_i W_v", "KV depthwise convolution, Section 3 and Appendix L",
        "features", "conv", terms=("conv",), raises_budget=True, acts_on_scores=False),
    Letter("g", "QK and VO gates",
        "The current token scales each channel of the QK and of the VO width; of one side alone with gates=qk or"
        " gates=vo.",
        "M(j)(x_t) = Diag(sigmoid(x_t W_M(j) + b_M(j)))", "M(1) and M(2), Section 2.4",
        "features", "gates", terms=("qk_gate", "vo_gate"), acts_on_scores=False, settings=("gates",)),
    Letter("k", "registers",
        "Learned rows stand before the tokens of every prefix: each adds a slot with a key and a value. They have no"
        " position and no convolution; with mixing, they are the first slots, or the last with register_place=last.",
        "X -> [R; X], R in R^(k x d)", "registers, Proposition 2.6 (iv) and H.5",
        "features", "registers", terms=("registers",), settings=("registers",), is_in_table1=False),
    Letter("a", "V and O adapters",
        "A product of two thin matrices is added to W_v, and one to W_o. The functions are those without it: what"
        " differs is how they are trained.",
        "W_v + A_v B_v, W_o + A_o B_o, of rank r_a", "LoRA on the readout side, Proposition 2.6 (ii) and H.6",
        "features", "adapter", terms=("adapters",), acts_on_scores=False, settings=("adapter_rank",),
        is_in_table1=False),
    Letter("w", "sliding window",
        "A row sees the last w tokens only, its own included; w is the setting window. Registers are seen by every row."
        " With mixing, tokens before the window have no slots: R(1) and R(2) keep the rows and columns of the others,"
        " and with o, tables have w rows.",
        "i in {t - w + 1, ..., t}", "sliding window attention, Beltagy et al. 2020 (arXiv 2004.05150), Section 3.1",
        "features", "window", settings=("window",), is_in_table1=False),
    Letter("s", "attention sink",
        "The denominator of a head's softmax has one more term, with a learned logit: a row can attend to nothing. Each"
        " softmax of D has its own logit.",
        "a_t[i] = exp(h_t[i]) / (exp(s) + sum_j exp(h_t[j]))", "gpt-oss model card, OpenAI 2025 (arXiv 2508.10925)",
        "features", "sink", needs="SD", terms=("sink",), raises_budget=True, is_in_table1=False),
    Letter("n", "QK norm",
        "The query and the key of a head are divided by their root mean square and scaled by learned gains, which all"
        " heads share, before RoPE and the QK gate.",
        "q_t <- gain_q RMSNorm(q_t), k_i <- gain_k RMSNorm(k_i)", "Henry et al. 2020 (arXiv 2010.04245); Qwen3",
        "features", "qk_norm", needs="SD", terms=("qk_norm",), raises_budget=True, acts_on_scores=False,
        is_in_table1=False),
    Letter("m", "shared keys and values",
        "Groups of heads share one head of keys and values. There are kv_heads of them; 1 is multi-query attention."
        " A label without q and v widens QK by what this saves.",
        "h_t of head j reads k_g(j), o_t reads v_g(j), g(j) = floor(j kv_heads / H)",
        "MQA, Shazeer 2019 (arXiv 1911.02150); GQA, Ainslie et al. 2023 (arXiv 2305.13245)",
        "features", "shared_kv", acts_on_scores=False, settings=("kv_heads",), is_in_table1=False),
    Letter("h", "gate per head",
        "The current token scales what each head reads out, by one number between 0 and 1 per head.",
        "o_t <- sigmoid(x_t w_h) o_t, w_h in R^d", "headwise gate, Qiu et al. 2025 (arXiv 2505.06708)",
        "features", "head_gate", terms=("head_gate",), raises_budget=True, acts_on_scores=False, is_in_table1=False),
    Letter("e", "exclusive",
        "What a head reads out loses its component along the token's own value, so that a head adds only what other"
        " directions say.",
        "o_t <- o_t - (o_t . v_t / |v_t|^2) v_t", "exclusive self attention (XSA), arXiv 2603.09078",
        "features", "exclusive", acts_on_scores=False, is_in_table1=False),
    Letter("q", "QK compressed",
        "The budget of softmax attention is met by a narrower QK side and, with mixing, a lower rank r; VO takes what"
        " is left.",
        "W_q, W_k in R^(d x r_qk), r_qk starting at d/4", "Section 2.6 and Appendix F.2.2, eq. 57",
        "rank", "rank", "q", acts_on_scores=False),
    Letter("v", "VO compressed",
        "The budget of softmax attention is met by a narrower VO side and, with mixing, a lower rank r; QK takes what"
        " is left.",
        "W_v, W_o in R^(d x r_vo), r_vo starting at d/4", "the opposite of Theorem 2.5's advice, Section 3",
        "rank", "rank", "v", acts_on_scores=False),
    Letter("1", "R(1)",
        "The scores z_t of one row are mixed along the sequence before the activation, by a diagonal plus rank r.",
        "h_t = z_t R(1)(x_t), R(1) = I + Diag(p1) + A1 Diag(s1_t) B1^T", "temporal mixing R(1), Section 2.4, eq. 9",
        "mixing", "mix1", terms=("mix1", "mix1_tables"), settings=("mix_rank",)),
    Letter("2", "R(2)",
        "The activations a_t of one row are mixed along the sequence before the readout, by a diagonal plus rank r.",
        "w_t = a_t R(2)(x_t)^T, R(2) = I + Diag(p2) + A2 Diag(s2_t) B2^T", "temporal mixing R(2), Section 2.4, eq. 10",
        "mixing", "mix2", terms=("mix2", "mix2_tables"), settings=("mix_rank",)),
    Letter("o", "lag layout",
        "Mixing rows are counted back from the current token, so older context never moves a row.",
        "row(l) = t - l, l = 0 .. t-1", "reverse-offset layout, Theorem 2.3 and Appendix F.1",
        "mixing", "layout", "lag", needs="12"),
    Letter("!", "over budget",
        "No rank is compressed: the label exceeds the budget, which is reported, and is an upper bound.",
        "r_qk = r_vo = d", "over-parameterized upper bound, Section 3",
        "budget", "over", acts_on_scores=False),
)  # fmt: skip
"""All letters, in the order in which they occur in a label. A hyphen separates all segments but the last."""

_OF_BASES, _OF_FEATURES = (
    [row.letter for row in LETTERS if row.segment == segment] for segment in ("base", "features")
)
SYNTAX = f"{'|'.join(_OF_BASES)}[-{''.join(_OF_FEATURES)}][-q|v][-1|2|12[o]][!]"

NO_POSITIONS = Explanation("", "no positions",
    "Without p, c and mixing, permuting a layer's earlier inputs leaves its output as it is. Only in a stack do the"
    " causal prefixes of the layers below tell positions apart.",
    "o_t = sum_i a_t[i] v_i W_o", "Section 2.2, eq. 5",
)  # fmt: skip
POSITION_LAYOUT = Explanation("", "position layout",
    "Without o, mixing rows are counted from the oldest token, so their distance to the current token grows.",
    "row(l) = l + 1", "Section 3, result 3",
)  # fmt: skip
MATCHED = Explanation("", "no rank reduced",
    "The letters of this label add no parameters, or the budget grows by what they add.",
    "r_qk = r_vo = d", "parameter allocation, Section 2.6",
)  # fmt: skip
WIDENED = Explanation("", "QK widened",
    "Shared keys and values save parameters, and QK takes them: its heads are wider.",
    "r_qk > r_vo = d", "what shared keys and values leave of 4 d^2",
)  # fmt: skip


@dataclass(frozen=True)
class SrgLabel:
    """A parsed label of the S/R/G grammar. ``str`` is its text. Raises ``LabelError`` for an invalid combination."""

    base: Literal["S", "R", "G", "D", "L"]
    """Letter of the activation: softmax (S), ReLU of L2-normalized scores (R), GLU (G), difference of two softmaxes
    (D), or L2Norm alone (L)."""
    rope: bool = False
    """Letter p: queries and keys are rotated by position."""
    conv: bool = False
    """Letter c: depthwise causal convolutions of the inputs of K and of V."""
    gates: bool = False
    """Letter g: the current token gates the channels of QK and of VO."""
    rank: Literal["", "q", "v"] = ""
    """Letter q or v: the side, QK or VO, whose rank is reduced first to meet the budget. Empty without these
    letters."""
    mix1: bool = False
    """Digit 1: the matrix R(1) mixes the scores along the sequence."""
    mix2: bool = False
    """Digit 2: the matrix R(2) mixes the activations along the sequence."""
    layout: Literal["position", "lag"] = "position"
    """Order of the rows of mixing tables: ``position``, or with the letter o ``lag``, counted back from the current
    token."""
    over: bool = False
    """Sign !: the budget is reported but not enforced."""
    registers: bool = False
    """Letter k: learned rows, the registers, stand before the tokens."""
    adapter: bool = False
    """Letter a: products of thin matrices are added to W_v and W_o."""
    window: bool = False
    """Letter w: a row sees the last tokens only."""
    sink: bool = False
    """Letter s: the denominator of each softmax has one more term, whose logit is learned."""
    qk_norm: bool = False
    """Letter n: queries and keys are normalized per head."""
    shared_kv: bool = False
    """Letter m: groups of heads share keys and values."""
    head_gate: bool = False
    """Letter h: the current token gates the readout of each head."""
    exclusive: bool = False
    """Letter e: the readout of a head loses its component along the token's own value."""

    def __post_init__(self) -> None:
        for name, options in FIELDS.items():
            value = getattr(self, name)
            if value not in options or isinstance(value, bool) != isinstance(options[0], bool):
                raise LabelError(f"{name} {value!r} is unknown{did_you_mean(str(value), map(repr, options))}")
        rows = self.letters
        letters = {row.letter for row in rows}
        for row in rows:
            if row.needs and not letters.intersection(row.needs):
                raise LabelError(f"{row.letter!r} ({row.name}) needs {quoted_choices(row.needs)} before it")
        if self.over and self.rank:
            matched = spell(letters - {"!"})
            lifted = spell(letters - {"q", "v"} if self.adds_parameters else letters - {"q", "v", "!"})
            raise RuleError(
                f"'!' lifts the budget and {self.rank!r} enforces it, which is a contradiction;"
                f" did you mean {matched!r} or {lifted!r}?"
            )
        if self.over and not self.adds_parameters:
            raise RuleError(
                "'!' has no effect: no letter adds parameters, so there is no budget to lift;"
                f" did you mean {spell(letters - {'!'})!r}?"
            )
        if self.adds_parameters and not (self.rank or self.over):
            paid = ("".join(row.letter for row in rows if row.is_paid and row.segment == name) for name in SEGMENTS)
            q, v, over = (spell(letters | {letter}) for letter in "qv!")
            raise RuleError(
                f"{'-'.join(filter(None, paid))!r} adds parameters; add q to compress QK ({q!r}),"
                f" v to compress VO ({v!r}) or ! to lift the budget ({over!r})"
            )

    def __str__(self) -> str:
        return spell({row.letter for row in self.letters})

    @functools.cached_property
    def letters(self) -> tuple[Letter, ...]:
        """The rows of ``LETTERS`` for the letters of the label, in the order of the label."""
        return tuple(row for row in LETTERS if getattr(self, row.field) == row.value)

    @property
    def has_mixing(self) -> bool:
        return self.mix1 or self.mix2

    @property
    def has_softmax(self) -> bool:
        return self.base in ("S", "D")

    @property
    def has_selection(self) -> bool:
        """True if the activation sets to zero every slot whose hidden score is not positive.

        This holds for the bases R and G. For G, the score is that of the gate. A slot is a place in a row of scores
        (:mod:`madbench.mixers.srg.parts`).
        """
        return self.base in ("R", "G")

    @property
    def is_in_table1(self) -> bool:
        """True if all letters of the label are in the paper's Table 1."""
        return all(row.is_in_table1 for row in self.letters)

    @property
    def adds_parameters(self) -> bool:
        """True if a letter adds parameters by which the budget does not grow, so that the label needs q, v or ``!``.

        Letters with ``raises_budget`` do not count: they add parameters too, but the budget grows by them.
        """
        return any(row.is_paid for row in self.letters)

    def not_on_scores(self, known: str) -> str:
        """The reason why code that knows only the letters ``known`` cannot compute the attention of this label.

        Empty if it can. Only letters with ``acts_on_scores`` count. Code that supports some labels names the letters
        that it knows, not those that it lacks, so that it also refuses letters that are added to the grammar later.
        """
        others = [row for row in self.letters if row.acts_on_scores and row.letter not in known]
        if not others:
            return ""
        *firsts, last = (repr(row.letter) for row in others)
        names = f"{', '.join(firsts)} and {last}" if firsts else f"{last} ({others[0].name})"
        letters = f"{', '.join(known[:-1])} and {known[-1]}"
        return f"it computes scores with the letters {letters} only, and the label has {names}"

    def query_heads(self, n_head: int) -> int:
        """Number of QK heads: ``2 * n_head`` for G (gate, then scale) and D (two softmaxes), else ``n_head``."""
        return 2 * n_head if self.base in ("G", "D") else n_head


FIELDS = {row.field: [getattr(SrgLabel, row.field)] if hasattr(SrgLabel, row.field) else [] for row in LETTERS}
"""All values that each field of a :class:`SrgLabel` can have, by field name.

The first value is the default, which labels without the letters of the field have. ``base`` has no default.
"""
for _row in LETTERS:
    FIELDS[_row.field].append(_row.value)
FACTORS = tuple(dict.fromkeys(row.factor for row in LETTERS))
"""All factors in which two labels can differ, in the order of ``LETTERS``."""
FACTOR_NAMES = {row.factor: row.name for row in LETTERS if row.factor in ("mix1", "mix2") or "_" in row.factor}
"""Display names of ``mix1``, ``mix2`` and the factors of several words. Other factors are shown by their own name."""


class RuleError(LabelError):
    """Error for a label of valid syntax that breaks a rule about q, v and ``!``, which keep or lift the budget."""


def spell(letters: Collection[str]) -> str:
    """Join letters, given in any order, to the text of a label. Does not check that the label is valid."""
    segments = dict.fromkeys(SEGMENTS, "")
    for row in LETTERS:
        if row.letter in letters:
            segments[row.segment] += row.letter
    over = segments.pop("budget")
    return "-".join(filter(None, segments.values())) + over


def from_letters(letters: str) -> SrgLabel:
    """The label with these letters, given in any order and with or without hyphens.

    Raises ``LabelError`` if no label has these letters.
    """
    rows = [row for row in LETTERS if row.letter in letters]
    fields: dict[str, Any] = {row.field: row.value for row in rows}
    if len(fields) < len(rows) or not set(letters) <= {"-", *(row.letter for row in rows)}:
        raise LabelError(f"no label has the letters {letters!r}")
    return SrgLabel(**{"base": None, **fields})
