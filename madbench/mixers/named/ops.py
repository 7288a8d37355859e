"""Operations that several named operators share, in torch: convolutions, unit vectors, heads, decay and gated norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.cd.decays import masked_exp
from madbench.mixers.cd.forms import Dynamics
from madbench.mixers.cd.parts import softplus, split_heads
from madbench.mixers.linear_maps import call_in_dtype_of_input, project, weight_of
from madbench.mixers.precision import wide, without_autocast
from madbench.mixers.srg.parts import ROPE_BASE, rotate
from madbench.mixers.srg.short_conv import causal_convolution, pad_before
from madbench.mixers.tracing import is_symbolic

UNIT_EPS = 1e-6  # added to the squared length of queries and keys
NORM_EPS = 1e-5  # epsilon of the norm of the read-out


Carried = Mapping[str, Tensor]
"""The tensors that a token needs besides the state, by name. See :class:`madbench.mixers.named.recurrent.Rows`."""


def convolve(x: Tensor, taps: Tensor, carried: Carried | None) -> tuple[Tensor, Carried]:
    """A causal convolution of x (B, T, C) with taps (C, taps), and its last inputs ``windows`` (B, taps - 1, C).

    ``carried`` has the windows before x. If it is None, they are zero.
    """
    count, windows = taps.shape[1] - 1, carried["windows"] if carried else None
    last = x if is_symbolic(x.shape[1]) else x[:, -count:]  # a slice would fix the least length of an export
    after = pad_before(last, windows, count)[:, -count:]
    return causal_convolution(x, taps, windows), {"windows": after}


def convolve_silu(x: Tensor, taps: Tensor, bias: Tensor | None, carried: Carried | None) -> tuple[Tensor, Carried]:
    """SiLU of :func:`convolve`, with a bias unless it is None."""
    y, carried = convolve(x, taps, carried)
    return F.silu(y if bias is None else y + bias), carried


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6) over the last axis."""
    return x * (x.square().sum(-1, keepdim=True) + UNIT_EPS).rsqrt()


def log_decay(layer: nn.Module, logits: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """log alpha = -e^A_log softplus(logits + dt_bias), and the softplus: (B, T, H n) -> (B, H, T, n) each.

    ``A_log`` has one number per head, and ``dt_bias`` one per logit.
    """
    step = split_heads(softplus(logits + layer.dt_bias.to(logits.dtype)), heads)
    return -layer.A_log.to(logits.dtype).exp().view(heads, 1, 1) * step, step


def wide_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H n) -> (B, H, T, n), in float32 or wider."""
    return split_heads(wide(x), heads)


def norm(y: Tensor, gain: Tensor) -> Tensor:
    """RMSNorm over the last axis with a gain."""
    return F.rms_norm(y, y.shape[-1:], gain.to(y.dtype), NORM_EPS)


def linear_in_float32(layer: nn.Module, x: Tensor) -> Tensor:
    """A linear map of x in float32 or wider, also under autocast: gates are never computed in 16 bits."""
    return call_in_dtype_of_input(layer, wide(x))


def low_rank(maps: nn.Module, x: Tensor, between: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Two linear maps of x in float32 or wider, with a function between them unless it is None."""
    hidden = linear_in_float32(maps.lora[0], x)
    return linear_in_float32(maps.lora[2], hidden if between is None else between(hidden))


def convolved_qkv(layer: nn.Module, x: Tensor, carried: Carried | None) -> tuple[Tensor, Tensor, Tensor, Carried]:
    """Convolved q, k and v (B, T, .) after SiLU, and the ``windows`` (B, 3, .) of their inputs."""
    sides = project(x, layer.q_proj, layer.k_proj, layer.v_proj)
    taps = torch.cat([conv.weight.squeeze(1) for conv in (layer.q_conv1d, layer.k_conv1d, layer.v_conv1d)])
    mixed, carried = convolve_silu(torch.cat(sides, dim=-1), taps, None, carried)
    q, k, v = mixed.split([side.shape[-1] for side in sides], dim=-1)
    return q, k, v, carried


