"""Log-linear Mamba-2: the state of Mamba-2 in buckets of 1, 2, 4, ... tokens, each read with a scale.

    y_t = sum_(s<=t) lambda_t^(level(t, s)) exp(A (Delta_(s+1) + ... + Delta_t)) (C_t . B_s) Delta_s x_s + D x_t

Level 0 is the token itself. Level l > 0 is a bucket of 2^(l-1) tokens: those whose highest binary digit that differs
from t is digit l, counted from 1. Each bucket has a state (N, P) per head, and a row reads at most 1 + log2 T of them.
Decoding carries 14 buckets, of which those that are not used are zero. All levels from 14 on count as level 14, so
sequences may have any length.

lambda_t^(l) = softplus(L_l w_l x_t) is per head and level. One linear map with a bias gives the gate z, x, B, C, Delta
and the logits of lambda. x, B and C are convolved without a bias, and SiLU is applied. Delta_t = softplus(. + c) and
A = -e^a, each per head. The output is W_o (RMSNorm(y_t * SiLU(z_t))) with a bias, and with one norm over all heads.
With lambda = 1 it is the recurrence of Mamba-2. Source: Log-linear attention (Guo et al. 2025, arXiv 2506.04761).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, Taps, Vector, count
from madbench.mixers.named.self_contained import SelfContained
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

LEVELS = 15  # 0 to 14


@dataclass(frozen=True)
class LogLinearMamba2(SelfContained):
    """The named operator LogLinearMamba-2: Mamba-2 whose state is split into buckets of 1, 2, 4, ... tokens.

    Each bucket is read with a scale. The equation is in the docstring of this module. ``Dims.key`` is the state size N,
    and ``Dims.value`` is the head's width P.
    """

    name: ClassVar = "LogLinearMamba-2"
    title: ClassVar = "Log-linear Mamba-2"
    equation: ClassVar = (
        "y_t = sum_(s<=t) lambda_t^(level(t, s)) exp(A (Delta_(s+1) + ... + Delta_t)) (C_t . B_s) Delta_s x_s"
    )
    source: ClassVar = "Guo et al. 2025, arXiv 2506.04761"
    library: ClassVar = "LogLinearMamba2"
    differs: ClassVar = (
        "At the budget the inner width is d, and not 2 d. Levels from 14 on are one, where the library ends."
    )
    parameters: ClassVar = "(d+1)*(2*H*V + 2*K + 16*H) + W*(H*V + 2*K) + 3*H + 15*H + H*V + H*V*d + d"
    state: ClassVar = "14*H*K*V + (W-1)*(H*V + 2*K)"
    output: ClassVar = "out_proj"
    without_decay: ClassVar = ("L",)

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses, in ascending order of parameters.

        N is the state size, and P is the width of a head. The usual widths have P = d // heads and N up to 2 d. Before
        them come smaller widths for small budgets. These have N = P, at most d // heads, and fewer parameters than the
        smallest usual width.
        """
        width = max(1, d // heads)
        wide = [Dims(d, heads, states, width) for states in widths(step, 2 * d)]
        narrow = [Dims(d, heads, each, each) for each in widths(step, width)]
        return [dims for dims in narrow if self.size(dims) < self.size(wide[0])] + wide

    def size(self, dims: Dims) -> int:
        """The number of parameters of a layer with these widths."""
        return sum(map(count, self.parts(dims).values()))

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, 128, max(1, 2 * d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, inner = dims.d, dims.heads, dims.value_dim
        return {
            "dt_bias": Vector(heads, "steps"),
            "A_log": Vector(heads, "ones"),
            "L": Vector((heads, LEVELS), "ones"),
            "D": Vector(heads, "ones"),
            "conv1d": Taps(inner + 2 * dims.key),
            "in_proj": Linear(d, 2 * inner + 2 * dims.key + (1 + LEVELS) * heads, bias=True),
            "norm": Gain(inner),
            "out_proj": Linear(inner, d, bias=True),
        }

    def initialize(self, layer: NamedLayer) -> None:
        """Set the initial values as in the library's layer. The rate A of the heads is -1, -2, and so on."""
        import torch

        layer.draw_declared()
        layer.A_log.copy_(torch.arange(1, layer.dims.heads + 1).log())

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in ``windows``, the last inputs of the convolution, and in ``buckets``, by name.

        The position is carried as an integer, which is not counted.
        """
        return {**super().carried(dims), "buckets": (LEVELS - 1) * dims.value_dim * dims.key}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter: (5 + 3 r) n for buckets of n = H N P numbers.

        r = (log2 T) / 2 is the average number of buckets that a token reads in a sequence of ``length`` = T tokens. For
        each number, writing and decay take 5 as in Mamba-2. Each bucket that is read takes 3: 1 for its decay and 2 for
        its read-out.
        """
        from math import log2

        return (5 + 1.5 * log2(max(length, 1))) * dims.value_dim * dims.key

    def outputs(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        import torch

        from madbench.mixers.named import ops, recurrent_ops
        from madbench.mixers.named.operators.log_linear_buckets import buckets_after, read_buckets, read_step
        from madbench.mixers.named.recurrent_layer import rows_per_block

        dims, inner, heads = layer.dims, layer.dims.value_dim, layer.dims.heads
        widths = (inner, inner + 2 * dims.key, heads, LEVELS * heads)
        z, inputs, step_logits, scale_logits = layer.in_proj(x).split(widths, dim=-1)
        mixed, windows = ops.convolve_silu(inputs, layer.conv1d.weight.squeeze(1), None, carried)
        values, keys, queries = mixed.split((inner, dims.key, dims.key), dim=-1)
        with ops.without_autocast(x):
            log_decay, step = recurrent_ops.log_decay(layer, ops.wide(step_logits), heads)
            q, k = (recurrent_ops.same_heads(side, heads) for side in (queries, keys))
            v = ops.wide_heads(values, heads)
            scales = ops.softplus(layer.L.to(q.dtype)[:, None] * ops.wide_heads(scale_logits, heads))
            k, log_decay = k * step, log_decay.squeeze(-1)
            if carried:
                position = carried["position"]
                y, buckets = read_step(q, k, v, log_decay, scales, carried["buckets"], position)
            else:
                position = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
                y = read_buckets(q, k, v, log_decay, scales, rows_per_block(x))
                buckets = buckets_after(k, v, log_decay)
            normed = ops.norm(recurrent_ops.skip_and_gate(layer, y, v, z), layer.norm.weight)
        y = ops.write(layer.out_proj, normed)
        return y, {**windows, "buckets": buckets, "position": position + x.shape[1]}

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, states, width = dims.heads, dims.key, dims.value
        inner = heads * width
        projected = x @ p["in_proj.weight"].T + p["in_proj.bias"]
        mixed = loops.convolved(projected[:, inner : 2 * inner + 2 * states], p["conv1d.weight"])
        written: list[list[tuple[Tensor, Tensor]]]
        written, total, rows = [[] for _ in range(heads)], [[x.new_zeros(())] for _ in range(heads)], []
        for t in range(len(x)):
            z, of_b, of_c = projected[t, :inner], mixed[t, inner : inner + states], mixed[t, inner + states :]
            logits = projected[t, 2 * inner + 2 * states :]
            outputs = []
            for h in range(heads):
                x_t = mixed[t, h * width : (h + 1) * width]
                delta = loops.softplus(logits[h] + p["dt_bias"][h])
                total[h].append(total[h][-1] - delta * torch.exp(p["A_log"][h]))
                written[h].append((of_b, delta * x_t))
                y = p["D"][h] * x_t
                for s, (key, value) in enumerate(written[h]):
                    level = min((t ^ s).bit_length(), 14)
                    scale = loops.softplus(p["L"][h, level] * logits[heads + 15 * h + level])
                    y = y + scale * torch.exp(total[h][t + 1] - total[h][s + 1]) * (of_c @ key) * value
                outputs.append(y)
            normed = loops.normed(torch.cat(outputs) * loops.silu(z), p["norm.weight"])
            rows.append(p["out_proj.weight"] @ normed + p["out_proj.bias"])
        return torch.stack(rows)
