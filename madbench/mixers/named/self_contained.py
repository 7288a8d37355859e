"""The interface of named operators that compute their outputs and their decoding state in one method of their own.

Their state has a fixed size, as for :mod:`madbench.mixers.named.recurrent`, but their recurrence has none of the forms
of :mod:`madbench.mixers.recurrence.forms`. Some of these operators mix tokens within each channel, without heads,
queries and keys. Others have several matrices per head, such as a memory and its momentum.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class SelfContained(Operator):
    """A named operator whose method :meth:`outputs` computes outputs and decoding state. Its only path is ``dense``."""

    paths: ClassVar[tuple[str, ...]] = ("dense",)

    @abstractmethod
    def outputs(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Compute the output (B, T, D) of x (B, T, D), and the tensors that the next token needs, by name.

        ``carried`` has the tensors after the tokens before x. It is None at the start of a sequence. If it is not None,
        x is a single token.
        """
