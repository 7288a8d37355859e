"""Fast computation of the scores s_ij = qbar_i . A_i ... A_(j+1) kbar_j of eq. 4 (arXiv 2510.09389).

Scores of all rows, or of blocks of rows, are computed by matrix products. Let

    A_t = (I - beta_t w_t r_t^T) diag(lambda_t),    c_t = sum_(s<=t) log lambda_s,    B = diag(beta),
    P(a, b)_ts = sum_i a_ti b_si exp(c_ti - c_si) for s <= t, else 0,

and P' the same for s < t. The matrix of all scores is

    S = P(qbar, kbar) - P(qbar, w) B E,     where (I + P'(r, w) B) E = P'(r, kbar)
      = P(qbar, kbar) - R B P'(r, kbar),    where R (I + B P'(r, w)) = P(qbar, w)

If w has the direction of the keys, kbar = |kbar| w, then S is simply R diag(|kbar|). In ``cd:`` labels, r = w. If r
reads the state before its decay, A_t = diag(lambda_t) - beta_t w_t r_t^T, and P' has c_(t-1) in place of c_t. An
exponent is masked before exp is applied. Only differences of c are used, which are at most zero for gates below one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.recurrence.decays import Decay, HalvedDecay, split_rows

LARGEST_EXPONENT = 20.0  # of a factor of a decay; products of two such factors are in the range of float32


class Mirrors(NamedTuple):
    """The mirrors of all rows, in float32 or wider: factors I - beta_t w_t r_t^T by which rows multiply the state.

    For ``cd:`` labels, ``w`` has length 1.
    """

    w: Tensor  # (B, H, T, n) directions w_t
    beta: Tensor  # (B, H, T) strengths beta_t
    length: Tensor | None = None  # (B, H, T) lengths of the keys, if w are these keys divided by their lengths
    read: Tensor | None = None  # (B, H, T, n) directions r_t along which the state is read; None if they equal w
    reads_before_decay: bool = False  # True if the state is read before the decay of the row, False if after it

    @property
    def reading(self) -> Tensor:
        """The directions r (B, H, T, n) along which mirrors read the part of the state that they remove."""
        return self.w if self.read is None else self.read


@dataclass(frozen=True)
class Dynamics:
    """The queries, keys, values, gates and mirrors of a mixer for all rows, in float32 or wider.

    They are those of eq. 3 and eq. 4 of the paper (arXiv 2510.09389). A gate is a decay lambda_t of the state, and a
    mirror is a factor I - beta_t w_t r_t^T. Row t multiplies the state by both, and then adds its key.
    """

    q: Tensor
    """(B, H, T, n) qbar of eq. 4: the queries from which scores are computed, after unit length, RoPE and the feature
    function psi, where the label has them."""
    k: Tensor
    """(B, H, T, n) kbar of eq. 4: the keys from which scores are computed, after unit length, RoPE, the scale b and the
    feature function psi, where the label has them."""
    v: Tensor
    """Values (B, H, T, V)."""
    log_gate: Tensor | None
    """(B or 1, H or 1, T, 1 or n) logarithms of the gates lambda_t. None without a gate."""
    mirrors: Mirrors | None = None
    """The mirrors. None for a recurrence without mirrors."""
    row_log: Tensor | None = None
    """(B, H, T) logarithm of a factor that is kept apart from the scores of each row, so that they do not overflow. The
    full scores of a row are its scores times e^row_log. None if the factor is 1."""
    log_norm: Tensor | None = None
    """(B, H, T) logarithm of eta, the divisor of each row's coefficients, for the label norms ``wx`` and ``pow``."""
    own: Tensor | None = None
    """(B, H, T) score of each row with its own key. None if it is the product of q and k, as it always is with
    mirrors."""
    least_log_gate: float | None = None
    """A lower bound of ``log_gate``. None if no bound is known. Only for gates per channel together with mirrors."""


@dataclass(frozen=True)
class Blocks:
    """The rows of a sequence in Z blocks of C rows: scores within each block, and the block's effect on the state.

    The axis of blocks precedes that of rows. A state that enters a block is the state after all rows before the block.
    """

    scores: Tensor
    """(B, H, Z, C, C) scores between rows of one block."""
    queries: Tensor
    """(B, H, Z, C, n) queries for the keys before the block: their products with these keys, as they enter the block,
    are scores."""
    keys: Tensor
    """(B, H, Z, C, n) keys of the block's rows as they are at the end of the block, after the decays and mirrors of
    later rows."""
    log_decay: Tensor | None
    """(B, H, Z, 1 or n) logarithm of the decay of a state over the block, in double precision. None without gates, and
    with mirrors."""
    transition: Tensor | None
    """(B, H, Z, n, n) map from the state that enters the block to what remains of it after the block, including the
    decay. None without mirrors."""

    @property
    def transitions(self) -> tuple[Tensor, ...]:
        """The map ``transition`` (B, H, n, n) of each block. Empty without mirrors."""
        return () if self.transition is None else self.transition.unbind(2)


