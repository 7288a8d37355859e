"""Weights of an S/R/G mixer in the form that decoding steps read, computed once for many steps.

A step multiplies few numbers, and its time grows with the number of its calls. Here the query and all gates of a token
are one matrix product, both convolutions are one sum, and the mixing tables are in the order of the cached tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.linear_maps import is_plain, weight_of
from madbench.mixers.srg.parts import SequenceMixing

GATES = ("qk_gate", "vo_gate", "head_gate", "contrast_gate", "mix1.gate", "mix2.gate")


@dataclass(frozen=True)
class StepMixing:
    """R(1), or the transpose of R(2), in the form of decoding steps: Diag(gain) + into Diag(s_t) out_of."""

    into: Tensor  # (heads, L, R)
    out_of: Tensor  # (heads, R, L)
    gain: Tensor  # (heads, 1, L)
    is_from_end: bool  # True if the last slot uses the same table row at every length, False if the first does

    @staticmethod
    def of(mixing: SequenceMixing | None, into: str, out_of: str, is_reversed: bool) -> StepMixing | None:
        """Copies the tables ``into`` and ``out_of`` (``A`` or ``B``) of a mixing. None without a mixing.

        If ``is_reversed`` is true, the copies apply to slots in reverse order.
        """
        if mixing is None:
            return None
        tables = (getattr(mixing, into), getattr(mixing, out_of), 1 + mixing.p[..., None])
        first, second, gain = (table.flip(1) if is_reversed else table.clone() for table in tables)
        return StepMixing(first, second.mT.contiguous(), gain.mT, mixing.is_from_end or is_reversed)

    def __call__(self, y: Tensor, s: Tensor) -> Tensor:
        """Returns y (B, heads, 1, W) after mixing with the strengths s (B, heads, 1, R), in the same shape."""
        slots = y.shape[-1]
        first = self.into.shape[1] - slots if self.is_from_end else 0
        into, out_of = self.into.narrow(1, first, slots), self.out_of.narrow(2, first, slots)
        gain = self.gain.narrow(2, first, slots)
        if gain.dtype != y.dtype:
            into, out_of, gain = (t.to(torch.promote_types(t.dtype, y.dtype)) for t in (into, out_of, gain))
        y, s = y.squeeze(2).transpose(0, 1), s.squeeze(2).transpose(0, 1)
        return torch.addcmul(torch.bmm(torch.bmm(y, into) * s, out_of), y, gain).transpose(0, 1).unsqueeze(2)


@dataclass(frozen=True)
class Ahead:
    """Values of one token that a decoding step computes before :meth:`DynamicMLP.project`, which reads them."""

    rows: Tensor  # (B, 1, D), the token, or (B, 4, D) with the inputs before it, if the mixer has convolutions
    inputs: tuple[Tensor, Tensor] | None  # the inputs (B, 1, D) of keys and values, if the mixer has convolutions
    outputs: Mapping[str, Tensor]  # (B, 1, C), by layer: the query, and sigmoids of gates
    angles: tuple[Tensor, Tensor] | None  # cosines and sines of RoPE at the token's position


@dataclass(frozen=True)
class StepWeights:
    """Copies of weights of a mixer, from :func:`step_weights`. Later changes of the mixer do not change them."""

    sizes: Mapping[str, int]  # number of outputs per layer in ``weight``, the query first; empty without gates
    weight: Tensor | None  # (sum of sizes, D)
    bias: Tensor | None  # (sum of sizes)
    taps: Tensor | None  # (2, 4, D), of the convolutions for keys and values
    mix1: StepMixing | None
    mix2: StepMixing | None
    is_reversed: bool  # True if the mixings of the lag layout apply to tokens in order of position
    dtype: torch.dtype  # of the mixer when the copies were made
    device: torch.device

    def fit(self, mixer: nn.Module) -> bool:
        """True if the mixer still has the dtype and the device of the copies."""
        weight = weight_of(mixer.q)
        return (weight.dtype, weight.device) == (self.dtype, self.device)

    def of_token(self, x: Tensor, before: Tensor | None, angles: tuple[Tensor, Tensor] | None) -> Ahead:
        """Computes the :class:`Ahead` of a token x (B, 1, D).

        ``before`` (B, 3, D) are the inputs before the token, for a mixer with convolutions. ``angles`` are those of
        RoPE.
        """
        rows, inputs, outputs = x, None, {}
        if self.taps is not None:
            rows = torch.cat((before, x), dim=1)
            inputs = (rows.unsqueeze(1) * self.taps).sum(2).split(1, dim=1)
        if self.sizes:
            product = F.linear(x, self.weight, self.bias)
            outputs = dict(zip(self.sizes, product.sigmoid().split([*self.sizes.values()], dim=-1)))
            outputs["q"] = product.narrow(-1, 0, self.sizes["q"])
        return Ahead(rows, inputs, outputs, angles)


def step_weights(mixer: nn.Module) -> StepWeights:
    """Copies the present weights of the mixer into the form that decoding steps read."""
    named = dict(mixer.named_modules())
    layers = {name: named[name] for name in ("q", *GATES) if name in named}
    sizes, weight, bias = {}, None, None
    if len(layers) > 1 and all(is_plain(layer, bias=True) for layer in layers.values()):
        weights = [layer.weight for layer in layers.values()]
        if len({(each.dtype, each.device) for each in weights}) == 1:
            sizes, weight = dict(zip(layers, map(len, weights))), torch.cat(weights)
            biases = (layer.bias for layer in layers.values())
            bias = torch.cat([w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases)])
    taps = torch.stack((mixer.k_conv.weight.T, mixer.v_conv.weight.T)) if mixer.k_conv else None
    is_reversed = mixer.by_lag and not mixer.register_slots
    mix1 = StepMixing.of(mixer.mix1, "A", "B", is_reversed)
    mix2 = StepMixing.of(mixer.mix2, "B", "A", is_reversed)
    of_query = weight_of(mixer.q)
    return StepWeights(sizes, weight, bias, taps, mix1, mix2, is_reversed, of_query.dtype, of_query.device)
