"""Checks of the boundaries at which slots become active as the last token x_t changes (HyperMLP, Appendices C.5 and I).

The boundary of a slot is the set of tokens at which its hidden score is zero. Its normal is the gradient of the hidden
score with respect to the token. L(1) is the matrix of the QK side, W_q M(1) W_k^T.

Most functions that take a mixer change its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.checks.residuals import difference, maximum
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import EPS, activate, lag_readout, newest_first
from madbench.mixers.srg.reference import mixing_matrix
from madbench.mixers.srg.theorems.measures import dynamic_weights

if TYPE_CHECKING:
    pass

STEP = 1e-4  # step of a central difference
SHARPNESS = 1.5  # c of the warped halfspace
DRAWN = 32  # number of random tokens
SLOTS, MIXING_RANK = 128, 16  # number of slots in MAD's sequences, and r_s in Appendix L
REACH = 1e-4  # distance within which the slopes on both sides of a kink are measured


def free_channels(mixer: DynamicMLP) -> int:
    """Make keys ignore the first half of the channels. Return the number of these channels.

    A change of a token in these channels then changes no key.
    """
    free = mixer.allocation.size.d_model // 2
    mixer.k.weight[:, :free] = 0
    return free


def freeze_gates(mixer: DynamicMLP) -> None:
    """Make the QK matrix L(1) = W_q M(1) W_k^T and the mixing matrix R(1) independent of the token.

    The weights of their gates are set to zero.
    """
    for gate in (mixer.qk_gate, mixer.mix1 and mixer.mix1.gate):
        if gate:
            gate.weight.zero_()


def normals(mixer: DynamicMLP, x: Tensor) -> Tensor:
    """The normals B(X) (H_q, free, S) of all slots: the map from free channels of the last token to its hidden scores.

    Free channels are those that keys ignore (:func:`free_channels`), ``free`` is their number, and S is the number of
    slots. All other channels, and the other tokens of x (T, D), are constant. The map is linear only if gates do not
    depend on the token (:func:`freeze_gates`).
    """
    free = free_channels(mixer)
    moved = x.repeat(free + 1, 1, 1)
    moved[1:, -1, :free] += torch.eye(free, dtype=x.dtype)
    hidden = mixer.maps(moved).hidden[:, :, -1]
    return (hidden[1:] - hidden[:1]).transpose(0, 1)


def _unmixed(mixer: DynamicMLP, x: Tensor) -> Tensor:
    """The matrix B0(X) (H_q, free, S): the result of :func:`normals` if scores are not mixed, R(1) = I.

    The tables of the mixing matrix R(1) are set to zero for this, and restored afterward.
    """
    assert mixer.mix1 is not None
    tables = (mixer.mix1.A, mixer.mix1.B, mixer.mix1.p)
    values = [table.clone() for table in tables]
    for table in tables:
        table.zero_()
    base = normals(mixer, x)
    for table, value in zip(tables, values):
        table.copy_(value)
    return base


def diagonal_mixing(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest sine of an angle between a slot's normal for a diagonal mixing matrix R(1) and that for R(1) = I.

    The normal of a slot is the gradient of its hidden score with respect to the token.
    """
    assert mixer.mix1 is not None
    freeze_gates(mixer)
    base = _unmixed(mixer, x[0])
    mixer.mix1.A.zero_()
    return float(_sines(normals(mixer, x[0]), base).diagonal(dim1=-2, dim2=-1).max())


