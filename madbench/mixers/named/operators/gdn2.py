"""Gated DeltaNet 2: separate gates per channel for what is removed and what is written (NVIDIA, arXiv 2605.22791).

    S_t = (I - k_t (b_t * k_t)^T) Diag(alpha_t) S_(t-1) + k_t (w_t * v_t)^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head, and * is a product per channel. q, k, v are convolved, SiLU is applied, and q and k are scaled to
length 1. b_t = sigmoid(W_b x_t) in (0, 1)^K is doubled by ``neg``, and w_t = sigmoid(W_w x_t) in (0, 1)^V.
alpha_t = exp(-e^A softplus(W_f2 W_f1 x_t + c)) in (0, 1)^K, with A per head, as in KDA. The output is
W_o (RMSNorm(o_t) * sigmoid(W_g2 W_g1 x_t + b)), with a norm per head. With b_t = w_t = beta_t, one number per head, it
is KDA.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operators.kda import KDA
from madbench.mixers.named.parts import Linear, Part, insert_after
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer
    from madbench.mixers.recurrence.forms import Dynamics


@dataclass(frozen=True)
class GDN2(KDA):
    """The named operator GDN-2, Gated DeltaNet 2: a delta rule with separate gates for removing and writing.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "GDN-2"
    title: ClassVar = "Gated DeltaNet 2"
    equation: ClassVar = "S_t = (I - k_t (b_t * k_t)^T) Diag(alpha_t) S_(t-1) + k_t (w_t * v_t)^T"
    source: ClassVar = "NVIDIA, arXiv 2605.22791"
    library: ClassVar = "GatedDeltaNet2"
    differs: ClassVar = "PhysicsLM4's GDN2 is another layer: GDN with an output gate of low rank."
    counterpart: ClassVar = ""
    meanings: ClassVar = {"neg": "b in (0, 2), so that a transition may have negative eigenvalues"}
    parameters: ClassVar = "d*(3*H*K + 3*H*V) + d*V + V*H*K + d*V + V*H*V + H*V + H + H*K + V + W*(2*H*K + H*V)"

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        parts = {**super().parts(dims), "b_proj": Linear(dims.d, dims.key_dim)}
        return insert_after(parts, "b_proj", {"w_proj": Linear(dims.d, dims.value_dim)})

    def recurrence(self, layer: NamedLayer, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Dynamics:
        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics, Mirrors

        heads = layer.dims.heads
        q, k, v = (ops.wide_heads(side, heads) for side in (q, k, v))
        q, k = ops.unit(q) * layer.dims.key**-0.5, ops.unit(k)
        b, w = (
            ops.wide_heads(ops.linear_in_float32(gate, x), heads).sigmoid() for gate in (layer.b_proj, layer.w_proj)
        )
        v, ones = w * v, k.new_ones(k.shape[:-1])
        mirrors = Mirrors(k, ones, length=ones, read=(2 * b if self.neg else b) * k)
        return Dynamics(q, k, v, log_alpha, mirrors)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            logits = (p["f_proj.1.weight"] @ (p["f_proj.0.weight"] @ x_t) + p["dt_bias"]).view(heads, key)
            erase = torch.sigmoid(p["b_proj.weight"] @ x_t).view(heads, key) * (2 if self.neg else 1)
            write = torch.sigmoid(p["w_proj.weight"] @ x_t).view(heads, value)
            gates = torch.sigmoid(p["g_proj.1.weight"] @ (p["g_proj.0.weight"] @ x_t) + p["g_proj.1.bias"])
            gates = gates.view(heads, value)
            outputs = []
            for h in range(heads):
                alpha = torch.exp(-torch.exp(p["A_log"][h]) * loops.softplus(logits[h]))
                query, written = loops.unit(q[t, h]), loops.unit(k[t, h])
                decayed = alpha[:, None] * state[h]
                error = write[h] * v[t, h] - (erase[h] * written) @ decayed
                state[h] = decayed + torch.outer(written, error)
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
