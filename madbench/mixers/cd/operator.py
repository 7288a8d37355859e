"""The mixer of every ``cd:`` label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.cd import parts
from madbench.mixers.cd.budget import CdAllocation
from madbench.mixers.cd.grammar import DIAGONAL_GATES
from madbench.mixers.cd.projections import Cache, Projections
from madbench.mixers.cd.reference import reference
from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.ops.derivatives import refuse_second
from madbench.mixers.ops.linear_maps import call, check_weights, weight_of
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.recompute import recompute
from madbench.mixers.ops.tracing import is_symbolic, needs_plain_operators
from madbench.mixers.probe import Probe, by_lag
from madbench.mixers.recurrence import forms, library
from madbench.mixers.recurrence.forms import Dynamics

DENSE_LIMIT_LENGTH = 512
DENSE_LIMIT_BYTES = 2**30  # largest (B, H, T, T) float32 tensor of the dense path


class Coefficients(NamedTuple):
    """The coefficients by which a mixer multiplies the values, and the parts from which they are computed.

    Row i has coefficients for the tokens j. Those with j > i are zero.
    """

    score: Tensor  # (B, H, T, T) s_ij = qbar_i . h_ij
    alpha: Tensor  # (B, H, T, T) phi(s_ij)
    eta: Tensor  # (B, H, T)
    a: Tensor  # (B, H, T, T) alpha_ij / eta_i


class CoefficientMixer(Projections):
    """A causal mixer whose coefficients come from linear dynamics (arXiv 2510.09389, eq. 2-4). Per head and row i::

        h_jj = kbar_j,  h_ij = A_i h_(i-1)j        A_t = (I - beta_t w_t w_t^T) diag(lambda_t)
        s_ij = qbar_i . h_ij                       alpha_ij = phi(s_ij), or s_ij for a kernel readout
        y_i = sum_(j<=i) alpha_ij / eta_i v_j      out_i = concat_heads(y_i) W_o

    qbar_i is the query and kbar_j the key times a scale b_j. A kernel readout applies its function psi to both. With
    ``value_skip``, D v_i is added to y_i, where D is one number per head (as in Mamba-2). It is not part of the
    coefficients.

    The label specifies phi, A, b and eta. It also specifies whether queries and keys are convolved, scaled to unit
    length and rotated, and whether y is gated. Where the paper leaves a choice, sums run from 1, the gate acts before
    the mirror, psi acts before A, all gates read x_t, and sums smaller than 1e-12 are replaced by 1e-12.

    Args:
        allocation: label, size and ranks, from :func:`madbench.mixers.cd.budget.solve`.
        settings: ``init_std``, the initial standard deviation of q, k, v and o.
        path: ``auto``, or one of these paths. All compute the same function.

            - ``reference``: loops in float64
            - ``dense``: all pairs at once
            - ``chunked``: blocks of ``chunk`` rows and a state between them, linear in T; id and kernels
            - ``blocks``: blocks of ``chunk`` query rows and all keys before them, recomputed in the backward pass
            - ``sdpa``: torch's scaled dot product attention; exp with sum and A = I
            - ``fla``: kernels of flash-linear-attention on a GPU, in 16 bits; id and kernels

    The mixer has exactly ``allocation.total`` parameters. Raises ``TrainingError`` for an unknown path, and for one
    that cannot compute the label.
    """

    paths = ("auto", "reference", "dense", "chunked", "blocks", "sdpa", "fla")

    def __init__(self, allocation: CdAllocation, settings: Any, path: str = "auto"):
        if path not in self.paths:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, self.paths)}")
        super().__init__(allocation, settings.init_std)
        label, self.max_len = allocation.label, allocation.size.max_len
        # with a gate per coordinate, or a linear system to solve, small blocks are cheaper than all pairs
        is_diagonal = label.gate in DIAGONAL_GATES
        is_costly = bool(label.mirror) or is_diagonal
        if label.is_recurrent:
            self.chunk = 16 if is_diagonal else 32
        else:
            self.chunk = 64 if is_costly else 128
        self.chunks_per_prompt_block = 4 if label.is_recurrent and is_diagonal else 1
        """The number of rows per block of a prompt, as a multiple of ``chunk``. It is larger with a gate per
        coordinate, because such blocks cost less without gradients."""
        self.dense_limit = self.chunk if label.is_recurrent or is_costly else DENSE_LIMIT_LENGTH
        if path in ("chunked", "fla") and not label.is_recurrent:
            raise TrainingError(f"path {path!r} needs a readout that is linear in the state, not {label}; use 'auto'")
        if path == "sdpa" and not self.label.is_softmax:
            raise TrainingError(f"path 'sdpa' computes 'exp' with 'sum' and A = I, not {label}; use 'auto'")
        self.path = path

    def forward(self, x: Tensor) -> Tensor:
        """Mix the tokens of x: (B, T, D) -> (B, T, D). Row t depends on rows 0..t only.

        Raises ``TrainingError`` if x has another shape, is not in floating point, or has no tokens.
        """
        check_sequences(x, self.label, self.allocation.size.d_model)
        path = self.resolve_path(*x.shape[:2])
        if path == "reference":
            return self.reference(x).to(x.dtype)
        d, _ = self.dynamics(x)
        dtype = library.arithmetic(x) if path == "fla" else None
        with without_autocast(x):
            if path == "chunked":
                y = self._divide_by_eta(forms.chunked(d, self.chunk, self._with_ones(d))[0], d)
            elif dtype is not None:
                y = self._divide_by_eta(library.combine(d, self._with_ones(d), dtype, self.is_delta_rule), d)
            else:
                y = self._combine_rows(d, path)
        return self._read_out(self._with_skip(y, d), x)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        """Compute the rows ``rows`` of :meth:`forward`, with loops in float64: x (B, T, D) -> (B, len(rows), D).

        If ``rows`` is None, all rows are computed. Raises ``TrainingError`` if a linear map is not an unchanged
        ``nn.Linear``.
        """
        check_weights(self, "q", "k", "v", "o")
        return reference(dict(self.named_parameters()), self.label, self.n_head, x, rows)

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
        """Compute a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`. Readout ``id`` and kernel readouts use the path ``chunked``
        and keep its last state. Other readouts keep all keys, as they are after the last row. With ``slide``, other
        readouts decode tokens beyond ``max_len`` one by one.
        """
        check_sequences(x, self.label, self.allocation.size.d_model)
        whole = x[:, : self.max_len] if slide and not self.label.is_recurrent else x
        length = whole.shape[1]
        size = min(self.chunks_per_prompt_block * self.chunk, length)
        by_halves = self.label.gate in DIAGONAL_GATES
        (d, (maximum, inputs)), values = self.dynamics(whole), None
        with without_autocast(x):
            if self.label.is_recurrent:
                y, state = forms.chunked(d, size, self._with_ones(d), by_halves)
                y = self._divide_by_eta(y, d)
            elif d.mirrors is not None:
                y, state, values = *self._combine_with_mirrors(d, forms.split(d, size, by_halves)), d.v
            else:
                path = self.resolve_path(len(x), length)
                y = self._combine_rows(d, path, None if path in ("sdpa", "dense") else forms.split(d, size, by_halves))
                state, values = forms.evolved_keys(d).mT, d.v
        rows = self._read_out(self._with_skip(y, d), whole)
        cache = Cache(state, values, maximum, inputs, length)
        return decode_rest(self.step, rows, cache, x[:, length:], slide)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decode one token x (B, D). Return the output (B, D) and the cache for the next token.

        The output equals row ``cache.position`` of :meth:`forward`, or row 0 if ``cache`` is None. For readout ``id``
        and kernel readouts, time and cache are O(1). Other readouts keep every key, or with ``slide`` the newest
        ``max_len`` keys.
        """
        check_tokens(x, self.label, self.allocation.size.d_model)
        row = x[:, None]
        d, (maximum, inputs) = self.dynamics(row, cache)
        position = cache.position + 1 if cache else 1
        with without_autocast(x):
            state = forms.evolve(cache.state, d) if cache else None
            if self.label.is_recurrent:
                new, values = d.k.mT @ self._with_ones(d), None
                state = new if state is None else state + new
                y = self._divide_by_eta(d.q @ state, d)
            else:
                state = d.k.mT if state is None else torch.cat((state, d.k.mT), dim=-1)
                values = torch.cat((cast(Tensor, cache.values), d.v), dim=2) if cache else d.v
                if slide:
                    state, values = state[..., -self.max_len :], values[:, :, -self.max_len :]
                y = self._combine(d.q @ state, replace(d, v=values), None)
        return self._read_out(self._with_skip(y, d), row)[:, 0], Cache(state, values, maximum, inputs, position)

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path that :meth:`forward` takes for an input (``batch``, ``length``, D)."""
        if self.path != "auto":
            return self.path
        if self.label.is_softmax and not needs_plain_operators():
            return "sdpa"
        if is_symbolic(batch, length):
            return "dense"
        pairs = batch * self.n_head * length * length * 4
        if length <= self.chunk or (length <= self.dense_limit and pairs <= DENSE_LIMIT_BYTES):
            return "dense"
        return "chunked" if self.label.is_recurrent else "blocks"

    @torch.no_grad()
    def coefficients(self, x: Tensor) -> Coefficients:
        """The scores, coefficients and divisors eta of every head for x (B, T, D), without gradients.

        Output gates are not included.
        """
        label, (d, _) = self.label, self.dynamics(x)
        with without_autocast(x):
            s = forms.scores(d).tril()
            a, scale = parts.activate(label, s, 0, d.row_log, d.log_norm)
            a = a if scale is None else a * scale[..., None]
            log_pow = self.log_pow(x.shape[1], 0, s) if label.norm == "pow" else None
            row_log = log_pow if self.is_homogeneous else None
            if d.row_log is not None:
                row_log = d.row_log if row_log is None else d.row_log + row_log
            s = s if row_log is None else s * row_log[..., None].exp()
            alpha = parts.read_out(label.readout, s).tril()
            if label.norm in ("sum", "max"):
                total = alpha.sum(-1)
                eta = parts.away_from_zero(total, parts.EPS) if label.norm == "sum" else total.abs().clamp(min=1)
            else:
                log_eta = log_pow if label.norm == "pow" else d.log_norm
                eta = torch.ones_like(s[..., 0]) if log_eta is None else log_eta.exp().expand_as(s[..., 0])
        return Coefficients(s, alpha, eta, a)

    @property
    def is_delta_rule(self) -> bool:
        """True if the label is a delta rule: mirrors are along the row's own key, and their strength also scales it."""
        label = self.label
        return label.mirror.startswith("hk") and label.scaling in ("bw", "bwn") and not label.is_kernel

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """The normalized coefficients, scores and learned gates for x (B, T, D), without gradients.

        The gates, if the label has them, are ``lambda``, ``beta`` (``beta/2`` for strengths up to 2) and ``output``,
        the output gate o. With a ReLU, ``active`` is True where a coefficient is positive. Otherwise it is None,
        because all are active.
        """
        rows, (d, *_) = self.coefficients(x), self.ingredients(x)
        gates = {"lambda": d.log_gate.exp()} if d.log_gate is not None and not self.label.is_constant else {}
        if self.strength and d.mirrors is not None:
            beta = d.mirrors.beta
            gates |= {"beta/2": beta / 2} if self.label.mirror.endswith("2") else {"beta": beta}
        gates = {name: values.transpose(1, 2) for name, values in gates.items()}
        gates |= {"output": torch.sigmoid(self.out_sigmoid(x))} if self.out_sigmoid else {}
        active = by_lag(rows.alpha > 0) if self.label.readout in ("relu", "krelu") else None
        return Probe(by_lag(rows.a), by_lag(rows.score), active, gates)

    @torch.no_grad()
    def evolution(self, x: Tensor) -> Tensor:
        """The matrices A_t by which each row multiplies the state of each head: x (B, T, D) -> (B, T, H, n, n)."""
        d = self.ingredients(x)[0]
        gate = d.q.new_zeros(1, 1, 1, 1) if d.log_gate is None else d.log_gate
        a = torch.diag_embed(gate.exp().expand_as(d.q))
        if d.mirrors is not None:
            w, beta = d.mirrors.w, d.mirrors.beta
            eye = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
            a = (eye - beta[..., None, None] * (w[..., :, None] * w[..., None, :])) @ a
        return a.transpose(1, 2)

    def _with_ones(self, d: Dynamics) -> Tensor:
        """The values (B, H, T, V), with a last column of ones if the divisor eta needs the sum of the coefficients."""
        return F.pad(d.v, (0, 1), value=1.0) if self.label.norm in ("sum", "max") else d.v

    def _divide_by_eta(self, y: Tensor, d: Dynamics) -> Tensor:
        """Divide the rows of y (B, H, T, V) by the normalization eta of the label.

        If eta needs the sums of coefficients, y has them in a further last column (:meth:`_with_ones`).
        """
        sums = None
        if self.label.norm in ("sum", "max"):
            y, sums = y[..., :-1], y[..., -1]
        scale = parts.row_scale(self.label, sums, d.row_log, d.log_norm)
        return y if scale is None else y * scale[..., None]

    def _combine(self, s: Tensor, d: Dynamics, first_row: int | None) -> Tensor:
        """The outputs (B, H, R, V) of R rows, divided by eta, from their scores (B, H, R, S) with S keys.

        Row r sees the keys 0 to ``first_row`` + r. If ``first_row`` is None, all rows see all keys.
        """
        a, scale = parts.activate(self.label, s, first_row, d.row_log, d.log_norm)
        y = a @ d.v.to(a.dtype)
        return y if scale is None else y * scale[..., None]

    def _combine_rows(self, d: Dynamics, path: str, blocks: forms.Blocks | None = None) -> Tensor:
        """The outputs (B, H, T, V) of all rows, divided by eta, on the path ``sdpa``, ``dense`` or ``blocks``.

        ``blocks`` has the blocks of the path ``blocks``. If it is None, they are computed. Other paths ignore it.
        """
        if path == "sdpa":
            q, k = d.q.to(d.v.dtype), d.k.to(d.v.dtype)
            refuse_second(path, (q, k, d.v))
            return F.scaled_dot_product_attention(q, k, d.v, is_causal=True, scale=1.0)
        if path == "dense":
            return self._combine(forms.scores(d), d, 0)
        return self._combine_in_blocks(d, forms.split(d, self.chunk) if blocks is None else blocks)

    def _combine_in_blocks(self, d: Dynamics, blocks: forms.Blocks) -> Tensor:
        count = blocks.scores.shape[2]
        return torch.cat([recompute(self._combine_block, blocks, d, block) for block in range(count)], dim=2)

    def _combine_block(self, blocks: forms.Blocks, d: Dynamics, block: int) -> Tensor:
        return self._combine_from(block * blocks.scores.shape[-1], forms.block_scores(blocks, block), d)

    def _combine_with_mirrors(self, d: Dynamics, blocks: forms.Blocks) -> tuple[Tensor, Tensor]:
        """Return the outputs (B, H, T, V) of a prompt, divided by eta, and its keys, transposed (B, H, n, T).

        The keys have gone through the decays and mirrors of all later rows. The mirrors of a block are applied to the
        keys of all earlier blocks in one product. This takes fewer calls than
        :func:`madbench.mixers.recurrence.forms.block_scores`, which applies them to queries, but keeps the keys of
        every block for the backward pass.
        """
        size, rows = blocks.scores.shape[-1], []
        for block, keys in enumerate(forms.keys_at_borders(blocks)):
            if block < blocks.scores.shape[2]:
                scores = torch.cat((blocks.queries[:, :, block] @ keys.mT, blocks.scores[:, :, block]), dim=-1)
                rows.append(self._combine_from(block * size, scores, d))
        return torch.cat(rows, dim=2), keys[:, :, : d.v.shape[2]].mT

    def _combine_from(self, start: int, s: Tensor, d: Dynamics) -> Tensor:
        """The outputs (B, H, R, V) of the rows from ``start`` on, divided by eta, from their scores (B, H, R, S).

        Rows and keys beyond the end of the sequence, which fill the last block, are left out.
        """
        end = min(start + s.shape[2], d.v.shape[2])
        row_log, log_norm = (None if x is None else x[..., start:end] for x in (d.row_log, d.log_norm))
        of_rows = replace(d, v=d.v[:, :, :end], row_log=row_log, log_norm=log_norm)
        return self._combine(s[:, :, : end - start, :end], of_rows, start)

    def _with_skip(self, y: Tensor, d: Dynamics) -> Tensor:
        return y if self.skip is None else y + self.skip.to(y.dtype)[:, None, None] * d.v

    def _read_out(self, y: Tensor, x: Tensor) -> Tensor:
        """Apply the output gate and the output projection: y (B, H, T, V) and the mixer's input x -> (B, T, D)."""
        if self.out_norm:
            y = self.out_norm(y.to(self.out_norm.weight.dtype))
        y = y.transpose(1, 2).flatten(-2).to(weight_of(self.o).dtype)
        if self.out_gate:
            y = y * F.silu(self.out_gate(x))
        if self.out_sigmoid:
            y = y * self.out_sigmoid(x).sigmoid()
        return call(self.o, y)
