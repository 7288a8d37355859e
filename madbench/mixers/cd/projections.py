"""The linear maps of a mixer of coefficient dynamics, which compute queries, keys, values and gates of a sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.cd import parts
from madbench.mixers.cd.budget import LOW_RANK, CdAllocation
from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import call_in_dtype_of_input, project
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.rope import rotary_angles, rotate
from madbench.mixers.ops.short_conv import ShortConv
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.ranks import CONV_TAPS
from madbench.mixers.recurrence.forms import Dynamics, Mirrors
from madbench.mixers.recurrence.gates import running_maximum
from madbench.mixers.redrawing import redraw_parts

NORM_EPS = 1e-6  # epsilon of the RMSNorm of output gate g


@dataclass(frozen=True)
class Cache:
    """The cache of token-by-token decoding.

    It grows with the sequence only if the readout is not linear in the state.
    """

    state: Tensor
    """If the readout is linear in the state, the state Z (B, H, n, V), with one more column if it keeps the sum of the
    coefficients. Otherwise the keys (B, H, n, S) as they are after the last row, oldest first."""
    values: Tensor | None
    """(B, H, S, V) values of the keys in ``state``. None if ``state`` has no keys."""
    maximum: Tensor | None
    """(B, H) running maximum m_t. ``state`` is stored divided by e^m_t, so that it cannot overflow. None for labels
    whose state is stored as it is."""
    inputs: Tensor | None
    """(B, 3, 2 N + M) last three inputs of the convolutions of q, k and v. None without convolutions."""
    position: int
    """Number of tokens decoded so far."""


class Projections(nn.Module):
    """The linear maps, convolutions and gates of a label's mixer, which map x (B, T, D) to :class:`Dynamics`.

    They have exactly ``allocation.total`` parameters. The channels of a head are adjacent.
    """

    def __init__(self, allocation: CdAllocation, init_std: float):
        super().__init__()
        label, d_model, heads = allocation.label, allocation.size.d_model, allocation.size.n_head
        self.allocation, self.label, self.n_head, self.init_std = allocation, label, heads, init_std
        # phi(s c) = c phi(s) for c > 0, so powers of lambda may move from the gate to the keys
        self.is_homogeneous = label.is_recurrent or label.readout == "relu"

        def linear(out: int, bias: bool = False) -> nn.Linear:
            return nn.Linear(d_model, out, bias=bias)

        n, m = allocation.r_qk, allocation.r_vo
        self.q, self.k, self.v, self.o = linear(n), linear(n), linear(m), nn.Linear(m, d_model, bias=False)
        self.q_conv, self.k_conv, self.v_conv = (ShortConv(width) if label.conv else None for width in (n, n, m))
        is_learned = label.gate and not label.is_constant
        self.decay = linear(heads, bias=True) if is_learned and label.gate != "dg" else None
        self.a_log = nn.Parameter(torch.empty(heads if label.gate == "sm" else n)) if label.gate[1:] == "m" else None
        self.decay_down = linear(LOW_RANK) if label.gate == "dg" else None
        self.decay_up = nn.Linear(LOW_RANK, n) if label.gate == "dg" else None
        self.strength = linear(heads) if label.mirror[2:] in ("1", "2") else None
        self.direction = linear(n) if label.mirror[1:2] == "z" else None
        self.scale = linear(heads, label.scaling[1] == "i") if label.scaling[1:2] in ("z", "i") else None
        self.eta = linear(heads) if label.norm == "wx" else None
        self.skip = nn.Parameter(torch.empty(heads)) if allocation.value_skip else None
        self.out_gate = linear(m) if label.output == "g" else None
        self.out_norm = nn.RMSNorm(allocation.value_width, eps=NORM_EPS) if label.output == "g" else None
        self.out_sigmoid = linear(m, bias=True) if label.output == "o" else None
        self._draw()

    def reset_parameters(self) -> None:
        """Initialize the parameters. With the same seed, the values equal those of a new mixer.

        The projections q, k, v and o are drawn from N(0, init_std^2), and other weights from N(0, 0.02^2). The gain of
        the RMSNorm and the factor D of the value skip are 1. Biases are 0, except for gates that have to start open:

        - ss: lambda is evenly spaced from 0.9 to 0.99 over heads.
        - sm, dm: Delta is log-uniform in [0.001, 0.1] (Example 2 of the paper). The parameter ``a_log`` is the
          logarithm of a number that is uniform in [1, 16].
        - se: the bias is -0.05.
        """
        redraw_parts(self)
        self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            else:
                parameter.normal_(std=self.init_std if name.split(".")[0] in ("q", "k", "v", "o") else 0.02)
        if self.out_norm:
            self.out_norm.weight.fill_(1)
        if self.skip is not None:
            self.skip.fill_(1)
        if self.decay is None:
            return
        bias = self.decay.bias
        if self.label.gate == "ss":
            bias.copy_(torch.linspace(0.9, 0.99, self.n_head).logit())
        elif self.label.gate == "se":
            bias.fill_(-0.05)
        elif self.a_log is not None:
            delta = bias.uniform_(math.log(0.001), math.log(0.1)).exp()
            bias.copy_(delta + (-(-delta).expm1()).log())  # its softplus is Delta
            self.a_log.uniform_(1, 16).log_()

    def dynamics(self, x: Tensor, cache: Cache | None = None) -> tuple[Dynamics, tuple[Tensor | None, Tensor | None]]:
        """Return the :class:`Dynamics` of x (B, T, D), and two tensors that the next tokens need besides the state.

        These are the running maximum and the last inputs of the convolutions. Each is None if the label has none.
        ``cache`` is the cache after the tokens before x. It is None at the start of a sequence.
        """
        position, before, maximum = (cache.position, cache.inputs, cache.maximum) if cache else (0, None, None)
        d, log_scale, inputs = self.ingredients(x, position, before)
        with without_autocast(x):
            if self.label.norm == "pow" and self.is_homogeneous:  # lambda^(i-j) / lambda^i = lambda^-j
                inverse = -self.log_pow(x.shape[1], position, d.q)
                log_scale, d = inverse if log_scale is None else log_scale + inverse, replace(d, log_gate=None)
            elif self.label.norm == "pow":
                d = replace(d, log_norm=self.log_pow(x.shape[1], position, d.q))
            if self.label.has_maximum:
                log_inputs = torch.zeros_like(d.q[..., 0]) if log_scale is None else log_scale
                with torch.no_grad():
                    m, m_before = running_maximum(d.log_gate, log_inputs, maximum)
                maximum = m[..., -1]
                shift, log_scale = (m_before - m).to(log_inputs.dtype)[..., None], log_inputs - m.to(log_inputs.dtype)
                row_log = m.to(log_inputs.dtype) if d.row_log is None else m.to(log_inputs.dtype) + d.row_log
                d = replace(d, log_gate=shift if d.log_gate is None else d.log_gate + shift, row_log=row_log)
            if log_scale is not None:
                scale = log_scale.exp()
                mirrors = d.mirrors
                if mirrors is not None and mirrors.length is not None:
                    mirrors = mirrors._replace(length=mirrors.length * scale)
                d = replace(d, k=d.k * scale[..., None], mirrors=mirrors)
        return d, (maximum, inputs)

    def ingredients(
        self, x: Tensor, position: int = 0, before: Tensor | None = None
    ) -> tuple[Dynamics, Tensor | None, Tensor | None]:
        """Return the dynamics of x (B, T, D), the logarithm of a missing factor of keys, and inputs of convolutions.

        Keys are not multiplied by the factor yet, because it may be huge. Its logarithm is (B, H, T), or None for a
        factor of 1. The returned inputs of the convolutions are the last three, or None if there are no convolutions.
        ``before`` has those before x, or None at the start of a sequence. The first row of x is at ``position``.
        """
        label, heads = self.label, self.n_head
        q, k, v, inputs = self._project(x, before)
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k, v = (split_heads(side, heads) for side in (q, k, v))
        with without_autocast(x):
            x, q, k = x.to(dtype), q.to(dtype), k.to(dtype)
            v = v if self.label.is_softmax else v.to(dtype)
            if label.unit:
                q, k = parts.unit(q), parts.unit(k)
            if label.rope:
                angles = rotary_angles(q, position)
                q, k = rotate(q, position, angles=angles), rotate(k, position, angles=angles)
            log_gate, delta = self._gate(x)
            beta = self._strength(x) if label.mirror else None
            b, log_b = self._scaling(x, log_gate, delta, beta)
            row_log = mirrors = None
            if label.is_kernel:
                if label.readout == "kexp" and label.norm == "sum":
                    row_log = q.detach().amax(-1)
                    q = q - row_log[..., None]
                psi = parts.FEATURES[label.readout]
                q, k = psi(q), psi(k * b)
            if beta is not None and self.direction:
                w = parts.unit(split_heads(call_in_dtype_of_input(self.direction, x), heads))
                mirrors = Mirrors(w, beta)
            elif beta is not None:
                w = parts.unit(k)
                length = parts.length(k) if label.is_kernel else parts.length(k) * b
                mirrors = Mirrors(w, beta, length.squeeze(-1))
            k = k if label.is_kernel else k * b
            log_norm = call_in_dtype_of_input(self.eta, x).transpose(1, 2) if self.eta else None
        return Dynamics(q, k, v, log_gate, mirrors, row_log, log_norm), log_b, inputs

    def _project(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return q and k (B, T, N) and v (B, T, M) of x (B, T, D), and the last three inputs of the convolutions.

        The convolutions of the next token read these inputs. They are None if the label has no convolutions. ``before``
        has the last inputs before x, or None at the start of a sequence.
        """
        q, k, v = project(x, self.q, self.k, self.v)
        if not (q_conv := self.q_conv) or not (k_conv := self.k_conv) or not (v_conv := self.v_conv):
            return q, k, v, None
        widths = [side.shape[-1] for side in (q, k, v)]
        if before is None:
            before = q.new_zeros(x.shape[0], CONV_TAPS - 1, sum(widths))
        inputs = [q, k, v]
        if not is_symbolic(x.shape[1]):  # a slice would fix the least length of exported programs
            inputs = [side[:, 1 - CONV_TAPS :] for side in inputs]
        last = torch.cat((before, torch.cat(inputs, dim=-1)), dim=1)[:, 1 - CONV_TAPS :]
        sides = zip((q_conv, k_conv, v_conv), (q, k, v), before.split(widths, dim=-1))
        q, k, v = (F.silu(conv(side, earlier)) for conv, side, earlier in sides)
        return q, k, v, last

    def _gate(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the logarithm of the gates of x, and their steps Delta (B, H, T, 1).

        The logarithm is (B, H, T, 1 or n), or (1, 1, T, 1) for a constant gate. Each is None if the label does not have
        it.
        """
        label = self.label
        if not label.gate:
            return None, None
        if self.decay:
            logits = call_in_dtype_of_input(self.decay, x)
        elif self.decay_down and self.decay_up:
            logits = call_in_dtype_of_input(self.decay_up, call_in_dtype_of_input(self.decay_down, x))
        else:
            return x.new_full((1, 1, x.shape[1], 1), math.log(float(label.gate))), None
        a_log = None if self.a_log is None else self.a_log.to(x.dtype).view(self.n_head, 1, -1)
        return parts.log_lambda(label.gate, split_heads(logits, self.n_head), a_log)

    def _strength(self, x: Tensor) -> Tensor:
        """The strengths beta (B, H, T) of the mirrors."""
        if not self.strength:
            return x.new_full((x.shape[0], self.n_head, x.shape[1]), 2)
        beta = call_in_dtype_of_input(self.strength, x).transpose(1, 2).sigmoid()
        return 2 * beta if self.label.mirror.endswith("2") else beta

    def _scaling(
        self, x: Tensor, log_gate: Tensor | None, delta: Tensor | None, beta: Tensor | None
    ) -> tuple[Tensor | float, Tensor | None]:
        """Return the scale b_j of the keys as two factors: the first factor, and the logarithm of the second.

        Usually the first factor is b_j, a number or (B, H, T, 1), and the logarithm is None, for a factor of 1. If b_j
        may be huge, the first factor is 1, or 1 / sqrt(n) for keys of width n, and the logarithm is (B, H, T).
        ``log_gate`` and ``delta`` are the results of :meth:`_gate`, and ``beta`` is that of :meth:`_strength`.
        """
        kind = self.label.scaling[1:2]
        norm = 1.0 if kind and not self.label.scaling.endswith("n") else self.allocation.key_width**-0.5
        if kind in ("", "1"):
            return norm, None
        if self.scale:
            b = call_in_dtype_of_input(self.scale, x).transpose(1, 2)[..., None]
            if self.label.has_log_scale:
                return norm, b.squeeze(-1)
            b = b.exp() if kind == "i" else b.sigmoid()
        elif kind == "d":
            b = cast(Tensor, delta)
        elif kind == "w":
            b = cast(Tensor, beta)[..., None]
        else:
            b = -torch.expm1(cast(Tensor, log_gate))
        return b * norm, None

    def log_pow(self, length: int, position: int, like: Tensor) -> Tensor:
        """The logarithms (1, 1, T) of the powers lambda^i of a constant gate lambda, for T rows.

        The T = ``length`` rows begin at ``position``. i is counted from 1: the first row of a sequence, at position 0,
        has i = 1. The dtype and the device are those of ``like``.
        """
        rows = torch.arange(position + 1, position + length + 1, device=like.device, dtype=like.dtype)
        return (rows * math.log(float(self.label.gate)))[None, None]
