"""Forgetting attention: softmax attention whose scores decay by a gate per token (Lin et al. 2025, arXiv 2503.02130).

    o_t = sum_(j<=t) softmax_j(q_t . k_j / sqrt(K) + sum_(s=j+1..t) log f_s) v_j,    f_t = sigmoid(w_f x_t + b)

f has one number per head. Positions are not encoded. With ``norm`` q and k are normed per head, and each channel of
each head has its own gain. With ``gate`` the output is W_o (o_t * sigmoid(W_g x_t)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import SOFTMAX_PATHS, Attention, Tokens
from madbench.mixers.named.parts import Linear, Part, qk_gains, qkv_maps
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class FoX(Attention):
    """The named operator FoX, forgetting attention: softmax attention whose scores decay by a gate per token.

    The equation is in the docstring of this module. The cache keeps the sum of the logarithms of the gates up to each
    token, in float64. Only differences of these sums matter.
    """

    gate: bool = False
    norm: bool = False

    name: ClassVar = "FoX"
    title: ClassVar = "Forgetting attention"
    equation: ClassVar = "o_t = sum_j softmax_j(q_t . k_j / sqrt(K) + sum_(s=j+1..t) log f_s) v_j"
    source: ClassVar = "Lin et al. 2025, arXiv 2503.02130"
    library: ClassVar = "ForgettingAttention"
    differs: ClassVar = (
        "The library's widths are d / H; at the budget they are narrower. The Pro block of the paper also shifts keys "
        "and values by a token, which neither layer does."
    )
    meanings: ClassVar = {"gate": "output gate sigmoid(W_g x)", "norm": "queries and keys normed per head"}
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + d*H + H + gate*d*H*V + norm*2*H*K"
    state: ClassVar = "T*(H*K + H*V + H)"
    paths: ClassVar = SOFTMAX_PATHS
    most_exact: ClassVar = 2048

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, values = dims.d, dims.value_dim
        return {
            **qkv_maps(dims),
            "f_proj": Linear(d, dims.heads, bias=True),
            **({"g_proj": Linear(d, values)} if self.gate else {}),
            "o_proj": Linear(values, d),
            **(qk_gains(dims.key_dim) if self.norm else {}),
        }

    def cached(self, dims: Dims) -> Mapping[str, int]:
        return {**super().cached(dims), "decay": dims.heads}

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import attention_ops

        q, k, v = attention_ops.heads_of(layer, x, (layer.q_norm, layer.k_norm) if self.norm else ())
        gate = layer.g_proj(x).sigmoid() if self.gate else None
        return Tokens(q, {"k": k, "v": v, "decay": attention_ops.decay(layer.f_proj, x)}, {}, gate)

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        return super().extend(cached, tokens.add_decay(cached))

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        from madbench.mixers.named import attention_ops

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        decay = attention_ops.decay_since(seen["decay"], -1 if first is None else first)
        return attention_ops.softmax(z + decay.to(z.dtype), first)

    def softmax_inputs(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (B, H, T, .) whose plain causal softmax attention computes this operator.

        Queries and keys have one more channel, whose product adds the decay to the scores. In keys this channel is the
        sum of log f from the token to the middle of the sequence, where f is the forget gate. In queries it is a
        constant, which undoes the division by the square root of the width.
        """
        import torch

        from madbench.mixers.named import attention_ops, ops

        q, k, v = (ops.wide(side) for side in (q, seen["k"], seen["v"]))
        width, since = layer.dims.key, attention_ops.decay_since(seen["decay"], q.shape[2] // 2).mT.to(k.dtype)
        ones = torch.full_like(q[..., :1], (1 + width) ** 0.5)  # the scores are divided by sqrt(K + 1)
        return torch.cat((q * (1 + 1 / width) ** 0.5, ones), dim=-1), torch.cat((k, since), dim=-1), v

    def probed_gates(self, tokens: Tokens) -> dict[str, Tensor]:
        from madbench.mixers.named import attention_ops

        return super().probed_gates(tokens) | {"forget": attention_ops.gate_of(tokens.cached["decay"])}

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key = dims.heads, dims.key
        k, v, log_f, rows = [], [], [], []
        for t, x_t in enumerate(x):
            log_f.append(-loops.softplus(-(p["f_proj.weight"] @ x_t) - p["f_proj.bias"]))
            q, keys, values = (loops.heads_of(p, side, x_t, heads) for side in "qkv")
            k.append(keys)
            v.append(values)
            outputs = []
            for h in range(heads):
                scores, forgotten = [], x.new_zeros(())
                for j in range(t, -1, -1):
                    scores.append(q[h] @ k[j][h] / key**0.5 + forgotten)
                    forgotten = forgotten + log_f[j][h]
                weights = torch.softmax(torch.stack(scores), dim=0)
                outputs.append(sum((weights[t - j] * v[j][h] for j in range(t + 1)), x.new_zeros(())))
            o = torch.cat(outputs)
            rows.append(p["o_proj.weight"] @ (o * torch.sigmoid(p["g_proj.weight"] @ x_t) if self.gate else o))
        return torch.stack(rows)
