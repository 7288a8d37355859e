"""Causal softmax attention on a CPU, in blocks of heads and rows whose scores fit in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from madbench.mixers.derivatives import gradients
from madbench.mixers.precision import wide, without_autocast
from madbench.mixers.tracing import has_data

BLOCK_ROWS = 64
"""Rows per block. Fewer rows make slower products; more rows compute more masked scores."""
BLOCK_NUMBERS = 2**18
"""Scores per block and thread, 1 MiB in float32. More leave the cache; with fewer, call overhead dominates."""
KEPT_NUMBERS = 2**22
"""Largest number of weights, 16 MiB in float32, that is kept for the backward pass. Beyond it they are recomputed."""
THIN = 16
"""Number of channels below which a product with weights is faster transposed."""


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(K)) v, causal: q, k (B, H, T, K), v (B, H, T, V) -> (B, H, T, V).

    All arithmetic is in float32 or wider, also under autocast. Higher derivatives are those of :func:`attend_at_once`,
    which keeps T x T scores in memory.
    """
    return _Attention.apply(q, k, v)


def attend_at_once(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same attention as :func:`attend`, written with operators of torch."""
    with without_autocast(q):
        scores = (wide(q) * q.shape[-1] ** -0.5) @ wide(k).mT
        scores = scores + _future(q.shape[2], scores)
        return (scores.softmax(-1) @ wide(v)).to(v.dtype)


def keeps_weights(batch: int, heads: int, length: int) -> bool:
    """True if :func:`attend` keeps its weights for the backward pass."""
    return batch * heads * sum((rows.stop - rows.start) * rows.stop for rows in _blocks(length)) <= KEPT_NUMBERS


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        o, kept = _like(v), []
        keeps = any(ctx.needs_input_grad) and keeps_weights(*q.shape[:3])
        with without_autocast(q):
            future = _future(BLOCK_ROWS, q)
            for of_q, of_k, of_v, of_o in _groups(keeps, q, k, v, o):
                of_q, of_k, of_v = _scaled(of_q), _by_head(of_k), _by_head(of_v)
                for rows in _blocks(q.shape[2]):
                    weights = _weights(of_q, of_k, rows, future)
                    _write_product(weights, of_v, of_o[:, :, rows])
                    if keeps:
                        kept.append(weights)
        ctx.save_for_backward(q, k, v, *kept)
        return o

    @staticmethod
    def backward(ctx, grad: Tensor) -> Sequence[Tensor]:
        q, k, v, *kept = ctx.saved_tensors

        def by_hand(grad: Tensor) -> Sequence[Tensor]:
            with without_autocast(grad):
                return _gradients(q, k, v, grad, kept)

        return tuple(gradients(by_hand, attend_at_once, grad, (q, k, v)))


def _gradients(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, kept: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of q, k and v. ``kept`` are the weights by group and block; empty if they are to be recomputed."""
    d_q, d_k, d_v = (_like(x) for x in (q, k, v))
    blocks, future = _blocks(q.shape[2]), _future(BLOCK_ROWS, q)
    groups = _groups(bool(kept), q, k, v, grad, d_q, d_k, d_v)
    for group, (of_q, of_k, of_v, of_grad, *into) in enumerate(groups):
        of_q, of_k, of_v, of_grad = _scaled(of_q), _by_head(of_k), _by_head(of_v), _by_head(of_grad)
        sums: list[Tensor] = []
        for number, rows in reversed([*enumerate(blocks)]):  # the last rows see all keys
            if kept:
                weights = kept[group * len(blocks) + number]
            else:
                weights = _weights(of_q, of_k, rows, future)
            rows_of_q, rows_of_grad = of_q[:, rows], of_grad[:, rows]
            d_scores = torch.bmm(rows_of_grad, of_v[:, : rows.stop].mT)
            torch.ops.aten._softmax_backward_data.out(d_scores, weights, -1, weights.dtype, grad_input=d_scores)
            _write_product(d_scores, of_k, into[0][:, :, rows])
            # the transposed products are faster
            parts = [torch.bmm(rows_of_q.mT, d_scores), torch.bmm(rows_of_grad.mT, weights)]
            if not sums:
                sums = parts
            else:
                for total, part in zip(sums, parts):
                    total[:, :, : rows.stop] += part
        for of_heads, total in zip(into[1:], sums):
            of_heads.copy_(total.unflatten(0, of_heads.shape[:2]).mT)
    return [d_q.mul_(q.shape[-1] ** -0.5), d_k, d_v]


def _weights(q: Tensor, k: Tensor, rows: slice, future: Tensor) -> Tensor:
    """The weights (N, rows, keys) of some rows of q (N, T, K), zero for keys after a row."""
    scores, count = torch.bmm(q[:, rows], k[:, : rows.stop].mT), rows.stop - rows.start
    scores[:, :, rows.start :] += future[:count, :count]
    return torch.softmax(scores, -1, out=scores)


def _write_product(weights: Tensor, x: Tensor, into: Tensor) -> None:
    """Writes the product of weights (N, rows, keys) and the first rows of x (N, T, C) to ``into``."""
    x = x[:, : weights.shape[2]]
    product = torch.bmm(x.mT, weights.mT).mT if x.shape[-1] < THIN else torch.bmm(weights, x)
    into.copy_(product.unflatten(0, into.shape[:2]))


def _blocks(length: int) -> list[slice]:
    return [slice(i, min(i + BLOCK_ROWS, length)) for i in range(0, length, BLOCK_ROWS)]


def _groups(keeps: bool, *of_heads: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Splits each (B, H, T, C) into parts that are computed together: several sequences, or some heads of one.

    For tensors without data only the first part is yielded, because all parts need the same memory. If something is
    kept of each part, all are yielded.
    """
    _, heads, length, _ = of_heads[0].shape
    count = max(1, BLOCK_NUMBERS * torch.get_num_threads() // max(1, min(length, BLOCK_ROWS) * length))
    sizes = (1, count) if count < heads else (count // heads, heads)
    for sequences in zip(*(x.split(sizes[0]) for x in of_heads)):
        for part in zip(*(x.split(sizes[1], 1) for x in sequences)):
            yield part
            if not keeps and not has_data(of_heads[0]):
                return


def _future(rows: int, like: Tensor) -> Tensor:
    """The causal mask (rows, rows): zero up to the diagonal and minus infinity above it."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.full((rows, rows), float("-inf"), dtype=dtype, device=like.device).triu_(1)


def _by_head(x: Tensor) -> Tensor:
    """(B, H, T, C) -> (B H, T, C). Copies only if the memory layout requires it."""
    return wide(x).flatten(0, 1)


def _scaled(q: Tensor) -> Tensor:
    return _by_head(q) * q.shape[-1] ** -0.5


def _like(x: Tensor) -> Tensor:
    """Uninitialized memory (B, H, T, C) in which the heads of a token are contiguous, as projections produce them."""
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)
