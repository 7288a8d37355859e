"""Parallax: softmax attention with a correction by the covariance of keys and values (arXiv 2605.29157).

    o_t = sum_(j<=t) p_tj (1 + c_t - r_t . k_j) v_j
    p_tj = softmax_(j<=t)(q_t . k_j / sqrt(K)),    c_t = sum_(j<=t) p_tj r_t . k_j

So o_t is the mean of v under p minus the covariance of r_t . k and v under p. The weights of a row sum to 1, and may be
negative. r . k is not divided by sqrt(K). r is a linear map of x as q is, and q, k and r are rotated by position. With
``norm``, each of the three is normed per head before the rotation, with a gain shared by the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class Parallax(Attention):
    """The named operator Parallax: softmax attention with a correction by the covariance of keys and values.

    The equations are in the docstring of this module. The queries of :class:`Tokens` have 2 K channels: q, and then r.
    """

    norm: bool = False

    name: ClassVar = "Parallax"
    title: ClassVar = "Parallax (local linear attention)"
    equation: ClassVar = (
        "o_t = sum_j p_tj (1 + c_t - r_t . k_j) v_j, p_tj = softmax_j(q_t . k_j / sqrt(K)), c_t = sum_j p_tj r_t . k_j"
    )
    source: ClassVar = "Zuo et al. 2026, arXiv 2605.29157"
    library: ClassVar = "Parallax"
    differs: ClassVar = "The library's widths are d / H; at the budget keys and values are narrower."
    meanings: ClassVar = {"norm": "queries, keys and r normed per head"}
    parameters: ClassVar = "3*d*H*K + 2*d*H*V + norm*3*K"
    state: ClassVar = "T*(H*K + H*V)"

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses. The number of key channels is even.

        Values are as wide as keys or wider, by up to two steps of the key channels.
        """
        key_step = max(2, step)
        return [
            Dims(d, heads, key, value)
            for key in widths(key_step, 2 * d // heads)
            for value in range(key, key + (5 * key_step + 1) // 2, step)
        ]

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        norms = {f"{side}_norm": Gain(dims.key) for side in "qrk"}
        return {
            "q_proj": Linear(d, keys),
            "r_proj": Linear(d, keys),
            "k_proj": Linear(d, keys),
            "v_proj": Linear(d, values),
            "o_proj": Linear(values, d),
            **(norms if self.norm else {}),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        import torch

        from madbench.mixers.named import attention_ops

        norms = (layer.q_norm, layer.r_norm, layer.k_norm) if self.norm else ()
        q, r, k, v = attention_ops.heads_of(layer, x, norms, sides="qrkv", position=position)
        return Tokens(torch.cat((q, r), dim=-1), {"k": k, "v": v}, {})

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        from madbench.mixers.named import attention_ops

        q, r = q.chunk(2, dim=-1)
        shares = super().weights(layer, q, seen, first)
        probed = attention_ops.scores(r, seen["k"], 1.0)
        mean = (shares * probed).sum(-1, keepdim=True)
        return shares * (1 + mean - probed)

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        They are those of softmax attention, plus two per channel of each key that the token sees, for the product
        r . k.
        """
        return super().flops(dims, length) + (length + 1) * dims.key_dim

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads = dims.heads
        k: list[list[Tensor]]
        v: list[list[Tensor]]
        k, v, rows = [[] for _ in range(heads)], [[] for _ in range(heads)], []
        for t, x_t in enumerate(x):
            q, r, new = ([loops.rotated(each, t) for each in loops.heads_of(p, side, x_t, heads)] for side in "qrk")
            values = loops.heads_of(p, "v", x_t, heads)
            outputs = []
            for h in range(heads):
                k[h].append(new[h])
                v[h].append(values[h])
                mean_key, mean = loops.attention(q[h], k[h], k[h]), loops.attention(q[h], k[h], v[h])
                products = [(r[h] @ (key - mean_key)) * value for key, value in zip(k[h], v[h])]
                outputs.append(mean - loops.attention(q[h], k[h], products))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
