"""Linear attention, as an operator that a test adds to a copy of madbench (arXiv 2006.16236).

    S_t = S_(t-1) + k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. The output is W_o RMSNorm(o_t), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, qkv_maps
from madbench.mixers.named.recurrent import Recurrent, Rows
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Added(Recurrent):
    """The operator Added, whose equation is in the docstring of this module."""

    name: ClassVar = "Added"
    title: ClassVar = "Linear attention"
    equation: ClassVar = "S_t = S_(t-1) + k_t v_t^T"
    source: ClassVar = "Katharopoulos et al. 2020, arXiv 2006.16236"
    library: ClassVar = "LinearAttention"
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + V"
    state: ClassVar = "H*K*V"
    paths: ClassVar = ("dense", "chunked")
    has_mirror: ClassVar = False

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {**qkv_maps(dims), "o_norm": Gain(dims.value), "o_proj": Linear(dims.value_dim, dims.d)}

    def rows(self, layer: nn.Module, x: Tensor, carried: Mapping[str, Tensor] | None) -> Rows:
        from madbench.mixers.cd.forms import Dynamics
        from madbench.mixers.named import ops

        dims = layer.dims
        sides = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj)
        q, k, v = (ops.wide_heads(side, dims.heads) for side in sides)
        return Rows(Dynamics(q * dims.key**-0.5, k, v, None, None, None), {})

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for x_t in x:
            q, k, v = (loops.heads_of(p, side, x_t, heads) for side in "qkv")
            outputs = []
            for h in range(heads):
                state[h] = state[h] + torch.outer(k[h], v[h])
                outputs.append(loops.normed(q[h] @ state[h] / key**0.5, p["o_norm.weight"]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
