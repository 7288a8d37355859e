"""The type of a named layer, for annotations in the operators. The class of the layer imports them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from madbench.mixers import Allocation
    from madbench.mixers.named.widths import Dims


class BuiltLayer(Protocol):
    """The members of :class:`madbench.mixers.named.layer.NamedLayer` that operators read."""

    dims: Dims

    @property
    def allocation(self) -> Allocation: ...
    def draw_declared(self) -> None: ...
    def get_parameter(self, target: str) -> nn.Parameter: ...
    def get_submodule(self, target: str) -> nn.Module: ...

    def __getattr__(self, name: str) -> Any:
        """A part that the operator declares. No class lists the parts, so mypy does not know their types."""
