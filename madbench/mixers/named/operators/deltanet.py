"""DeltaNet: linear attention whose state is corrected by the delta rule (Yang et al. 2024, arXiv 2406.06484).

    S_t = (I - beta_t k_t k_t^T) S_(t-1) + beta_t k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. q, k, v are convolved, SiLU is applied, and q and k are scaled to length 1.
beta_t = sigmoid(w_b x_t), doubled by ``neg`` (arXiv 2411.12537). The output is W_o RMSNorm(o_t), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.delta_rule import DeltaRule
from madbench.mixers.named.parts import Gain, Linear, Part, qkv_maps, qkv_taps
from madbench.mixers.named.recurrent import RecurrenceInputs
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class DeltaNet(DeltaRule):
    """The named operator DeltaNet: linear attention whose state is corrected by the delta rule.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "DeltaNet"
    title: ClassVar = "DeltaNet"
    equation: ClassVar = "S_t = (I - beta_t k_t k_t^T) S_(t-1) + beta_t k_t v_t^T"
    source: ClassVar = "Yang et al. 2024, arXiv 2406.06484"
    library: ClassVar = "DeltaNet"
    counterpart: ClassVar = "cd:deltanet"
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + d*H + W*(2*H*K + H*V) + V"

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            **qkv_maps(dims),
            "b_proj": Linear(dims.d, dims.heads),
            **qkv_taps(dims),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(dims.value_dim, dims.d),
        }

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from madbench.mixers.named import ops, recurrent_ops

        q, k, v, carried = recurrent_ops.convolved_qkv(layer, x, carried)
        with ops.without_autocast(x):
            return RecurrenceInputs(recurrent_ops.delta_rule(layer, x, q, k, v, None, self.neg), carried)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            outputs = []
            for h in range(heads):
                beta = torch.sigmoid(p["b_proj.weight"][h] @ x_t) * (2 if self.neg else 1)
                query, written = loops.unit(q[t, h]), loops.unit(k[t, h])
                error = v[t, h] - written @ state[h]
                state[h] = state[h] + beta * torch.outer(written, error)
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
