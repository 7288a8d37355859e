"""The operators of ``hfa:`` and ``ha:``, computed directly from their equations by loops in float64.

The loops are over rows, heads and tuples. Checks compare the fast paths with these functions, which share only the list
of tuples with the fast paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from madbench.papers.interactions.mixers.tuples import visible_tuples

Rows = Sequence[int] | None
"""The indices of the rows of a sequence to compute. None for all rows."""


class CouplingMixer(Protocol):
    """The members of :class:`madbench.papers.interactions.mixers.coupling.Coupling` that this module's loops read."""

    c: Any
    w: Any
    out_width: int
    degree: int
    tuples: str
    causal: bool


class ProjectingMixer(Protocol):
    """The members of :class:`madbench.papers.interactions.mixers.mixer.FactoredMixer` that this module's loops read."""

    linear: bool
    rope: bool
    causal: bool
    n_head: int

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...


class FeatureMixer(ProjectingMixer, Protocol):
    """The members of :class:`madbench.papers.interactions.mixers.hfa.operator.HyperFeatureAttention` that this module's
    loops read.
    """

    product: bool


class TupleMixer(ProjectingMixer, Protocol):
    """The members of :class:`madbench.papers.interactions.mixers.ha.operator.HyperAttention` that this module's loops
    read.
    """

    degrees: tuple[int, ...]
    slots: tuple[int, ...]
    tuples: str


def coupling_reference(mixer: CouplingMixer, x: Tensor, rows: Rows = None) -> Tensor:
    """The outputs (B, T, d2) of full couplings for x (B, T, d), by loops in float64 (Def. 5.1 for degree 2, else 6.1).

    d2 is ``mixer.out_width``. If ``rows`` are given, only these rows are computed, in place of all T.
    """
    c, w = ([each.double() for each in of] for of in (mixer.c, mixer.w))
    return torch.stack([torch.stack(_coupling_rows(mixer, c, w, sequence, rows)) for sequence in x.double()])


def _coupling_rows(mixer: CouplingMixer, c: list[Tensor], w: list[Tensor], x: Tensor, wanted: Rows) -> list[Tensor]:
    rows = []
    for i in range(len(x)) if wanted is None else wanted:
        y = x.new_zeros(mixer.out_width)
        for c_h, w_h in zip(c, w):
            for tokens in visible_tuples(i + 1 if mixer.causal else len(x), mixer.degree - 1, mixer.tuples):
                if mixer.degree == 2:
                    (j,) = tokens
                    effect, value = x.new_ones(()), torch.ones_like(y)
                    for matrix in c_h:
                        effect = effect * (x[i] @ matrix @ x[j])
                    for matrix in w_h:
                        value = value * (x[j] @ matrix)
                else:
                    effect, value = torch.tensordot(x[i], c_h, 1), w_h
                    for j in tokens:
                        effect, value = torch.tensordot(x[j], effect, 1), torch.tensordot(x[j], value, 1)
                y = y + effect * value
        rows.append(y)
    return rows


def feature_reference(mixer: FeatureMixer, widths: Sequence[Sequence[int]], x: Tensor, wanted: Rows = None) -> Tensor:
    """The outputs (B, T, d) of HyperFeatureAttention for x (B, T, d), by loops in float64 (Def. F.3, eq. 39-40).

    ``widths`` has, for each head, the width of each of its factors. If rows are ``wanted``, only these are computed, in
    place of all T.
    """
    w = {name: value.double() for name, value in mixer.named_parameters()}
    d_vo = w["o.weight"].shape[1] // len(widths)
    sequences = []
    for sequence in x.double():
        q, k, v = (sequence @ w[f"{name}.weight"].T for name in "qkv")
        rows = []
        for i in range(len(sequence)) if wanted is None else wanted:
            heads, qk_at, v_at = [], 0, 0
            for of_head in widths:
                scores, values = [], []
                for j in range(i + 1 if mixer.causal else len(sequence)):
                    z, at = x.new_ones((), dtype=torch.float64), qk_at
                    for width in of_head:
                        key = k[j, at : at + width]
                        key = _rotate(key, j - i) if mixer.rope else key
                        z, at = z * (q[i, at : at + width] @ key) / math.sqrt(width), at + width
                    scores.append(z)
                    factors = v[j, v_at : v_at + d_vo * (len(of_head) if mixer.product else 1)].split(d_vo)
                    values.append(math.prod(factors[1:], start=factors[0]))
                heads.append(_weighted_sum(scores, values, mixer.linear, d_vo))
                qk_at, v_at = qk_at + sum(of_head), v_at + d_vo * (len(of_head) if mixer.product else 1)
            rows.append(w["o.weight"] @ torch.cat(heads))
        sequences.append(torch.stack(rows))
    return torch.stack(sequences)


def tuple_reference(mixer: TupleMixer, x: Tensor, wanted: Rows = None) -> Tensor:
    """The outputs (B, T, d) of HyperAttention for x (B, T, d), by loops in float64 (Def. G.1, G.3).

    If rows are ``wanted``, only these are computed, in place of all T. In a head with one slot, all tokens of a tuple
    use the same keys and values. In a head with several slots, each place in the tuple has its own.
    """
    w = {name: value.double() for name, value in mixer.named_parameters()}
    n_head, d_vo = mixer.n_head, w["o.weight"].shape[1] // mixer.n_head
    sequences = []
    for sequence in x.double():
        length = len(sequence)
        q = (sequence @ w["q.weight"].T).view(length, n_head, -1)
        k, v = ((sequence @ w[f"{name}.weight"].T).view(length, sum(mixer.slots), -1) for name in "kv")
        rows = []
        for i in range(length) if wanted is None else wanted:
            heads, first = [], 0
            for h, (degree, slots) in enumerate(zip(mixer.degrees, mixer.slots)):
                scores, values = [], []
                for tokens in visible_tuples(i + 1 if mixer.causal else length, degree - 1, mixer.tuples):
                    key, value = (math.prod(of[j, first + m % slots] for m, j in enumerate(tokens)) for of in (k, v))
                    if mixer.rope:
                        key = _rotate(key, sum(j - i for j in tokens))
                    scores.append(q[i, h] @ key / math.sqrt(len(key)))
                    values.append(value)
                heads.append(_weighted_sum(scores, values, mixer.linear, d_vo))
                first += slots
            rows.append(w["o.weight"] @ torch.cat(heads))
        sequences.append(torch.stack(rows))
    return torch.stack(sequences)


def _weighted_sum(scores: list[Tensor], values: list[Tensor], linear: bool, width: int) -> Tensor:
    if not scores:
        return torch.zeros(width, dtype=torch.float64)
    scores = torch.stack(scores)
    return (scores if linear else torch.softmax(scores, dim=0)) @ torch.stack(values)


def _rotate(x: Tensor, steps: int) -> Tensor:
    """Rotate the vector x of one token by ``steps`` positions, as RoPE does.

    The pair of channels (c, c + half) is rotated by the angle ``steps`` * 10000^(-2 c / width).
    """
    half, width = len(x) // 2, len(x)
    angles = [steps * 10000.0 ** (-2 * c / width) for c in range(half)]
    cos, sin = (x.new_tensor([of(angle) for angle in angles]) for of in (math.cos, math.sin))
    first, second = x[:half], x[half:]
    return torch.cat((first * cos - second * sin, first * sin + second * cos))