def delta_rule(
    layer: nn.Module, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor | None, neg: bool
) -> Dynamics:
    """The recurrence of a delta rule, from convolved q, k and v (B, T, .) and log alpha (B, H, T, 1 or K).

    ``log_alpha`` is None if the state does not decay. k, v and ``log_alpha`` may have several rows per token.
    """
    dims = layer.dims
    q, k, v = (wide_heads(side, dims.heads) for side in (q, k, v))
    q, k = unit(q) * dims.key**-0.5, unit(k)
    q = q.repeat_interleave(k.shape[2] // q.shape[2], dim=2) if k.shape[2] != q.shape[2] else q
    beta = linear_in_float32(layer.b_proj, x).unflatten(-1, (-1, dims.heads)).flatten(1, 2).transpose(1, 2).sigmoid()
    beta = 2 * beta if neg else beta
    return Dynamics(q, k * beta[..., None], v, log_alpha, k, beta, length=beta)


def scan(log_decay: Tensor, x: Tensor, before: Tensor | None) -> Tensor:
    """h_t = e^(log_decay_t) h_(t-1) + x_t for each channel: (B, T, C) each.

    ``before`` (B, C) is h before the first row, or None for zero. The rows are joined two by two, four by four and so
    on: the last h of the first half decays into each row of the second half. No exponent is above zero.
    """
    length = x.shape[1]
    if is_symbolic(length):  # all pairs of rows, because an exported program would fix the number of steps
        c = log_decay.double().cumsum(1)
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()[..., None]
        h = (masked_exp((c[:, :, None] - c[:, None]).to(x.dtype), mask) * x[:, None]).sum(2)
    else:
        padding = (0, 0, 0, (1 << (length - 1).bit_length()) - length)
        h, c = F.pad(x, padding), F.pad(log_decay, padding).double().cumsum(1)
        size = 1
        while size < h.shape[1]:
            first, second = h.unflatten(1, (-1, 2, size)).unbind(2)
            c_first, c_second = c.unflatten(1, (-1, 2, size)).unbind(2)
            decay = (c_second - c_first[:, :, -1:]).to(x.dtype).exp()
            h = torch.stack((first, second + decay * first[:, :, -1:]), dim=2).flatten(1, 3)
            size *= 2
        h, c = h[:, :length], c[:, :length]
    return h if before is None else h + c.to(x.dtype).exp() * before[:, None]


def total_angle(turns: Tensor, before: Tensor | None) -> Tensor:
    """pi times the sums up to each row of turns (..., T, C), in [0, 2 pi) and in double precision.

    The angles (..., C) ``before`` the first row are added, unless it is None.
    """
    angle = (math.pi * turns.double()).cumsum(-2)
    return (angle if before is None else angle + before[..., None, :]).remainder(2 * math.pi)


def rotate_pairs(x: Tensor, angle: Tensor) -> Tensor:
    """Rotates the first pairs (2i, 2i + 1) of channels of x (..., N) by angles (..., A), A <= N / 2."""
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    count = 2 * angle.shape[-1]
    first, second = x[..., 0:count:2], x[..., 1:count:2]
    pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return torch.cat((pairs.flatten(-2), x[..., count:].expand(*pairs.shape[:-2], -1)), dim=-1)


def rotate_by_position(x: Tensor, first: Tensor) -> Tensor:
    """Rotates x (B, H, T, N), N even, by position. The first row is at position ``first`` (B,), which has integers."""
    width, length = x.shape[-1], x.shape[2]
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = first[:, None] + torch.arange(length, device=x.device)
    angle = position[:, None, :, None] * frequency
    angle = torch.cat((angle, angle), dim=-1)
    return rotate(x, 0, angles=(angle.cos().to(x.dtype), angle.sin().to(x.dtype)))


def with_row_before(d: Dynamics, key: Tensor, value: Tensor) -> Dynamics:
    """Inserts a row that writes key (B, H, K) and value (B, H, V) before the rows of d. d must have no mirrors."""

    def before(first: Tensor, rest: Tensor) -> Tensor:
        return torch.cat((first[:, :, None], rest), dim=2)

    gate = F.pad(d.log_gate, (0, 0, 1, 0))
    return Dynamics(F.pad(d.q, (0, 0, 1, 0)), before(key, d.k), before(value, d.v), gate, None, None)


def gated_norm(layer: nn.Module, y: Tensor, gate: Tensor | None, gain: str = "o_norm") -> Tensor:
    """W_o of the norm per head of y (B, H, T, V), times the gate (B, T, H V) unless it is None.

    ``gain`` is the name of the norm in the layer.
    """
    with without_autocast(y):
        normed = norm(y, layer.get_submodule(gain).weight).transpose(1, 2).flatten(-2)
    return write(layer.o_proj, normed, gate)


def write(output: nn.Module, y: Tensor, gate: Tensor | None = None) -> Tensor:
    """The linear map ``output`` of y (B, T, .), times the gate (B, T, .) unless it is None, in the map's dtype."""
    dtype = weight_of(output).dtype
    return output(y.to(dtype) if gate is None else y.to(dtype) * gate.to(dtype))
