"""The path ``tiled``: attention on the CPU, in tiles that fit in the cache.

No tensor of size T x T is kept in memory, forward or backward. Exceptions are small inputs and short single sequences,
whose tiles keep their intermediate values for the backward pass.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from madbench.mixers.ops import products
from madbench.mixers.ops.derivatives import gradients
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.tracing import has_data
from madbench.mixers.srg import plain
from madbench.mixers.srg.parts import Tables as MixingTables
from madbench.mixers.srg.tiles import Mixing, Operands, Sheet, Tables, Tile

LETTERS_ON_SCORES = "SRG12o"
"""The letters with ``acts_on_scores`` that the path ``tiled`` computes. Labels with other such letters are refused."""
TILE_ROWS = 64
"""Maximum number of rows of a tile.

Fewer rows make more tiles and slower products; more rows compute more masked slots. If oneDNN computes the
products with values, tiles have up to twice as many rows.
"""
TILE_NUMBERS = 2**19
"""Maximum number of elements of a sheet (see :mod:`madbench.mixers.srg.tiles`), 2 MiB in float32.

Tiles then fit in the cache. With smaller sheets the overhead of calls dominates.
"""
WHOLE_NUMBERS = 2**20
"""Maximum number of scores of an input, B H_q T T, for which a single tile has all rows.

This tile keeps its intermediate values for the backward pass.
"""
KEPT_NUMBERS = 2**22
"""Maximum number of scores, H_q T T, for which the tiles of a single sequence keep their intermediate values.

