"""Mamba-2: a state-space model with one decay per head, and keys and queries shared by the heads (arXiv 2405.21060).

    S_t = exp(Delta_t A) S_(t-1) + Delta_t B_t x_t^T,    y_t = S_t^T C_t + D x_t

S is (N, P) per head. The state size N is the width of B and C, and P is the head's width of x. One linear map gives the
gate z, x, B, C and Delta. x, B and C are convolved with a bias, and SiLU is applied. Delta_t = softplus(. + c) and
A = -e^a, each per head. The output is W_o (RMSNorm(y_t * SiLU(z_t))), with one norm over all heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from madbench.mixers.named.parts import Gain, Linear, Part, Taps, Vector
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class Mamba2(Recurrent):
    """The named operator Mamba-2: a state-space model with one decay per head.

    The equations are in the docstring of this module. ``Dims.key`` is the state size N, and ``Dims.value`` is the
    head's width P.
    """

    name: ClassVar = "Mamba-2"
    title: ClassVar = "Mamba-2"
    equation: ClassVar = "S_t = exp(Delta_t A) S_(t-1) + Delta_t B_t x_t^T"
    source: ClassVar = "Dao and Gu 2024, arXiv 2405.21060"
    library: ClassVar = "Mamba2"
    differs: ClassVar = "At the budget the inner width is d, and not 2 d."
    counterpart: ClassVar = "cd:mamba2"
    parameters: ClassVar = "d*(2*H*V + 2*K + H) + (W+1)*(H*V + 2*K) + 3*H + H*V + H*V*d"
    state: ClassVar = "H*K*V + (W-1)*(H*V + 2*K)"
    output: ClassVar = "out_proj"
    has_mirror: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        width = max(1, d // heads)
        return [Dims(d, heads, states, width) for states in widths(step, 2 * d)]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, 128, max(1, 2 * d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, inner = dims.d, dims.heads, dims.value_dim
        return {
            "dt_bias": Vector(heads, "steps"),
            "A_log": Vector(heads, "rates"),
            "D": Vector(heads, "ones"),
            "conv1d": Taps(self.channels(dims), bias=True),
            "in_proj": Linear(d, inner + self.channels(dims) + heads),
            "norm": Gain(inner),
            "out_proj": Linear(inner, d),
        }

    def channels(self, dims: Dims) -> int:
        """The number of channels that are convolved: those of x, B and C."""
        return dims.value_dim + 2 * dims.key

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from madbench.mixers.named import ops, recurrent_ops
        from madbench.mixers.recurrence.forms import Dynamics

        dims, channels = layer.dims, self.channels(layer.dims)
        z, inputs, logits = layer.in_proj(x).split((dims.value_dim, channels, dims.heads), dim=-1)
        taps, bias = layer.conv1d.weight.squeeze(1), layer.conv1d.bias
        mixed, carried = ops.convolve_silu(inputs, taps, bias, carried)
        values, keys, queries = mixed.split((dims.value_dim, dims.key, dims.key), dim=-1)
        with ops.without_autocast(x):
            log_decay, step = recurrent_ops.log_decay(layer, ops.wide(logits), dims.heads)
            q, k = (recurrent_ops.same_heads(side, dims.heads) for side in (queries, keys))
            v = ops.wide_heads(values, dims.heads)
            return RecurrenceInputs(Dynamics(q, k * step, v, log_decay), carried, z)

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from madbench.mixers.named import ops, recurrent_ops

        with ops.without_autocast(x):
            gated = recurrent_ops.skip_and_gate(layer, y, rows.dynamics.v, cast("Tensor", rows.gate))
            normed = ops.norm(gated, layer.norm.weight)
        return ops.write(layer.out_proj, normed)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, states, width = dims.heads, dims.key, dims.value
        inner = heads * width
        projected = x @ p["in_proj.weight"].T
        mixed = loops.convolved(projected[:, inner:-heads], p["conv1d.weight"], p["conv1d.bias"])
        state, rows = [x.new_zeros(states, width) for _ in range(heads)], []
        for t in range(len(x)):
            z, of_b, of_c = projected[t, :inner], mixed[t, inner : inner + states], mixed[t, inner + states :]
            outputs = []
            for h in range(heads):
                x_t = mixed[t, h * width : (h + 1) * width]
                delta = loops.softplus(projected[t, len(projected[t]) - heads + h] + p["dt_bias"][h])
                decay = torch.exp(-delta * torch.exp(p["A_log"][h]))
                state[h] = decay * state[h] + delta * torch.outer(of_b, x_t)
                outputs.append(of_c @ state[h] + p["D"][h] * x_t)
            normed = loops.normed(torch.cat(outputs) * loops.silu(z), p["norm.weight"])
            rows.append(p["out_proj.weight"] @ normed)
        return torch.stack(rows)
