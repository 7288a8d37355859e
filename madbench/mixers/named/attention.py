"""The interface of named operators that weight the values of all tokens so far, as softmax attention does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from madbench.mixers.named.operator import Operator
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


SOFTMAX_PATHS = ("dense", "blocks", "tiled", "sdpa")
"""The paths (implementations) of an operator that can be computed as plain softmax attention
(:meth:`Attention.softmax_inputs`)."""


class Tokens(NamedTuple):
    """The projections of T tokens: queries, the tensors that later tokens need, and a gate of the output."""

    q: Tensor  # (B, H, T, K) queries, not divided by sqrt(K)
    cached: Mapping[str, Tensor]  # (B, ..., T, C) each: what decoding keeps of these tokens, by name
    carried: Mapping[str, Tensor]  # (B, ...) each: what the next token needs besides the cache, by name
    gate: Tensor | None = None  # (B, T, H V) factor of the weighted sums of values, if there is one
    mirrors: Mapping[str, Tensor] = {}  # (B, H, T, C) each, by name: a token changes keys or values by these

    def add_decay(self, cached: Mapping[str, Tensor]) -> Tokens:
        """Return a copy in which the cached tensor ``decay`` is summed from the start of the sequence.

        ``decay`` has, for each token, the sum of the logarithms of the forget gates up to this token. In ``self`` the
        sums start at the first of its own tokens. ``cached`` is the cache of all earlier tokens, whose last sum is
        added.
        """
        total = cached["decay"][..., -1:, :] + self.cached["decay"]
        return self._replace(cached={**self.cached, "decay": total})


@dataclass(frozen=True)
class Attention(Operator):
    """A named operator whose decoding cache grows by every token, as the cache of softmax attention does."""

    paths: ClassVar[tuple[str, ...]] = ("dense", "blocks")
    """The paths (implementations) of the layer, besides ``auto`` and ``reference``.

    An operator that implements :meth:`softmax_inputs`, and so can be computed as plain softmax attention, sets
    ``SOFTMAX_PATHS`` here.
    """
    block_rows: ClassVar[int] = 128
    """The number of queries per block of the path ``blocks``."""
    dense_limit: ClassVar[int] = 512
    """The largest number of tokens for which the path ``dense`` is faster than the path ``blocks``."""
    most_exact: ClassVar[int] = 0
    """The largest number of tokens for which :meth:`softmax_inputs` are exact enough, and then only in float32 or wider
    on a CPU. 0 means that they are exact for any number of tokens in any dtype."""

    def cached(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers that each token adds to each tensor of the cache, by name of the tensor.

        By default the tensors are ``k``, the keys of all heads, and ``v``, the values of all heads.
        """
        return {"k": dims.key_dim, "v": dims.value_dim}

    @abstractmethod
    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        """Compute the projections of the tokens x (B, T, D), the first of which is at ``position``.

        ``carried`` is the field :attr:`Tokens.carried` of the tokens before x. It is None at the start of a sequence.
        If it is not None, x is a single token.
        """

    def seen(self, layer: NamedLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        """The tensors that the queries of a sequence read, by name: (B, H, T, C) each. The name ``v`` has the values.

        By default they are the cached tensors of ``tokens``.
        """
        return tokens.cached

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """Compute the weights (B, H, M, N) that queries q (B, H, M, K) give to N tokens, in float32 or wider.

        By default, the weights are the softmax of q . k / sqrt(K) over the tokens that a query sees. ``seen`` has the
        tensors of the N tokens by name, as in :meth:`seen`. Query m sees the tokens 0 to ``first`` + m. If ``first`` is
        None, all queries see all tokens.
        """
        from madbench.mixers.named import attention_ops

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        return attention_ops.softmax(z, first)

    def read_out(self, layer: NamedLayer, o: Tensor, x: Tensor, tokens: Tokens) -> Tensor:
        """Compute the output (B, T, D) from the weighted sums of values o (B, H, T, V).

        By default o is multiplied by the gate of ``tokens``, if there is one, and mapped by the output projection.
        ``x`` is the layer's input.
        """
        from madbench.mixers.named import ops

        return ops.write(layer.get_submodule(self.output), ops.merge_heads(o), tokens.gate)

    def softmax_inputs(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (B, H, T, .) whose plain causal softmax attention computes this operator.

        Plain attention divides scores by the square root of the width of the returned queries. The paths ``tiled`` and
        ``sdpa`` compute the weighted sums of values from the returned tensors.
        """
        dtype = seen["v"].dtype
        return q.to(dtype), seen["k"].to(dtype), seen["v"]

    def attend(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """Compute the weighted sums of values (B, H, M, V) for queries q (B, H, M, K).

        ``seen`` has the keys and values of N tokens by name, as in :meth:`seen`. ``first`` is the last token that query
        0 sees, as in :meth:`weights`.
        """
        weights = self.weights(layer, q, seen, first)
        return weights @ seen["v"].to(weights.dtype)

    def attend_in_blocks(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], size: int) -> Tensor:
        """Compute the weighted sums of values (B, H, T, V) of a sequence, in blocks of ``size`` queries.

        The backward pass computes each block again, to save memory.
        """
        import torch

        from madbench.mixers.ops.recompute import recompute

        blocks = []
        for start in range(0, q.shape[2], size):
            end = min(start + size, q.shape[2])

            def attend(q: Tensor, *parts: Tensor, first: int = start) -> Tensor:
                return self.attend(layer, q, dict(zip(seen, parts)), first)

            blocks.append(recompute(attend, q[:, :, start:end], *(part[..., :end, :] for part in seen.values())))
        return torch.cat(blocks, dim=2)

    def probed_gates(self, tokens: Tokens) -> dict[str, Tensor]:
        """The gates in ``tokens``, for the method ``probe`` of the layer: name to (B, T, ...), between 0 and 1."""
        return {} if tokens.gate is None else {"output": tokens.gate}

    def cache_of(self, layer: NamedLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        """The tensors of the cache after a prompt, by name. ``tokens`` are the projections of the whole prompt."""
        return tokens.cached

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        """Return the tensors of the cache after one more token, by name.

        ``cached`` has the tensors before this token, and ``tokens`` its projections.
        """
        import torch

        return {name: torch.cat((part, tokens.cached[name]), dim=-2) for name, part in cached.items()}

    def decode(self, layer: NamedLayer, tokens: Tokens, cached: Mapping[str, Tensor]) -> Tensor:
        """Compute the weighted sum of values (B, H, 1, V) for one token. ``cached`` already contains this token."""
        return self.attend(layer, tokens.q, cached, None)

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token for scores and weighted sums of values, not counting the 2 FLOPs per parameter.

        They are two for each channel of each key and two for each channel of each value that the token sees. In a
        sequence of ``length`` = T tokens, a token sees (T + 1) / 2 tokens on average. Gates, activations and norms are
        not counted.
        """
        return (length + 1) * (dims.key_dim + dims.value_dim)
