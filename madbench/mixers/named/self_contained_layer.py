"""The layer (``nn.Module``) of named operators that are neither attention nor a recurrence of a common form.

Such an operator has one method that computes its outputs and its decoding state, which has a fixed size
(:mod:`madbench.mixers.named.self_contained`). The layer calls this method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from madbench.mixers.inputs import check_sequences, check_tokens
from madbench.mixers.named.layer import NamedLayer
from madbench.mixers.named.self_contained import SelfContained


@dataclass(frozen=True)
class Cache:
    """The cache of token-by-token decoding. Its size does not depend on the number of tokens."""

    carried: Mapping[str, Tensor]
    """The tensors (B, ...) that the operator needs for the next token, by the operator's names."""


class SelfContainedLayer(NamedLayer):
    """The layer of an operator that computes its outputs itself. Besides ``reference`` it has one path, ``dense``."""

    operator: SelfContained

    def compute(self, x: Tensor, path: str) -> Tensor:  # type: ignore[override]  # shares nothing between layers
        return self.operator.outputs(self, x, None)[0]

    def prefill(self, x: Tensor, slide: bool = False) -> tuple[Tensor, Cache]:
        """Compute a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the cache for the next token.

        The result equals that of T calls of :meth:`step`. ``slide`` has no effect, because the cache has a fixed size.
        """
        check_sequences(x, self.allocation.label, self.dims.d)
        y, carried = self.operator.outputs(self, x, None)
        return y, Cache(carried)

    def step(self, x: Tensor, cache: Cache | None = None, slide: bool = False) -> tuple[Tensor, Cache]:
        """Decode one token x (B, D). Return the output (B, D) and the cache for the next token.

        ``cache`` is None for the first token. ``slide`` has no effect, because the cache has a fixed size.
        """
        check_tokens(x, self.allocation.label, self.dims.d)
        y, carried = self.operator.outputs(self, x[:, None], cache.carried if cache else None)
        return y[:, 0], Cache(carried)

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path (implementation) that :meth:`forward` takes for an input (``batch``, ``length``, D)."""
        return "dense" if self.path == "auto" else self.path
