"""The interface of named operators whose outputs are weighted sums of the values of all tokens so far."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from madbench.mixers.named.operator import Operator
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.built import BuiltLayer


SOFTMAX_PATHS = ("dense", "blocks", "tiled", "sdpa")
"""The paths of an operator that equals plain softmax attention of its :meth:`Attention.softmax_inputs`."""


class Tokens(NamedTuple):
    """The projections of T tokens: their queries, and everything that later tokens need of them."""

    q: Tensor  # (B, H, T, K) queries, not divided by sqrt(K)
    cached: Mapping[str, Tensor]  # (B, ..., T, C) each: what decoding keeps of these tokens, by name
    carried: Mapping[str, Tensor]  # (B, ...) each: what the next token needs besides the cache, by name
    gate: Tensor | None = None  # (B, T, H V) factor of the weighted sums of values, if there is one
    mirrors: Mapping[str, Tensor] = {}  # (B, H, T, C) each, by name: a token changes keys or values by these

    def add_decay(self, cached: Mapping[str, Tensor]) -> Tokens:
        """A copy whose ``decay`` sums log f from the start of the sequence, where f is the forget gate.

        Before, ``decay`` sums log f over these tokens only. ``cached`` has the sums of the tokens before them.
        """
        total = cached["decay"][..., -1:, :] + self.cached["decay"]
        return self._replace(cached={**self.cached, "decay": total})


@dataclass(frozen=True)
class Attention(Operator):
    """A named operator whose decoding cache grows by every token."""

    paths: ClassVar[tuple[str, ...]] = ("dense", "blocks")
    """An operator may set ``SOFTMAX_PATHS`` if it equals plain softmax attention of its :meth:`softmax_inputs`."""
    block_rows: ClassVar[int] = 128
    """Query rows per block of the path ``blocks``."""
    dense_limit: ClassVar[int] = 512
    """The largest number of tokens for which the path ``dense`` is faster than the path ``blocks``."""
    most_exact: ClassVar[int] = 0
    """The largest number of tokens for which softmax attention of :meth:`softmax_inputs` is exact in float32 or wider.
    Zero if it is exact for any number of tokens, also in 16 bits."""

    def cached(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers that each token adds to the cache, by name. By default keys and values of all heads."""
        return {"k": dims.key_dim, "v": dims.value_dim}

    @abstractmethod
    def tokens(self, layer: BuiltLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        """The projections of the tokens x (B, T, D), the first of which is at ``position``.

        ``carried`` is the field :attr:`Tokens.carried` of the tokens before x. It is None at the start of a sequence.
        If it is not None, x is a single token.
        """

    def seen(self, layer: BuiltLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        """The tensors of a sequence that its queries read, by name: (B, H, T, C) each. ``v`` are the values.

        By default the cached tensors of ``tokens``.
        """
        return tokens.cached

    def weights(self, layer: BuiltLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """The weights (B, H, M, N) that queries q (B, H, M, K) give to N tokens, in float32 or wider.

        By default the softmax over tokens of q . k / sqrt(K). ``seen`` has the tensors of the tokens, as in
        :meth:`seen`. Query m sees the tokens 0 to ``first`` + m. If ``first`` is None, all queries see all tokens.
        """
        from madbench.mixers.named import attention_ops

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        return attention_ops.softmax(z, first)

    def read_out(self, layer: BuiltLayer, o: Tensor, x: Tensor, tokens: Tokens) -> Tensor:
        """The output (B, T, D) of the weighted sums of values o (B, H, T, V): W_o (o * gate).

        The gate is that of ``tokens``. Without a gate, the output is W_o o.
        """
        from madbench.mixers.named import ops

        return ops.write(layer.get_submodule(self.output), ops.merge_heads(o), tokens.gate)

    def softmax_inputs(self, layer: BuiltLayer, q: Tensor, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (B, H, T, .) whose plain causal softmax attention is this operator.

        That attention divides scores by the square root of the width of these queries. The paths ``tiled`` and ``sdpa``
        use it to compute the weighted sums of values.
        """
        dtype = seen["v"].dtype
        return q.to(dtype), seen["k"].to(dtype), seen["v"]

    def attend(self, layer: BuiltLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """The weighted sums of values (B, H, M, V) for queries q (B, H, M, K).

        For ``seen`` and ``first`` see :meth:`weights`.
        """
        weights = self.weights(layer, q, seen, first)
        return weights @ seen["v"].to(weights.dtype)

    def attend_in_blocks(self, layer: BuiltLayer, q: Tensor, seen: Mapping[str, Tensor], size: int) -> Tensor:
        """The weighted sums of values (B, H, T, V) of a sequence, in blocks of ``size`` queries.

        The backward pass computes each block again, to save memory.
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
        """The gates of ``tokens`` for the layer's ``probe``, by name: (B, T, ...) each, between 0 and 1."""
        return {} if tokens.gate is None else {"output": tokens.gate}

    def cache_of(self, layer: BuiltLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        """The tensors that the cache has after a prompt, by name. ``tokens`` has the prompt's projections."""
        return tokens.cached

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        """The cached tensors with one more token, whose projections are ``tokens``."""
        import torch

        return {name: torch.cat((part, tokens.cached[name]), dim=-2) for name, part in cached.items()}

    def decode(self, layer: BuiltLayer, tokens: Tokens, cached: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of values (B, H, 1, V) of one token. ``cached`` already contains this token."""
        return self.attend(layer, tokens.q, cached, None)

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token besides two per parameter: two for each channel of each key and value that the token sees.

        In a sequence of ``length`` = T tokens, a token sees (T + 1) / 2 tokens on average. Gates, activations and norms
        are not counted.
        """
        return (length + 1) * (dims.key_dim + dims.value_dim)
