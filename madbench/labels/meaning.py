"""What a label says: each letter explained, the factors in which two labels differ, and a label's neighbourhood."""

from __future__ import annotations

from dataclasses import dataclass

from madbench.labels.grammar import Variant, all_variants

FACTORS = ("base", "rope", "conv", "gates", "rank", "mix1", "mix2", "layout", "budget")
"""The factors of ``diff``, in the order of the letters."""


@dataclass(frozen=True)
class Explanation:
    """One letter of a label, or one thing that follows from the letters it does not have."""

    letter: str
    """Letter as it stands in the label; empty for what follows from absent letters."""
    name: str
    """Term for it."""
    what: str
    """What it does."""
    equation: str
    """Equation it touches, t being the current token and i a token of its prefix."""
    source: str
    """Name and place in the HyperMLP paper."""


_BASES = {
    "S": Explanation(
        "S",
        "softmax",
        "Scores are divided by sqrt(d_qk) and become weights that sum to one over the prefix.",
        "a_t = softmax(h_t)",
        "softmax attention, Section 2.2, eq. 2",
    ),
    "R": Explanation(
        "R",
        "ReLU after L2Norm",
        "Scores are normalised over the prefix without a gain; the positive ones select their tokens.",
        "a_t = ReLU(h_t / sqrt(|h_t|^2 + eps))",
        "ReLU attention and HyperMLP, Section 2.4, eq. 8",
    ),
    "G": Explanation(
        "G",
        "GLU",
        "Two sets of query heads: one selects tokens as R does, the other says how strongly each counts.",
        "a_t = Softplus(h_t^scale) * ReLU(L2Norm(h_t^gate))",
        "HyperGLU, Section 2.4, eq. 11",
    ),
}
_ROPE = Explanation(
    "p",
    "RoPE",
    "Queries and keys are rotated by position, so a score sees positions only through the distance of two tokens.",
    "q_t . k_i -> q_t Rot(t - i) k_i",
    "RoPE as an edit of W(1), Section 2.2",
)
_ROPE_THEN_GATE = Explanation(
    "p",
    "RoPE",
    "Queries and keys are rotated by position; the QK gate then scales the rotated query, so that a score depends on"
    " absolute positions too.",
    "q_t . k_i -> (q_t Rot(t) M(1)(x_t)) . (k_i Rot(i))",
    "RoPE as an edit of W(1), Section 2.2",
)
_CONV = Explanation(
    "c",
    "short convolution",
    "Depthwise causal convolutions over 4 tokens run on the inputs of K and of V, each with its own taps.",
    "k_i = conv_k(x)_i W_k, v_i = conv_v(x)_i W_v",
    "KV depthwise convolution, Section 3 and Appendix L",
)
_GATES = Explanation(
    "g",
    "QK and VO gates",
    "The current token scales each channel of the QK and of the VO width.",
    "M(j)(x_t) = Diag(sigmoid(x_t W_M(j) + b_M(j)))",
    "M(1) and M(2), Section 2.4",
)
_RANKS = {
    "q": Explanation(
        "q",
        "QK compressed",
        "The budget of softmax attention is kept by a narrower QK side and, with mixing, a lower rank r; VO takes what"
        " is left.",
        "W_q, W_k in R^(d x r_qk), r_qk starting at d/4",
        "Section 2.6 and Appendix F.2.2, eq. 57",
    ),
    "v": Explanation(
        "v",
        "VO compressed",
        "The budget of softmax attention is kept by a narrower VO side and, with mixing, a lower rank r; QK takes what"
        " is left.",
        "W_v, W_o in R^(d x r_vo), r_vo starting at d/4",
        "the opposite of Theorem 2.5's advice, Section 3",
    ),
}
_MIX1 = Explanation(
    "1",
    "R(1)",
    "Scores of one row are mixed along the sequence before the activation, by a diagonal plus rank r.",
    "h_t = z_t R(1)(x_t), R(1) = I + Diag(p1) + A1 Diag(s1_t) B1^T",
    "temporal mixing R(1), Section 2.4, eq. 9",
)
_MIX2 = Explanation(
    "2",
    "R(2)",
    "Activations of one row are mixed along the sequence before the readout, by a diagonal plus rank r.",
    "w_t = a_t R(2)(x_t)^T, R(2) = I + Diag(p2) + A2 Diag(s2_t) B2^T",
    "temporal mixing R(2), Section 2.4, eq. 10",
)
_LAG = Explanation(
    "o",
    "lag layout",
    "Mixing rows are counted back from the current token, so older context never moves a row.",
    "row(l) = t - l, l = 0 .. t-1",
    "reverse-offset layout, Theorem 2.3 and Appendix F.1",
)
_OVER = Explanation(
    "!",
    "over budget",
    "No rank is compressed; the budget is reported and not enforced, so the result is an upper bound.",
    "r_qk = r_vo = d",
    "over-parameterised upper bound, Section 3",
)
_NO_POSITIONS = Explanation(
    "",
    "no positions",
    "Without p, c and mixing, permuting a layer's earlier inputs leaves its output as it is. Only in a stack do the"
    " causal prefixes of the layers below tell positions apart.",
    "o_t = sum_i a_t[i] v_i W_o",
    "Section 2.2, eq. 5",
)
_FORWARD_LAYOUT = Explanation(
    "",
    "forward layout",
    "Without o, mixing rows are counted from the oldest token, so their distance to the current token grows.",
    "row(l) = l + 1",
    "Section 3, result 3",
)
_MATCHED = Explanation(
    "",
    "nothing to pay for",
    "The label adds no parameters that the budget has to find, so no rank is compressed.",
    "r_qk = r_vo = d",
    "parameter allocation, Section 2.6",
)


