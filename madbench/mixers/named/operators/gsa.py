"""Gated slot attention: softmax over slots that forget (Zhang et al. 2024, arXiv 2409.07146).

    P_t = P_(t-1) Diag(f_t) + k_t (1 - f_t)^T,    p_t = softmax(P_t^T q_t)
    S_t = Diag(f_t) S_(t-1) + (1 - f_t) v_t^T,    o_t = S_t^T p_t

A head has K slots. P has a key per slot and is (K, K). S has a value per slot and is (K, V). f_t is
sigmoid(W_f x_t)^(1/8) in (0, 1)^K. q_t, k_t and v_t are SiLU of linear maps. The output is W_o RMSNorm(SiLU(o_t)), with
one norm over all heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, qkv_maps
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

ROOT = 8  # the decay is this root of a sigmoid


@dataclass(frozen=True)
class GSA(Recurrent):
    """The named operator GSA, gated slot attention: softmax over slots that forget.

    The equations are in the docstring of this module. The recurrent state is S, the values of the slots. P, the keys of
    the slots, is carried as a further tensor.
    """

    name: ClassVar = "GSA"
    title: ClassVar = "Gated slot attention"
    equation: ClassVar = "S_t = Diag(f_t) S_(t-1) + (1 - f_t) v_t^T, read by a softmax over its rows"
    source: ClassVar = "Zhang et al. 2024, arXiv 2409.07146"
    library: ClassVar = "GatedSlotAttention"
    differs: ClassVar = (
        "A head has as many slots as key channels, as in the library by default. The paper has 64 slots."
    )
    parameters: ClassVar = "3*d*H*K + 2*d*H*V + H*V"
    state: ClassVar = "H*K*(K+V)"
    paths: ClassVar = ("dense", "chunked")
    has_mirror: ClassVar = False
    has_channel_decay: ClassVar = True

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        width = max(1, d // heads)
        return [Dims(d, heads, key, width) for key in widths(step, 2 * width)]

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        return {
            **qkv_maps(dims),
            "f_proj": Linear(d, keys),
            "g_norm": Gain(values),
            "o_proj": Linear(values, d),
        }

    def carried(self, dims: Dims) -> Mapping[str, int]:
        return {"keys": dims.key_dim * dims.key}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter: 5 for each number of P and S.

        P has the keys of all slots, and S the values. The 5 are 1 for the decay, 2 for writing and 2 for the read-out.
        """
        return 5 * (self.recurrent(dims) + dims.key_dim * dims.key)

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from torch.nn.functional import logsigmoid, silu

        from madbench.mixers.named import ops
        from madbench.mixers.named.operators.gsa_slots import read_slots
        from madbench.mixers.recurrence.forms import Dynamics

        sides = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj)
        heads = layer.dims.heads
        with ops.without_autocast(x):
            q, k, v = (silu(ops.wide_heads(side, heads)) for side in sides)
            log_f = ops.wide_heads(logsigmoid(ops.linear_in_float32(layer.f_proj, x)) / ROOT, heads)
            written = -log_f.expm1()
            logits, keys = read_slots(q, k, written, log_f, carried["keys"] if carried else None)
            return RecurrenceInputs(Dynamics(logits.softmax(-1), written, v, log_f), {"keys": keys})

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from torch.nn.functional import silu

        from madbench.mixers.named import ops

        with ops.without_autocast(x):
            normed = ops.norm(ops.merge_heads(silu(y)), layer.g_norm.weight)
        return ops.write(layer.o_proj, normed)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        keys = [x.new_zeros(key, key) for _ in range(heads)]
        values, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for x_t in x:
            q, k, v = (loops.silu(p[f"{side}_proj.weight"] @ x_t).view(heads, -1) for side in "qkv")
            f = torch.sigmoid(p["f_proj.weight"] @ x_t).view(heads, key) ** (1 / 8)
            outputs = []
            for h in range(heads):
                new = 1 - f[h]
                keys[h] = keys[h] * f[h] + torch.outer(k[h], new)
                values[h] = f[h, :, None] * values[h] + torch.outer(new, v[h])
                score = torch.exp(q[h] @ keys[h])
                outputs.append(score / score.sum() @ values[h])
            rows.append(p["o_proj.weight"] @ loops.normed(loops.silu(torch.cat(outputs)), p["g_norm.weight"]))
        return torch.stack(rows)
