"""The type of a built named layer, for annotations in the modules of operators.

These modules cannot import the class of the layer, because its module imports some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

    from madbench.mixers import Allocation
    from madbench.mixers.named.widths import Dims


class BuiltLayer(Protocol):
    """The members of a :class:`madbench.mixers.named.layer.NamedLayer` that operators use."""

    dims: Dims

    @property
    def allocation(self) -> Allocation: ...
    def draw_declared(self) -> None: ...
    def get_parameter(self, target: str) -> nn.Parameter: ...
    def get_submodule(self, target: str) -> nn.Module: ...

    def __getattr__(self, name: str) -> Any:
        """A part that the operator declares, such as ``q_proj``.

        No class lists these, so mypy does not know their types.
        """
