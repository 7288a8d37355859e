"""Gated attention: softmax attention whose output is multiplied by a gate (Qiu et al. 2025, arXiv 2505.06708).

    o_t = sum_(j<=t) softmax_j(q_t . k_j / sqrt(K)) v_j,    y_t = W_o (o_t * sigmoid(W_g x_t))

q and k are normed per head, with a gain 1 + g shared by the heads, and their first channels are rotated by position. As
in Qwen3-Next the gate has one number per channel of o, and one linear map gives queries and gates: the first half of
each head's channels is q_t, and the second half W_g x_t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import SOFTMAX_PATHS, Attention, Tokens
from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

EPS = 1e-6  # epsilon of the norms of queries and keys


@dataclass(frozen=True)
class GatedAttention(Attention):
    """The named operator GatedAttention: softmax attention whose output is multiplied by a gate.

    The equations are in the docstring of this module. Keys are as wide as values.
    """

    name: ClassVar = "GatedAttention"
    title: ClassVar = "Gated attention"
    equation: ClassVar = "o_t = sum_j softmax_j(q_t . k_j / sqrt(K)) v_j, y_t = W_o (o_t * sigmoid(W_g x_t))"
    source: ClassVar = "Qiu et al. 2025, arXiv 2505.06708"
    library: ClassVar = "Qwen3NextAttention"
    origin: ClassVar = "transformers 5"
    differs: ClassVar = (
        "Each query head has a key and a value head of its own. A head has d / H channels, or fewer at the budget, and "
        "not 256. A quarter of its channels is rotated, as an even number and at least 2, with the base 10,000."
    )
    parameters: ClassVar = "5*d*H*K + 2*K"
    state: ClassVar = "T*2*H*K"
    paths: ClassVar = SOFTMAX_PATHS

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return [Dims(d, heads, width, width) for width in widths(step, d // heads) if width > 1]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, max(2, d // heads), max(2, d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, inner = dims.d, dims.key_dim
        return {
            "q_proj": Linear(d, 2 * inner),
            "k_proj": Linear(d, inner),
            "v_proj": Linear(d, inner),
            "o_proj": Linear(inner, d),
            "q_norm": Gain(dims.key, is_offset=True),
            "k_norm": Gain(dims.key, is_offset=True),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import attention_ops, ops
        from madbench.mixers.named.rotations import rotate_first

        heads, width = layer.dims.heads, layer.dims.key
        queries, keys, values = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj)
        queries, gate = queries.unflatten(-1, (heads, 2, width)).unbind(-2)
        with ops.without_autocast(x):
            q = attention_ops.head_norm(queries.flatten(-2), heads, 1 + layer.q_norm.weight, EPS)
            k = attention_ops.head_norm(keys, heads, 1 + layer.k_norm.weight, EPS)
            q, k = (side.to(values.dtype) for side in rotate_first(position, rotated(width), q, k))
        return Tokens(q, {"k": k, "v": ops.split_heads(values, heads)}, {}, gate.flatten(-2).sigmoid())

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, width = dims.heads, dims.key
        turned = 2 * max(1, width // 8)  # channels that are rotated by position
        k: list[list[Tensor]]
        v: list[list[Tensor]]
        k, v, rows = [[] for _ in range(heads)], [[] for _ in range(heads)], []
        for t, x_t in enumerate(x):
            queries, keys, values = ((p[f"{side}_proj.weight"] @ x_t).view(heads, -1) for side in "qkv")
            outputs = []
            for h in range(heads):
                q = loops.normed(queries[h, :width], 1 + p["q_norm.weight"], 1e-6)
                k[h].append(loops.rotated(loops.normed(keys[h], 1 + p["k_norm.weight"], 1e-6), t, turned))
                v[h].append(values[h])
                o = loops.attention(loops.rotated(q, t, turned), k[h], v[h])
                outputs.append(o * torch.sigmoid(queries[h, width:]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)


def rotated(width: int) -> int:
    """The number of channels of a head that are rotated by position.

    It is a quarter of the head's ``width``, rounded down to an even number, and at least 2.
    """
    return 2 * max(1, width // 8)
