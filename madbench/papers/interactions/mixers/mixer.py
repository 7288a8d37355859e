"""The base classes of operators on tuples of tokens: computation paths, memory, blocks of rows, decoding, projections.

A row is a token for which an output is computed. A row sees tuples of tokens.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.ops.linear_maps import weight_of
from madbench.mixers.ops.precision import wide
from madbench.mixers.ops.recompute import recompute
from madbench.mixers.ops.tracing import has_data, is_symbolic, is_traced
from madbench.mixers.redrawing import redraw_parts

if TYPE_CHECKING:
    from madbench.papers.interactions.mixers.budget import InteractionAllocation

PHYSICAL_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # at import: torch.compile cannot trace it
CHUNK_BYTES = {"cpu": 2**24, "cuda": 2**28}
"""Size in bytes of the largest tensors of a block of rows, per device.

Blocks of this size fit into a CPU's cache, and are worth a launch on a GPU. The backward pass computes each block
again. Even so, several blocks are faster than all rows at once, because they skip masked parts.
"""


class InteractionMixer(nn.Module):
    """The base class of mixers that sum over tuples of tokens. It has their paths, blocks of rows, and decoding.

    A row is a token for which an output is computed.

    Args:
        linear: True if the operator is linear, so that running sums can compute it too.
        rope: True if queries and keys are rotated by position.
        causal: True if row i sees tokens 0 .. i, False if it sees all tokens.
        max_len: number of tokens that a sliding :meth:`step` keeps.
        path: ``auto``, ``reference`` (float64 loops over rows, heads and tuples), ``dense`` (all rows at once),
            ``chunked`` (blocks of rows, recomputed in the backward pass) or, if ``linear``, ``linear_time`` (running
            sums, block by block). All compute the same function.
        chunk: rows per block. If None, as many as fit in the device's ``CHUNK_BYTES``.
    """

    paths = ("auto", "reference", "dense", "chunked")

    allocation: InteractionAllocation
    """The ranks of the mixer, set by the family that builds it. A mixer built in another way lacks the attribute."""

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
        """Initialize the weights from N(0, 0.02^2), as the constructor does.

        After the same random seed, they are equal to the weights of a new mixer.
        """
        redraw_parts(self)
        self.draw()

    def draw(self) -> None:
        """Initialize all weights from N(0, 0.02^2). The constructor of a subclass calls this at its end."""
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, d) to the outputs (B, T, d).

        Raises ``TrainingError`` if x has another shape, an integer dtype or no tokens, and if there is too little
        memory.
        """
        check_sequences(x, self.name(), self.width)
        return self._rows(x)[0]

    def _rows(self, x: Tensor, projected: tuple[Tensor, ...] | None = None) -> tuple[Tensor, Any]:
        """The outputs for x (B, T, d), and the final running sums. The sums are None if the path does not compute them.

        ``projected`` is the result of :meth:`project` for x; None if it has not been computed.
        """
        batch, length, _ = x.shape
        path = self.resolve_path(batch, length)
        if path == "reference":
            return self.reference(x).to(x.dtype), None
        if is_symbolic(batch, length):
            rows = length  # blocks would fix the number of rows
        else:
            rows = length if path == "dense" else self.rows_of_block(batch, length, path)
            self._check_memory(x, rows, path)
        q, *seen = self.with_positions(0, 0, *(projected or self.project(x)))
        if path == "linear_time":
            o, state = self.attend_by_sums(q, *seen, rows)
            return self.read_out(o), state
        if path == "dense" or is_symbolic(batch, length):
            return self.read_out(self.attend(q, *seen, 0)), None
        blocks = []
        for block in _row_blocks(x, rows):
            end = block.stop if self.causal else length
            inputs = (q[:, :, block], *(tensor[:, :, :end] for tensor in seen), block.start)
            blocks.append(recompute(self.attend, *inputs, module=self))
        if skipped := length - sum(block.shape[2] for block in blocks):
            blocks.append(blocks[0].new_empty(*blocks[0].shape[:2], skipped, *blocks[0].shape[3:]))
        return self.read_out(torch.cat(blocks, dim=2)), None

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Any]:
        """Decode a prompt x (B, T, d) at once. Return its outputs (B, T, d) and the cache for the next token.

        The result equals that of T calls of :meth:`step`. With ``slide``, only the newest ``max_len`` tokens are kept,
        and each token beyond ``max_len`` takes one step.
        """
        check_sequences(x, self.name(), self.width)
        self._check_causal()
        batch, length, _ = x.shape
        if self.linear:
            self._check_sums(length - 1, slide)
        whole = x[:, : self.max_len] if slide else x
        q, *seen = self.project(whole)
        of_prompt, state = self._rows(whole, (q, *seen))
        cache = (whole.shape[1], *seen)
        if self.linear and state is None:  # the rows were computed by another path
            _, k, v = self.with_positions(0, 0, q, *seen)
            size = self.rows_of_block(batch, length, "linear_time")
            for block in zip(k.split(size, 2), v.split(size, 2)):
                state = self.totals(*block, state)
        if self.linear:
            cache = (length, state)
        return decode_rest(self.step, of_prompt, cache, x[:, whole.shape[1] :], slide)

    def step(self, x: Tensor, cache: Any = None, slide: bool = False) -> tuple[Tensor, Any]:
        """Decode one token x (B, d). Return its output (B, d), the last row of :meth:`forward`, and the new cache.

        ``cache`` is the result of the previous step; None for the first token. It has the keys and values of earlier
        tokens, the inputs for full couplings, or running sums for a linear label. With ``slide``, only the newest
        ``max_len`` tokens are kept. Running sums cannot forget a token: ``slide`` raises ``TrainingError`` for a linear
        label with more tokens.
        """
        check_tokens(x, self.name(), self.width)
        self._check_causal()
        position, *before = cache or (0,)
        q, *seen = self.project(x[:, None])
        if self.linear:
            self._check_sums(position, slide)
            o, state = self.advance(*self.with_positions(position, position, q, *seen), *before or (None,))
            return self.read_out(o)[:, 0], (position + 1, state)
        if before:
            seen = [torch.cat((old, new), dim=2) for old, new in zip(before, seen)]
        if slide:
            seen = [tensor[:, :, -self.max_len :] for tensor in seen]
        row = seen[0].shape[2] - 1  # scores depend on offsets only, so positions may start at the oldest kept token
        return self.read_out(self.attend(*self.with_positions(row, 0, q, *seen), row))[:, 0], (position + 1, *seen)

    def _check_causal(self) -> None:
        if not self.causal:
            raise TrainingError("a bidirectional mixer cannot decode token by token; build it with causal=True")

    def _check_sums(self, position: int, slide: bool) -> None:
        """Raise ``TrainingError`` if running sums cannot decode the token at ``position``.

        They cannot if they are too large, or if ``slide`` is set and an earlier token would have to be forgotten.
        """
        self.check_state()
        if slide and position >= self.max_len:
            raise TrainingError(
                f"base L keeps running sums, which cannot forget a token after max_len = {self.max_len}; "
                "decode fewer tokens, or without the sliding window"
            )

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for ``batch`` sequences of ``length`` tokens."""
        if self.path != "auto":
            return self.path
        if self.linear and self.prefers_state(length):
            return "linear_time"
        if is_symbolic(batch, length):
            return "dense"
        return "dense" if self.block_bytes(batch, length, length) <= self.limit_bytes else "chunked"

    @property
    def limit_bytes(self) -> int:
        """The largest size in bytes of a tensor that is computed for several rows at once."""
        parameter = next(self.parameters(), None)  # quantized layers have no parameters, and run on the CPU
        return CHUNK_BYTES.get(parameter.device.type if parameter is not None else "cpu", CHUNK_BYTES["cpu"])

    def rows_of_block(self, batch: int, length: int, path: str) -> int:
        """The number of rows per block of the path ``chunked`` or ``linear_time``."""
        of_row = self.state_row_bytes(batch) if path == "linear_time" else self.block_bytes(batch, 1, length)
        return min(length, self.chunk or max(1, self.limit_bytes // max(of_row, 1)))

    def _check_memory(self, x: Tensor, rows: int, path: str) -> None:
        """Raise ``TrainingError`` if the tensors of a block of ``rows`` rows of x do not fit in memory."""
        batch, length, _ = x.shape
        if path == "linear_time":
            self.check_state()
            needed = self.state_row_bytes(batch) * rows
        else:
            needed = self.block_bytes(batch, rows, length)

        def fits() -> str:
            if path == "linear_time":
                return "use fewer sequences or more heads"
            longest = fitting_length(x, lambda n: self.block_bytes(1, n if rows == length else rows, n))
            ways = [f"one sequence of {longest:,} tokens"]
            if path == "dense":
                ways.append("the path 'chunked'")
            if self.linear:
                ways.append("the path 'linear_time'")
            return f"these would fit: {'; '.join(ways)}"

        check_memory(x, needed, lambda: f"{self.name()} at {batch} x {length:,} tokens, path {path!r},", fits)

    def with_positions(self, first_q: int, first_k: int, q: Tensor, k: Tensor, *v: Tensor) -> tuple[Tensor, ...]:
        """Apply RoPE to queries and keys, if the mixer has RoPE.

        ``q``, ``k`` and ``v`` come from :meth:`project`, and are returned as one tuple. ``first_q`` and ``first_k`` are
        the positions of the first query and of the first key.
        """
        return (self.rotate_query(q, first_q), self.rotate_key(k, first_k), *v) if self.rope else (q, k, *v)

    # defined by each operator
    width: int  # width d of a token
    name: Callable[[], str]  # name in messages
    project: Callable[[Tensor], tuple[Tensor, ...]]  # x -> q, and k, v or others, (B, H, T, ..)
    attend: Callable[..., Tensor]  # q, k, v, position of the first row among the keys -> (B, H, M, d_vo)
    read_out: Callable[[Tensor], Tensor]  # result of attend -> (B, M, d)
    reference: Callable[..., Tensor]  # x and rows (None for all) -> these rows (B, rows, d), by loops in float64
    block_bytes: Callable[[int, int, int], int]  # batch, rows, length -> bytes of the largest tensors of these rows
    rotate_query: Callable[[Tensor, int], Tensor]  # q, its first position -> q with RoPE
    rotate_key: Callable[[Tensor, int], Tensor]  # k, its first position -> k with RoPE
    # defined by linear operators
    attend_by_sums: Callable[..., tuple[Tensor, Any]]  # q, k, v, rows per block -> all rows, final running sums
    totals: Callable[..., Any]  # k, v, running sums -> running sums
    prefers_state: Callable[[int], bool]  # length -> True if running sums are cheaper
    check_state: Callable[[], None]  # raises TrainingError if running sums are too large
    state_row_bytes: Callable[[int], int]  # batch -> bytes of one row of a block of running sums
    advance: Callable[..., tuple[Tensor, Any]]  # q, k, v, running sums -> rows and running sums


class FactoredMixer(InteractionMixer):
    """The base class of mixers with projections q, k, v and o around a sum over tuples; (B, T, d) -> (B, T, d).

    Args:
        d_model: the width d.
        n_head: the number of heads H.
        widths: the output widths of q, k and v, and the input width of o.
        options: see :class:`InteractionMixer`. The weight of a tuple is its score if ``linear`` is true, otherwise the
            softmax of the scores of all tuples.

    The weights ``q.weight``, ``k.weight``, ``v.weight`` and ``o.weight`` start from N(0, 0.02^2). There are no biases.
    """

    d_qk: int
    """The width of queries and keys of one head."""
    d_vo: int
    """The width of values and outputs of one head."""

    paths = (*InteractionMixer.paths, "linear_time")  # type: ignore[assignment]  # one more path

    def __init__(self, d_model: int, n_head: int, widths: tuple[int, int, int, int], **options: Any):
        super().__init__(**options)
        self.width, self.n_head = d_model, n_head
        q, k, v, o = widths
        self.q, self.k, self.v = (nn.Linear(d_model, width, bias=False) for width in (q, k, v))
        self.o = nn.Linear(o, d_model, bias=False)
        self.draw()

    def read_out(self, o: Tensor) -> Tensor:
        """Concatenate the outputs of the heads, (B, H, T, d_vo), and apply the map ``o``: (B, T, d)."""
        y: Tensor = self.o(o.transpose(1, 2).flatten(-2).to(weight_of(self.o).dtype))
        return y

    def attend_by_sums(self, q: Tensor, k: Tensor, v: Tensor, rows: int) -> tuple[Tensor, Any]:
        """The outputs of all heads (B, H, T, d_vo), computed by running sums, and the final running sums.

        ``rows`` is the number of rows per block.
        """
        state, blocks_of_rows = None, []
        starts = [0] if rows == q.shape[2] else range(0, q.shape[2], rows)
        blocks = [slice(start, start + rows) for start in starts]
        if not self.causal:
            for block in blocks:
                state = recompute(self.totals, k[:, :, block], v[:, :, block], state)
            rows_of_blocks = [recompute(self.read_totals, q[:, :, block], state) for block in blocks]
            return torch.cat(rows_of_blocks, dim=2), state
        for block in blocks:
            o, state = recompute(self.advance, q[:, :, block], k[:, :, block], v[:, :, block], state)
            blocks_of_rows.append(o)
        return torch.cat(blocks_of_rows, dim=2), state

    read_totals: Callable[..., Tensor]  # q, running sums -> rows


def _row_blocks(x: Tensor, rows: int) -> Iterator[slice]:
    """The slices of the tokens of x (B, T, d) in blocks of ``rows`` rows.

    If x has no data, because only the memory is measured, there are only the last three slices, which need the most
    memory. Their rows see the most tokens. They also come first in the backward pass, and three of them include a block
    whose gradients are added to those of another block.
    """
    length = x.shape[1]
    starts = range(0, length, rows)
    starts = starts if has_data(x) or is_traced() else starts[-3:]
    return (slice(start, min(start + rows, length)) for start in starts)


def split_heads(x: Tensor, *shape: int) -> Tensor:
    """Split the channels of x (B, T, channels) into heads, (B, ``*shape``, T, C), in float32 or wider.

    ``shape`` has the number of heads and, optionally, of their parts. C is the number of channels of each.
    """
    return torch.unflatten(wide(x), -1, (*shape, -1)).movedim(1, -2)


def softmax_over(scores: Tensor, visible: Tensor, dims: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the weights of a softmax before normalization, exp(score - largest score), and the largest score.

    The largest score is taken over the axes ``dims``, which it keeps with size 1. Scores where ``visible`` is False
    count as minus infinity, so that their weights are 0.
    """
    scores = scores.masked_fill(~visible, float("-inf"))
    top = scores.detach().amax(dims, keepdim=True)
    return (scores - top.masked_fill(top == float("-inf"), 0)).exp(), top


