"""The path ``tiled``: on the CPU, tile by tile in cache, with nothing of size T x T in memory, forward or backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from madbench.mixers.srg.parts import SequenceMixing
from madbench.mixers.srg.tiles import Operands, Sheet, Tables, Tile

TILED_BASES = ("S", "R", "G")
TILE_ROWS = 64
"""Rows of a tile at most: fewer make more tiles and slower products, more compute more masked slots."""
TILE_NUMBERS = 2**18
"""Numbers in one of a tile's sheets, 1 MiB in float32; at a quarter of it calls take a third of the time."""


def attend_in_tiles(
    base: str,
    by_lag: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s1: Tensor | None,
    s2: Tensor | None,
    mix1: SequenceMixing | None,
    mix2: SequenceMixing | None,
) -> Tensor:
    """What the dense path computes of S, R and G without registers: q (B, H_q, T, K), scaled under S, keys and values
    (B, heads, T, .) or by lag (B, heads, T + 1, .) newest first -> (B, H, T, V) in the dtype of q.

    Sums and all else inside are in float32 at least, also under autocast. Gradients are those of first order.
    """
    tables = [part for mix in (mix1, mix2) for part in ((mix.A.mT, mix.B.mT, 1 + mix.p) if mix else (None, None, None))]
    return _Tiled.apply(base, by_lag, q, k, v, s1, s2, *tables)


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, base, by_lag, *inputs):
        with torch.autocast(inputs[0].device.type, enabled=False):
            o, norm = _Pass(base, by_lag, inputs).forward()
        ctx.base, ctx.by_lag = base, by_lag
        ctx.save_for_backward(*inputs, o, norm)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_o):
        *inputs, o, norm = ctx.saved_tensors
        with torch.autocast(grad_o.device.type, enabled=False):
            grads = _Pass(ctx.base, ctx.by_lag, inputs).backward(o, norm, grad_o)
        return None, None, *(grad if wanted else None for grad, wanted in zip(grads, ctx.needs_input_grad[2:]))


class _Pass:
    """The walk over tiles: heads, then sequences, then rows."""

    def __init__(self, base: str, by_lag: bool, inputs: Sequence[Tensor | None]):
        self.base, self.by_lag, self.given = base, by_lag, inputs
        self.dtype = torch.promote_types(inputs[0].dtype, torch.float32)
        q, k, v, s1, s2, *tables = (None if x is None else x.to(self.dtype) for x in inputs)
        self.inputs = q, k, v, s1, s2, *(None if table is None else table.contiguous() for table in tables)
        self.batch, query_heads, self.length, _ = inputs[0].shape
        self.n_head = inputs[2].shape[1]
        self.per_head = query_heads // self.n_head

    def forward(self) -> tuple[Tensor, Tensor | None]:
        o = self._of_rows(self.n_head, self.inputs[2].shape[-1], self.given[0].dtype)
        norm = None if self.base == "S" else self._of_rows(self.n_head, 1, self.dtype)
        for tile, at in self._tiles(Tile.FORWARD[self.base]):
            o[at], norm_of_tile = tile.forward(self._operands(self.inputs, *at))
            if norm is not None:
                norm[at] = norm_of_tile
        return o, norm

    def backward(self, o: Tensor, norm: Tensor | None, grad_o: Tensor) -> list[Tensor | None]:
        """Gradients of the inputs in their order and dtypes."""
        grads = self._gradients()
        o, grad_o = o.to(self.dtype), grad_o.to(self.dtype)
        for tile, at in self._tiles(Tile.BACKWARD[self.base]):
            x, of_x = (self._operands(tensors, *at) for tensors in (self.inputs, grads))
            tile.backward(x, o[at], None if norm is None else norm[at], grad_o[at], of_x)
        return [None if grad is None else grad.to(x.dtype) for grad, x in zip(grads, self.given)]

    def _gradients(self) -> list[Tensor | None]:
        """Memory for the gradients of the inputs, zeros where tiles add to them."""
        q, k, v, s1, s2, *tables = self.inputs
        rows = [None if x is None else self._of_rows(x.shape[1], x.shape[-1], self.dtype) for x in (q, s1, s2)]
        columns = [x.new_zeros(x.shape[1], self.batch, *x.shape[2:]).transpose(0, 1) for x in (k, v)]
        return [rows[0], *columns, *rows[1:], *(None if x is None else torch.zeros_like(x) for x in tables)]

    def _of_rows(self, heads: int, width: int, dtype: torch.dtype) -> Tensor:
        """Unwritten memory (B, heads, T, width), heads side by side as projections have them."""
        like = self.given[0]
        return like.new_empty(self.batch, self.length, heads, width, dtype=dtype).transpose(1, 2)

    def _tiles(self, sheets: int) -> Iterator[tuple[Tile, tuple[slice, int, slice]]]:
        """Each tile with its sequences, head and rows."""
        most_rows = min(TILE_ROWS, self.length)
        most_entries = max(1, min(self.batch, TILE_NUMBERS // (most_rows * self.length)))
        size = Sheet.size(most_entries, most_rows, self.length)
        memory, tiles = self.inputs[0].new_zeros(sheets, size).unbind(), {}
        for head in range(self.n_head):
            for first in range(0, self.batch, most_entries):
                entries = slice(first, min(first + most_entries, self.batch))
                for start in range(0, self.length, most_rows):
                    rows = slice(start, min(start + most_rows, self.length))
                    shape = (entries.stop - first, rows.stop - start, rows.stop)
                    if shape not in tiles:
                        tiles[shape] = Tile(memory, shape, self.by_lag, self.base)
                    yield tiles[shape], (entries, head, rows)

    def _operands(self, tensors: Sequence[Tensor | None], entries: slice, head: int, rows: slice) -> Operands:
        """The parts of the inputs, or of their gradients, that a tile meets."""
        q, k, v, s1, s2, a1, b1, gain1, a2, b2, gain2 = tensors
        heads = [head + i * self.n_head for i in range(self.per_head)]
        seen = slice(self.length - rows.stop, None) if self.by_lag else slice(0, rows.stop)
        slots = slice(0, rows.stop)
        return Operands(
            [q[entries, h, rows] for h in heads],
            [k[entries, h, seen] for h in heads],
            v[entries, head, seen],
            [None if s1 is None else s1[entries, h, rows] for h in heads],
            None if s2 is None else s2[entries, head, rows],
            [None if a1 is None else Tables(a1[h, :, slots], b1[h, :, slots], gain1[h, slots]) for h in heads],
            None if a2 is None else Tables(a2[head, :, slots], b2[head, :, slots], gain2[head, slots]),
        )
