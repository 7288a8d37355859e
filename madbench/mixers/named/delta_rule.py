"""Base classes of named delta rules: their arguments, their state, and their recurrence over convolved q, k and v.

    S_t = (I - beta_t k_t k_t^T) A_t S_(t-1) + beta_t k_t v_t^T,    o_t = S_t^T q_t / sqrt(K)

A_t is 1, or a decay per head or per key channel. Each operator adds its projections, its decay and its output gate. It
also adds its own reference loops, which do not use these classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer
    from madbench.mixers.recurrence.forms import Dynamics


@dataclass(frozen=True)
class DeltaRule(Recurrent):
    """A delta rule whose queries, keys and values go through a short convolution.

    If ``neg`` is true, the strength beta of a step is doubled, from the range (0, 1) to (0, 2).
    """

    neg: bool = False

    meanings: ClassVar = {"neg": "beta in (0, 2), so that a transition may have negative eigenvalues"}
    state: ClassVar = "H*K*V + (W-1)*(2*H*K + H*V)"


@dataclass(frozen=True)
class GatedDeltaRule(DeltaRule):
    """A delta rule whose state decays, and whose read-out is multiplied by a gate."""

    @abstractmethod
    def decay_logits(self, layer: NamedLayer, x: Tensor) -> Tensor:
        """The logits of the decay for x (B, T, D), in float32 or wider.

        They are (B, T, H) for a decay per head, and (B, T, H K) for a decay per key channel.
        """

    @abstractmethod
    def output_gate(self, layer: NamedLayer, x: Tensor) -> Tensor:
        """The gate (B, T, H V) for x (B, T, D), by which the normed read-out is multiplied."""

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from madbench.mixers.named import ops, recurrent_ops

        q, k, v, carried = recurrent_ops.convolved_qkv(layer, x, carried)
        with ops.without_autocast(x):
            log_alpha, _ = recurrent_ops.log_decay(layer, self.decay_logits(layer, x), layer.dims.heads)
            return RecurrenceInputs(self.recurrence(layer, x, q, k, v, log_alpha), carried)

    def recurrence(self, layer: NamedLayer, x: Tensor, q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor) -> Dynamics:
        """The recurrence from convolved q, k and v (B, T, .) and the logarithm of the decay (B, H, T, 1 or K).

        The strength beta is computed from the layer's input x (B, T, D).
        """
        from madbench.mixers.named import recurrent_ops

        return recurrent_ops.delta_rule(layer, x, q, k, v, log_alpha, self.neg)

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from madbench.mixers.named import recurrent_ops

        return recurrent_ops.gated_norm(layer, y, self.output_gate(layer, x))