def scores(d: Dynamics) -> Tensor:
    """The scores of all rows with all keys at once, (B, H, T, T). With mirrors this takes O(T^3) time.

    Entries above the diagonal are arbitrary, and the caller must mask them.
    """
    mirrors = d.mirrors
    if mirrors is None and d.log_gate is None:
        return _with_own(d.q @ d.k.mT, d.own)
    decay = Decay(d.log_gate, d.q)
    if mirrors is None:
        return _with_own(decay.products(d.q, d.k), d.own)
    past = PastReads(decay, mirrors.reading, mirrors.reads_before_decay)
    mirrored = past.apply_mirrors(decay.products(d.q, mirrors.w), mirrors.w, mirrors.beta)
    if mirrors.length is not None:
        return mirrored * mirrors.length[..., None, :]
    written = past.products(d.k)
    return decay.products(d.q, d.k) - mirrored * mirrors.beta[..., None, :] @ written


def _with_own(square: Tensor, own: Tensor | None) -> Tensor:
    """The scores ``square`` (..., T, T), with their diagonal replaced by ``own`` (..., T) unless it is None."""
    return square if own is None else square.diagonal_scatter(own, dim1=-2, dim2=-1)


@dataclass(frozen=True)
class PastReads:
    """The matrices P'(r, b): what each row of a sequence reads of the writes of earlier rows.

    r (..., T, n) are the directions along which mirrors read the state, and b (..., T, n) is what each row writes to
    it. With the sums c_t (n) of the log decays up to row t, row t reads of row s

        P'(r, b)_ts = sum_i r_ti b_si exp(c_ti - c_si) for s < t, else 0.

    If r reads the state before the decay of its row, c_(t-1) stands in place of c_t.
    """

    decay: Decay | HalvedDecay
    reading: Tensor
    """The directions r (..., T, n)."""
    is_before_decay: bool
    """True if r reads the state before the decay of its row."""

    def products(self, written: Tensor, is_strict: bool = True) -> Tensor:
        """The matrix (..., T, T) whose entry (t, s) is the part of the write of row s that the later row t reads.

        ``written`` (..., T, n) has the writes of all rows. If ``is_strict`` is true, entries with s >= t are 0.
        Otherwise the diagonal is arbitrary.
        """
        if not self.is_before_decay:
            return self.decay.products(self.reading, written, is_strict)
        of_row_before = self.decay.products(F.pad(self.reading[..., 1:, :], (0, 0, 0, 1)), written)
        return F.pad(of_row_before[..., :-1, :], (0, 0, 1, 0))

    def apply_mirrors(self, rows: Tensor, w: Tensor, beta: Tensor) -> Tensor:
        """Return rows (I + B P'(reading, w))^-1, where B = diag(beta), and P'(reading, w) is ``products(w)``.

        ``rows`` (..., M, T) has the products of M vectors with the directions w (..., T, n). The result has their
        products with each direction as it is after the mirrors of all later rows.
        """
        system = beta[..., None] * self.products(w, is_strict=False)
        solution: Tensor = torch.linalg.solve_triangular(system, rows, upper=False, left=False, unitriangular=True)
        return solution

    def entering(self, decay: Tensor) -> Tensor:
        """The directions (..., T, n) along which each row reads the state that precedes the first row.

        ``decay`` (..., T, 1 or n) is the product of the decays up to each row, including its own.
        """
        decay = F.pad(decay[..., :-1, :], (0, 0, 1, 0), value=1.0) if self.is_before_decay else decay
        return self.reading * decay


