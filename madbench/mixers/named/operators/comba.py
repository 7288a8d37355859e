"""Comba: a delta rule that removes less than it reads, and reads the state before the decay (arXiv 2506.02475).

    S_t = (alpha_t I - beta_t k_t p_t^T) S_(t-1) + beta_t k_t v_t^T,    p_t = sigmoid(s) k_t
    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. q', k' and v are convolved, and SiLU is applied. k_t is k'_t, scaled to length 1, and q_t is
q'_t - D sigmoid(s) k'_t, scaled to length 1. s, the feedback of the state, and D, the correction of the output, are
numbers per head. alpha_t = exp(-e^A softplus(w_a x_t + c)) in (0, 1), with A and c per head, and
beta_t = sigmoid(w_b x_t), doubled by ``neg``. The output is W_o (RMSNorm(o_t) * sigmoid(W_g x_t)), with a norm per
head.

The argument ``unit`` scales p to length 1, too, as the kernels of flash-linear-attention and of the authors do. The
feedback sigmoid(s) then changes q only. The library's plain recurrence differs from both forms: it reads the state
after the decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operators.gdn import GDN
from madbench.mixers.named.parts import Part, Vector
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer
    from madbench.mixers.recurrence.forms import Dynamics


@dataclass(frozen=True)
class Comba(GDN):
    """The named operator Comba: a delta rule that removes only a learned share of what it reads.

    The equations are in the docstring of this module. If ``unit`` is true, p_t, the vector that reads the state, has
    length 1.
    """

    unit: bool = False

    name: ClassVar = "Comba"
    title: ClassVar = "Comba"
    equation: ClassVar = "S_t = (alpha_t I - beta_t k_t p_t^T) S_(t-1) + beta_t k_t v_t^T, p_t = sigmoid(s) k_t"
    source: ClassVar = "Hu et al. 2025, arXiv 2506.02475"
    library: ClassVar = "Comba"
    differs: ClassVar = (
        "The library's kernels scale p to length 1, as (unit) does; the paper does not. The library has no (neg)."
    )
    counterpart: ClassVar = ""
    meanings: ClassVar = {**GDN.meanings, "unit": "p has length 1, as in the library's kernels"}
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 2*d*H + 4*H + W*(2*H*K + H*V) + V"

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {"decay": Vector(dims.heads, "ones"), "D": Vector(dims.heads, "ones"), **super().parts(dims)}

    def output_gate(self, layer: NamedLayer, x: Tensor) -> Tensor:
        gate: Tensor = layer.g_proj(x)
        return gate.sigmoid()

    def recurrence(self, layer: NamedLayer, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Dynamics:
        from madbench.mixers.named import ops, recurrent_ops
        from madbench.mixers.recurrence.forms import Dynamics, Mirrors

        dims = layer.dims
        q, k, v = (ops.wide_heads(side, dims.heads) for side in (q, k, v))
        feedback, correction = (each.to(k.dtype).view(-1, 1, 1) for each in (layer.decay.sigmoid(), layer.D))
        p = feedback * k
        q, k = ops.unit(q - correction * p) * dims.key**-0.5, ops.unit(k)
        p = ops.unit(p) if self.unit else feedback * k
        beta = recurrent_ops.step_sizes(layer, x, self.neg)
        mirrors = Mirrors(k, beta, length=beta, read=p, reads_before_decay=True)
        return Dynamics(q, k * beta[..., None], v, log_alpha, mirrors)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            gates = torch.sigmoid(p["g_proj.weight"] @ x_t).view(heads, value)
            outputs = []
            for h in range(heads):
                step = loops.softplus(p["a_proj.weight"][h] @ x_t + p["dt_bias"][h])
                alpha = torch.exp(-torch.exp(p["A_log"][h]) * step)
                beta = torch.sigmoid(p["b_proj.weight"][h] @ x_t) * (2 if self.neg else 1)
                share = torch.sigmoid(p["decay"][h])
                query = loops.unit(q[t, h] - p["D"][h] * share * k[t, h])
                written = loops.unit(k[t, h])
                read = loops.unit(share * k[t, h]) if self.unit else share * written
                error = v[t, h] - read @ state[h]
                state[h] = alpha * state[h] + beta * torch.outer(written, error)
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
