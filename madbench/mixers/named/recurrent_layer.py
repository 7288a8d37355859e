"""The layer (``nn.Module``) of named operators with a recurrence of one matrix per head, and its paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.named.layer import NamedLayer
from madbench.mixers.named.recurrent import Recurrent
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.recurrence import forms, library
from madbench.mixers.sharing import Shared

CHUNK = 16  # rows per block: the fastest on a CPU, and for a decay per channel, which costs a product per pair of rows
CHUNK_ON_GPU = 64  # rows per block for one decay per head on a GPU, where each block has to start some kernels

if TYPE_CHECKING:
    from madbench.mixers.named.budget import NamedAllocation


def rows_per_block(x: Tensor) -> int:
    """A number of rows per block that is fast on the device of x, for a recurrence with one decay per head."""
    return CHUNK if x.device.type == "cpu" else CHUNK_ON_GPU


@dataclass(frozen=True)
class Cache:
    """The cache of token-by-token decoding. Its size does not depend on the number of tokens."""

    state: Tensor
    """The state matrices of all heads after the tokens so far, (B, H, K, V)."""
    carried: Mapping[str, Tensor]
    """The tensors that the next token needs in addition to the state, by name: (B, ...) each."""


class RecurrentLayer(NamedLayer):
    """The layer of an operator with a recurrence, whose state has a fixed size.

    Besides ``reference`` it has these paths.

    - ``dense``: all pairs of tokens at once
    - ``chunked``: blocks of :meth:`rows_per_block` rows and a state between them, linear in T
    - ``fla``: kernels of flash-linear-attention on a GPU, in 16 bits; some operators lack it
    """

    operator: Recurrent

    def __init__(self, allocation: NamedAllocation, path: str = "auto"):
        super().__init__(allocation, path)
        self.chunk: int | None = None

    def compute(self, x: Tensor, path: str, *shared: Shared) -> Tensor:
        dtype = library.arithmetic(x) if path == "fla" else None
        rows = self.operator.rows(self, x, None, *shared)
        d = rows.dynamics
        with without_autocast(x):
            if dtype is not None:
                y = self._read(library.combine(d, d.v, dtype, self.operator.has_mirror))
            elif path == "chunked":
                y, _ = forms.chunked(d, self.rows_per_block(), d.v, by_halves=self.operator.has_channel_decay)
                y = self._read(y)
            else:
                y = self._read(forms.scores(d).tril()) @ d.v
        return self.operator.read_out(self, y, x, rows)

    def prefill(self, x: Tensor, slide: bool = False, shared: Shared | None = None) -> tuple[Tensor, Cache]:
        """Compute a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`. ``slide`` has no effect, because the cache has a fixed size.
        ``shared`` is that of :meth:`forward`.
        """
        check_sequences(x, self.allocation.label, self.dims.d)
        rows = self.operator.rows(self, x, None, *self.handed(shared))
        d = rows.dynamics
        with without_autocast(x):
            size = min(self.rows_per_block(), d.q.shape[2])
            y, state = forms.chunked(d, size, d.v, by_halves=self.operator.has_channel_decay)
        return self.operator.read_out(self, self._read(y), x, rows), Cache(state, rows.carried)

    def step(
        self, x: Tensor, cache: Cache | None = None, slide: bool = False, shared: Shared | None = None
    ) -> tuple[Tensor, Cache]:
        """Decode one token x (B, D). Return the output (B, D) and the cache for the next token.

        ``cache`` is None for the first token. ``slide`` has no effect, because the cache has a fixed size. ``shared``
        is that of :meth:`forward`.
        """
        check_tokens(x, self.allocation.label, self.dims.d)
        row = x[:, None]
        rows = self.operator.rows(self, row, cache.carried if cache else None, *self.handed(shared))
        with without_autocast(x):
            d, *others = forms.each_row(rows.dynamics)
            state = d.k.mT @ d.v
            state = forms.evolve(cache.state, d) + state if cache else state
            for d in others:
                written = d.k.mT @ d.v
                state = forms.evolve(state, d) + written
            y = d.q @ state
        return self.operator.read_out(self, y, row, rows)[:, 0], Cache(state, rows.carried)

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path (implementation) that :meth:`forward` takes for an input (``batch``, ``length``, D)."""
        if self.path != "auto":
            return self.path
        rows = length * self.operator.rows_per_token
        return "dense" if is_symbolic(batch, length) or rows <= self.rows_per_block() else "chunked"

    def rows_per_block(self) -> int:
        """The number of rows per block of the path ``chunked``.

        It is the attribute ``chunk``. If ``chunk`` is None, it is a number that is fast on the layer's device.
        """
        if self.chunk is not None:
            return self.chunk
        return CHUNK if self.operator.has_channel_decay else rows_per_block(next(self.parameters()))

    def _read(self, rows: Tensor) -> Tensor:
        """Select the last row of each token, because only this row is read out: (B, H, rows, .) -> (B, H, T, .)."""
        count = self.operator.rows_per_token
        return rows if count == 1 else rows[:, :, count - 1 :: count]
