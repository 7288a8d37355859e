"""What operators on tuples share: paths, memory, blocks of rows, decoding; and factored ones, projections."""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.inputs import check_sequences
from madbench.mixers.linear_maps import weight_of
from madbench.mixers.precision import wide
from madbench.mixers.recompute import recompute
from madbench.mixers.start import redraw_parts
from madbench.mixers.tracing import is_symbolic

PHYSICAL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # here: torch.compile cannot look through it
CHUNK_BYTES = {"cpu": 2**24, "cuda": 2**28}
"""Of the largest tensors of a block of rows: what caches hold, and kernels worth a launch. Where one block is not all,
blocks are faster, as they skip what is masked, though they are computed twice."""


class InteractionMixer(nn.Module):
    """A sum over tuples of tokens, whatever their effects are: its paths, blocks of rows, and decoding.

    Args:
        linear: whether running sums compute it too.
        rope: whether queries and keys are rotated by position.
        causal: whether row i sees tokens 0 .. i, or all.
        max_len: tokens that a sliding :meth:`step` keeps.
        path: ``auto``, ``reference`` (float64 loops over rows, heads and tuples), ``dense`` (all rows at once),
            ``chunked`` (blocks of rows, recomputed in the backward pass) or, where ``linear``, ``linear_time`` (running
            sums, block by block). All compute the same function.
        chunk: rows of a block; as many as ``CHUNK_BYTES`` of the device hold unless given.
    """

    paths = ("auto", "reference", "dense", "chunked")

    def __init__(
        self,
        *,
        linear: bool = False,
        rope: bool = False,
        causal: bool = True,
        max_len: int = 1024,
        path: str = "auto",
        chunk: int | None = None,
    ):
        super().__init__()
        if path not in self.paths:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, self.paths)}")
        if path == "linear_time" and not linear:
            raise TrainingError("path 'linear_time' computes labels with base L, not softmax; use 'auto'")
        self.linear, self.rope, self.causal = linear, rope, causal
        self.max_len, self.path, self.chunk = max_len, path, chunk

    def reset_parameters(self) -> None:
        """Weights from N(0, 0.02^2); from one seed they are those of a new mixer."""
        redraw_parts(self)
        self.draw()

    def draw(self) -> None:
        """Draws the weights, with which a constructor ends."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, d) -> (B, T, d).

        Raises ``TrainingError`` for x of another shape or of integers, for no tokens, and where memory does not
        suffice.
        """
        check_sequences(x, self.name())
        return self._rows(x)[0]

    def _rows(self, x: Tensor, projected: tuple[Tensor, ...] | None = None) -> tuple[Tensor, Any]:
        """Rows of x (B, T, d), which became ``projected``, and the running sums after the last if they computed it."""
        batch, length, _ = x.shape
        path = self.resolve_path(batch, length)
        if path == "reference":
            return self.reference(x).to(x.dtype), None
        if is_symbolic(batch, length):
            rows = length  # blocks would fix how many there are
        else:
            rows = length if path == "dense" else self.rows_of_block(batch, length, path)
            self._check_memory(x, rows, path)
        q, *seen = self.placed(0, 0, *(projected or self.project(x)))
        if path == "linear_time":
            o, state = self.running(q, *seen, rows)
            return self.read_out(o), state
        if path == "dense" or is_symbolic(batch, length):
            return self.read_out(self.attend(q, *seen, 0)), None
        blocks = []
        for start in range(0, length, rows):
            end = start + rows if self.causal else length
            block = (q[:, :, start : start + rows], *(tensor[:, :, :end] for tensor in seen), start)
            blocks.append(recompute(self.attend, *block, module=self))
        return self.read_out(torch.cat(blocks, dim=2)), None

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Any]:
        """Decodes a prompt at once: x (B, T, d) -> its rows (B, T, d) and the cache for the token after it.

        Equals T times :meth:`step`, by one :meth:`forward`; with ``slide``, tokens beyond ``max_len`` by a step each.
        """
        check_sequences(x, self.name())
        self._check_causal()
        batch, length, _ = x.shape
        if self.linear:
            self._check_sums(length - 1, slide)
        whole = x[:, : self.max_len] if slide else x
        q, *seen = self.project(whole)
        of_prompt, state = self._rows(whole, (q, *seen))
        rows, cache = [of_prompt], (whole.shape[1], *seen)
        if self.linear and state is None:  # another path gave the rows
            _, k, v = self.placed(0, 0, q, *seen)
            size = self.rows_of_block(batch, length, "linear_time")
            for block in zip(k.split(size, 2), v.split(size, 2)):
                state = self.totals(*block, state)
        if self.linear:
            cache = (length, state)
        for token in x[:, whole.shape[1] :].unbind(1):
            row, cache = self.step(token, cache, slide)
            rows.append(row[:, None])
        return torch.cat(rows, dim=1), cache

    def step(self, x: Tensor, cache: Any = None, slide: bool = False) -> tuple[Tensor, Any]:
        """Decodes one token: x (B, d) -> the row of :meth:`forward` after the cached ones (B, d), and the cache.

        The cache is keys and values so far, for full couplings inputs, for a linear label running sums. ``slide`` keeps
        the newest ``max_len`` tokens; a sum cannot forget, so that a linear label raises ``TrainingError`` there.
        """
        if x.dim() != 2:
            raise TrainingError(f"a step takes one token of each sequence, (B, d), not {tuple(x.shape)}")
        self._check_causal()
        position, *before = cache or (0,)
        q, *seen = self.project(x[:, None])
        if self.linear:
            self._check_sums(position, slide)
            o, state = self.advance(*self.placed(position, position, q, *seen), *before or (None,))
            return self.read_out(o)[:, 0], (position + 1, state)
        if before:
            seen = [torch.cat((old, new), dim=2) for old, new in zip(before, seen)]
        if slide:
            seen = [tensor[:, :, -self.max_len :] for tensor in seen]
        row = seen[0].shape[2] - 1  # scores depend on offsets only: positions may start at the oldest token kept
        return self.read_out(self.attend(*self.placed(row, 0, q, *seen), row))[:, 0], (position + 1, *seen)

    def _check_causal(self) -> None:
        if not self.causal:
            raise TrainingError("a bidirectional mixer cannot decode token by token; build it with causal=True")

    def _check_sums(self, position: int, slide: bool) -> None:
        """Raises ``TrainingError`` where running sums cannot decode the token at ``position``."""
        self.check_state()
        if slide and position >= self.max_len:
            raise TrainingError(
                f"base L keeps running sums, which cannot forget a token after max_len = {self.max_len}; "
                "decode fewer tokens, or without the sliding window"
            )

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for an input of this shape."""
        if self.path != "auto":
            return self.path
        if self.linear and self.prefers_state(length):
            return "linear_time"
        if is_symbolic(batch, length):
            return "dense"
        return "dense" if self.block_bytes(batch, length, length) <= self.limit_bytes else "chunked"

    @property
    def limit_bytes(self) -> int:
        """Up to which a block of all rows, or one of fewer, is computed at once."""
        parameter = next(self.parameters(), None)  # quantized layers have none, and compute on the CPU
        return CHUNK_BYTES.get(parameter.device.type if parameter is not None else "cpu", CHUNK_BYTES["cpu"])

    def rows_of_block(self, batch: int, length: int, path: str) -> int:
        """Rows of a block of the paths ``chunked`` and ``linear_time``."""
        of_row = self.state_row_bytes(batch) if path == "linear_time" else self.block_bytes(batch, 1, length)
        return min(length, self.chunk or max(1, self.limit_bytes // max(of_row, 1)))

    def _check_memory(self, x: Tensor, rows: int, path: str) -> None:
        """Raises ``TrainingError`` where blocks of ``rows`` do not fit."""
        batch, length, _ = x.shape
        if path == "linear_time":
            self.check_state()
            needed = self.state_row_bytes(batch) * rows
        else:
            needed = self.block_bytes(batch, rows, length)

        def fits() -> str:
            if path == "linear_time":
                return "take fewer sequences or more heads"
            longest = fitting_length(x, lambda n: self.block_bytes(1, n if rows == length else rows, n))
            others = ["chunked"] * (path == "dense") + ["linear_time"] * self.linear
            ways = [f"one sequence of {longest:,} tokens", *(f"the path {other!r}" for other in others)]
            return f"what would fit: {'; '.join(ways)}"

        check_memory(x, needed, lambda: f"{self.name()} at {batch} x {length:,} tokens, path {path!r},", fits)

    def placed(self, first_q: int, first_k: int, q: Tensor, k: Tensor, *v: Tensor) -> tuple[Tensor, ...]:
        """What :meth:`project` gives, rotated, the first tokens being at these positions."""
        return (self.turned_query(q, first_q), self.turned_key(k, first_k), *v) if self.rope else (q, k, *v)

    # what an operator says
    name: Callable[[], str]  # what messages call it
    project: Callable[[Tensor], tuple[Tensor, ...]]  # x -> q, and k and v or other tensors of the tokens (B, H, T, ..)
    attend: Callable[..., Tensor]  # q, k, v, position of the first row among the keys -> (B, H, M, d_vo)
    read_out: Callable[[Tensor], Tensor]  # what attend gives -> (B, M, d)
    reference: Callable[..., Tensor]  # x, and which rows unless all -> these rows (B, rows, d) by loops in float64
    block_bytes: Callable[[int, int, int], int]  # batch, rows, length -> bytes of the largest tensors of these rows
    turned_query: Callable[[Tensor, int], Tensor]  # q, its first position -> q with RoPE
    turned_key: Callable[[Tensor, int], Tensor]  # k, its first position -> k with RoPE
    # and where it is linear
    running: Callable[..., tuple[Tensor, Any]]  # q, k, v, rows of a block -> all rows, running sums after the last
    totals: Callable[..., Any]  # k, v, running sums -> running sums
    prefers_state: Callable[[int], bool]  # length -> whether running sums are the cheaper
    check_state: Callable[[], None]  # TrainingError for running sums too large
    state_row_bytes: Callable[[int], int]  # batch -> bytes of one row of a block of running sums
    advance: Callable[..., tuple[Tensor, Any]]  # q, k, v, running sums -> rows and running sums


class FactoredMixer(InteractionMixer):
    """Projections q, k, v and o without biases around a sum over tuples of tokens; (B, T, d) -> (B, T, d).

    Args:
        d_model: d.
        n_head: H.
        widths: rows of the weights of q, k, v and columns of o.
        how: see :class:`InteractionMixer`; ``linear`` says whether effects are weights as they are, or their softmax.

    Weights ``q.weight``, ``k.weight``, ``v.weight``, ``o.weight`` start from N(0, 0.02^2).
    """

    paths = (*InteractionMixer.paths, "linear_time")

    def __init__(self, d_model: int, n_head: int, widths: tuple[int, int, int, int], **options: Any):
        super().__init__(**options)
        self.d_model, self.n_head = d_model, n_head
        q, k, v, o = widths
        self.q, self.k, self.v = (nn.Linear(d_model, width, bias=False) for width in (q, k, v))
        self.o = nn.Linear(o, d_model, bias=False)
        self.draw()

    def read_out(self, o: Tensor) -> Tensor:
        """o (B, H, T, d_vo) -> (B, T, d)."""
        return self.o(o.transpose(1, 2).flatten(-2).to(weight_of(self.o).dtype))

    def running(self, q: Tensor, k: Tensor, v: Tensor, rows: int) -> tuple[Tensor, Any]:
        """The rows by running sums, block by block: (B, H, T, d_vo), and the sums after the last."""
        state, blocks_of_rows = None, []
        starts = [0] if rows == q.shape[2] else range(0, q.shape[2], rows)
        blocks = [slice(start, start + rows) for start in starts]
        if not self.causal:
            for block in blocks:
                state = recompute(self.totals, k[:, :, block], v[:, :, block], state)
            rows_of_blocks = [recompute(self.of_totals, q[:, :, block], state) for block in blocks]
            return torch.cat(rows_of_blocks, dim=2), state
        for block in blocks:
            o, state = recompute(self.advance, q[:, :, block], k[:, :, block], v[:, :, block], state)
            blocks_of_rows.append(o)
        return torch.cat(blocks_of_rows, dim=2), state

    of_totals: Callable[..., Tensor]  # q, running sums -> rows


def split_heads(x: Tensor, *shape: int) -> Tensor:
    """(B, T, prod(shape) C) -> (B, shape.., T, C), heads first, in float32 at least."""
    return wide(x).unflatten(-1, (*shape, -1)).movedim(1, -2)


def softmax_over(scores: Tensor, visible: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """exp of the scores less their largest, which is returned too; 0 where not ``visible``, also where nothing is."""
    scores = scores.masked_fill(~visible, float("-inf"))
    top = scores.detach().amax(dims, keepdim=True)
    return (scores - top.masked_fill(top == float("-inf"), 0)).exp(), top


def available_bytes(x: Tensor) -> int:
    """Memory of the device of ``x``: on a GPU what is free and what torch holds unused, on the CPU physical."""
    if x.device.type == "cuda":
        unused = torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
        return torch.cuda.mem_get_info(x.device)[0] + unused
    return PHYSICAL_BYTES


def check_memory(x: Tensor, needed: int, what: Callable[[], str], fits: Callable[[], str]) -> None:
    """Raises ``TrainingError`` where ``needed`` bytes for ``what`` are more than there are; ``fits``: what would do."""
    available = available_bytes(x)
    if needed > available:
        sizes = f"takes {needed / 1e9:,.1f} GB, and there are {available / 1e9:,.1f} GB"
        raise TrainingError(f"{what()} {sizes}; {fits()}")


def fitting_length(x: Tensor, bytes_at: Callable[[int], int]) -> int:
    """The longest sequence whose ``bytes_at(T)`` the device of ``x`` has."""
    available, length = available_bytes(x), 1
    while bytes_at(2 * length) <= available:
        length *= 2
    return bisect.bisect_right(range(2 * length), available, lo=length, key=bytes_at) - 1
