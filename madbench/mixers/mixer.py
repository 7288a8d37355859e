"""The type of a built mixer, for annotations in the modules that call mixers of every family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from madbench.labels.family import Allocation
from madbench.labels.traits import Traits

if TYPE_CHECKING:
    from madbench.mixers.probe import Probe


class Mixer(nn.Module):
    """A module (B, T, D) -> (B, T, D) that a family built, with the members that other modules of madbench use.

    This class is only a type for annotations: no mixer derives from it. Every mixer has ``traits``. Any other member
    may be missing; callers test for it with ``hasattr``.
    """

    traits: Traits
    allocation: Allocation
    path: str
    paths: tuple[str, ...]
    chunk: int | None
    is_stacked: bool

    def resolve_path(self, batch: int, length: int) -> str:
        """The name of the path (implementation) that computes an input (``batch``, ``length``, D)."""
        raise NotImplementedError

    def reference(self, x: Tensor, rows: Any = None, **shared: Any) -> Tensor:
        """Compute the output rows with the indices ``rows`` for x (B, T, D), with loops in float64: (B, len(rows), D).

        If ``rows`` is None, all rows are computed. ``shared`` is explained at :meth:`step`.
        """
        raise NotImplementedError

    def prefill(self, x: Tensor, slide: bool = False, **shared: Any) -> tuple[Tensor, Any]:
        """Compute a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the cache for the next token.

        ``slide`` and ``shared`` are explained at :meth:`step`.
        """
        raise NotImplementedError

    def step(self, x: Tensor, cache: Any = None, slide: bool = False, **shared: Any) -> tuple[Tensor, Any]:
        """Decode one token x (B, D). Return the output (B, D) and the next cache.

        ``cache`` is None for the first token. ``slide`` matters for tokens beyond ``max_len`` of a mixer whose cache
        grows. If it is true, these are decoded with a window of the newest tokens. If it is false, the mixer may raise
        an error for them. ``shared`` is the result of :func:`madbench.mixers.sharing.handed_to`, passed as keyword
        arguments.
        """
        raise NotImplementedError

    def probe(self, x: Tensor) -> Probe:
        """Intermediate values of the mixer, such as its weights, for an input x (B, T, D), without gradients."""
        raise NotImplementedError

    def coefficients(self, x: Tensor) -> Any:
        """The mixing coefficients for x (B, T, D), without gradients, as a named tuple.

        Its field ``a`` has shape (B, H, T, T): the coefficient of each token (last axis) in each output row, for each
        of H heads.
        """
        raise NotImplementedError
