"""Shares of shifts and averages in a learned lag kernel, compared with random kernels of the same size.

A lag kernel mixes the slots of a row of scores, which are indexed by lag from the newest token. In mixers with the
position layout, they are indexed from the oldest token instead. Slot i combines the tokens j with the weights in column
i of R = I + Diag(p) + K, where K = A Diag(s) B^T has rank r. Theory predicts two structures, a shift and an average. A
shift by n tokens copies: slot i reads token i + n. An average summarizes and reduces noise: a slot reads the mean of
many tokens. Modules for papers that use these shares cite the sections of the paper with the theory.

K is approximated by a multiple of a shift, by columns that are constant over a window, and by a matrix that depends
only on the offset j - i. The share of a structure is the sum of squares of its best approximation, divided by that of
K. A shift of L lags has L equal singular values, so a K of rank r can match at most the share r / L of it. The share of
a shift is divided by this maximum. A random kernel has the size and the strengths s of K, and the entries of its A and
B are independent and normal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from madbench.mixers.probe import LagKernel

MOST_LAGS = 256  # the largest number of lags that are measured, from the newest
MOST_SHIFT = 8
RANDOM_TABLES = 200
RANDOM_QUANTILE = 0.95  # quantile of the shares of random kernels; a larger share is more than chance


def mixing_matrices(kernel: LagKernel, lags: int) -> Tensor:
    """The matrix K = A Diag(s) B^T of each head of a kernel, over the first L = ``lags`` lags.

    The result has the shape (H, L, L) and is indexed by head, token and slot. The strengths s are means over the
    inputs.
    """
    a, b = kernel.A[:, :lags], kernel.B[:, :lags]
    return (a * kernel.s[:, None]) @ b.transpose(-1, -2)


def diagonal_shares(k: Tensor, offsets: Sequence[int]) -> Tensor:
    """The share of a kernel K that is constant along the diagonal of each offset.

    The kernel is approximated by the best matrix with one number on the diagonal j = i + n and zeros elsewhere, where j
    is the token (row of K), i is the slot (column of K) and n is the offset. The share is the sum of squares of this
    matrix, divided by that of K.

    Args:
        k: the kernel, (..., L, L).
        offsets: the N offsets.

    Returns:
        The shares, (..., N).
    """
    length = k.shape[-1]
    sums = torch.stack([k.diagonal(-n, -2, -1).sum(-1) ** 2 / (length - abs(n)) for n in offsets], dim=-1)
    return sums / _mass(k)[..., None]


def shift_shares(k: Tensor, rank: int) -> tuple[list[int], Tensor]:
    """Return the offsets n = 1, -1, 2, -2, ..., and for each of them how much of a kernel is a shift by n tokens.

    A shift by n tokens has ones on the diagonal of offset n and zeros elsewhere. The kernel is approximated by the
    nearest multiple of it. The sum of squares of this approximation, divided by that of the kernel, is at most
    min(1, rank / (L - |n|)) for a kernel of this rank. The share is the quotient divided by this bound.

    Args:
        k: the kernel, (..., L, L).
        rank: the rank of the kernel.

    Returns:
        The N offsets, with absolute values of at most ``MOST_SHIFT`` and L - 1, and the shares, (..., N).
    """
    length = k.shape[-1]
    offsets = [n for m in range(1, min(MOST_SHIFT, length - 1) + 1) for n in (m, -m)]
    most = torch.tensor([min(1.0, rank / (length - abs(n))) for n in offsets]).to(k)
    return offsets, diagonal_shares(k, offsets) / most


def window_shares(k: Tensor) -> tuple[list[int], Tensor]:
    """Return the widths m = 2, 4, 8, ..., L, and the share of averages over the first m tokens in a kernel.

    The first tokens are the newest ones or, in the position layout, the oldest ones. An average has the same weight for
    all m tokens in each column, and zero for the other tokens. The share is the sum of squares of the best average,
    divided by the sum of squares of the kernel.

    Args:
        k: the kernel, (..., L, L).

    Returns:
        The M widths, with L as the last one even if it is not a power of two, and the shares, (..., M).
    """
    length = k.shape[-1]
    widths = [m for m in (2**i for i in range(1, 30)) if m < length] + [length]
    sums = k.cumsum(-2)[..., [m - 1 for m in widths], :].square().sum(-1)
    return widths, sums / torch.tensor(widths).to(k) / _mass(k)[..., None]


def structure_shares(k: Tensor, rank: int) -> dict[str, Tensor]:
    """The shares of shifts and averages in the sum of squares of a kernel K of the given ``rank``.

    - ``shift_1``, ``best_shift``: a shift by one token, and the shift with the largest share;
    - ``average``, ``best_window``: an average over all tokens, and an average over the window with the largest share;
    - ``by_offset``: the part of K that depends only on the offset between token and slot.

    K is ``k``, of shape (..., L, L) with L > 1. Each share has the shape (...,). The shares of shifts are divided by
    the largest share that a kernel of this rank can have.
    """
    length = k.shape[-1]
    of_shift, of_window = shift_shares(k, rank)[1], window_shares(k)[1]
    return {
        "shift_1": of_shift[..., 0],
        "best_shift": of_shift.amax(-1),
        "average": of_window[..., -1],
        "best_window": of_window.amax(-1),
        "by_offset": diagonal_shares(k, range(1 - length, length)).sum(-1),
    }


def _mass(k: Tensor) -> Tensor:
    return k.square().sum((-2, -1)).clamp(min=1e-30)


def kernel_rows(kernel: LagKernel, length: int) -> list[dict[str, float]]:
    """The measurements of a lag kernel I + Diag(p) + K, with one row of a table per head. Empty for a single lag.

    The first ``length`` lags are measured, at most ``MOST_LAGS``. The columns are:

    - ``head``: the number of the head, from 1;
    - ``size``: the norm of K divided by the norm of I + Diag(p); ``p``: the root mean square of p;
    - the shares of :func:`structure_shares`, and for each share a column ``..._random`` with the ``RANDOM_QUANTILE``
      quantile of this share in random kernels;
    - ``shift``: the offset of the best shift; ``window``: the width of the best average, both in tokens.
    """
    lags = min(length, kernel.p.shape[1], MOST_LAGS)
    if lags < 2:
        return []
    a, b, diagonal, strengths = (t.detach().double().cpu() for t in (kernel.A, kernel.B, kernel.p, kernel.s))
    kernel = LagKernel(a, b, diagonal, strengths, kernel.layout)
    rank, p, rows = kernel.s.shape[1], kernel.p[:, :lags], []
    for head, table in enumerate(mixing_matrices(kernel, lags)):
        shares, chance = structure_shares(table, rank), random_structure_shares(lags, kernel.s[head])
        size = table.norm() / (1 + p[head]).norm()
        (offsets, of_shift), (widths, of_window) = shift_shares(table, rank), window_shares(table)
        row = {"head": head + 1, "size": float(size), "p": float(p[head].square().mean().sqrt())}
        for name, share in shares.items():
            row |= {name: float(share), f"{name}_random": float(chance[name].quantile(RANDOM_QUANTILE))}
        rows.append(row | {"shift": offsets[int(of_shift.argmax())], "window": widths[int(of_window.argmax())]})
    return rows


def random_structure_shares(lags: int, s: Tensor) -> dict[str, Tensor]:
    """The shares of shifts and averages (:func:`structure_shares`) in random kernels over ``lags`` lags.

    The tables A and B of ``RANDOM_TABLES`` kernels are drawn with a fixed seed. ``s``, a tensor (rank,), has the
    strengths of all kernels. Each share has the shape (RANDOM_TABLES,).
    """
    generator = torch.Generator().manual_seed(0)
    shares: list[dict[str, Tensor]] = []
    for _ in range(RANDOM_TABLES // 20):
        a, b = (torch.randn(20, lags, len(s), generator=generator, dtype=torch.float64) for _ in "AB")
        shares.append(structure_shares((a * s) @ b.transpose(-1, -2), len(s)))
    return {name: torch.cat([batch[name] for batch in shares]) for name in shares[0]}
