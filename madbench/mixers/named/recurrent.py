"""The interface of named operators with a recurrence of one matrix per head, whose state has a fixed size."""

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
    from madbench.mixers.recurrence.forms import Dynamics


class RecurrenceInputs(NamedTuple):
    """The inputs of the recurrence and of its read-out for some tokens.

    The recurrence works on rows. A row is one update of the state, and each token has :attr:`Recurrent.rows_per_token`
    rows.
    """

    dynamics: Dynamics
    carried: Mapping[str, Tensor]  # (B, ...) each: what the token after these rows needs besides the state, by name
    gate: Tensor | None = None  # gate of the read-out, if it is computed together with the other projections


@dataclass(frozen=True)
class Recurrent(Operator):
    """A named operator with a recurrence of one matrix per head. Its state has a fixed size."""

    paths: ClassVar[tuple[str, ...]] = ("dense", "chunked", "fla")
    stacked_path: ClassVar = "chunked"
    has_mirror: ClassVar[bool] = True
    """True if each row multiplies the state by I - beta k k^T (a mirror along key k), besides its decay."""
    has_channel_decay: ClassVar[bool] = False
    """True if each key channel has a decay of its own."""

    head_norm: ClassVar[str] = "o_norm"
    """The name of the part with the gain of the norm per head. The default :meth:`read_out` uses it."""

    @abstractmethod
    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        """Compute the inputs of the recurrence for the tokens x (B, T, D).

        ``carried`` is the field :attr:`RecurrenceInputs.carried` of the tokens before x. It is None at the start of a
        sequence. If it is not None, x is a single token that is decoded. The result must then contain all changes that
        this token makes to the state. This includes writes of an earlier token's key and value that are due at this
        token, as in Mamba-3. If the operator shares values, this method takes the shared values as a fourth argument
        ``shared``.
        """

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        """Compute the output (B, T, D) from y (B, H, T, V), which the queries read from the state.

        By default y is normed per head, multiplied by the gate of ``rows``, and mapped by the output projection. x
        (B, T, D) is the layer's input.
        """
        from madbench.mixers.named import recurrent_ops

        return recurrent_ops.gated_norm(layer, y, rows.gate, self.head_norm)

    @property
    def rows_per_token(self) -> int:
        """The number of updates of the state per token. The state is read after the last of these updates."""
        return 1

    def recurrent(self, dims: Dims) -> int:
        """The size of the recurrent state of all heads, as a count of numbers."""
        return dims.heads * dims.key * dims.value

    def state_size(self, dims: Dims, tokens: int = 0) -> int:
        return self.recurrent(dims) + super().state_size(dims, tokens)

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token for the recurrent state, not counting the 2 FLOPs per parameter.

        Each number of the state takes 1 for the decay and 2 for the read-out. For each update it takes 2 for what is
        written, and 4 for what a delta rule removes. Gates, activations and norms are not counted.
        """
        per_row = 6 if self.has_mirror else 2
        return (3 + per_row * self.rows_per_token) * self.recurrent(dims)
