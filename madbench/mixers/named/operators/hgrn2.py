"""HGRN2: linear attention with a decay per key channel, whose keys are 1 minus the decay (arXiv 2404.07904).

    S_t = Diag(f_t) S_(t-1) + (1 - f_t) i_t^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. f_t = b + (1 - b) sigmoid(W_f x_t) in (b, 1)^K, i_t = W_i x_t, and q_t = SiLU(W_q x_t). The output
is W_o RMSNorm(o_t), with one norm over all heads. b is 0, or with ``bound`` it is l / L in layer l = 0, 1, ... of
L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named import bounded_decay
from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class HGRN2(bounded_decay.BoundedDecay, Recurrent):
    """The named operator HGRN2: linear attention whose keys are 1 minus the decay of each key channel.

    The equation is in the docstring of this module. ``Dims.key``, the key channels per head, is the expansion ratio of
    the paper.
    """

    name: ClassVar = "HGRN2"
    title: ClassVar = "HGRN2"
    equation: ClassVar = "S_t = Diag(f_t) S_(t-1) + (1 - f_t) i_t^T"
    source: ClassVar = "Qin et al. 2024, arXiv 2404.07904"
    library: ClassVar = "HGRN2Attention"
    differs: ClassVar = (
        f"{bounded_decay.BoundedDecay.differs} Its layer has d // K heads, so it has none with K below d / H at some "
        "sizes, as at d 1024 with 32 heads."
    )
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + H*V"
    state: ClassVar = "H*K*V"
    has_mirror: ClassVar = False
    has_channel_decay: ClassVar = True

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        width = max(1, d // heads)
        return [Dims(d, heads, key, width) for key in widths(step, 2 * d // heads)]

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        return {
            "q_proj": Linear(d, keys),
            "f_proj": Linear(d, keys),
            "i_proj": Linear(d, values),
            "g_norm": Gain(values),
            "o_proj": Linear(values, d),
        }

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from torch.nn.functional import silu

        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics

        q, i = ops.project(x, layer.q_proj, layer.i_proj)
        dims = layer.dims
        with ops.without_autocast(x):
            logits = ops.wide_heads(ops.linear_in_float32(layer.f_proj, x), dims.heads)
            q, v = ops.wide_heads(silu(q), dims.heads) * dims.key**-0.5, ops.wide_heads(i, dims.heads)
            log_f, k = bounded_decay.decay(logits, dims)
            return RecurrenceInputs(Dynamics(q, k, v, log_f), {})

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from madbench.mixers.named import ops

        with ops.without_autocast(x):
            normed = ops.norm(ops.merge_heads(y), layer.g_norm.weight)
        return ops.write(layer.o_proj, normed)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value, bound = dims.heads, dims.key, dims.value, bounded_decay.bound_of(dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for x_t in x:
            q, f, i = ((p[f"{side}_proj.weight"] @ x_t).view(heads, -1) for side in "qfi")
            f = bound + (1 - bound) * torch.sigmoid(f)
            outputs = []
            for h in range(heads):
                state[h] = f[h, :, None] * state[h] + torch.outer(1 - f[h], i[h])
                outputs.append(loops.silu(q[h]) @ state[h] / key**0.5)
            rows.append(p["o_proj.weight"] @ loops.normed(torch.cat(outputs), p["g_norm.weight"]))
        return torch.stack(rows)
