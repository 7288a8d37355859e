"""The paper on growth, as checks: V10, the variance of a score as n grows, and V11, coefficients over time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import torch
from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.cd import forms
from madbench.mixers.cd.grammar import Label
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.subject import HEADS, SEEDS, Subject

KEY_WIDTHS = (8, 32, 128)
LONGER = 64


def checks(subject: Subject) -> Iterator[Check]:
    """V10 and V11."""
    yield from _variance(subject)
    yield _boundedness(subject)


def _variance(subject: Subject) -> Iterator[Check]:
    """V10, Lemma 5."""
    label, source = subject.label, "Lemma 5"
    exponent = 1 if label.scaling == "b1" else 0
    formula = "The variance of a score of normal tokens is b^2 tr(W_q W_q^T W_k W_k^T)."
    slope = f"The variance of a score grows as n^{exponent}." if exponent else "The variance of a score is free of n."
    reason = _has_other_variance(label)

    @functools.cache
    def variances(n: int, seed: int) -> tuple[Tensor, Tensor]:
        """Measured and by the formula, of each head."""
        mixer, x = subject.sample(seed, batch=500, length=20, qk_rank=HEADS * n)
        s = forms.scores(mixer.dynamics(x)[0])
        pairs = torch.ones(s.shape[2:], dtype=torch.bool).tril(-1)
        w_q, w_k = (side.weight.unflatten(0, (HEADS, n)) for side in (mixer.q, mixer.k))  # (H, n, d)
        expected = (w_q @ w_q.mT * (w_k @ w_k.mT)).sum((-2, -1)) * (1 if exponent else 1 / n)
        return s[..., pairs].square().mean((0, 2)), expected

    def error() -> float:
        found = []
        for n in KEY_WIDTHS:
            measured, expected = (torch.stack(side) for side in zip(*(variances(n, seed) for seed in SEEDS)))
            found.append(((measured / expected).mean() - 1).abs())
        return float(torch.stack(found).max())

    def growth() -> float:
        logs = [math.log(sum(float(variances(n, seed)[0].mean()) for seed in SEEDS)) for n in KEY_WIDTHS]
        return abs((logs[-1] - logs[0]) / math.log(KEY_WIDTHS[-1] / KEY_WIDTHS[0]) - exponent)

    yield Check("V10 variance", formula, source, error, 0.03, reason=reason)
    yield Check("V10 growth", slope, source, growth, 0.1, reason=reason)


def _has_other_variance(label: Label) -> str:
    """Why the lemma says nothing about a label; empty where it does."""
    if label.is_kernel:
        return "features are not linear in the tokens"
    if label.gate or label.mirror:
        return "with A other than I the variance depends on the lag"
    if label.scaling not in ("", "b1"):
        return "b depends on the token"
    if label.unit:
        return "queries and keys of length 1 have variance 1/n whatever b is"
    return "queries and keys are not products of a matrix and one token" if label.rope or label.conv else ""


def _boundedness(subject: Subject) -> Check:
    """V11, Lemma 6 and Remark 5."""
    label, name, source = subject.label, "V11 bounded", "Lemma 6, Remark 5"
    log_lambda = math.log(1.05) if label.gate == "se" else math.log(float(label.gate)) if label.is_constant else 0.0
    # for a constant gate close to 1 even growth is slow
    tolerance = min(1e-3, abs(log_lambda) / 20) if log_lambda else 1e-3
    grows = "Equal keys with q . k = 1: the coefficient of the first grows without bound."
    bounded = "Equal keys with q . k = 1: the coefficient of the first does not grow."
    reason = ""
    if label.rope or label.conv:
        reason = "the keys of equal tokens are not equal"
    elif label.mirror and (label.norm in ("sum", "max") or log_lambda):
        reason = "mirrors shrink or turn the key, whatever eta does"

    def first() -> Tensor:
        """a_i1 (3 seeds, H, T)."""
        found = []
        for seed in SEEDS:
            mixer, x = subject.sample(seed, length=LONGER)
            found.append(_equal_keys(mixer, x).coefficients(x).a[0, ..., 0])
        return torch.stack(found)

    def slope() -> float:
        """Of log a_i1 on i, over the second half."""
        logs = first().abs().clamp(min=1e-12).log()[..., LONGER // 2 :]
        return float((logs[..., -1] - logs[..., 0]).max()) / (LONGER // 2 - 1)

    if reason:
        return Check(name, bounded, source, slope, tolerance, reason=reason)
    if label.norm in ("sum", "max") or (label.readout == "sigmoid" and label.norm != "pow" and log_lambda > 0):
        statement = "Equal keys with q . k = 1: no coefficient exceeds 1, its bound."
        return Check(name, statement, source, lambda: float(first().max()) - 1, 1e-12)
    if label.norm == "pow":
        # phi(lambda^i) / lambda^i grows where phi(0) > 0 is divided by a power that vanishes, or exp outgrows it
        is_linear = label.is_recurrent or label.readout == "relu"
        is_growing = label.readout == "exp" if log_lambda > 0 else not is_linear
    else:
        is_growing = log_lambda > 0
    return Check(name, grows if is_growing else bounded, source, slope, tolerance, is_difference=is_growing)


def _equal_keys(mixer: CoefficientMixer, x: Tensor) -> CoefficientMixer:
    """Makes every token of ``x`` the first unit vector, for which gates are as at their start and q . k is 1."""
    x.zero_()[..., 0] = 1
    for layer in (mixer.decay, mixer.decay_down, mixer.strength, mixer.scale, mixer.eta):
        if layer:
            layer.weight[:, 0] = 0
    if mixer.variant.gate == "se":
        mixer.decay.bias.fill_(math.log(1.05))
    width = mixer.allocation.key_width
    for side in (mixer.q, mixer.k):
        side.weight[:, 0] = width**-0.5
    scale = mixer.ingredients(x)[0].k[0, :, 0].sum(-1) * width**-0.5  # b of each head
    if not (mixer.variant.is_kernel or mixer.variant.unit):
        mixer.q.weight[:, 0] /= scale.repeat_interleave(width)
    return mixer
