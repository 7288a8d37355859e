"""Every label of coefficient dynamics as one module: project, gate, score, read out, normalise, combine."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.cd import forms, parts
from madbench.mixers.cd.budget import CONV_TAPS, LOW_RANK, Allocation
from madbench.mixers.cd.forms import Dynamics
from madbench.mixers.cd.reference import reference
from madbench.mixers.probe import Probe, by_lag
from madbench.mixers.srg.parts import ShortConv, rotate

PATHS = ("auto", "reference", "dense", "chunked", "blocks", "sdpa")
DENSE_LIMIT_LENGTH = 512
DENSE_LIMIT_BYTES = 2**30  # of one (B, H, T, T) float32 tensor
NORM_EPS = 1e-6  # of the RMSNorm of output gate g


class Coefficients(NamedTuple):
    """What a mixer multiplies the values with, zero for j > i."""

    score: Tensor  # (B, H, T, T) s_ij = qbar_i . h_ij
    alpha: Tensor  # (B, H, T, T) phi(s_ij)
    eta: Tensor  # (B, H, T)
    a: Tensor  # (B, H, T, T) alpha_ij / eta_i


@dataclass(frozen=True)
class Cache:
    """State of token-by-token decoding. It grows with the sequence only where the readout is not linear."""

    state: Tensor  # (B, H, n, V) Z, a column more for a sum; or (B, H, n, S) the keys h_tj, oldest first
    values: Tensor | None  # (B, H, S, V) those of the keys
    maximum: Tensor | None  # (B, H) running maximum m_t; Z lacks a factor e^m_t
    inputs: Tensor | None  # (B, 3, 2 N + M) last inputs of the convolutions
    position: int  # tokens decoded so far


class CoefficientMixer(nn.Module):
    """One causal mixer whose coefficients are outputs of linear dynamics (paper, eq. 2-4). Per head and row i::

        h_jj = kbar_j,  h_ij = A_i h_(i-1)j        A_t = (I - beta_t w_t w_t^T) diag(lambda_t)
        s_ij = qbar_i . h_ij                       alpha_ij = phi(s_ij), of a kernel readout s_ij
        y_i = sum_(j<=i) alpha_ij / eta_i v_j      out_i = concat_heads(y_i) W_o

    The label says phi, A, the scale b_j in kbar_j, eta, and whether queries and keys are convolved, made of unit length
    and rotated, and whether y is gated. Where the paper leaves room: sums run from 1; the gate acts before the mirror;
    psi of a kernel acts before A; all gates read x_t; sums smaller than 1e-12 are replaced by that.

    Args:
        allocation: label, size and ranks, from :func:`madbench.mixers.cd.budget.solve`.
        settings: ``init_std``, at which q, k, v and o start.
        path: ``auto``, or one of ``reference`` (float64 loops), ``dense`` (all pairs at once), ``chunked`` (blocks of
            ``chunk`` rows and a state between them, linear in T; id and kernels), ``blocks`` (blocks of ``chunk`` query
            rows against the keys before them, recomputed in the backward pass) and ``sdpa`` (torch's scaled dot product
            attention; exp with sum and A = I). All compute the same function.

    Parameters: exactly ``allocation.total``.
    """

    def __init__(self, allocation: Allocation, settings: Any, path: str = "auto"):
        super().__init__()
        if path not in PATHS:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, PATHS)}")
        label, d_model, heads = allocation.label, allocation.size.d_model, allocation.size.n_head
        self.allocation, self.variant, self.max_len = allocation, label, allocation.size.max_len
        self.n_head, self.init_std = heads, settings.init_std
        self.chunk = 64 if label.is_recurrent else 128
        self.is_softmax = (label.readout, label.gate, label.mirror, label.norm) == ("exp", "", "", "sum")
        # phi(s e^m) = phi(s) e^m, so a factor of a row, or of a key, may be carried outside
        self.is_homogeneous = label.is_recurrent or label.readout == "relu"
        self.has_log_scale = label.scaling.startswith("bi") and label.readout == "id"
        self.has_maximum = label.is_recurrent and (label.gate == "se" or self.has_log_scale)
        if path == "chunked" and not label.is_recurrent:
            raise TrainingError(f"path 'chunked' needs a readout that is linear in the state, not {label}; use 'auto'")
        if path == "sdpa" and not self.is_softmax:
            raise TrainingError(f"path 'sdpa' computes 'exp' with 'sum' and A = I, not {label}; use 'auto'")
        self.path = path

        def linear(out: int, bias: bool = False) -> nn.Linear:
            return nn.Linear(d_model, out, bias=bias)

        n, m = allocation.qk_rank, allocation.vo_rank
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
        self.out_gate = linear(m) if label.output == "g" else None
        self.out_norm = nn.RMSNorm(allocation.value_width, eps=NORM_EPS) if label.output == "g" else None
        self.out_sigmoid = linear(m, bias=True) if label.output == "o" else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """N(0, 0.02^2), q, k, v and o N(0, init_std^2), gain 1, biases 0 but for gates, which start open.

        ss: lambda evenly from 0.9 to 0.99 over heads; sm, dm: Delta log-uniform in [0.001, 0.1] (Example 2) and e^a
        uniform in [1, 16]; se: c = -0.05.
        """
        for name, parameter in self.named_parameters():
            if name.endswith(".bias"):
                parameter.zero_()
            else:
                parameter.normal_(std=self.init_std if name.split(".")[0] in ("q", "k", "v", "o") else 0.02)
        if self.out_norm:
            self.out_norm.weight.fill_(1)
        if self.variant.gate == "ss":
            self.decay.bias.copy_(torch.linspace(0.9, 0.99, self.n_head).logit())
        elif self.variant.gate == "se":
            self.decay.bias.fill_(-0.05)
        elif self.a_log is not None:
            delta = self.decay.bias.uniform_(math.log(0.001), math.log(0.1)).exp()
            self.decay.bias.copy_(delta + (-(-delta).expm1()).log())  # softplus of it is Delta
            self.a_log.uniform_(1, 16).log_()

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D); row t depends on rows 0..t only. Raises ``TrainingError`` when T is 0."""
        path = self.resolve_path(*x.shape[:2])
        if path == "reference":
            return reference(dict(self.named_parameters()), self.variant, self.n_head, x).to(x.dtype)
        d, _ = self._dynamics(x)
        with _float32(x):
            if path == "sdpa":
                q, k = d.q.to(d.v.dtype), d.k.to(d.v.dtype)
                y = F.scaled_dot_product_attention(q, k, d.v, is_causal=True, scale=1.0)
            elif path == "dense":
                y = self._combine(forms.scores(d), d, 0)
            elif path == "chunked":
                y = self._scaled(forms.chunked(d, self.chunk, self._summed(d)), d)
            else:
                y = self._combine_in_blocks(d)
        return self._read_out(y, x)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decodes one token: x (B, D) -> output (B, D) and the cache for the next one.

        Equals row ``cache.position`` of :meth:`forward`. Time and cache are O(1) for id and kernels. Other readouts keep
        every key; ``slide`` keeps the newest ``max_len`` of them.
        """
        if x.dim() != 2:
            raise TrainingError(
                f"{self.variant}: a step takes one token of each sequence, (B, D), not {tuple(x.shape)}"
            )
        row = x[:, None]
        d, (maximum, inputs) = self._dynamics(row, cache)
        position = cache.position + 1 if cache else 1
        with _float32(x):
            state = forms.evolve(cache.state, d) if cache else None
            if self.variant.is_recurrent:
                new, values = d.k.mT @ self._summed(d), None
                state = new if state is None else state + new
                y = self._scaled(d.q @ state, d)
            else:
                state = d.k.mT if state is None else torch.cat((state, d.k.mT), dim=-1)
                values = torch.cat((cache.values, d.v), dim=2) if cache else d.v
                if slide:
                    state, values = state[..., -self.max_len :], values[:, :, -self.max_len :]
                y = self._combine(d.q @ state, replace(d, v=values), None)
        return self._read_out(y, row)[:, 0], Cache(state, values, maximum, inputs, position)

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for an input of this shape."""
        if length == 0:
            raise TrainingError(f"{self.variant}: 0 tokens; a sequence has at least one")
        if self.path != "auto":
            return self.path
        if self.is_softmax:
            return "sdpa"
        pairs = batch * self.n_head * length * length * 4
        if length <= self.chunk or length <= DENSE_LIMIT_LENGTH and pairs <= DENSE_LIMIT_BYTES:
            return "dense"
        return "chunked" if self.variant.is_recurrent else "blocks"

    @torch.no_grad()
    def coefficients(self, x: Tensor) -> Coefficients:
        """Scores, coefficients and their normalisation of every head, for x (B, T, D); before output gates."""
        label, (d, _) = self.variant, self._dynamics(x)
        with _float32(x):
            s, seen = forms.scores(d), _visible(x.shape[1], x.shape[1], 0, x.device)
            a, scale = parts.activate(label, s, seen, d.row_log, d.log_norm)
            a = a if scale is None else a * scale[..., None]
            log_pow = self._log_pow(x.shape[1], 0, s) if label.norm == "pow" else None
            row_log = [log for log in (d.row_log, log_pow if self.is_homogeneous else None) if log is not None]
            s = s * sum(row_log)[..., None].exp() if row_log else s
            alpha = parts.read_out(label.readout, s).masked_fill(~seen, 0)
            if label.norm in ("sum", "max"):
                total = alpha.sum(-1)
                eta = parts.away_from_zero(total, parts.EPS) if label.norm == "sum" else total.abs().clamp(min=1)
            else:
                log_eta = log_pow if label.norm == "pow" else d.log_norm
                eta = torch.ones_like(s[..., 0]) if log_eta is None else log_eta.exp().expand_as(s[..., 0])
        return Coefficients(s, alpha, eta, a)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """Scores, normalised coefficients, and the gates that the input decides: decay lambda, strength beta, output.

        Active are coefficients that a ReLU leaves; other readouts have none that are zero for a set of scores.
        """
        found, (d, *_) = self.coefficients(x), self._ingredients(x, 0, None)
        gates = {"lambda": d.log_gate.exp()} if self.decay or self.decay_down else {}
        if self.strength:
            gates |= {"beta/2": d.beta / 2} if self.variant.mirror.endswith("2") else {"beta": d.beta}
        gates = {name: values.transpose(1, 2) for name, values in gates.items()}
        gates |= {"output": torch.sigmoid(self.out_sigmoid(x))} if self.out_sigmoid else {}
        active = by_lag(found.alpha > 0) if self.variant.readout in ("relu", "krelu") else None
        return Probe(by_lag(found.a), by_lag(found.score.tril()), active, gates)

    @torch.no_grad()
    def evolution(self, x: Tensor) -> Tensor:
        """A_t of every row and head: x (B, T, D) -> (B, T, H, n, n)."""
        d = self._ingredients(x, 0, None)[0]
        n = d.q.shape[-1]
        gate = d.q.new_zeros(1, 1, 1, 1) if d.log_gate is None else d.log_gate
        a = torch.diag_embed(gate.exp().expand_as(d.q))
        if d.w is not None:
            a = (torch.eye(n, dtype=a.dtype, device=a.device) - d.beta[..., None, None] * _outer(d.w)) @ a
        return a.transpose(1, 2)

    def _dynamics(self, x: Tensor, cache: Cache | None = None) -> tuple[Dynamics, tuple[Tensor | None, Tensor | None]]:
        """The rows as the forms take them, and the running maximum and inputs that the next rows start from."""
        position, before, maximum = (cache.position, cache.inputs, cache.maximum) if cache else (0, None, None)
        d, log_scale, inputs = self._ingredients(x, position, before)
        with _float32(x):
            if self.variant.norm == "pow" and self.is_homogeneous:  # lambda^(i-j) / lambda^i = lambda^-j
                inverse = -self._log_pow(x.shape[1], position, d.q)
                log_scale, d = inverse if log_scale is None else log_scale + inverse, replace(d, log_gate=None)
            elif self.variant.norm == "pow":
                d = replace(d, log_norm=self._log_pow(x.shape[1], position, d.q))
            if self.has_maximum:
                given = torch.zeros_like(d.q[..., 0]) if log_scale is None else log_scale
                m, m_before = parts.running_maximum(d.log_gate, given, maximum)
                maximum = m[..., -1]
                shift, log_scale = (m_before - m).to(given.dtype)[..., None], given - m.to(given.dtype)
                row_log = m.to(given.dtype) if d.row_log is None else m.to(given.dtype) + d.row_log
                d = replace(d, log_gate=shift if d.log_gate is None else d.log_gate + shift, row_log=row_log)
            if log_scale is not None:
                d = replace(d, k=d.k * log_scale.exp()[..., None])
        return d, (maximum, inputs)

    def _ingredients(
        self, x: Tensor, position: int, before: Tensor | None
    ) -> tuple[Dynamics, Tensor | None, Tensor | None]:
        """Rows from ``position`` on, log b_j where it is still to be multiplied in, and the last inputs of the convs."""
        label, heads = self.variant, self.n_head
        q, k, v, inputs = self._project(x, before)
        dtype = torch.promote_types(q.dtype, torch.float32)
        q, k, v = (parts.split_heads(side, heads) for side in (q, k, v))
        with _float32(x):
            x, q, k = x.to(dtype), q.to(dtype), k.to(dtype)
            v = v if self.is_softmax else v.to(dtype)
            if label.unit:
                q, k = parts.unit(q), parts.unit(k)
            if label.rope:
                q, k = rotate(q, position), rotate(k, position)
            log_gate, delta = self._gate(x)
            beta = self._strength(x) if label.mirror else None
            b, log_b = self._scaling(x, log_gate, delta, beta)
            row_log = None
            if label.is_kernel:
                if label.readout == "kexp" and label.norm == "sum":
                    row_log = q.detach().amax(-1)
                    q = q - row_log[..., None]
                psi = parts.FEATURES[label.readout]
                q, k = psi(q), psi(k * b)
            w = None
            if label.mirror:
                w = parts.unit(parts.split_heads(_linear(self.direction, x), heads) if self.direction else k)
            k = k if label.is_kernel else k * b
            log_norm = _linear(self.eta, x).transpose(1, 2) if self.eta else None
        return Dynamics(q, k, v, log_gate, w, beta, row_log, log_norm), log_b, inputs

    def _project(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """q, k and v (B, T, N or M), and the three rows that the convs of the next token read."""
        weights = (self.q.weight, self.k.weight, self.v.weight)
        widths = [len(weight) for weight in weights]
        rows = F.linear(x, torch.cat(weights))
        if not self.q_conv:
            return *rows.split(widths, dim=-1), None
        if before is None:
            before = rows.new_zeros(x.shape[0], CONV_TAPS - 1, rows.shape[-1])
        convs = (self.q_conv, self.k_conv, self.v_conv)
        sides = zip(convs, rows.split(widths, dim=-1), before.split(widths, dim=-1))
        q, k, v = (F.silu(conv(side, earlier)) for conv, side, earlier in sides)
        return q, k, v, torch.cat((before, rows), dim=1)[:, 1 - CONV_TAPS :]

    def _gate(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """log lambda (B, H, T, 1 or n), (1, 1, T, 1) where it is constant, and Delta."""
        label = self.variant
        if not label.gate:
            return None, None
        if label.is_constant:
            return x.new_full((1, 1, x.shape[1], 1), math.log(float(label.gate))), None
        logits = _linear(self.decay, x) if self.decay else _linear(self.decay_up, _linear(self.decay_down, x))
        a_log = None if self.a_log is None else self.a_log.to(x.dtype).view(self.n_head, 1, -1)
        return parts.log_lambda(label.gate, parts.split_heads(logits, self.n_head), a_log)

    def _strength(self, x: Tensor) -> Tensor:
        """beta (B, H, T)."""
        if not self.strength:
            return x.new_full((x.shape[0], self.n_head, x.shape[1]), 2)
        beta = _linear(self.strength, x).transpose(1, 2).sigmoid()
        return 2 * beta if self.variant.mirror.endswith("2") else beta

    def _scaling(
        self, x: Tensor, log_gate: Tensor | None, delta: Tensor | None, beta: Tensor | None
    ) -> tuple[Tensor | float, Tensor | None]:
        """b_j as a factor (B, H, T, 1), and log b_j (B, H, T) of what is left to multiply by where it may be huge."""
        kind = self.variant.scaling[1:2]
        norm = 1.0 if kind and not self.variant.scaling.endswith("n") else self.allocation.key_width**-0.5
        if kind in ("", "1"):
            return norm, None
        if kind == "d":
            b = delta
        elif kind == "w":
            b = beta[..., None]
        elif kind == "u":
            b = -torch.expm1(log_gate)
        else:
            b = _linear(self.scale, x).transpose(1, 2)[..., None]
            if kind == "i" and self.has_log_scale:
                return norm, b.squeeze(-1)
            b = b.exp() if kind == "i" else b.sigmoid()
        return b * norm, None

    def _log_pow(self, length: int, position: int, like: Tensor) -> Tensor:
        """log lambda^i of the rows from ``position`` on, (1, 1, T)."""
        rows = torch.arange(position + 1, position + length + 1, device=like.device, dtype=like.dtype)
        return (rows * math.log(float(self.variant.gate)))[None, None]

    def _summed(self, d: Dynamics) -> Tensor:
        """The values, and a column of ones where eta needs the sum of the coefficients."""
        return F.pad(d.v, (0, 1), value=1.0) if self.variant.norm in ("sum", "max") else d.v

    def _scaled(self, y: Tensor, d: Dynamics) -> Tensor:
        """Rows of values, and of :meth:`_summed` ones, times 1 / eta."""
        sums = None
        if self.variant.norm in ("sum", "max"):
            y, sums = y[..., :-1], y[..., -1]
        scale = parts.row_scale(self.variant, sums, d.row_log, d.log_norm)
        return y if scale is None else y * scale[..., None]

    def _combine(self, s: Tensor, d: Dynamics, first_row: int | None) -> Tensor:
        """Scores (B, H, R, S) of the rows from ``first_row`` on, of a row that sees all if None -> (B, H, R, V)."""
        seen = None if first_row is None else _visible(*s.shape[2:], first_row, s.device)
        a, scale = parts.activate(self.variant, s, seen, d.row_log, d.log_norm)
        y = a @ d.v.to(a.dtype)
        return y if scale is None else y * scale[..., None]

    def _combine_in_blocks(self, d: Dynamics) -> Tensor:
        length, blocks, found = d.v.shape[2], forms.split(d, self.chunk), []
        for block in range(blocks.scores.shape[2]):
            how = {"use_reentrant": False, "preserve_rng_state": False}  # a block draws no random numbers
            found.append(checkpoint(self._combine_block, blocks, d, block, length, **how))
        return torch.cat(found, dim=2)

    def _combine_block(self, blocks: forms.Blocks, d: Dynamics, block: int, length: int) -> Tensor:
        start, end = block * self.chunk, min((block + 1) * self.chunk, length)
        s = forms.block_scores(blocks, block)[:, :, : end - start, :end]
        of_rows = {name: _rows(getattr(d, name), start, end) for name in ("row_log", "log_norm")}
        return self._combine(s, replace(d, v=d.v[:, :, :end], **of_rows), start)

    def _read_out(self, y: Tensor, x: Tensor) -> Tensor:
        """Output gate and projection: y (B, H, T, V) -> (B, T, D)."""
        if self.out_norm:
            y = self.out_norm(y.to(self.out_norm.weight.dtype))
        y = y.transpose(1, 2).flatten(-2).to(self.o.weight.dtype)
        if self.out_gate:
            y = y * F.silu(self.out_gate(x))
        if self.out_sigmoid:
            y = y * self.out_sigmoid(x).sigmoid()
        return self.o(y)


def _float32(x: Tensor) -> torch.autocast:
    """No autocast: gates, states, solves and sums are in float32 at least."""
    return torch.autocast(x.device.type, enabled=False)


def _linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """The layer in the precision of its input."""
    return F.linear(x, layer.weight.to(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))


def _visible(rows: int, keys: int, first_row: int, device: torch.device) -> Tensor:
    return torch.ones(rows, keys, dtype=torch.bool, device=device).tril(first_row)


def _rows(x: Tensor | None, start: int, end: int) -> Tensor | None:
    return None if x is None else x[..., start:end]


def _outer(w: Tensor) -> Tensor:
    return w[..., :, None] * w[..., None, :]