Training then takes 7 to 10% less time than if the backward pass computes the values again. With several sequences it
would take only 2 to 5% less time for the same additional memory.
"""
LEAST_ROWS = 16
"""Minimum number of rows of a tile, even if its sheets then exceed ``TILE_NUMBERS``."""


def attend(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None, s2: Tensor | None,
    mix1: MixingTables | None, mix2: MixingTables | None,
) -> Tensor:  # fmt: skip
    """Causal attention on a CPU, in tiles: the output of the heads (B, H, T, V), in the dtype of q.

    The bases S, R and G are supported. q and k are (B, H_q, T, K), and v is (B, H, T, V). For base S, q must already be
    scaled by 1/sqrt(K). R(1) mixes scores over slots: ``s1`` (B, H_q, T, R) are its strengths and ``mix1`` its tables.
    R(2) mixes activations: ``s2`` (B, H, T, R) are its strengths and ``mix2`` its tables. Both are None without this
    mixing. If ``by_lag`` is true, table rows are ordered by lag, otherwise by position.

    All arithmetic is in float32 or wider, also under autocast. Higher derivatives are those of
    :func:`madbench.mixers.srg.plain.attend`, which keeps T x T numbers in memory.
    """
    nothing = (None, None, None)
    mix1, mix2 = ((mix[0].mT, mix[1].mT, 1 + mix[2][:, None]) if mix else nothing for mix in (mix1, mix2))
    o: Tensor = _Tiled.apply(base, by_lag, torch.is_grad_enabled(), q, k, v, s1, s2, *mix1, *mix2)
    return o


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, base: str, by_lag: bool, has_backward: bool, q: Tensor, *others: Tensor | None) -> Tensor:
        inputs = (q, *others)
        with without_autocast(q):
            work = _Pass(base, by_lag, has_backward, inputs)
            o, norm = work.forward(keeps=work.keeps_values and any(ctx.needs_input_grad))
        ctx.base, ctx.by_lag, ctx.filled = base, by_lag, work.filled
        ctx.save_for_backward(*inputs, o, norm)
        return o

    @staticmethod
    def backward(ctx: Any, grad_o: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, o, norm = ctx.saved_tensors

        def by_hand(grad_o: Tensor) -> list[Tensor | None]:
            with without_autocast(grad_o):
                work = _Pass(ctx.base, ctx.by_lag, True, inputs)
                # the backward pass overwrites the kept values, so a second one must compute them again
                work.filled, ctx.filled = ctx.filled, None
                grads = work.backward(o, norm, grad_o)
            return [grad if wanted else None for grad, wanted in zip(grads, ctx.needs_input_grad[3:])]

        return None, None, None, *gradients(by_hand, functools.partial(_plain, ctx.base, ctx.by_lag), grad_o, inputs)


def _plain(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, s1: Tensor | None, s2: Tensor | None,
    *tables: Tensor | None,
) -> Tensor:  # fmt: skip
    """Compute the attention of :func:`attend` with torch operators, from which autograd takes higher derivatives.

    ``tables`` are A, B and the gain 1 + p of the mixing matrix R(1), and then those of R(2). A and B are transposed.
    """
    length = q.shape[2]

    def mixing(s: Tensor | None, of_s: Sequence[Tensor | None]) -> plain.Mixing | None:
        if s is None:
            return None
        A, B, gain = (table[..., :length] for table in of_s if table is not None)
        return plain.Mixing(s, A.mT, B.mT, gain)

    return plain.attend(base, by_lag, q, k, v, mixing(s1, tables[:3]), mixing(s2, tables[3:]))


class _Pass:
    """One forward or backward pass of attention: a loop over groups of sequences, and in each over blocks of rows.

    ``has_backward`` is true if gradients are enabled, so that a backward pass can follow.
    """

    def __init__(self, base: str, by_lag: bool, has_backward: bool, inputs: Sequence[Any]):
        self.base, self.by_lag, self.inputs = base, by_lag, inputs
        q, _, v, *_ = inputs
        self.batch, self.query_heads, self.length, _ = q.shape
        self.n_head = v.shape[1]
        self.dtype = torch.promote_types(q.dtype, torch.float32)
        parts = ([self._by_row(table) for table in part if table is not None] for part in (inputs[5:8], inputs[8:]))
        self.tables = [Tables(*part) if part else None for part in parts]
        fitting = TILE_NUMBERS // (self.query_heads * self.length)
        by_onednn = products.are_by_onednn(TILE_ROWS * self.length * v.shape[-1], v)
        self.rows = min(self.length, 2 * TILE_ROWS if by_onednn else TILE_ROWS, max(LEAST_ROWS, fitting))
        self.entries = max(1, min(self.batch, fitting // self.rows))
        numbers = self.batch * self.query_heads * self.length**2
        is_one_tile = self.rows == self.length and numbers <= WHOLE_NUMBERS
        if is_one_tile:
            self.entries = self.batch
        self.keeps_values = is_one_tile or (has_backward and self.batch == 1 and numbers <= KEPT_NUMBERS)
        self.filled: tuple[Operands, list[Tile]] | None = None
        """The operands and tiles of a forward pass that keeps their values for the backward pass."""

    def forward(self, keeps: bool) -> tuple[Tensor, Tensor | None]:
        """Return o (B, H, T, V) in the dtype of q, and the norms (H, B, T) of the hidden scores of each row.

        The outputs of the bases R and G are already divided by these norms. For the base S, None is returned in place
        of norms. If ``keeps`` is true, the tiles are kept in :attr:`filled` for the backward pass.
        """
        q, _, v, *_ = self.inputs
        o = self._of_rows(v, q.dtype)
        norm = None if self.base == "S" else v.new_empty(self.n_head, self.batch, self.length, dtype=self.dtype)
        tiles = self._kept_tiles() if keeps else self._tiles(backward=False)
        for entries in self._groups():
            group = self._group(entries)
            if keeps:
                self.filled = group, []
            for rows in self._blocks():
                tile = tiles(entries, rows)
                of_tile, norm_of_tile = tile.forward(self._block(group, rows))
                if norm is not None and norm_of_tile is not None:
                    norm[:, entries, rows] = norm_of_tile
                o[entries, :, rows] = self._divided(of_tile, norm_of_tile)
                if self.filled:
                    self.filled[1].append(tile)
        return o, norm

    def _divided(self, o: Tensor, norm: Tensor | None) -> Tensor:
        """Divide outputs (H N, M, V) by their norm. Return (N, H, M, V)."""
        o = torch.unflatten(o, 0, (self.n_head, -1))
        return (o if norm is None else o.div_(norm[..., None])).transpose(0, 1)

    def backward(self, o: Tensor, norm: Tensor | None, grad_o: Tensor) -> list[Tensor | None]:
        """Return the gradients of the inputs, in the order and the dtypes of the inputs. None for inputs that are None.

        ``o`` and ``norm`` are the results of :meth:`forward`, and ``grad_o`` is the gradient of o.
        """
        of_sides = [self._of_rows(x, x.dtype) for x in self.inputs[:3]]
        of_strengths = [None if x is None else self._of_rows(x, x.dtype) for x in self.inputs[3:5]]
        of_tables = [None if tables is None else Tables(*map(torch.zeros_like, tables)) for tables in self.tables]
        filled, along = self.filled, None
        kept = iter(filled[1] if filled else ())
        tiles: Callable[[slice, slice], Tile]
        tiles = (lambda entries, rows: next(kept)) if filled else self._tiles(backward=True)
        for entries in self._groups():
            group = filled[0] if filled else self._group(entries)
            of_o = self._heads_first(grad_o[entries])
            if norm is not None:
                norms = norm[:, entries].reshape(-1, self.length, 1)
                along = (of_o * self._heads_first(o[entries])).sum(-1, keepdim=True).div_(norms.square()).neg_()
                along = along.view(self.n_head, -1, self.length)
                of_o.div_(norms)
            mix1, mix2 = (
                mix and tables and Mixing(torch.zeros_like(mix.s), tables) for mix, tables in zip(group[3:], of_tables)
            )
            q, k, v = map(torch.zeros_like, group[:3])
            into = Operands(q, k, v, mix1, mix2)
            for rows in self._blocks():
                of_rows = None if along is None else along[..., rows]
                tile = tiles(entries, rows)
                tile.backward(self._block(group, rows), of_o[:, rows], of_rows, self._block(into, rows), bool(filled))
            self._write(into, entries, of_sides, of_strengths)
        of_inputs = (grad for of_mixing in of_tables for grad in of_mixing or (None,) * 3)
        grads = [*of_sides, *of_strengths]
        return [*grads, *(None if grad is None else grad.to(x.dtype) for x, grad in zip(self.inputs[5:], of_inputs))]

    def _groups(self) -> Iterator[slice]:
        """Slices of the batch. The sequences of a slice are computed in the same tiles.

        If the inputs have no data, only memory is measured, and only the first slice is returned.
        """
        end = self.batch if has_data(self.inputs[0]) else self.entries
        return (slice(i, min(i + self.entries, self.batch)) for i in range(0, end, self.entries))

    def _blocks(self) -> Iterator[slice]:
        """Slices of the T rows of a sequence, one per tile.

        If the inputs have no data, only memory is measured, and only the last two slices, which need the most memory,
        are returned. All slices are returned even then if tiles are kept.
        """
        starts = range(0, self.length, self.rows)
        starts = starts if has_data(self.inputs[0]) or self.keeps_values else starts[-2:]
        return (slice(i, min(i + self.rows, self.length)) for i in starts)

    def _tiles(self, backward: bool) -> Callable[[slice, slice], Tile]:
        """Return a function that makes the tile for a slice of sequences and a slice of rows.

        All tiles use the same memory, which suffices for a backward pass if ``backward`` is true.
        """
        shape = self.entries, self.rows, self.length
        memory = [self._sheet(heads, *shape) for heads in Tile.heads(self.base, self.n_head, backward)]

        @functools.cache
        def tile(entries: int, rows: int, slots: int) -> Tile:
            return Tile(self.base, self.n_head, (entries, rows, slots), self.by_lag, memory)

        return lambda entries, rows: tile(entries.stop - entries.start, rows.stop - rows.start, rows.stop)

    def _kept_tiles(self) -> Callable[[slice, slice], Tile]:
        """Return a function that makes the tile for a slice of sequences and a slice of rows, to be kept.

        Unlike with :meth:`_tiles`, each tile has its own memory. All share only the sheet that the backward pass
        overwrites.
        """
        scores, hidden, grad, work, a = Tile.heads(self.base, self.n_head, backward=True)
        shared = self._sheet(work, self.entries, self.rows, self.length)

        def tile(entries: slice, rows: slice) -> Tile:
            shape = entries.stop - entries.start, rows.stop - rows.start, rows.stop
            own = [self._sheet(heads, *shape) for heads in (scores, hidden, grad, a)]
            return Tile(self.base, self.n_head, shape, self.by_lag, [*own[:3], shared, own[3]])

        return tile

    def _sheet(self, heads: int, entries: int, rows: int, slots: int) -> Tensor:
        """Uninitialized memory of a :class:`Sheet`, with one number per head, sequence, row and slot."""
        memory: Tensor = self.inputs[0].new_empty(Sheet.numbers(heads, entries, rows, slots), dtype=self.dtype)
        return memory

    def _of_rows(self, like: Tensor, dtype: torch.dtype) -> Tensor:
        """Uninitialized memory of the shape of ``like``, (B, heads, T, C).

        The heads of a token are contiguous, as in projections.
        """
        batch, heads, length, width = like.shape
        return like.new_empty(batch, length, heads, width, dtype=dtype).transpose(1, 2)

    def _by_row(self, table: Tensor) -> Tensor:
        """A copy of a table (heads, r, W) with contiguous rows, in the dtype of the pass.

        ``Tensor.contiguous`` may keep strides with which products are slow.
        """
        return torch.empty(table.shape, dtype=self.dtype, device=table.device).copy_(table)

    def _heads_first(self, x: Tensor) -> Tensor:
        """Copy x (N, heads, T, C) to (heads N, T, C), in the dtype of the pass."""
        return x.transpose(0, 1).to(self.dtype, memory_format=torch.contiguous_format, copy=True).flatten(0, 1)

    def _newest_first(self, x: Tensor) -> Tensor:
        """Copy x (N, heads, T, C) to (heads N, T + 1, C), newest row first, followed by a row of zeros.

        The result has the dtype of the pass. See :func:`madbench.mixers.srg.parts.newest_first`.
        """
        batch, heads, length, width = x.shape
        rows = x.new_empty(heads, batch, length + 1, width, dtype=self.dtype)
        rows[:, :, :length] = x.transpose(0, 1).flip(2)
        rows[:, :, length] = 0
        return rows.flatten(0, 1)

    def _group(self, entries: slice) -> Operands:
        """The operands of the sequences in the slice ``entries`` of the batch, with all their rows."""
        q, k, v = (x[entries] for x in self.inputs[:3])
        mix1, mix2 = (
            tables and Mixing(s[entries].permute(1, 3, 0, 2).to(self.dtype).contiguous(), tables)
            for s, tables in zip(self.inputs[3:5], self.tables)
        )
        ordered = self._newest_first if self.by_lag else self._heads_first
        return Operands(self._heads_first(q), ordered(k), ordered(v), mix1, mix2)

    def _block(self, group: Operands, rows: slice) -> Operands:
        """The part of a group's operands for a slice of rows, with all keys and values that these rows see."""
        q, k, v, *mixings = group
        seen = slice(self.length - rows.stop, None) if self.by_lag else slice(0, rows.stop)
        mix1, mix2 = (mix and Mixing(mix.s[..., rows], mix.tables.up_to(rows.stop)) for mix in mixings)
        return Operands(q[:, rows], k[:, seen], v[:, seen], mix1, mix2)

    def _write(
        self, group: Operands, entries: slice, of_sides: Sequence[Tensor], of_strengths: Sequence[Tensor | None]
    ) -> None:
        """Copy the gradients of some sequences into the gradients of the inputs.

        ``group`` has the gradients of these sequences, in the layout of operands. ``entries`` is their slice of the
        batch. ``of_sides`` are the gradients of the inputs q, k and v, and ``of_strengths`` those of s1 and s2, which
        are None without the mixing.
        """
        for grad, of_side in zip(of_sides, (group.q, group.k, group.v)):
            of_side = of_side.unflatten(0, (grad.shape[1], -1)).transpose(0, 1)
            is_ordered = self.by_lag and grad is not of_sides[0]
            grad[entries] = of_side[:, :, : self.length].flip(2) if is_ordered else of_side
        for of_s, mix in zip(of_strengths, (group.mix1, group.mix2)):
            if of_s is not None and mix is not None:
                of_s[entries] = mix.s.permute(2, 0, 3, 1)
