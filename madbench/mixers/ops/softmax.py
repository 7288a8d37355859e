"""Causal softmax attention on a CPU, in blocks of heads and rows whose scores fit in the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from madbench.mixers.ops.derivatives import gradients
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.tracing import has_data

BLOCK_ROWS = 64
"""Rows per block. With fewer rows, matrix products are slower. With more, more masked scores are computed."""
BLOCK_NUMBERS = 2**18
"""The number of scores per block and thread: 1 MiB in float32. Larger blocks do not fit in the cache, and in smaller
ones the overhead of calls dominates."""
KEPT_NUMBERS = 2**22
"""Largest number of weights, 16 MiB in float32, that is kept for the backward pass. Beyond it they are recomputed."""
THIN = 16
"""The product of weights with a tensor of fewer channels than this is computed transposed, because this is faster."""


def attend(q: Tensor, k: Tensor, v: Tensor, window: int = 0, sink: Tensor | None = None) -> Tensor:
    """Causal softmax(q k^T / sqrt(K)) v: q and k (B, H, T, K), v (B, H, T, V) -> (B, H, T, V).

    A row sees the last ``window`` tokens including its own, or all tokens up to its own if ``window`` is 0. ``sink``
    (B, H, 1, 1) is an additional logit in the softmax of each row, without a value. All arithmetic is in float32 or
    wider, also under autocast. Second and higher derivatives are computed through :func:`attend_at_once`, which keeps
    the scores of all pairs in memory.
    """
    y: Tensor = _Attention.apply(window, q, k, v, sink)
    return y


def attend_at_once(q: Tensor, k: Tensor, v: Tensor, window: int = 0, sink: Tensor | None = None) -> Tensor:
    """Causal softmax attention as in :func:`attend`, but with operators of torch, on all T x T scores at once."""
    with without_autocast(q):
        scores = (wide(q) * q.shape[-1] ** -0.5) @ wide(k).mT
        scores = scores + _future(q.shape[2], scores)
        if window:
            scores = scores + _past(scores, -window)
        if sink is not None:
            scores = torch.cat((scores, wide(sink).expand(*scores.shape[:-1], 1)), dim=-1)
        return (scores.softmax(-1)[..., : q.shape[2]] @ wide(v)).to(v.dtype)


def keeps_weights(batch: int, heads: int, length: int, window: int = 0) -> bool:
    """True if :func:`attend` keeps its attention weights for the backward pass. Otherwise it computes them again there.

    ``length`` is the number of tokens.
    """
    blocks = _blocks(length)
    numbers: int = sum((rows.stop - rows.start) * (rows.stop - _first_key(rows, window)) for rows in blocks)
    return batch * heads * numbers <= KEPT_NUMBERS


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, window: int, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None) -> Tensor:
        keeps, kept = any(ctx.needs_input_grad) and keeps_weights(*_sizes(q), window), []
        with without_autocast(q):
            inputs = (_scaled(q), _by_head(k), _by_head(v), *map(_by_head, _present(sink)))
            o, future, buffer = _empty(inputs[2]), _future(BLOCK_ROWS, inputs[0]), _buffer(inputs[0], window)
            for of_o, of_q, of_k, of_v, *of_sink in _groups(keeps, window, o, *inputs):
                for rows in _blocks(q.shape[2]):
                    weights = _weights(of_q, of_k, rows, future, buffer, window, *of_sink, is_kept=keeps)
                    _write_product(weights, of_v[:, _keys(rows, window)], of_o[:, rows])
                    if keeps:
                        kept.append(weights)
        ctx.window, ctx.has_sink = window, sink is not None
        ctx.save_for_backward(q, k, v, *_present(sink), *(inputs[:3] if keeps else ()), *kept)
        return _like(v).copy_(o.unflatten(0, v.shape[:2]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Sequence[Tensor | None]:
        q, k, v, *kept = ctx.saved_tensors
        sink = kept.pop(0) if ctx.has_sink else None

        def by_hand(grad: Tensor) -> Sequence[Tensor]:
            with without_autocast(grad):
                return _gradients(ctx.window, q, k, v, sink, grad, kept)

        def plain(*inputs: Tensor) -> Tensor:
            return attend_at_once(*cast("tuple[Tensor, Tensor, Tensor]", inputs[:3]), ctx.window, *inputs[3:])

        found = gradients(by_hand, plain, grad, (q, k, v, *_present(sink)))
        return None, *found, *(() if ctx.has_sink else (None,))


def _present(sink: Tensor | None) -> tuple[Tensor, ...]:
    return () if sink is None else (sink,)


def _gradients(
    window: int, q: Tensor, k: Tensor, v: Tensor, sink: Tensor | None, grad: Tensor, kept: Sequence[Tensor]
) -> list[Tensor]:
    """The gradients of q, k and v, and of the sink if there is one.

    ``grad`` (B, H, T, V) is the gradient of the output. ``kept`` has q, k and v by head and then the attention weights
    of the forward pass: one tensor per group of heads and block of rows, in the order of the forward pass. If it is
    empty, they are computed again.
    """
    length = q.shape[2]
    inputs = (*(kept[:3] or (_scaled(q), _by_head(k), _by_head(v))), *map(_by_head, _present(sink)))
    d_q, d_sink = _empty(inputs[0]), [torch.zeros_like(x) for x in inputs[3:]]
    make = torch.zeros if window else torch.empty  # without a window, the last rows see all keys and write all numbers
    d_k, d_v = (make(len(x), x.shape[2], length, dtype=x.dtype, device=x.device) for x in inputs[1:3])  # transposed
    blocks, future = _blocks(length), _future(BLOCK_ROWS, inputs[0])
    buffer = _buffer(inputs[0], window)
    of_weights = buffer if kept else torch.empty_like(buffer)  # kept weights are only read
    groups = _groups(bool(kept), window, d_q, d_k, d_v, _by_head(grad), *inputs, *d_sink)
    for group, (of_d_q, of_d_k, of_d_v, of_grad, of_q, of_k, of_v, *of_sink) in enumerate(groups):
        for number, rows in reversed([*enumerate(blocks)]):
            keys = _keys(rows, window)
            if kept:
                weights = kept[3 + group * len(blocks) + number]
            else:
                weights = _weights(of_q, of_k, rows, future, of_weights, window, *of_sink[:1])
            rows_of_q, rows_of_grad = of_q[:, rows], of_grad[:, rows]
            d_scores = _product(rows_of_grad, of_v[:, keys].mT, buffer)
            if of_sink:  # the weight of the sink is 1 minus the sum of the other weights
                d_weights = (weights * d_scores).sum(-1, keepdim=True)
                of_sink[1] += d_weights.mul_(weights.sum(-1, keepdim=True).sub_(1)).sum(1, keepdim=True)
            torch.ops.aten._softmax_backward_data.out(d_scores, weights, -1, weights.dtype, grad_input=d_scores)
            _write_product(d_scores, of_k[:, keys], of_d_q[:, rows])
            for total, of_rows, factors in (of_d_k, rows_of_q, d_scores), (of_d_v, rows_of_grad, weights):
                if rows.stop == length and not window:
                    torch.bmm(of_rows.mT, factors, out=total)  # the transposed products are faster
                else:
                    total[:, :, keys] += torch.bmm(of_rows.mT, factors)
    d_q.mul_(q.shape[-1] ** -0.5)
    found = [(q, d_q), (k, d_k.mT), (v, d_v.mT), *zip(_present(sink), d_sink)]
    grads = [(x, d_x.unflatten(0, x.shape[:2])) for x, d_x in found]
    if q._base is not None and q._base is k._base is v._base:  # parts of one product, whose gradients are concatenated
        return [d_x.to(x.dtype) for x, d_x in grads]
    # in the layout of tokens, because later sums over another one round differently
    return [_like(x).copy_(d_x) for x, d_x in grads]


def _weights(
    q: Tensor, k: Tensor, rows: slice, future: Tensor, buffer: Tensor, window: int = 0, sink: Tensor | None = None,
    *, is_kept: bool = False,
) -> Tensor:  # fmt: skip
    """The attention weights (N, rows, keys) of some rows of q (N, T, K), for the keys that :func:`_keys` selects.

    A key that a row cannot see has weight zero. ``future`` is the mask of :func:`_future`, and ``sink`` is (N, 1, 1).
    The scores are written to ``buffer``, and also the weights unless ``is_kept`` is true.
    """
    keys = _keys(rows, window)
    scores, count = _product(q[:, rows], k[:, keys].mT, buffer), rows.stop - rows.start
    scores[:, :, rows.start - keys.start :] += future[:count, :count]
    if window and rows.stop > window:
        scores += _past(scores, rows.start - keys.start - window)
    weights = torch.empty_like(scores) if is_kept else scores
    if sink is None:
        return torch.softmax(scores, -1, out=weights)
    largest = torch.maximum(scores.amax(-1, keepdim=True), sink)
    scores.sub_(largest).exp_()
    return torch.div(scores, scores.sum(-1, keepdim=True).add_(largest.neg_().add_(sink).exp_()), out=weights)


def _first_key(rows: slice, window: int) -> int:
    return max(0, rows.start - window + 1) if window else 0


def _keys(rows: slice, window: int) -> slice:
    """The positions of the keys that at least one of ``rows`` sees.

    If ``window`` is 0, these are all keys up to the last of the rows.
    """
    return slice(_first_key(rows, window), rows.stop)


def _product(left: Tensor, right: Tensor, buffer: Tensor) -> Tensor:
    """The products of N pairs of matrices, in the first elements of ``buffer``, whose memory is still in the cache."""
    count, rows, columns = len(left), left.shape[1], right.shape[2]
    return torch.bmm(left, right, out=buffer[: count * rows * columns].view(count, rows, columns))


def _write_product(weights: Tensor, x: Tensor, into: Tensor) -> None:
    """Write the product of weights (N, rows, keys) and x (N, keys, C) to ``into`` (N, rows, C)."""
    into.copy_(torch.bmm(x.mT, weights.mT).mT if x.shape[-1] < THIN else torch.bmm(weights, x))


def _blocks(length: int) -> list[slice]:
    return [slice(i, min(i + BLOCK_ROWS, length)) for i in range(0, length, BLOCK_ROWS)]


def _groups(keeps: bool, window: int, *of_heads: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors whose first axis has all heads of all sequences into groups of heads that are computed together.

    Yield the same part of each tensor. The first tensor is (N, T, C). A group has so many heads that its scores fit in
    the cache. If the tensors have no data, they serve to measure memory, and all groups need equal memory. Only the
    first group is then yielded. If ``keeps`` is true, all are yielded, because the kept weights of every group count.
    """
    for part in zip(*(x.split(_group_size(of_heads[0].shape[1], window)) for x in of_heads)):
        yield part
        if not keeps and not has_data(of_heads[0]):
            return


