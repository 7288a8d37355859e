"""The type of a built mixer, for annotations in the modules that call mixers of every family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from madbench.labels.family import Allocation
from madbench.labels.traits import Traits

if TYPE_CHECKING:
    from madbench.mixers.probe import Probe


class Mixer(nn.Module):
    """A module (B, T, D) -> (B, T, D) that a family built, with the members that other modules read.

    No mixer derives from this class. A mixer may lack every member but ``traits``; readers ask with ``hasattr``.
    """

    traits: Traits
    allocation: Allocation
    path: str
    paths: tuple[str, ...]
    chunk: int | None
    is_stacked: bool

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that a call takes for an input (``batch``, ``length``, D)."""
        raise NotImplementedError

    def reference(self, x: Tensor, rows: Any = None, **shared: Any) -> Tensor:
        """The output rows (B, len(rows), D) by loops in float64. All rows if ``rows`` is None."""
        raise NotImplementedError

    def prefill(self, x: Tensor, slide: bool = False, **shared: Any) -> tuple[Tensor, Any]:
        """Decode a prompt x (B, T, D) at once. Return the outputs (B, T, D) and the next cache.

        ``slide`` and ``shared`` are explained at :meth:`step`.
        """
        raise NotImplementedError

    def step(self, x: Tensor, cache: Any = None, slide: bool = False, **shared: Any) -> tuple[Tensor, Any]:
        """Decode one token x (B, D). Return the output (B, D) and the next cache.

        ``slide`` only affects mixers that accept a limited number of tokens: beyond it, they decode with a window of
        the newest tokens instead of raising an error. ``shared`` is the result of
        :func:`madbench.mixers.sharing.handed_to`, passed as keyword arguments.
        """
        raise NotImplementedError

    def probe(self, x: Tensor) -> Probe:
        """Intermediate values for an input x (B, T, D), without gradients."""
        raise NotImplementedError

    def coefficients(self, x: Tensor) -> Any:
        """A named tuple.

        Its field ``a`` has the mixing coefficients (B, H, T, T) for x (B, T, D), without gradients.
        """
        raise NotImplementedError