def available_bytes(x: Tensor) -> int:
    """The memory in bytes that is available on the device of ``x``.

    On a GPU it is the free memory and the unused reserved memory, on a CPU the physical memory.
    """
    if x.device.type == "cuda":
        unused = torch.cuda.memory_reserved(x.device) - torch.cuda.memory_allocated(x.device)
        return torch.cuda.mem_get_info(x.device)[0] + unused
    return PHYSICAL_BYTES


def check_memory(x: Tensor, needed: int, what: Callable[[], str], fits: Callable[[], str]) -> None:
    """Raise ``TrainingError`` if ``needed`` bytes are more than the device of ``x`` has available.

    ``what()`` names the thing that needs the memory, and begins the message. ``fits()`` says what would fit, and ends
    it.
    """
    available = available_bytes(x)
    if needed > available:
        sizes = f"needs {needed / 1e9:,.1f} GB, but only {available / 1e9:,.1f} GB are available"
        raise TrainingError(f"{what()} {sizes}; {fits()}")


def fitting_length(x: Tensor, bytes_at: Callable[[int], int]) -> int:
    """The largest length T for which ``bytes_at(T)`` fits in the memory of the device of ``x``.

    0 if not even one token fits. ``bytes_at`` increases with T.
    """
    available, length = available_bytes(x), 1
    while bytes_at(2 * length) <= available:
        length *= 2
    return bisect.bisect_right(range(2 * length), available, lo=length, key=bytes_at) - 1
