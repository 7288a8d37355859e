"""Kimi Delta Attention: the gated delta rule with a decay per key channel (Kimi Linear, arXiv 2510.26692).

    S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_(t-1) + beta_t k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. q, k, v are convolved, SiLU is applied, and q and k are scaled to length 1.
alpha_t = exp(-e^A softplus(W_f2 W_f1 x_t + c)) in (0, 1)^K, with A per head, and beta_t = sigmoid(w_b x_t), doubled by
``neg``. The output is W_o (RMSNorm(o_t) * sigmoid(W_g2 W_g1 x_t + b)), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.delta_rule import GatedDeltaRule
from madbench.mixers.named.parts import Gain, Linear, Part, Vector, qkv_maps, qkv_taps
from madbench.mixers.named.widths import Dims, equal_or_wider

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class KDA(GatedDeltaRule):
    """The named operator KDA, Kimi Delta Attention: the gated delta rule with a decay per key channel.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "KDA"
    title: ClassVar = "Kimi Delta Attention"
    equation: ClassVar = "S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_(t-1) + beta_t k_t v_t^T"
    source: ClassVar = "Kimi Linear, arXiv 2510.26692"
    library: ClassVar = "KimiDeltaAttention"
    differs: ClassVar = "Kimi's checkpoints have no bias in the output gate."
    counterpart: ClassVar = "cd:id-dghk1-bwn-u"
    parameters: ClassVar = "d*(2*H*K + 2*H*V) + d*V + V*H*K + d*V + V*H*V + H*V + d*H + H + H*K + V + W*(2*H*K + H*V)"
    has_channel_decay: ClassVar = True

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses, in ascending order of parameters.

        Values are as wide as keys, or one step wider. Heads have at most 256 key channels, because the library's
        kernels take no more.
        """
        return equal_or_wider(d, heads, step, min(256, 2 * d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, keys, values = dims.d, dims.heads, dims.key_dim, dims.value_dim
        return {
            "A_log": Vector(heads, "rates"),
            "dt_bias": Vector(keys, "steps"),
            **qkv_maps(dims),
            **qkv_taps(dims),
            "f_proj": (Linear(d, dims.value), Linear(dims.value, keys)),
            "b_proj": Linear(d, heads),
            "g_proj": (Linear(d, dims.value), Linear(dims.value, values, bias=True)),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(values, d),
        }

    def decay_logits(self, layer: NamedLayer, x: Tensor) -> Tensor:
        from madbench.mixers.named import ops

        return ops.low_rank(layer.f_proj, x)

    def output_gate(self, layer: NamedLayer, x: Tensor) -> Tensor:
        gate: Tensor = layer.g_proj(x)
        return gate.sigmoid()

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            logits = (p["f_proj.1.weight"] @ (p["f_proj.0.weight"] @ x_t) + p["dt_bias"]).view(heads, key)
            gates = torch.sigmoid(p["g_proj.1.weight"] @ (p["g_proj.0.weight"] @ x_t) + p["g_proj.1.bias"])
            gates = gates.view(heads, value)
            outputs = []
            for h in range(heads):
                alpha = torch.exp(-torch.exp(p["A_log"][h]) * loops.softplus(logits[h]))
                beta = torch.sigmoid(p["b_proj.weight"][h] @ x_t) * (2 if self.neg else 1)
                query, written = loops.unit(q[t, h]), loops.unit(k[t, h])
                decayed = alpha[:, None] * state[h]
                removed = torch.outer(written, written @ decayed)
                state[h] = decayed - beta * removed + beta * torch.outer(written, v[t, h])
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