def mixed_normals(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between the normals for a constant mixing matrix R(1) and B0(X) R(1) (eq. 42).

    B0(X) is the matrix of normals for R(1) = I. A normal is the gradient of a slot's hidden score.
    """
    freeze_gates(mixer)
    w, base, token = dict(mixer.named_parameters()), _unmixed(mixer, x[0]), x[0, -1]
    matrices = [mixing_matrix(w, "mix1", head, token, base.shape[-1]) for head in range(mixer.query_heads)]
    return difference(normals(mixer, x[0]), base @ torch.stack(matrices))


def rotated_normals(mixer: DynamicMLP, x: Tensor) -> float:
    """The largest sine of the angle between a normal of the mixer and the nearest normal for R(1) = I.

    A normal is the gradient of a slot's hidden score with respect to the token. The result is positive if the mixer's
    own mixing matrix R(1) gives normals of new directions.
    """
    freeze_gates(mixer)
    base = _unmixed(mixer, x[0])
    return float(_sines(normals(mixer, x[0]), base).min(-1).values.max())


def swapped_normals(mixer: DynamicMLP, x: Tensor) -> float:
    """Check that a mixing matrix R(1) that swaps two slots swaps their normals, and keeps the other normals.

    A normal is the gradient of a slot's hidden score with respect to the token. Return the larger of two numbers: the
    relative difference between the normals of the two slots and the expected ones, and the largest sine of the angle
    between a normal for R(1) = I and the nearest normal for the swap. The swap is R(1) = I - v v^T with v = e_1 - e_2,
    where v v^T has rank one and is not diagonal.
    """
    freeze_gates(mixer)
    base = _unmixed(mixer, x[0])
    mix = mixer.mix1
    assert mix is not None
    for table in (mix.A, mix.B, mix.p):
        table.zero_()
    mix.B[:, 0, 0], mix.B[:, 1, 0] = 1, -1
    mix.A[:, :, 0] = -mix.B[:, :, 0] / mix.strengths(x[:1, -1:])[0, :, :, 0]
    mixed = normals(mixer, x[0])
    return maximum(float(_sines(mixed, base).min(-2).values.max()), difference(mixed[..., [1, 0]], base[..., :2]))


def low_rank_deformation(mixer: DynamicMLP, x: Tensor) -> float:
    """The singular value number r_s + 1 of the change of R(1) between two tokens, divided by the largest (Remark C.15).

    Singular values are counted from the largest, and r_s is the rank of the mixing. The result is zero, up to rounding,
    if the change of R(1) has at most this rank.
    """
    mix, eye = mixer.mix1, torch.eye(mixer.allocation.slots).to(x)
    assert mix is not None
    here, there = (mix.right(eye, mix.strengths(side[:1, -1:])) for side in (x, -x))
    values = torch.linalg.svdvals((here - there)[0])
    return float((values[:, mix.A.shape[-1]] / values[:, 0]).max())


def _sines(normals: Tensor, base: Tensor) -> Tensor:
    """Sines (..., S, S) of the angles between all ``normals`` (..., d, S) and all ``base`` (..., d, S)."""
    normals, base = (F.normalize(side, dim=-2).mT for side in (normals, base))
    along = (normals @ base.mT)[..., None] * base[..., None, :, :]
    sines: Tensor = (normals[..., None, :] - along).norm(dim=-1)
    return sines


def differential(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between the slope of the hidden scores and the sum of the three terms of eq. 43.

    The slope is taken along a change of the last token. In each term, only one of three things changes with the token:
    the query side x itself, the QK matrix L(1), or the mixing matrix R(1). The context is constant.
    """
    x, change = x[0], _change(mixer, x)
    token = x[-1]

    def hidden(of: Tensor, gated_by: Tensor, mixed_by: Tensor) -> Tensor:
        return of @ dynamic_weights(mixer, x, gated_by, mixed_by)[0] * mixer.scale

    of_token = hidden(change, token, token)
    of_gate, of_mixing = (
        (hidden(token, *ahead) - hidden(token, *behind)) / (2 * STEP)
        for ahead, behind in (
            ((token + STEP * change, token), (token - STEP * change, token)),
            ((token, token + STEP * change), (token, token - STEP * change)),
        )
    )
    return difference(_slope(mixer, x, change), of_token + of_gate + of_mixing)


def deformation(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the slope of the hidden scores with their slope if the gates do not depend on the token.

    A slope is taken along a change of the last token. For the second slope, the QK matrix L(1) and the mixing matrix
    R(1) keep the values that they have at this token. Return the relative difference.
    """
    x, change = x[0], _change(mixer, x)
    slope = _slope(mixer, x, change)
    for gate in filter(None, (mixer.qk_gate, mixer.mix1.gate if mixer.mix1 else None)):
        gate.bias.add_(gate.weight @ x[-1])
    freeze_gates(mixer)
    return difference(slope, _slope(mixer, x, change))


def _change(mixer: DynamicMLP, x: Tensor) -> Tensor:
    """A change dx (D,) of the last token, only in channels that no key reads."""
    change = torch.zeros_like(x[0, 0])
    free = free_channels(mixer)
    change[:free] = x[1, 0, :free]
    return change


def _slope(mixer: DynamicMLP, x: Tensor, change: Tensor) -> Tensor:
    """The derivative (H_q, S) of the last row's hidden scores along a ``change`` (D,) of the last token of x (T, D).

    It is computed as a central difference.
    """
    moved = torch.stack((x, x))
    moved[:, -1] += STEP * torch.stack((change, -change))
    ahead, behind = mixer.maps(moved).hidden[:, :, -1]
    slope: Tensor = (ahead - behind) / (2 * STEP)
    return slope


def warped(mixer: DynamicMLP, x: Tensor) -> tuple[DynamicMLP, Tensor]:
    """Set the weights of Proposition I.2. Return the mixer, and N inputs of two tokens (N, 2, D).

    There is one input per point (x1, x2) of a grid. Channels 0 and 1 of the newest token hold x1 and x2, which only the
    query reads. Channel 2 marks the newest token, and channel 3 the older token, whose value goes to channel 1. Gates
    are one half, and W_q and W_o are doubled to compensate.
    """
    assert mixer.mix1 is not None
    newest, oldest = (0, 1) if mixer.by_lag else (1, 0)
    for parameter in mixer.parameters():
        parameter.zero_()
    half = 2.0 if mixer.label.gates else 1.0
    mixer.q.weight[0, 0] = mixer.q.weight[1, 1] = half
    mixer.k.weight[0, 2] = mixer.k.weight[1, 3] = 1
    mixer.v.weight[0, 3], mixer.o.weight[1, 0] = 1, half
    for conv in filter(None, (mixer.k_conv, mixer.v_conv)):
        conv.weight[:, -1] = 1
    mixer.mix1.A[0, newest, 0] = mixer.mix1.B[0, oldest, 0] = 1
    mixer.mix1.gate.weight[0, 0] = SHARPNESS
    sides = torch.linspace(-3, 3, 13, dtype=x.dtype)
    points = torch.cartesian_prod(sides, sides)
    tokens = x.new_zeros(len(points), 2, x.shape[-1])
    tokens[:, 0, 3] = tokens[:, 1, 2] = 1
    tokens[:, 1, :2] = points
    return mixer, tokens


def construction(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between output rows for the weights of :func:`warped` and the formula of Proposition I.2.

    In the formula, channel 1 is ReLU(x2 + phi(c x1) x1) / rho, where phi is the sigmoid, c is ``SHARPNESS`` and rho is
    the norm of the hidden scores. Other channels are zero.
    """
    mixer, tokens = warped(mixer, x)
    x1, x2 = tokens[:, 1, :2].T
    second = x2 + torch.sigmoid(SHARPNESS * x1) * x1
    expected = torch.zeros_like(tokens[:, 1])
    expected[:, 1] = F.relu(second) / (x1.square() + second.square() + EPS).sqrt()
    return difference(mixer(tokens)[:, 1], expected)


def warped_sum(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between hidden scores of ``mixer`` and the formula of Examples 2 and 3 in Appendix I.2.

    The formula is q b^T + sum_k phi(w_k . q) q a_k^T, where phi is the sigmoid. q is the query of the newest token, and
    b is the key of the oldest token, whose slot has the score. The a_k are the keys of the other tokens, and the w_k
    are rows of the weight of R(1)'s gate. The q, b, a_k and w_k are random, with two channels. Two channels of a token
    are read by its query and the gate only, and two others by its key only.

    All parameters of ``mixer`` are overwritten. ``x`` (B, T, D) gives only the dtype, the device, the width D and the
    largest number of tokens T.
    """
    mix, generator = mixer.mix1, torch.Generator().manual_seed(0)
    assert mix is not None
    for parameter in mixer.parameters():
        parameter.zero_()
    mixer.q.weight[0, 0] = mixer.q.weight[1, 1] = 2.0 if mixer.label.gates else 1.0
    mixer.k.weight[0, 2] = mixer.k.weight[1, 3] = 1
    if mixer.k_conv:
        mixer.k_conv.weight[:, -1] = 1
    count = min(mix.A.shape[-1], x.shape[1] - 1)
    keys, w, points = (torch.randn(n, 2, generator=generator).to(x) for n in (count + 1, count, DRAWN))
    slots = list(range(count, -1, -1)) if mixer.by_lag else list(range(count + 1))  # slots of tokens, oldest first
    for k in range(count):
        mix.A[0, slots[k + 1], k] = mix.B[0, slots[0], k] = 1
        mix.gate.weight[k, :2] = w[k]
    tokens = x.new_zeros(DRAWN, count + 1, x.shape[-1])
    tokens[:, :, 2:4], tokens[:, -1, :2] = keys, points
    expected = points @ keys[0] + (torch.sigmoid(points @ w.T) * (points @ keys[1:].T)).sum(-1)
    return difference(mixer.maps(tokens).hidden[:, 0, -1, slots[0]], expected)


def curved_kink(mixer: DynamicMLP, x: Tensor) -> float:
    """The smaller of two numbers that are both positive if output rows have kinks that lie on a curve.

    They are the smallest jump of the slope at three kinks, and the deviation of these kinks from a straight line. The
    weights are those of :func:`warped`.
    """
    mixer, tokens = warped(mixer, x)

    def rows(x1: Tensor, x2: Tensor) -> Tensor:
        moved = tokens[:1].repeat(len(x1), 1, 1)
        moved[:, 1, 0], moved[:, 1, 1] = x1, x2
        y: Tensor = mixer(moved)
        return y[:, 1, 1]

    x1 = torch.tensor([0.5, 1.5, 2.5], dtype=x.dtype)
    low, high = torch.full_like(x1, -6), torch.full_like(x1, 6)  # the row is 0 at low and positive at high
    for _ in range(60):
        middle = (low + high) / 2
        is_off = rows(x1, middle) == 0
        low, high = torch.where(is_off, middle, low), torch.where(is_off, high, middle)
    jumps = (rows(x1, high + REACH) - rows(x1, high)) / REACH - (rows(x1, low) - rows(x1, low - REACH)) / REACH
    left, middle, right = high
    return float(torch.stack((*jumps, (left - 2 * middle + right).abs())).min())


def convolution(mixer: DynamicMLP, x: Tensor) -> float:
    """The relative difference between the mixer and one that computes its low-rank mixing by convolutions (eq. 76).

    The columns of the table A are kernels over lags. For R(1), the products z_t A of scores with A are computed from
    keys that are convolved with these kernels by FFT. For R(2), the products A^T V_(t:1) are values that are convolved
    in the same way. The two mixers are equal only if the label has the lag layout.
    """
    p, length = mixer.project(x, 0), x.shape[1]
    z = mixer.maps(x).scores
    if mix := mixer.mix1:
        bank = filter_by_fft(p.k, mix.A[:, :length]) * mixer.scale
        contracted = (p.q[:, :, :, None] @ bank.mT).squeeze(-2)
        z = z * (1 + mix.p[:, None, :length]) + (contracted * cast(Tensor, p.s1)) @ mix.B[:, :length].mT
    a, norm = activate(mixer.label.base, z, 0, cast("Tensor | None", mixer.contrast and mixer.contrast()))
    if mix := mixer.mix2:
        strengths = (a @ mix.B[:, :length]) * cast(Tensor, p.s2)
        o = lag_readout(a * (1 + mix.p[:, None, :length]), newest_first(p.v))
        o = o + (strengths[:, :, :, None] @ filter_by_fft(p.v, mix.A[:, :length])).squeeze(-2)
    else:
        o = lag_readout(a, newest_first(p.v))
    return difference(mixer.read_out(o if norm is None else o / norm, x), mixer(x))


def uncovered_shift(slots: int, rank: int, offset: int = 1) -> float:
    """A lower bound on the squared relative error with which R = I + Diag(p) + A Diag(s) B^T approximates a shift.

    A and B have the rank ``rank``. The shift moves ``slots`` slots by ``offset``, an odd number. For any p, only the
    low-rank part of R acts between slots of different parity, where an odd shift has all of its nonzero elements. These
    form two blocks. In each block, the error is at least the sum of the squared singular values beyond the ``rank``
    largest.
    """
    shift = torch.eye(slots, dtype=torch.float64).roll(offset, 1).triu()
    blocks = (shift[parity::2, 1 - parity :: 2] for parity in (0, 1))
    left = sum(float(torch.linalg.svdvals(block)[rank:].square().sum()) for block in blocks)
    return left / float(shift.square().sum())


def filter_by_fft(rows: Tensor, kernels: Tensor) -> Tensor:
    """The causal convolutions sum_l A[l, r] g[t - l], (B, H, T, R, C), for all t, by FFT.

    ``rows`` are g (B, H, T, C), and ``kernels`` are A (H, T, R).
    """
    length = rows.shape[2]
    rows, kernels = (torch.fft.rfft(side, n=2 * length, dim=-2) for side in (rows, kernels))
    products = rows[:, :, :, None] * kernels[None, :, :, :, None]
    filtered: Tensor = torch.fft.irfft(products, n=2 * length, dim=2)
    return filtered[:, :, :length]
