"""The family of HyperAttention, with labels such as ha:3us-p-q."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from madbench.labels import Explanation
from madbench.papers.interactions.mixers.base import (
    InteractionFamily,
    cautions,
    explain_base,
    explain_common,
    explain_shares,
)
from madbench.papers.interactions.mixers.budget import Settings
from madbench.papers.interactions.mixers.ha.budget import HaAllocation
from madbench.papers.interactions.mixers.ha.grammar import HaLabel
from madbench.papers.interactions.mixers.tuples import ALL, STRICT

if TYPE_CHECKING:
    from torch import nn


ORDERED = Explanation("", "ordered tuples",
    "A tuple has its newest token first and may contain a token more than once.",
    "j1 >= j2 >= ..", "Def. 6.1, G.1",
)  # fmt: skip
LETTERS = {
    "u": Explanation("u", "unshared slots",
        "Every slot of a tuple has its own keys and values. The first slot is that of the newest token.",
        "W_k^m, W_v^m, m = 1 .. n-1", "Def. G.3"),
    STRICT: Explanation("s", "strict tuples",
        "No token is in a tuple twice. In a row with fewer than n - 1 tokens the head is zero.",
        "j1 > j2 > ..", "Remark G.2"),
    ALL: Explanation("a", "all tuples",
        "Every order of the same tokens is a separate tuple: a pair counts twice, a doubled token once.",
        "j1, j2, .. <= i", "eq. 42"),
    "p": Explanation("p", "RoPE",
        "The product of keys is rotated by the sum of the lags, so that an effect depends on distances only. For n = 2"
        " this is RoPE.",
        "q_i . Rot(sum_m (j_m - i)) (k^1_j1 * k^2_j2 * ..)", "ours: Remark F.5 is about HyperFeatureAttention"),
}  # fmt: skip


class TupleFamily(InteractionFamily[HaLabel, HaAllocation]):
    """The family ``ha:`` of HyperAttention."""

    name = "ha"
    description = "Attention to tuples of several tokens at once (HyperAttention), in some heads or in all."
    syntax = "[L|C]degree{+degree}[u][s|a][-p][-q|v][!]"
    example = "ha:3us-q"
    label_type, Allocation = HaLabel, HaAllocation
    softmax = {"base": "", "degree": "2", "sharing": "", "tuples": ""}

    def own_factors(self, label: HaLabel) -> dict[str, str]:
        sharing = {} if label.base == "C" else {"sharing": "u" if label.unshared else ""}
        return {"degree": "+".join(map(str, label.degrees)), **sharing, "tuples": label.tuples}

    def explain(self, label: HaLabel) -> list[Explanation]:
        """Explanations of the letters of a label, then of its properties without a letter, and cautions."""
        rows, n = explain_base(label), label.degree
        degrees, is_mixed = "+".join(map(str, label.degrees)), len(label.degrees) > 1
        who, others = ("In a head of degree n a token", "n - 1") if is_mixed else ("A token", str(n - 1))
        what = f"{who} reads {others} others at once: effects and values are functions of tuples of {others} tokens."
        if 2 in label.degrees:
            what += f" Degree 2 is {'softmax' if label.base == '' else 'linear'} attention."
        what += explain_shares(label)
        equation = "z_iJ = q_i . (k^1_j1 * k^2_j2 * ..) / sqrt(d_qk)" if label.base != "C" else "C[x_i, x_j1, x_j2, ..]"
        name = f"{'degrees' if is_mixed else 'degree'} {degrees}"
        rows.append(Explanation(degrees, name, what, equation, "HyperAttention, Def. 6.1, G.1"))
        if label.unshared:
            rows.append(LETTERS["u"])
        if label.tuples:
            rows.append(LETTERS[label.tuples])
        if label.rope:
            rows.append(LETTERS["p"])
        rows += explain_common(label)
        if not label.tuples:
            rows.append(ORDERED)
        if label.base == "":
            what = f"A row of t tokens scores about t^{n - 1} tuples exactly, so that a sequence costs Theta(L^{n})."
            rows.append(Explanation("", "caution: cost", what, "", "Table 3"))
        asymmetric = label.unshared or label.base == "C"
        return rows + cautions(label, sees_order=asymmetric and label.tuples != ALL)

    def build(self, allocation: HaAllocation, settings: Settings, path: str = "auto", causal: bool = True) -> nn.Module:
        from madbench.papers.interactions.mixers.coupling import Coupling
        from madbench.papers.interactions.mixers.ha.operator import HyperAttention

        label, size = allocation.label, allocation.size
        mixer: Coupling | HyperAttention
        options: dict[str, Any] = {"tuples": label.tuples, "causal": causal, "path": path, "max_len": size.max_len}
        if label.base == "C":
            mixer = Coupling(size.n_head, size.d_model, degree=label.degree, **options)
        else:
            options |= {"linear": label.base == "L", "rope": label.rope}
            ranks: dict[str, Any] = {"r_qk": allocation.r_qk, "r_vo": allocation.r_vo}
            mixer = HyperAttention(size.d_model, allocation.degrees, label.unshared, **ranks, **options)
        mixer.allocation = allocation
        return mixer


FAMILY = TupleFamily()
