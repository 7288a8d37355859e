"""The family of HyperFeatureAttention, with labels such as hfa:2w-p-q."""

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
from madbench.papers.interactions.mixers.hfa.budget import HfaAllocation
from madbench.papers.interactions.mixers.hfa.grammar import HfaLabel

if TYPE_CHECKING:
    from torch import nn


class FeatureFamily(InteractionFamily[HfaLabel, HfaAllocation]):
    """The family ``hfa:`` of HyperFeatureAttention."""

    name = "hfa"
    description = "Attention whose scores are products of several scores, one per feature (HyperFeatureAttention)."
    syntax = "[L|C]order{+order}[w][-p][-q|v][!]"
    example = "hfa:2w-p-q"
    label_type, Allocation = HfaLabel, HfaAllocation
    softmax = {"base": "", "orders": "1", "product": ""}

    def own_factors(self, label: HfaLabel) -> dict[str, str]:
        return {"orders": "+".join(map(str, label.orders)), "product": "w" if label.product else ""}

    def explain(self, label: HfaLabel) -> list[Explanation]:
        """Explanations of the letters of a label, then of its properties without a letter, and cautions."""
        rows = explain_base(label)
        orders, is_mixed = "+".join(map(str, label.orders)), len(label.orders) > 1
        what = "The effect of a pair of tokens is a product of A effects, one per feature"
        of_base = {"": "; the product goes into the softmax", "L": "", "C": ", each with its own coupling matrix"}
        what += of_base[label.base] + "."
        what += explain_shares(label)
        equation = "z_ij = prod_a q^(a)_i . k^(a)_j / sqrt(e_a)" if label.base != "C" else "prod_a x_i C^(a) x_j"
        name = f"{'orders' if is_mixed else 'order'} {orders}"
        rows.append(Explanation(orders, name, what, equation, "HyperFeatureAttention, eq. 3, Def. 5.1, F.3"))
        if label.product:
            what = "The value of a token is a product too, of one map per feature."
            rows.append(Explanation("w", "value product", what, "v_j = prod_a x_j W_v^(a)", "Def. F.3, eq. 36"))
        if label.rope:
            what = "Queries and keys of each factor are rotated by position, so that effects depend on distances only."
            rows.append(Explanation("p", "RoPE", what, "q^(a)_i . Rot(j - i) k^(a)_j", "Remark F.5"))
        rows += explain_common(label)
        if label.base == "" and max(label.orders) > 1:
            what = "The product of two negative factors is a positive score. Scores are initially about 0.3^A."
            rows.append(Explanation("", "caution: products", what, "", "Section 2's scale, which eq. 39 leaves out"))
        return rows + cautions(label, sees_order=False)

    def build(
        self, allocation: HfaAllocation, settings: Settings, path: str = "auto", causal: bool = True
    ) -> nn.Module:
        from madbench.papers.interactions.mixers.coupling import Coupling
        from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention

        label, size = allocation.label, allocation.size
        mixer: Coupling | HyperFeatureAttention
        options: dict[str, Any] = {"causal": causal, "path": path, "max_len": size.max_len}
        if label.base == "C":
            mixer = Coupling(size.n_head, size.d_model, orders=label.orders, product=label.product, **options)
        else:
            options |= {"linear": label.base == "L", "rope": label.rope}
            ranks: dict[str, Any] = {"r_qk": allocation.r_qk, "r_vo": allocation.r_vo}
            mixer = HyperFeatureAttention(size.d_model, allocation.orders, label.product, **ranks, **options)
        mixer.allocation = allocation
        return mixer


FAMILY = FeatureFamily()
