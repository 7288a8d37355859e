"""Gated linear attention: a decay per key channel (Yang et al. 2024, arXiv 2312.06635).

    S_t = Diag(alpha_t) S_(t-1) + k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. alpha_t = sigmoid(W_2 W_1 x_t + b)^(1/16) in (0, 1)^K, where W_2 W_1 has rank 16. There is no
convolution. The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head.
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

RANK = 16  # rank of the map to the logits of the decay
ROOT = 16  # the decay is this root of a sigmoid


@dataclass(frozen=True)
class GLA(Recurrent):
    """The named operator GLA, gated linear attention: a recurrence with a decay per key channel.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "GLA"
    title: ClassVar = "Gated linear attention"
    equation: ClassVar = "S_t = Diag(alpha_t) S_(t-1) + k_t v_t^T"
    source: ClassVar = "Yang et al. 2024, arXiv 2312.06635"
    library: ClassVar = "GatedLinearAttention"
    counterpart: ClassVar = "cd:gla"
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 16*d + 17*H*K + V"
    state: ClassVar = "H*K*V"
    has_mirror: ClassVar = False
    head_norm: ClassVar = "g_norm_swish_gate"
    has_channel_decay: ClassVar = True

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses, in ascending order of parameters.

        Values are as wide as keys or up to twice as wide.
        """
        key_cost, value_cost = heads * (2 * d + RANK + 1), 3 * d * heads + 1
        pairs = sorted(wider_values(d, heads, step, 1), key=lambda pair: key_cost * pair[0] + value_cost * pair[1])
        return [Dims(d, heads, key, value) for key, value in pairs]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, max(1, d // (2 * heads)), max(1, d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        return {
            **qkv_maps(dims),
            "g_proj": Linear(d, values),
            "gk_proj": (Linear(d, RANK), Linear(RANK, keys, bias=True)),
            "o_proj": Linear(values, d),
            "g_norm_swish_gate": Gain(dims.value),
        }

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from torch.nn.functional import logsigmoid, silu

        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics

        q, k, v, gate = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj, layer.g_proj)
        dims = layer.dims
        with ops.without_autocast(x):
            log_alpha = ops.wide_heads(logsigmoid(ops.low_rank(layer.gk_proj, x)) / ROOT, dims.heads)
            q, k, v = (ops.wide_heads(side, dims.heads) for side in (q, k, v))
            return RecurrenceInputs(Dynamics(q * dims.key**-0.5, k, v, log_alpha), {}, silu(gate))

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for x_t in x:
            q, k, v, gates = ((p[f"{s}_proj.weight"] @ x_t).view(heads, -1) for s in "qkvg")
            logits = p["gk_proj.1.weight"] @ (p["gk_proj.0.weight"] @ x_t) + p["gk_proj.1.bias"]
            alpha = torch.sigmoid(logits).view(heads, key, 1) ** (1 / 16)
            outputs = []
            for h in range(heads):
                state[h] = alpha[h] * state[h] + torch.outer(k[h], v[h])
                read = loops.normed(q[h] @ state[h] / key**0.5, p["g_norm_swish_gate.weight"])
                outputs.append(read * loops.silu(gates[h]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
