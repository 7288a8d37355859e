"""Log-linear attention: linear attention whose state is split into buckets of tokens, as in a Fenwick tree.

Row t reads token s with the scale of a level. The level is the number of binary digits of t xor s, which is 0 for the
token itself. The tokens of a level l > 0 form one bucket of 2^(l-1) tokens, so row t reads at most as many buckets as t
has digits. All levels from ``TOP`` on count as the level ``TOP``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence.decays import masked_exp, split_rows

TOP = 14  # the highest level


def levels_of(t: Tensor, s: Tensor) -> Tensor:
    """The level at which row t reads token s: the number of binary digits of t xor s, at most ``TOP``."""
    differing = t ^ s
    levels = (differing > 0).long()
    for bit in range(1, TOP):
        levels = levels + (differing >> bit > 0).long()
    return levels


def read_buckets(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scales: Tensor, size: int) -> Tensor:
    """Compute what each row t reads: sum_(s<=t) scales_(t, level(t, s)) decay(t, s) (q_t . k_s) v_s.

    decay(t, s) is exp of the sum of ``log_decay`` over the rows s + 1 to t, and level(t, s) is that of
    :func:`levels_of`. q and k are (B, H, T, K), v and the result are (B, H, T, V), and ``log_decay`` is (B, H, T).
    ``scales`` (B, H, T, TOP + 1) has one scale per level. ``size`` is the number of rows per block, a power of two.
    """
    length = q.shape[2]
    is_single = is_symbolic(length) or length <= size
    count = 1 if is_single else 1 << (-(-length // size) - 1).bit_length()
    size = length if is_single else size
    padding = 0 if is_single else count * size - length
    q, k, v, log_decay, scales = (F.pad(side, (0, 0, 0, padding)) for side in (q, k, v, log_decay[..., None], scales))
    c = log_decay.double().cumsum(-2)
    y = _within_blocks(*(split_rows(side, size) for side in (q, k, v, c, scales))).flatten(2, 3)
    if count > 1:
        y = y + _between_blocks(q, k, v, c, scales, size)
    return y[:, :, :length]


def _within_blocks(q: Tensor, k: Tensor, v: Tensor, c: Tensor, scales: Tensor) -> Tensor:
    """The part of the sums of :func:`read_buckets` that comes from tokens in the row's own block: (B, H, Z, C, V).

    All pairs of the C rows of a block are computed at once. c (B, H, Z, C, 1) is the sum of log decays up to each row.
    The other tensors are those of :func:`read_buckets`, split into Z blocks of C rows.
    """
    rows = torch.arange(q.shape[-2], device=q.device)
    mask, level = rows[:, None] >= rows, levels_of(rows[:, None], rows)
    decay = masked_exp((c - c.mT).to(q.dtype), mask)
    scale = scales.gather(-1, level.expand(*scales.shape[:-1], -1))
    return (q @ k.mT * decay * scale) @ v


def _between_blocks(q: Tensor, k: Tensor, v: Tensor, c: Tensor, scales: Tensor, size: int) -> Tensor:
    """The part (B, H, T, V) of the sums of :func:`read_buckets` that comes from earlier blocks of ``size`` rows.

    Neighboring blocks are joined to blocks of twice the size until one is left. When two blocks are joined, each row of
    the second block reads the state at the end of the first block, decayed from there up to the row.

    T is ``size`` times a power of two. c (B, H, T, 1) is the sum of log decays up to each row. The other tensors are
    those of :func:`read_buckets`.
    """
    ends = split_rows(c, size)[..., -1:, :]
    state = (split_rows(k, size) * (ends - split_rows(c, size)).to(k.dtype).exp()).mT @ split_rows(v, size)
    y, level = torch.zeros_like(v), size.bit_length()
    while state.shape[2] > 1:
        first, second = state.unflatten(2, (-1, 2)).unbind(3)
        (_, rows), (first_c, second_c), (_, scale) = (
            side.unflatten(2, (-1, 2, size)).unbind(3) for side in (q, c, scales[..., min(level, TOP), None])
        )
        since = (second_c - first_c[..., -1:, :]).to(q.dtype).exp()
        read = (rows * since * scale) @ first
        y = y + torch.stack((torch.zeros_like(read), read), dim=3).flatten(2, 4)
        state = since[..., -1:, :] * first + second
        size, level = 2 * size, level + 1
    return y


def buckets_after(k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """The buckets (B, H, TOP, K, V) after these rows: the states that the next token reads at the levels 1 to ``TOP``.

    Levels without tokens are zero.
    """
    length = k.shape[2]
    c = log_decay[..., None].double().cumsum(-2)
    k = k * (c[:, :, -1:] - c).to(k.dtype).exp()
    if is_symbolic(length):
        of_row = levels_of(torch.full((length,), length, device=k.device), torch.arange(length, device=k.device))
        share = (of_row == torch.arange(1, TOP + 1, device=k.device)[:, None]).to(k.dtype)
        return (k[:, :, None] * share[..., None]).mT @ v[:, :, None]
    zero, end = torch.zeros_like(k[:, :, :1].mT @ v[:, :, :1]), length
    buckets = [zero] * TOP
    for bit in range(length.bit_length()):  # the lowest set bit is the newest bucket
        if length >> bit & 1:
            start, place = end - (1 << bit), min(bit, TOP - 1)
            buckets[place] = buckets[place] + k[:, :, start:end].mT @ v[:, :, start:end]
            end = start
    return torch.stack(buckets, dim=2)


def read_step(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, scales: Tensor, buckets: Tensor, position: Tensor
) -> tuple[Tensor, Tensor]:
    """Decode one token. Return its sum of values (B, H, 1, V) and the buckets for the next token.

    The tensors of the token are those of :func:`read_buckets` for T = 1. ``position`` (B,) is the place of the token in
    its sequence, from 0 on. ``buckets`` (B, H, TOP, K, V) have all tokens before it. Let i be the place of the lowest
    binary digit of ``position`` that is 0, at most TOP - 1. The token and all buckets below index i are added to the
    bucket of index i.
    """
    decayed = log_decay.exp()[..., None, None] * buckets
    read = (scales[:, :, 0, 1:, None, None] * (q[:, :, :, None] @ decayed)).sum(2)
    y = read + scales[..., :1] * (q * k).sum(-1, keepdim=True) * v
    place = (levels_of(position, position + 1) - 1).clamp(max=TOP - 1)[:, None, None, None, None]
    bits = torch.arange(TOP, device=q.device)[:, None, None]
    merged = (decayed * (bits < place)).sum(2, keepdim=True) + (k.mT @ v)[:, :, None]
    return y, decayed * (bits >= place) + merged * (bits == place)
