"""Operations in torch for named operators with a state of fixed size: delta rules, decay, scans and the gated norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.named.ops import (
    Carried,
    convolve_silu,
    linear_in_float32,
    merge_heads,
    norm,
    unit,
    wide_heads,
    write,
)
from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import project
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.decays import masked_exp
from madbench.mixers.recurrence.forms import Dynamics, Mirrors
from madbench.mixers.recurrence.gates import softplus

if TYPE_CHECKING:
    from madbench.mixers.named.layer import NamedLayer


def convolved_qkv(layer: NamedLayer, x: Tensor, carried: Carried | None) -> tuple[Tensor, Tensor, Tensor, Carried]:
    """Return q, k and v (B, T, .) of x (B, T, D) after projection, convolution and SiLU, and what the next token needs.

    The next token needs ``windows`` (B, 3, .), the last inputs of the convolutions. ``carried`` has the windows before
    x. It is None at the start of a sequence.
    """
    sides = project(x, layer.q_proj, layer.k_proj, layer.v_proj)
    taps = torch.cat([conv.weight.squeeze(1) for conv in (layer.q_conv1d, layer.k_conv1d, layer.v_conv1d)])
    mixed, carried = convolve_silu(torch.cat(sides, dim=-1), taps, None, carried)
    q, k, v = mixed.split([side.shape[-1] for side in sides], dim=-1)
    return q, k, v, carried


def log_decay(layer: NamedLayer, logits: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return the logarithm of a decay, -e^A_log softplus(logits + dt_bias), and this softplus.

    ``logits`` are (B, T, H n), and both results are (B, H, T, n). ``A_log`` and ``dt_bias`` are parameters of the
    layer, with one number per head and one per logit.
    """
    step = split_heads(softplus(logits + layer.dt_bias.to(logits.dtype)), heads)
    return -layer.A_log.to(logits.dtype).exp().view(heads, 1, 1) * step, step


def step_sizes(layer: NamedLayer, x: Tensor, neg: bool) -> Tensor:
    """The strengths beta (B, H, rows) of the steps of a delta rule: sigmoid(W_b x) for x (B, T, D), doubled if ``neg``.

    W_b is the layer's ``b_proj``. A token has as many rows as W_b has outputs per head.
    """
    beta = linear_in_float32(layer.b_proj, x)
    beta = torch.unflatten(beta, -1, (-1, layer.dims.heads)).flatten(1, 2).mT.sigmoid()
    return 2 * beta if neg else beta


def delta_rule(
    layer: NamedLayer, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor | None, neg: bool
) -> Dynamics:
    """The recurrence of a delta rule, from convolved q, k and v (B, T, .) and the logarithm of the decay.

    ``log_alpha`` (B, H, T, 1 or K) is the logarithm of the decay, or None if the state does not decay. k, v and
    ``log_alpha`` may have several rows per token. The strength beta is computed from the layer's input x (B, T, D), and
    is doubled if ``neg`` is true.
    """
    q, k, v, beta = delta_rule_sides(layer, x, q, k, v, neg)
    return Dynamics(q, k * beta[..., None], v, log_alpha, Mirrors(k, beta, length=beta))


def delta_rule_sides(
    layer: NamedLayer, x: Tensor, q: Tensor, k: Tensor, v: Tensor, neg: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return q and k of length 1 per head, v and the strengths beta, for the arguments of :func:`delta_rule`.

    q is divided by sqrt(K), and repeated for each row of a token.
    """
    dims = layer.dims
    q, k, v = (wide_heads(side, dims.heads) for side in (q, k, v))
    q, k = unit(q) * dims.key**-0.5, unit(k)
    q = q.repeat_interleave(k.shape[2] // q.shape[2], dim=2) if k.shape[2] != q.shape[2] else q
    return q, k, v, step_sizes(layer, x, neg)


def scan(log_decay: Tensor, x: Tensor, before: Tensor | None) -> Tensor:
    """Compute the recurrence h_t = e^(log_decay_t) h_(t-1) + x_t of each channel.

    ``log_decay``, x and the result h are (B, T, C). ``before`` (B, C) is h before the first row, or None for zero.
    Pairs of rows are joined first, then pairs of pairs, and so on. In each pair, the last h of the first half decays
    into each row of the second half. No exponent is above zero.
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


def with_row_before(d: Dynamics, key: Tensor, value: Tensor) -> Dynamics:
    """Return the recurrence ``d`` with one more row at the front, which writes key (B, H, K) and value (B, H, V).

    ``d`` must have a decay and no mirrors (factors I - beta k k^T of the state).
    """

    def before(first: Tensor, rest: Tensor) -> Tensor:
        return torch.cat((first[:, :, None], rest), dim=2)

    gate = F.pad(cast(Tensor, d.log_gate), (0, 0, 1, 0))
    return Dynamics(F.pad(d.q, (0, 0, 1, 0)), before(key, d.k), before(value, d.v), gate)


def same_heads(x: Tensor, heads: int) -> Tensor:
    """Repeat queries or keys that all heads share: (B, T, n) -> (B, H, T, n), in float32 or wider."""
    return wide_heads(x, 1).expand(-1, heads, -1, -1)


def skip_and_gate(layer: NamedLayer, y: Tensor, v: Tensor, z: Tensor) -> Tensor:
    """Compute (y + D v) * SiLU(z), (B, T, H V), from the read-outs y and the values v (B, H, T, V), and z (B, T, H V).

    D is a parameter of the layer with one number per head.
    """
    return merge_heads(y + layer.D.to(y.dtype)[:, None, None] * v) * F.silu(z.to(y.dtype))


def gated_norm(layer: NamedLayer, y: Tensor, gate: Tensor | None, gain: str = "o_norm") -> Tensor:
    """Compute the output W_o (norm(y) * gate), with an RMSNorm per head of y (B, H, T, V) and a gate (B, T, H V).

    W_o is the layer's ``o_proj``. If ``gate`` is None, there is no gate. ``gain`` is the name of the part with the gain
    of the norm.
    """
    with without_autocast(y):
        normed = merge_heads(norm(y, getattr(layer, gain).weight))
    return write(layer.o_proj, normed, gate)
