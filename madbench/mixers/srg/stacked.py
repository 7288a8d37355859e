"""Calls of attention operators for several models at once.

Under ``vmap`` over models, the heads of all models become the heads of one call, since heads do not affect each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from madbench.mixers.srg.parts import Tables


def attend_stacked(
    operator: Callable[..., Tensor], base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None,
    s2: Tensor | None, mix1: Tables | None, mix2: Tables | None,
) -> Tensor:  # fmt: skip
    """Call ``operator`` once with the heads of all models, under ``torch.func.vmap`` over models.

    The operator itself then needs no support for ``vmap``. Arguments and result of one model are those of
    :func:`madbench.mixers.srg.tiled.attend`. Raises ``AssertionError`` outside of ``vmap``.
    """
    nothing = (None, None, None)
    o: Tensor = _AsHeads.apply(operator, base, by_lag, q, k, v, s1, s2, *(mix1 or nothing), *(mix2 or nothing))
    return o


class _AsHeads(torch.autograd.Function):
    """An autograd function that works only under ``vmap``. It calls the operator, which defines the gradients."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        raise AssertionError("only stacked models are computed with this function")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operator: Any, base: str, by_lag: bool, *tensors: Any) -> Any:
        models = [_leading(tensor, dim, info.batch_size) for tensor, dim in zip(tensors, in_dims[3:])]
        n_head = cast(Tensor, models[2]).shape[2]
        rows = [None if tensor is None else _heads_of_rows(tensor, n_head) for tensor in models[:5]]
        tables = [None if tensor is None else _heads_of_tables(tensor, n_head) for tensor in models[5:]]
        mixings = [None if part[0] is None else part for part in (tables[:3], tables[3:])]
        o = operator(base, by_lag, *rows, *mixings)
        return o.unflatten(1, (info.batch_size, n_head)).movedim(1, 0), 0


def _leading(tensor: Tensor | None, dim: int | None, models: int) -> Tensor | None:
    """Move the axis of models, ``dim``, to the front. If ``dim`` is None, repeat the tensor for all models.

    Return None if ``tensor`` is None.
    """
    if tensor is None:
        return None
    return tensor.expand(models, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


def _heads_of_rows(x: Tensor, n_head: int) -> Tensor:
    """Merge N models into the heads, (N, B, i H, T, C) -> (B, i N H, T, C). H is ``n_head``.

    i is the number of scores per head: 2 in tensors of query heads of base G, otherwise 1. In the result, the first
    scores of all heads of all models come before the second scores.
    """
    return torch.unflatten(x, 2, (-1, n_head)).permute(1, 2, 0, 3, 4, 5).flatten(1, 3)


def _heads_of_tables(table: Tensor, n_head: int) -> Tensor:
    """Merge the mixing tables of N models into the heads, (N, i H, ...) -> (i N H, ...). H is ``n_head``.

    i is 2 for tables of base G that mix scores, otherwise 1. The heads are in the order of :func:`_heads_of_rows`.
    """
    return torch.unflatten(table, 1, (-1, n_head)).movedim(0, 1).flatten(0, 2)
