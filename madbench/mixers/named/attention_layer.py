"""The layer (``nn.Module``) of named operators whose cache grows by every token, and the paths that compute it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.decoding import decode_rest
from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.layer import NamedLayer
from madbench.mixers.ops import softmax
from madbench.mixers.ops.derivatives import refuse_second
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.tracing import is_symbolic, is_traced, needs_plain_operators
from madbench.mixers.probe import Probe, by_lag

DENSE_LIMIT_BYTES = 2**30  # largest (B, H, T, T) float32 tensor of the dense path
TILED_FROM_BYTES = 2**23  # size of this tensor from which the path tiled trains faster than torch's attention

if TYPE_CHECKING:
    from madbench.mixers.named.budget import NamedAllocation


@dataclass(frozen=True)
class Cache:
    """The cache of token-by-token decoding, which grows by every token."""

    cached: Mapping[str, Tensor]
    """The tensors that later tokens read, by name: (B, ..., T, C) each, where T counts the tokens so far."""
    carried: Mapping[str, Tensor]
    """The tensors of fixed size that the next token needs in addition to ``cached``, by name: (B, ...) each."""
    position: int
    """The number of tokens decoded so far. It is larger than the T of ``cached`` if the oldest tokens were dropped
    (``slide``)."""


class AttentionLayer(NamedLayer):
    """The layer of an operator whose cache grows by every token. Besides ``reference`` it has some of these paths.

    - ``dense``: all pairs of tokens at once
    - ``blocks``: blocks of ``chunk`` query rows and all tokens before them, recomputed in the backward pass
    - ``tiled``: softmax attention in tiles that fit in the CPU's cache
    - ``sdpa``: torch's scaled dot product attention

    An operator has the last two only if it can be written as softmax attention.
    """

    operator: Attention

    def __init__(self, allocation: NamedAllocation, path: str = "auto"):
        super().__init__(allocation, path)
        self.chunk, self.max_len = self.operator.block_rows, allocation.size.max_len

    def compute(self, x: Tensor, path: str) -> Tensor:  # type: ignore[override]  # shares nothing between layers
        tokens = self.operator.tokens(self, x, 0, None)
        return self.operator.read_out(self, self._attend(tokens, path), x, tokens)

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
        """Compute a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`. With ``slide``, only the first ``max_len`` tokens are
        computed at once, and each later token takes a step.
        """
        check_sequences(x, self.allocation.label, self.dims.d)
        whole = x[:, : self.max_len] if slide else x
        path = self.resolve_path(*whole.shape[:2])
        tokens = self.operator.tokens(self, whole, 0, None)
        o = self._attend(tokens, "dense" if path == "reference" else path)
        rows = self.operator.read_out(self, o, whole, tokens)
        with without_autocast(x):
            cache = Cache(self.operator.cache_of(self, tokens), tokens.carried, whole.shape[1])
        return decode_rest(self.step, rows, cache, x[:, whole.shape[1] :], slide)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decode one token x (B, D). Return the output (B, D) and the cache for the next token.

        The output equals row ``cache.position`` of :meth:`forward`, or row 0 if ``cache`` is None. The cache keeps
        every token, or with ``slide`` the newest ``max_len`` tokens.
        """
        check_tokens(x, self.allocation.label, self.dims.d)
        row, position = x[:, None], cache.position if cache else 0
        tokens = self.operator.tokens(self, row, position, cache.carried if cache else None)
        with without_autocast(x):
            cached = self.operator.extend(cache.cached, tokens) if cache else dict(tokens.cached)
            if slide:
                cached = {name: part[..., -self.max_len :, :] for name, part in cached.items()}
            o = self.operator.decode(self, tokens, cached)
        y = self.operator.read_out(self, o, row, tokens)[:, 0]
        return y, Cache(cached, tokens.carried, position + 1)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """The weight of every token in every row of x (B, T, D), and the layer's gates, without gradients."""
        tokens = self.operator.tokens(self, x, 0, None)
        with without_autocast(x):
            weights = self.operator.weights(self, tokens.q, self.operator.seen(self, tokens), 0)
        return Probe(weights=by_lag(weights), gates=self.operator.probed_gates(tokens))

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path (implementation) that :meth:`forward` takes for an input (``batch``, ``length``, D)."""
        if self.path != "auto":
            return self.path
        is_softmax = "sdpa" in self.operator.paths and self._is_exact(length)
        has_kernel = is_softmax and not needs_plain_operators()
        if is_symbolic(batch, length):
            return "sdpa" if has_kernel else "dense"
        scores = batch * self.dims.heads * length * length * 4
        if is_softmax and scores >= TILED_FROM_BYTES and self._trains_in_tiles(batch, length):
            return "tiled"
        if has_kernel:
            return "sdpa"
        is_small = length <= self.operator.dense_limit and scores <= DENSE_LIMIT_BYTES
        return "dense" if is_small or length <= self.chunk else "blocks"

    def _is_exact(self, length: int) -> bool:
        """True if the paths ``tiled`` and ``sdpa`` are as exact as the other paths on ``length`` tokens."""
        most = self.operator.most_exact
        weight = next(self.parameters())
        is_wide = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.float64)
        return not most or (is_wide and not is_symbolic(length) and length <= most)

    def _trains_in_tiles(self, batch: int, length: int) -> bool:
        weight = next(self.parameters())
        device = weight.device.type
        is_float32 = weight.dtype == torch.float32 and not torch.is_autocast_enabled(device)
        if not (device == "cpu" and is_float32 and torch.is_grad_enabled()) or is_traced():
            return False
        return length > softmax.BLOCK_ROWS and softmax.keeps_weights(batch, self.dims.heads, length)

    def _attend(self, tokens: Tokens, path: str) -> Tensor:
        """Compute the weighted sums of values (B, H, T, V) of a sequence. ``path`` names the implementation."""
        q, seen = tokens.q, self.operator.seen(self, tokens)
        if path in ("sdpa", "tiled"):
            q, k, v = self.operator.softmax_inputs(self, q, seen)
            if path == "tiled":
                return softmax.attend(q, k, v)
            refuse_second(path, (q, k, v))
            with without_autocast(q) if self.operator.most_exact else contextlib.nullcontext():
                return _attend_by_torch(q, k, v)
        with without_autocast(q):
            if path == "blocks":
                return self.operator.attend_in_blocks(self, q, seen, self.chunk)
            return self.operator.attend(self, q, seen, 0)


def _attend_by_torch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention by torch: q, k (B, H, T, K), v (B, H, T, V) -> (B, H, T, V).

    If K and V differ, the narrower tensors are padded with zeros, because torch's fast kernel needs equal widths.
    """
    width, scale = v.shape[-1], q.shape[-1] ** -0.5
    wider = width - q.shape[-1]
    if wider > 0:
        q, k = F.pad(q, (0, wider)), F.pad(k, (0, wider))
    elif wider < 0:
        v = F.pad(v, (0, -wider))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)[..., :width]