def _group_size(length: int, window: int) -> int:
    """The number of heads whose scores in one block of rows fit in the cache, for sequences of ``length`` tokens."""
    return max(
        1, BLOCK_NUMBERS * torch.get_num_threads() // max(1, min(length, BLOCK_ROWS) * _most_keys(length, window))
    )


def _most_keys(length: int, window: int) -> int:
    return min(length, BLOCK_ROWS + window) if window else length


def _buffer(q: Tensor, window: int) -> Tensor:
    """Uninitialized memory for the scores of one group of heads in one block of rows. ``q`` (N, T, K) has all heads."""
    heads, length, _ = q.shape
    return q.new_empty(min(heads, _group_size(length, window)) * min(length, BLOCK_ROWS) * _most_keys(length, window))


def _future(rows: int, like: Tensor) -> Tensor:
    """The causal mask (rows, rows) to add to scores: zero up to the diagonal and minus infinity above it.

    It has the device of ``like``, and its dtype or a wider one.
    """
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.full((rows, rows), float("-inf"), dtype=dtype, device=like.device).triu_(1)


def _past(scores: Tensor, last: int) -> Tensor:
    """The mask of a window to add to ``scores`` (..., rows, keys): minus infinity before the window, else zero.

    In row r = 0, 1, ..., the keys with an index of at most ``last`` + r are before the window.
    """
    return torch.full_like(scores[(0,) * (scores.dim() - 2)], float("-inf")).tril_(last)


def _by_head(x: Tensor) -> Tensor:
    """Merge the first two axes: (B, H, T, C) -> (B H, T, C), in float32 or wider.

    Data are copied only if the dtype or the memory layout requires it.
    """
    return wide(x).flatten(0, 1)


def _scaled(q: Tensor) -> Tensor:
    """q / sqrt(K) by head: (B, H, T, K) -> (B H, T, K)."""
    q = wide(q)
    return torch.mul(q, q.shape[-1] ** -0.5, out=q.new_empty(q.shape)).flatten(0, 1)


def _empty(x: Tensor) -> Tensor:
    """Uninitialized memory with the shape of x (N, T, C), in the layout that :func:`_write_product` writes fastest."""
    return x.new_empty(len(x), x.shape[2], x.shape[1]).mT if x.shape[2] < THIN else x.new_empty(x.shape)


def _like(x: Tensor) -> Tensor:
    """An uninitialized tensor like x (B, H, T, C), in which the heads of a token are contiguous in memory."""
    batch, heads, length, width = x.shape
    return x.new_empty(batch, length, heads, width).transpose(1, 2)


def _sizes(q: Tensor) -> tuple[int, int, int]:
    batch, heads, length, _ = q.shape
    return batch, heads, length
