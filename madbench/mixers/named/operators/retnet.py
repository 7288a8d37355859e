"""RetNet: linear attention with a fixed decay per head and rotary positions (Sun et al. 2023, arXiv 2307.08621).

    S_t = gamma S_(t-1) + k_t v_t^T,    o_t = S_t^T q_t / sqrt(K),    gamma = 1 - 2^(-5-h) of head h = 0, 1, ...

S is (K, V) per head. q and k are rotated by angles that are proportional to the position t. There is no convolution.
The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, qkv_maps
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, wider_values

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class RetNet(Recurrent):
    """The named operator RetNet: linear attention with a fixed decay per head and rotary positions.

    The equations are in the docstring of this module.
    """

    name: ClassVar = "RetNet"
    title: ClassVar = "RetNet, multi-scale retention"
    equation: ClassVar = "S_t = (1 - 2^(-5-h)) S_(t-1) + k_t v_t^T"
    source: ClassVar = "Sun et al. 2023, arXiv 2307.08621"
    library: ClassVar = "MultiScaleRetention"
    differs: ClassVar = "The paper scales q and k by position besides rotating them (xPos); the library does not."
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + V"
    state: ClassVar = "H*K*V"
    has_mirror: ClassVar = False
    head_norm: ClassVar = "g_norm_swish_gate"

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses, in ascending order of parameters.

        The number of key channels is even. Values are as wide as keys or up to twice as wide.
        """
        pairs = sorted(wider_values(d, heads, step, 2), key=lambda pair: (2 * pair[0] + 3 * pair[1], pair[1]))
        return [Dims(d, heads, key, value) for key, value in pairs]

    def library_dims(self, d: int, heads: int) -> Dims:
        key = max(2, d // heads // 2 * 2)
        return Dims(d, heads, key, 2 * key)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, values = dims.d, dims.value_dim
        return {
            **qkv_maps(dims),
            "g_proj": Linear(d, values),
            "o_proj": Linear(values, d),
            "g_norm_swish_gate": Gain(dims.value),
        }

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        import torch
        from torch.nn.functional import silu

        from madbench.mixers.named import ops
        from madbench.mixers.named.rotations import rotate_by_position
        from madbench.mixers.recurrence.forms import Dynamics

        dims, (batch, length) = layer.dims, x.shape[:2]
        q, k, v, gate = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj, layer.g_proj)
        first = carried["position"] if carried else torch.zeros(batch, dtype=torch.long, device=x.device)
        with ops.without_autocast(x):
            q, k, v = (ops.wide_heads(side, dims.heads) for side in (q, k, v))
            q, k = (rotate_by_position(side, first) for side in (q * dims.key**-0.5, k))
            lost = 2.0 ** -(5 + torch.arange(dims.heads, dtype=torch.float64, device=x.device))
            log_gamma = torch.log1p(-lost).to(q.dtype).view(1, -1, 1, 1).expand(1, -1, length, 1)
            return RecurrenceInputs(Dynamics(q, k, v, log_gamma), {"position": first + length}, silu(gate))

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """Always empty, because the only carried tensor is the position, an integer, which is not counted."""
        return {}

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            q, k, v, gates = ((p[f"{s}_proj.weight"] @ x_t).view(heads, -1) for s in "qkvg")
            outputs = []
            for h in range(heads):
                query, written = loops.rotated(q[h], t), loops.rotated(k[h], t)
                state[h] = (1 - 2 ** (-5 - h)) * state[h] + torch.outer(written, v[h])
                read = loops.normed(query @ state[h] / key**0.5, p["g_norm_swish_gate.weight"])
                outputs.append(read * loops.silu(gates[h]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
