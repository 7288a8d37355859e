"""The interface of named operators that compute their outputs and all that decoding carries themselves.

Most mix tokens within each channel, without heads, queries and keys. Others have a state of matrices that no recurrence
of :mod:`madbench.mixers.cd.forms` describes, such as a memory and its momentum.
"""

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
    """A named operator that computes its outputs itself, with one path."""

    paths: ClassVar = ("dense",)
    has_heads: ClassVar = False

    @abstractmethod
    def outputs(
        self, layer: nn.Module, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The output (B, T, D) of x (B, T, D), and the tensors that the next token needs as ``carried``, by name.

        ``carried`` is None at the start of a sequence.
        """
