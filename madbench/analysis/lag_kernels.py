"""Shares of shifts and averages in a learned lag kernel, compared with random kernels of the same size.

A lag kernel mixes the slots of a row of scores, which are indexed by lag from the newest token. Slot i combines the
tokens j with the weights in column i of R = I + Diag(p) + K, where K = A Diag(s) B^T has rank r.
Theory predicts two structures. In a shift, slot i reads token i + n, which copies at an offset. In an average, slots
average many tokens, which summarizes and reduces noise. The papers' items that use this module name the sections.

K is approximated by a multiple of a shift, by columns that are constant over a window, and by a matrix that depends
only on the offset j - i. The share of a structure is the sum of squares of its best approximation, divided by that of
K. A shift of L lags has L equal singular values, so a K of rank r can match at most the share r / L of it. The share of
a shift is divided by this maximum. In a random kernel A and B have independent normal entries, and the same size and
the same strengths s as in K.
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
    """K = A Diag(s) B^T of each head over the first L = ``lags`` lags, (H, L, L), indexed by token and slot.

    The strengths s are means over the inputs.
    """
    a, b = kernel.A[:, :lags], kernel.B[:, :lags]
    return (a * kernel.s[:, None]) @ b.transpose(-1, -2)


def diagonal_shares(k: Tensor, offsets: Sequence[int]) -> Tensor:
    """For each n of the N ``offsets``, the share in the sum of squares of K of a constant diagonal j = i + n.

    j is the token (row) and i the slot (column) of K, which is ``k`` (..., L, L). The shares are (..., N).
    """
    length = k.shape[-1]
    sums = torch.stack([k.diagonal(-n, -2, -1).sum(-1) ** 2 / (length - abs(n)) for n in offsets], dim=-1)
    return sums / _mass(k)[..., None]


def shift_shares(k: Tensor, rank: int) -> tuple[list[int], Tensor]:
    """Return the N offsets n = 1, -1, 2, -2, ..., and for each n the share in K of the shift by n tokens.

    K is ``k`` (..., L, L), and the shares are (..., N). A share is divided by the largest share that a kernel of this
    ``rank`` can have. Offsets go up to ``MOST_SHIFT``, or L - 1 if it is smaller.
    """
    length = k.shape[-1]
    offsets = [n for m in range(1, min(MOST_SHIFT, length - 1) + 1) for n in (m, -m)]
    most = torch.tensor([min(1.0, rank / (length - abs(n))) for n in offsets]).to(k)
    return offsets, diagonal_shares(k, offsets) / most


def window_shares(k: Tensor) -> tuple[list[int], Tensor]:
    """Return the M widths m = 2, 4, 8, ..., L, and for each m the share in K of an average over the m newest tokens.

    K is ``k`` (..., L, L), and the shares are (..., M). An average has the same weight for all m tokens in each column,
    and zero for older tokens. L is the last width, even if it is not a power of two.
    """
    length = k.shape[-1]
    widths = [m for m in (2**i for i in range(1, 30)) if m < length] + [length]
    sums = k.cumsum(-2)[..., [m - 1 for m in widths], :].square().sum(-1)
    return widths, sums / torch.tensor(widths).to(k) / _mass(k)[..., None]


def structure_shares(k: Tensor, rank: int) -> dict[str, Tensor]:
    """The shares of structures in the sum of squares of a kernel K of the given ``rank`` (see the module).

    - ``shift_1``, ``best_shift``: a shift by one token, and the shift with the largest share;
    - ``average``, ``best_window``: an average over all tokens, and over the window with the largest share;
    - ``by_offset``: the part that depends only on the offset of two tokens.

    K has the shape (..., L, L) with L > 1, and each share the shape (...,).
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
    """The measurements of a lag kernel, with one row of a table per head. Empty for a single lag.

    They use the first ``length`` lags, at most ``MOST_LAGS``. ``size`` is the norm of K divided by the norm of
    I + Diag(p), and ``p`` is the root mean square of p. The shares are those of :func:`structure_shares`. For each
    share there is a column ``..._random`` with its ``RANDOM_QUANTILE`` quantile in random kernels. ``shift`` is the
    offset of the best shift, and ``window`` the width of the best average, both in tokens.
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
    """The shares of :func:`structure_shares` in ``RANDOM_TABLES`` random kernels over ``lags`` lags.

    The kernels are drawn with a fixed seed. ``s`` is their strengths, (rank,). Each share is of shape (RANDOM_TABLES,).
    """
    generator = torch.Generator().manual_seed(0)
    shares: list[dict[str, Tensor]] = []
    for _ in range(RANDOM_TABLES // 20):
        a, b = (torch.randn(20, lags, len(s), generator=generator, dtype=torch.float64) for _ in "AB")
        shares.append(structure_shares((a * s) @ b.transpose(-1, -2), len(s)))
    return {name: torch.cat([batch[name] for batch in shares]) for name in shares[0]}
