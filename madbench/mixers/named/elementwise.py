"""The interface of named operators that mix tokens within each channel, without heads, queries and keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Elementwise(Operator):
    """A named operator whose state has a fixed size per channel."""

    paths: ClassVar = ("dense",)
    has_heads: ClassVar = False

    @abstractmethod
    def outputs(
        self, layer: nn.Module, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The output (B, T, D) of x (B, T, D), and the tensors that the next token needs as ``carried``, by name.

        ``carried`` is None at the start of a sequence.
        """