def split(d: Dynamics, size: int, by_halves: bool = False) -> Blocks:
    """Split the rows of ``d`` into blocks of ``size`` rows. Each block is computed from its own rows only.

    If ``by_halves`` is true, decays are computed by :class:`madbench.mixers.recurrence.decays.HalvedDecay` instead of
    :class:`madbench.mixers.recurrence.decays.Decay`. It is for decays per channel.
    """
    mirrors, least = d.mirrors, d.least_log_gate
    if least is not None and mirrors is not None and d.log_gate is not None and -least * size / 2 <= LARGEST_EXPONENT:
        return _split_bounded(d, d.log_gate, mirrors, size)
    q, k = split_rows(d.q, size), split_rows(d.k, size)
    log_gate = log_decay = None
    queries, keys = q, k
    if d.log_gate is not None:
        log_gate = split_rows(d.log_gate, size)
        c = log_gate.double().cumsum(-2)
        log_decay = c[..., -1, :]
        entering, leaving = c.to(q.dtype).exp(), (c[..., -1:, :] - c).to(q.dtype).exp()
        queries, keys = q * entering, k * leaving
    decay: Decay | HalvedDecay
    decay = HalvedDecay(log_gate, q) if by_halves and log_gate is not None else Decay(log_gate, q)
    if mirrors is None:
        own = None if d.own is None else split_rows(d.own[..., None], size).squeeze(-1)
        return Blocks(_with_own(decay.products(q, k), own), queries, keys, log_decay, None)
    w, beta = split_rows(mirrors.w, size), split_rows(mirrors.beta[..., None], size)
    reading = w if mirrors.read is None else split_rows(mirrors.read, size)
    past = PastReads(decay, reading, mirrors.reads_before_decay)
    entering_read, leaving_w = (past.reading, w) if log_gate is None else (past.entering(entering), w * leaving)
    rows = torch.cat((decay.products(q, w), leaving_w.mT), dim=-2)
    mirrored = past.apply_mirrors(rows, w, beta.squeeze(-1))  # first the scores, then the state at the end
    removed = mirrored @ (beta * entering_read)
    if mirrors.length is not None:
        written = mirrored * split_rows(mirrors.length[..., None], size).mT
    else:
        written = torch.cat((decay.products(q, k), keys.mT), dim=-2)
        written = written - mirrored @ (beta * past.products(k))
    survives = (
        torch.ones_like(q[..., 0, :]) if log_decay is None else log_decay.to(q.dtype).exp().expand_as(q[..., 0, :])
    )
    return Blocks(
        written[..., :size, :],
        queries - removed[..., :size, :],
        written[..., size:, :].mT,
        None,
        torch.diag_embed(survives) - removed[..., size:, :],
    )


