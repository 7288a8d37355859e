"""Decoding steps of common S/R/G labels in few calls of torch, with weights that are prepared once for many steps.

A step multiplies few numbers, so its time grows with the number of calls. Here the query and all gates of a token are
one matrix product, both convolutions are one sum, the mixing tables are in the order of the cached tokens, and weights
are read without calls of modules. For other labels, :func:`madbench.mixers.srg.decoding.step` computes a step with the
functions for whole sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.linear_maps import is_plain, weight_of
from madbench.mixers.ops.rope import rotate
from madbench.mixers.ops.tracing import is_traced
from madbench.mixers.srg.grammar import SrgLabel
from madbench.mixers.srg.parts import SequenceMixing, activate

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

BASES = ("S", "R", "G", "L")
FIELDS = ("base", "rope", "conv", "gates", "rank", "mix1", "mix2", "layout", "over")
"""The fields of :class:`madbench.mixers.srg.grammar.SrgLabel` that prepared steps support.

A label whose other fields are not all false has no prepared steps, see :func:`has_short_steps`.
"""
GATES = ("qk_gate", "vo_gate", "mix1.gate", "mix2.gate")


@dataclass(frozen=True)
class StepMixing:
    """The mixing matrix of a decoding step, which is R(1) or the transpose of R(2).

    It is the sum of the diagonal matrix of ``gain`` and the product ``into`` Diag(s_t) ``out_of``, where s_t are the
    strengths of the current token. In shapes, L is the number of rows of the mixing tables, and R the rank.
    """

    into: Tensor
    """Left factor of the product, (heads, L, R)."""
    out_of: Tensor
    """Right factor of the product, (heads, R, L)."""
    gain: Tensor
    """Diagonal of the diagonal matrix, 1 + p, (heads, 1, L)."""
    is_from_end: bool
    """True if a step with W slots uses the last W rows of the mixing tables, False if it uses the first W."""

    @staticmethod
    def of(mixing: SequenceMixing | None, into: str, out_of: str, is_reversed: bool) -> StepMixing | None:
        """Copy the tables of ``mixing``. None if ``mixing`` is None.

        ``into`` and ``out_of`` name the tables, ``"A"`` or ``"B"``, that the fields ``into`` and ``out_of`` are copied
        from: A and B give the matrix R, and B and A give its transpose. If ``is_reversed`` is true, the rows of the
        copies are reversed, because cached tokens are ordered by position and table rows by lag.
        """
        if mixing is None:
            return None
        tables = (getattr(mixing, into), getattr(mixing, out_of), 1 + mixing.p[..., None])
        first, second, gain = (table.flip(1) if is_reversed else table.clone() for table in tables)
        return StepMixing(first, second.mT.contiguous(), gain.mT, mixing.is_from_end or is_reversed)

    def __call__(self, y: Tensor, s: Tensor) -> Tensor:
        """Multiply each row of y (heads, B, W) by the mixing matrix of its head and sequence.

        The product is y (Diag(gain) + into Diag(s) out_of). W is the number of slots, to which the tables are cut. The
        result has the shape of y. ``s`` (B, heads * R) has the strengths of the current token of each sequence.
        """
        heads, length, rank = self.into.shape
        slots = y.shape[2]
        first = length - slots if self.is_from_end else 0
        into, out_of = self.into.narrow(1, first, slots), self.out_of.narrow(2, first, slots)
        strengths = s.view(len(s), heads, rank).transpose(0, 1)
        mixed = torch.bmm(torch.bmm(y, into) * strengths, out_of)
        return torch.addcmul(mixed, y, self.gain.narrow(2, first, slots))


class Token(NamedTuple):
    """The projections of one token of each sequence."""

    q: Tensor  # (B, H_q, 1, K), rotated and gated
    k: Tensor  # (B, H_q, 1, K), rotated
    v: Tensor  # (B, H, 1, V)
    gates: Mapping[str, Tensor]  # (B, C), sigmoids by layer
    inputs: Tensor  # (B, 1, D), the token, or (B, 4, D) with the inputs before it, if the mixer has convolutions


@dataclass(frozen=True)
class StepWeights:
    """Weights of a mixer that :func:`step_weights` prepared for decoding steps.

    Some are copies, which are no longer valid if the mixer changes. :meth:`fit` is then False.
    """

    sizes: Mapping[str, int]
    """Number of rows in ``weight`` of each linear map of the mixer, by name. The map to queries, ``q``, comes before
    gates."""
    weight: Tensor
    """Weights of the linear maps in ``sizes``, stacked to (sum of sizes, D)."""
    bias: Tensor
    """Biases of the linear maps in ``sizes``, (sum of sizes). Zero for a map without a bias."""
    k: Tensor
    """Weight of the linear map to keys, (H_q K, D)."""
    v: Tensor
    """Weight of the linear map to values, (H V, D)."""
    o: Tensor
    """Weight of the linear map to outputs, (D, H V)."""
    taps: Tensor | None
    """Taps (2, 4, D) of the convolutions for keys and for values. None without convolutions."""
    mix1: StepMixing | None
    mix2: StepMixing | None
    dtype: torch.dtype
    """The dtype of the mixer when the copies were made."""
    device: torch.device
    """The device of the mixer when the copies were made."""
    sources: tuple[Tensor, ...]
    """The parameters of the mixer. Empty if one of them is an inference tensor, whose changes torch does not count."""
    versions: tuple[int, ...]
    """The number of in-place changes of each of the ``sources`` when the copies were made, as torch counts them."""

    def fit(self, mixer: DynamicMLP) -> bool:
        """True if the mixer still has the dtype and device of the copies, and no parameter has changed in place.

        Changes of parameters are not noticed while a graph is traced, nor if a parameter is an inference tensor.
        """
        weight = weight_of(mixer.q)
        if (weight.dtype, weight.device) != (self.dtype, self.device):
            return False
        return is_traced() or self.versions == tuple(source._version for source in self.sources)

    def project(
        self,
        mixer: DynamicMLP,
        x: Tensor,
        before: Tensor | None,
        position: int,
        angles: tuple[Tensor, Tensor] | None,
    ) -> Token:
        """Project one token per sequence, x (B, D), at ``position``.

        ``before`` (B, 3, D) are the inputs before the token, for a mixer with convolutions. ``angles`` are the cosines
        and sines of RoPE, for a mixer with RoPE.
        """
        inputs, k_in, v_in = x.unsqueeze(1), x, x
        if self.taps is not None:
            inputs = torch.cat((cast(Tensor, before), inputs), dim=1)
            k_in, v_in = (inputs.unsqueeze(1) * self.taps).sum(2).unbind(1)
        product = F.linear(x, self.weight, self.bias)
        gates = dict(zip(self.sizes, product.sigmoid().split_with_sizes([*self.sizes.values()], 1)))
        of_keys = (x.shape[0], mixer.query_heads, 1, len(self.k) // mixer.query_heads)
        of_values = (x.shape[0], mixer.n_head, 1, len(self.v) // mixer.n_head)
        q, k = product.narrow(1, 0, self.sizes["q"]).view(of_keys), F.linear(k_in, self.k).view(of_keys)
        v = F.linear(v_in, self.v).view(of_values)
        gate = gates["qk_gate"].view(of_keys) if "qk_gate" in gates else None
        is_before = mixer.label.rope and mixer.rope_order == "before_gate"
        if gate is not None and not is_before:
            q = q * gate
        if mixer.label.rope:
            q, k = (rotate(side, position, mixer.rope, angles) for side in (q, k))
        if gate is not None and is_before:
            q = q * gate
        return Token(q, k, v, gates, inputs)

    def attend(self, mixer: DynamicMLP, token: Token, k: Tensor, v: Tensor) -> Tensor:
        """The outputs (B, D) of one token per sequence, which sees the keys k (B, H_q, S, K) and values v (B, H, S, V).

        S counts the token itself.
        """
        if mixer.uses_sdpa:
            o = F.scaled_dot_product_attention(token.q, k, v)
        else:
            batch, heads, slots, _ = k.shape
            q = token.q * mixer.scale if mixer.label.has_softmax else token.q
            scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).view(batch, heads, slots).transpose(0, 1)
            h = self.mix1(scores, token.gates["mix1.gate"]) if self.mix1 else scores
            a, norm = activate(mixer.label.base, h, None)
            w = self.mix2(a, token.gates["mix2.gate"]) if self.mix2 else a
            o = torch.bmm(w.transpose(0, 1).reshape(len(k) * mixer.n_head, 1, slots), v.flatten(0, 1))
            if norm is not None:
                o = (o / norm.transpose(0, 1).reshape(len(o), 1, 1)).to(o.dtype)
        o = o.view(len(k), len(self.v))
        return F.linear(o * token.gates["vo_gate"] if "vo_gate" in token.gates else o, self.o)


def has_short_steps(label: SrgLabel) -> bool:
    """True if :class:`StepWeights` can compute the decoding steps of a label.

    The label needs a base in ``BASES``, no letter that sets a field outside of ``FIELDS``, and a convolution, gates or
    mixing. Without these three there is nothing to prepare.
    """
    others = any(getattr(label, field.name) for field in fields(label) if field.name not in FIELDS)
    return label.base in BASES and not others and (label.conv or label.gates or label.has_mixing)


def step_weights(mixer: DynamicMLP) -> StepWeights | None:
    """Prepare the present weights of a mixer for decoding steps.

    None if a linear map is not plain (:func:`madbench.mixers.ops.linear_maps.is_plain`), or if the parameters differ in
    dtype or device.
    """
    named = dict(mixer.named_modules())
    layers = {name: named[name] for name in ("q", *GATES) if name in named}
    if not all(is_plain(layer, bias=True) for layer in (*layers.values(), mixer.k, mixer.v, mixer.o)):
        return None
    if len({(weight.dtype, weight.device) for weight in mixer.parameters()}) > 1:
        return None
    weights, biases = ([getattr(layer, kind) for layer in layers.values()] for kind in ("weight", "bias"))
    sizes = dict(zip(layers, map(len, weights)))
    bias = torch.cat([w.new_zeros(len(w)) if b is None else b for w, b in zip(weights, biases)])
    convs = [conv.weight.T for conv in (mixer.k_conv, mixer.v_conv) if conv]
    taps = torch.stack(convs) if convs else None
    mix1 = StepMixing.of(mixer.mix1, "A", "B", mixer.by_lag)
    mix2 = StepMixing.of(mixer.mix2, "B", "A", mixer.by_lag)
    projections = mixer.k.weight, mixer.v.weight, mixer.o.weight
    parameters = tuple(mixer.parameters())
    sources = () if any(parameter.is_inference() for parameter in parameters) else parameters
    copies = sizes, torch.cat(weights), bias, *projections, taps, mix1, mix2, bias.dtype, bias.device
    return StepWeights(*copies, sources, tuple(source._version for source in sources))
