"""The intermediate values of an S/R/G mixer for an input: scores, activations, weights, gates and mixing tables.

``mixer`` is the :class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.inputs import check_sequences
from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.probe import LagKernel, Probe, by_lag
from madbench.mixers.srg.block_attention import exceeds_float16, ordered, scores, seen_slots, split_registers, weights
from madbench.mixers.srg.parts import Projected, mask_slots

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP


@dataclass(frozen=True)
class Maps:
    """Intermediate values of attention for all T rows of B sequences. Slots that a row cannot see are zero.

    S is the number of slots: one per token and one per register. Slots of registers are before or behind the tokens.
    With a window in the lag layout, S has at most ``window`` tokens, otherwise T. H_q is 2 H for the bases G and D,
    otherwise H, the number of heads.
    """

    scores: Tensor
    """z (B, H_q, T, S), the scores of queries with keys, before R(1) mixes them over slots."""
    hidden: Tensor
    """h (B, H_q, T, S), the scores after R(1) has mixed them over slots."""
    activations: Tensor
    """a (B, H, T, S), the activations of h, already divided by their norm."""
    weights: Tensor
    """w (B, H, T, S), the activations after R(2) has mixed them over slots."""


def maps(mixer: DynamicMLP, x: Tensor, position: int = 0) -> Maps:
    """The scores, activations and weights of a mixer for x (B, T, D), whose first token is at ``position``.

    See :meth:`madbench.mixers.srg.dynamic_mlp.DynamicMLP.maps`.
    """
    check_sequences(x, mixer.label, mixer.allocation.size.d_model)
    mixer.check_length(x.shape[1])
    p = mixer.for_each_head(mixer.project(x, position))
    if exceeds_float16(mixer, p):
        with without_autocast(p.q):
            return _maps(mixer, p.in_float32())
    return _maps(mixer, p)


def _maps(mixer: DynamicMLP, p: Projected) -> Maps:
    seen = seen_slots(mixer, 0, p)
    p = ordered(mixer, p)
    z = scores(mixer, p, 0)
    h, a, w, norm = weights(mixer, z, p, seen)
    norm = 1 if norm is None else norm
    return Maps(mask_slots(z, seen), mask_slots(h, seen), a / norm, w / norm)


@torch.no_grad()
def probe(mixer: DynamicMLP, x: Tensor) -> Probe:
    """The :class:`madbench.mixers.probe.Probe` of a mixer for x (B, T, D), with slots ordered by lag. No gradients.

    See :meth:`madbench.mixers.srg.dynamic_mlp.DynamicMLP.probe`.
    """
    if not mixer.causal:
        raise TrainingError(f"{mixer.label}: a mixer of all tokens has no lags to probe; build it with causal=True")
    found, first = maps(mixer, x), mixer.register_slots if mixer.register_place == "first" else 0
    h, w = (split_registers(mixer, slots, 0)[0] for slots in (found.hidden[:, : mixer.n_head], found.weights))
    if not mixer.by_lag:
        h, w = by_lag(h), by_lag(w)
    elif mixer.window:
        h, w = (F.pad(slots, (0, x.shape[1] - slots.shape[-1])) for slots in (h, w))
    gates = {"QK": mixer.qk_gate, "VO": mixer.vo_gate}
    values = {name: torch.sigmoid(gate(x)) for name, gate in gates.items() if gate}
    kernels = {}
    for name, mixing in (("R(1)", mixer.mix1), ("R(2)", mixer.mix2)):
        if mixing:
            values[name] = mixing.strengths(x).transpose(1, 2)
            strengths = values[name].mean((0, 1))
            a, b, p = (table[:, first : first + mixer.max_len] for table in (mixing.A, mixing.B, mixing.p))
            kernels[name] = LagKernel(a, b, p, strengths, mixer.label.layout)
    return Probe(w, h, h > 0 if mixer.label.has_selection else None, values, kernels)
