"""Gated DeltaNet: the delta rule with one decay per head (Yang et al. 2025, arXiv 2412.06464).

    S_t = (I - beta_t k_t k_t^T) alpha_t S_(t-1) + beta_t k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. q, k, v are convolved, SiLU is applied, and q and k are scaled to length 1.
alpha_t = exp(-e^A softplus(w_a x_t + c)) in (0, 1), with A and c per head, and beta_t = sigmoid(w_b x_t), doubled by
``neg`` (arXiv 2411.12537). The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.delta_rule import GatedDeltaRule
from madbench.mixers.named.parts import Gain, Linear, Part, Vector, qkv_maps, qkv_taps
from madbench.mixers.named.widths import Dims, keys_of_half

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class GDN(GatedDeltaRule):
    """The named operator GDN, Gated DeltaNet: the delta rule with one decay per head.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "GDN"
    title: ClassVar = "Gated DeltaNet"
    equation: ClassVar = "S_t = (I - beta_t k_t k_t^T) alpha_t S_(t-1) + beta_t k_t v_t^T"
    source: ClassVar = "Yang et al. 2025, arXiv 2412.06464"
    library: ClassVar = "GatedDeltaNet"
    counterpart: ClassVar = "cd:gdn"
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 2*d*H + 2*H + W*(2*H*K + H*V) + V"

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return keys_of_half(d, heads, step)

    def library_dims(self, d: int, heads: int) -> Dims:
        key = max(1, 3 * d // (4 * heads))
        return Dims(d, heads, key, 2 * key)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, values = dims.d, dims.heads, dims.value_dim
        return {
            "A_log": Vector(heads, "rates from zero"),
            "dt_bias": Vector(heads, "steps"),
            **qkv_maps(dims),
            "a_proj": Linear(d, heads),
            "b_proj": Linear(d, heads),
            **qkv_taps(dims),
            "g_proj": Linear(d, values),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(values, d),
        }

    def decay_logits(self, layer: NamedLayer, x: Tensor) -> Tensor:
        from madbench.mixers.named import ops

        return ops.linear_in_float32(layer.a_proj, x)

    def output_gate(self, layer: NamedLayer, x: Tensor) -> Tensor:
        from torch.nn.functional import silu

        return silu(layer.g_proj(x))

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            gates = loops.silu(p["g_proj.weight"] @ x_t).view(heads, value)
            outputs = []
            for h in range(heads):
                step = loops.softplus(p["a_proj.weight"][h] @ x_t + p["dt_bias"][h])
                alpha = torch.exp(-torch.exp(p["A_log"][h]) * step)
                beta = torch.sigmoid(p["b_proj.weight"][h] @ x_t) * (2 if self.neg else 1)
                query, written = loops.unit(q[t, h]), loops.unit(k[t, h])
                error = v[t, h] - written @ (alpha * state[h])
                state[h] = alpha * state[h] + beta * torch.outer(written, error)
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