def explain(variant: Variant) -> list[Explanation]:
    """One row for each letter in the order of the label, then what follows from the letters that are absent."""
    rows = [_BASES[variant.base]]
    rope = _ROPE_THEN_GATE if variant.gates else _ROPE
    rows += [row for row, given in ((rope, variant.rope), (_CONV, variant.conv), (_GATES, variant.gates)) if given]
    rows += [_RANKS[variant.rank]] if variant.rank else []
    rows += [row for row, given in ((_MIX1, variant.mix1), (_MIX2, variant.mix2), (_LAG, variant.lag)) if given]
    rows += [_OVER] if variant.over else []
    if variant.has_mixing and not variant.lag:
        rows.append(_FORWARD_LAYOUT)
    if not (variant.rope or variant.conv or variant.has_mixing):
        rows.append(_NO_POSITIONS)
    if not (variant.rank or variant.over):
        rows.append(_MATCHED)
    return rows


def diff(a: Variant, b: Variant) -> tuple[str, ...]:
    """The ``FACTORS`` in which two variants differ.

    ``budget`` is whether it is enforced. ``rank`` is compared only where both enforce it, as nothing is compressed
    otherwise; ``layout`` only where both mix. So ``G-cg-q-12o`` and ``G-cg-12o!`` differ in ``budget`` alone, and
    ``R-cg-q`` and ``R-cg-q-1o`` in ``mix1`` alone.
    """
    differs = {name: getattr(a, name) != getattr(b, name) for name in ("base", "rope", "conv", "gates", "mix1", "mix2")}
    differs["rank"] = a.rank != b.rank and not (a.over or b.over)
    differs["layout"] = a.lag != b.lag and a.has_mixing and b.has_mixing
    differs["budget"] = a.over != b.over
    return tuple(name for name in FACTORS if differs[name])


def neighbourhood(variant: Variant) -> tuple[Variant, ...]:
    """Every variant that differs from this one in exactly one factor, by factor and then in grammar order."""
    found = [(diff(variant, other), other) for other in all_variants()]
    found = [(FACTORS.index(factors[0]), other) for factors, other in found if len(factors) == 1]
    return tuple(other for _, other in sorted(found, key=lambda pair: pair[0]))