def _split_bounded(d: Dynamics, log_gate: Tensor, mirrors: Mirrors, size: int) -> Blocks:
    """Compute :func:`split` for decays with a lower bound, in fewer operations.

    The sum c_t of the log decays up to row t must be near that of the block's middle row m for all rows. The decay from
    row s to row t is then computed as a factor of row t, exp(c_t - c_m), times a factor of row s, exp(c_m - c_s). One
    matrix product therefore gives all four tensors of a block, as parts of the matrix [scores, queries; keys^T,
    transition]. ``log_gate`` and ``mirrors`` are those of ``d``.
    """
    sides = (d.q, d.k, mirrors.w, mirrors.reading * mirrors.beta[..., None])
    q, k, w, read = (split_rows(side, size) for side in sides)
    c = split_rows(log_gate, size).double().cumsum(-2)
    end, middle = c[..., -1:, :], c[..., size // 2, None, :]
    late = (c - middle).exp()
    early = late.reciprocal().to(q.dtype)
    entering, leaving, survives = (exponent.exp().to(q.dtype) for exponent in (middle, end - middle, end))
    late = late.to(q.dtype)
    reading = torch.cat((1 / entering, late[..., :-1, :]), dim=-2) if mirrors.reads_before_decay else late
    q, k, w, read = q * late, k * early, w * early, read * reading
    causal = torch.ones(size, size, dtype=q.dtype, device=q.device).tril()
    mask = torch.cat((causal, causal.tril(-1))).repeat(1, 2)
    products = (torch.cat((q, read), dim=-2) @ torch.cat((w, k), dim=-2).mT) * mask
    of_q, of_read = products.split(size, dim=-2)
    (of_qw, of_qk), (system, of_rk) = of_q.split(size, dim=-1), of_read.split(size, dim=-1)
    rows = torch.cat((of_qw, (w * leaving).mT), dim=-2)
    mirrored = torch.linalg.solve_triangular(system, rows, upper=False, left=False, unitriangular=True)
    removed = mirrored @ torch.cat((of_rk, read * entering), dim=-1)
    written = torch.cat((of_qk, q * entering), dim=-1)
    kept = torch.cat(((k * leaving).mT, torch.diag_embed(survives.squeeze(-2))), dim=-1)
    return _cut(torch.cat((written, kept), dim=-2) - removed, size)


def _cut(whole: Tensor, size: int) -> Blocks:
    """Cut matrices [scores, queries; keys^T, transition] into the tensors of :class:`Blocks`.

    ``whole`` is (..., size + n, size + n), for blocks of ``size`` rows and keys of width n.
    """
    upper, lower = whole.split((size, whole.shape[-1] - size), dim=-2)
    return Blocks(upper[..., :size], upper[..., size:], lower[..., :size].mT, None, lower[..., size:])


def chunked(d: Dynamics, size: int, values: Tensor, by_halves: bool = False) -> tuple[Tensor, Tensor]:
    """Return the outputs sum_(j<=i) s_ij values_j (B, H, T, V) of all rows i, and the state after the last row.

    s_ij are the scores of the dynamics ``d``. ``values`` are (B, H, T, V), and the state is (B, H, n, V). The time is
    linear in T. The readout must be linear in the state: ``id`` or a kernel. ``size`` and ``by_halves`` are those of
    :func:`split`.
    """
    blocks = split(d, size, by_halves)
    length, values = values.shape[2], split_rows(values, blocks.scores.shape[-1])
    inflow = blocks.keys.mT @ values
    decay = None if blocks.log_decay is None else blocks.log_decay.to(values.dtype).exp()[..., None].unbind(2)
    transitions = blocks.transitions
    state, states = torch.zeros_like(inflow[:, :, 0]), []
    for block, new in enumerate(inflow.unbind(2)):
        states.append(state)
        if transitions:
            state = transitions[block] @ state
        elif decay is not None:
            state = decay[block] * state
        state = state + new
    y = blocks.scores @ values + blocks.queries @ torch.stack(states, dim=2)
    return y.flatten(2, 3)[:, :, :length], state


def evolved_keys(d: Dynamics) -> Tensor:
    """The keys (B, H, T, n) as they are after the last row: each after the decays of all later rows.

    ``d`` must have no mirrors. With mirrors, see :func:`keys_after_blocks`.
    """
    if d.log_gate is None:
        return d.k
    c = d.log_gate.double().cumsum(-2)
    return d.k * (c[..., -1:, :] - c).to(d.k.dtype).exp()


def keys_after_blocks(blocks: Blocks) -> Tensor:
    """The keys (B, H, Z C, n) of Z blocks of C rows as they are after the last block.

    Each key has gone through the decays and mirrors of all later rows. ``blocks.transition`` must not be None.
    """
    *before, last = blocks.keys.unbind(2)
    keys, passed = [last], None
    for of_block, transition in zip(reversed(before), reversed(blocks.transitions)):
        passed = transition if passed is None else passed @ transition
        keys.append(of_block @ passed.mT)
    return torch.cat(keys[::-1], dim=2)


def keys_at_borders(blocks: Blocks) -> Iterator[Tensor]:
    """Yield, for each block, the keys (B, H, rows, n) of all rows before it, as they enter the block.

    A key enters a block after the decays and mirrors of the rows in between. The last result has the keys of all rows
    after the last block. ``blocks.transition`` must not be None.
    """
    keys = blocks.keys[:, :, 0, :0]
    for new, transition in zip(blocks.keys.unbind(2), blocks.transitions, strict=True):
        yield keys
        keys = torch.cat((keys @ transition.mT, new), dim=2)
    yield keys


def block_scores(blocks: Blocks, block: int) -> Tensor:
    """The scores (B, H, C, (block + 1) C) of the C rows of one block with the keys of this block and all earlier ones.

    ``block`` is the number of the block, counted from 0.
    """
    queries, parts = blocks.queries[:, :, block], [blocks.scores[:, :, block]]
    if blocks.transition is not None:
        for other in reversed(range(block)):
            parts.append(queries @ blocks.keys[:, :, other].mT)
            queries = queries @ blocks.transition[:, :, other] if other else queries
    elif block:
        keys = blocks.keys[:, :, :block]
        if blocks.log_decay is not None:
            passed = blocks.log_decay.cumsum(2)
            keys = keys * (passed[:, :, block - 1, None] - passed[:, :, :block]).to(keys.dtype).exp()[..., None, :]
        parts.append(queries @ keys.flatten(2, 3).mT)
    return torch.cat(parts[::-1], dim=-1)


def each_row(d: Dynamics) -> Iterator[Dynamics]:
    """Yield each row of ``d`` as dynamics of a single row, in order."""

    def of_row(parts: Mapping[str, Any], row: int) -> dict[str, Any]:
        return {name: part[:, :, row : row + 1] for name, part in parts.items() if isinstance(part, Tensor)}

    for row in range(d.q.shape[2]):
        mirrors = d.mirrors and d.mirrors._replace(**of_row(d.mirrors._asdict(), row))
        yield replace(d, mirrors=mirrors, **of_row(vars(d), row))


def evolve(state: Tensor, d: Dynamics) -> Tensor:
    """Apply the decay and the mirror of one row to a state (B, H, n, V). ``d`` has only this row."""
    decayed = state if d.log_gate is None else state * d.log_gate.exp().mT
    mirrors = d.mirrors
    if mirrors is None:
        return decayed
    read = mirrors.reading @ (state if mirrors.reads_before_decay else decayed)
    return decayed - (mirrors.beta[..., None] * mirrors.w).mT @ read
