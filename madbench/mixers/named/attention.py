"""The interface of named operators whose rows are weighted sums of the values of all tokens so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from madbench.mixers.named.operator import Operator
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor, nn


SOFTMAX_PATHS = ("dense", "blocks", "tiled", "sdpa")
"""The paths of an operator that has :meth:`Attention.softmax_inputs`."""


class Tokens(NamedTuple):
    """The projections of some tokens."""

    q: Tensor  # (B, H, T, K) queries, not divided by sqrt(K)
    cached: Mapping[str, Tensor]  # (B, ..., T, C) each: what decoding keeps of these tokens, by name
    carried: Mapping[str, Tensor]  # (B, ...) each: what the next token needs besides the cache, by name
    gate: Tensor | None = None  # (B, T, H V) factor of the weighted sums of values, if there is one
    mirrors: Mapping[str, Tensor] = {}  # (B, H, T, C) each, by name: with these a token changes keys or values

    def add_decay(self, cached: Mapping[str, Tensor]) -> Tokens:
        """Adds the sum of log f over all cached tokens to the sums ``decay`` of these tokens."""
        total = cached["decay"][..., -1:, :] + self.cached["decay"]
        return self._replace(cached={**self.cached, "decay": total})


@dataclass(frozen=True)
class Attention(Operator):
    """A named operator with a cache that grows by every token."""

    paths: ClassVar = ("dense", "blocks")
    """An operator that has :meth:`softmax_inputs` may have ``SOFTMAX_PATHS``."""
    block_rows: ClassVar[int] = 128
    """Rows of a block of the path ``blocks``."""
    dense_limit: ClassVar[int] = 512
    """The largest number of tokens for which the path ``dense`` is faster than blocks."""
    most_exact: ClassVar[int] = 0
    """The largest number of tokens for which :meth:`softmax_inputs` are exact, in float32 or wider. Zero if they are
    exact for any number of tokens, also in 16 bits."""

    def cached(self, dims: Dims) -> Mapping[str, int]:
        """By default the keys and values of all heads."""
        return {"k": dims.key_dim, "v": dims.value_dim}

    @abstractmethod
    def tokens(self, layer: nn.Module, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        """The projections of the tokens x (B, T, D), the first of which is at ``position``.

        ``carried`` is the field :attr:`Tokens.carried` of the tokens before x. It is None at the start of a sequence.
        Otherwise x is a single token.
        """

    def seen(self, layer: nn.Module, tokens: Tokens) -> Mapping[str, Tensor]:
        """The tensors that the rows of a sequence read, by name: (B, H, T, C) each. The values are ``v``."""
        return tokens.cached

    def weights(self, layer: nn.Module, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """The weights (B, H, M, N) of N tokens in the rows q (B, H, M, K), in float32 or wider. By default a softmax.

        Row m sees the first ``first`` + 1 + m tokens. If ``first`` is None, all rows see all tokens.
        """
        from madbench.mixers.named import attention_ops

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        return attention_ops.softmax(z, first)

    def read_out(self, layer: nn.Module, o: Tensor, x: Tensor, tokens: Tokens) -> Tensor:
        """The output W_o (o * gate) (B, T, D) of the weighted sums of values o (B, H, T, V). Without a gate, W_o o."""
        from madbench.mixers.named import ops

        return ops.write(layer.get_submodule(self.output), ops.merge_heads(o), tokens.gate)

    def softmax_inputs(self, layer: nn.Module, q: Tensor, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v (B, H, T, .) with which plain causal softmax attention gives this operator's sums of values.

        The paths ``tiled`` and ``sdpa`` use them.
        """
        dtype = seen["v"].dtype
        return q.to(dtype), seen["k"].to(dtype), seen["v"]

    def attend(self, layer: nn.Module, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """The sums of values (B, H, M, V) in the rows q. See :meth:`weights`."""
        weights = self.weights(layer, q, seen, first)
        return weights @ seen["v"].to(weights.dtype)

    def attend_in_blocks(self, layer: nn.Module, q: Tensor, seen: Mapping[str, Tensor], size: int) -> Tensor:
        """The sums of values (B, H, T, V) of a sequence, in blocks of ``size`` rows.

        The backward pass computes the blocks again, to save memory.
        """
        import torch

        from madbench.mixers.recompute import recompute

        blocks = []
        for start in range(0, q.shape[2], size):
            end = min(start + size, q.shape[2])

            def attend(q: Tensor, *parts: Tensor, first: int = start) -> Tensor:
                return self.attend(layer, q, dict(zip(seen, parts)), first)

            blocks.append(recompute(attend, q[:, :, start:end], *(part[..., :end, :] for part in seen.values())))
        return torch.cat(blocks, dim=2)

    def probed_gates(self, tokens: Tokens) -> dict[str, Tensor]:
        """Numbers between 0 and 1 that depend on the input, (B, T, ...) each, by name."""
        return {} if tokens.gate is None else {"output": tokens.gate}

    def cache_of(self, layer: nn.Module, tokens: Tokens) -> Mapping[str, Tensor]:
        """The cache after the prompt ``tokens``."""
        return tokens.cached

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        """The cache with one more token."""
        import torch

        return {name: torch.cat((part, tokens.cached[name]), dim=-2) for name, part in cached.items()}

    def decode(self, layer: nn.Module, tokens: Tokens, cached: Mapping[str, Tensor]) -> Tensor:
        """The sum of values (B, H, 1, V) in the row of one token, from a cache that already has it."""
        return self.attend(layer, tokens.q, cached, None)

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token: two per channel of each key and value that is seen, (T + 1) / 2 tokens on average.

        Gates, activations and norms are not counted.
        """
        return (length + 1) * (dims.key_dim + dims.value_dim)
