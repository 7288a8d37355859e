"""The paper's lemmas and corollaries as checks of ``cd:`` labels, named V5 to V13 and V16."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.cd import parts
from madbench.mixers.cd.grammar import DIAGONAL_GATES, CdLabel, rescaled, twin
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.sample_mixers import CHECK_SEEDS, HEADS, LENGTH, LONGER, SampleMixers, is_positive, relative
from madbench.mixers.recurrence import forms
from madbench.papers.coefficients.theorems import zero_sets

NEAR_ZERO = 0.001
KEY_WIDTHS = (8, 32, 128)
GRID = 200_000  # number of quantiles of a normal score; even, so that 0 is not among them


def checks(samples: SampleMixers) -> Iterator[Check]:
    """Yield the checks of the paper's lemmas and corollaries for the label of ``samples``.

    The names of the checks begin with V5, V6 and V16, then V7 to V13, in this order.
    """
    yield from _linearity(samples)
    yield from _zeros(samples)
    yield from zero_sets.checks(samples.label)
    yield from _suppression(samples)
    yield _positions(samples)
    yield from _evolution(samples)
    yield from _variance(samples)
    yield _boundedness(samples)
    yield _geometry(samples)
    yield _invisible_scale(samples)


def _linearity(samples: SampleMixers) -> Iterator[Check]:
    """The check V5 linear (Lemma 1): a linear readout or a kernel has a state of fixed size, and other readouts do not.

    For a kernel, scores must be bilinear in the features. For other labels, a linear readout phi must be additive, and
    others must not.
    """
    label, source = samples.label, "Lemma 1"
    if label.is_kernel:

        def bilinear(mixer: CoefficientMixer, x: Tensor) -> Tensor:
            d, residuals = mixer.dynamics(x)[0], []
            for side in ("q", "k"):
                whole = getattr(d, side)
                part = torch.rand(whole.shape, generator=torch.Generator().manual_seed(0), dtype=whole.dtype)
                changes: list[dict[str, Any]] = [{side: part}, {side: whole - part}]
                mirrors = d.mirrors and d.mirrors._replace(length=None)
                first, second = (forms.scores(replace(d, mirrors=mirrors, **change)) for change in changes)
                residuals.append(relative(first + second, forms.scores(d)))
            return torch.stack(residuals).max()

        yield Check("V5 linear", "Scores are bilinear in the features.", source, samples.largest(bilinear), 1e-12)
        return
    generator = torch.Generator().manual_seed(0)
    s, r = torch.randn(2, 1000, generator=generator, dtype=torch.float64)

    def additivity() -> float:
        phi = [parts.read_out(label.readout, value) for value in (s + r, s, r)]
        return float((phi[0] - phi[1] - phi[2]).abs().max())

    if label.is_recurrent:
        yield Check("V5 linear", "phi(s + r) = phi(s) + phi(r): a state of fixed size.", source, additivity, 1e-12)
    else:
        statement = "phi(s + r) differs from phi(s) + phi(r): no state of fixed size."
        yield Check("V5 linear", statement, source, additivity, 0.1, is_difference=True)


def _zeros(samples: SampleMixers) -> Iterator[Check]:
    """The checks V6 (Lemma 2, Corollary 2.1) of the share of normally distributed scores with a coefficient of 0.

    Pointwise readouts also have a check of coefficients within 0.001 of 0.
    """
    label = samples.label
    source = "Principle 2.1, Corollary 2.1" if label.is_kernel else "Lemma 2"
    if label.is_kernel:

        def alphas() -> Tensor:
            generator, psi = torch.Generator().manual_seed(0), parts.FEATURES[label.readout]
            q, k = torch.randn(2, GRID, 8, generator=generator, dtype=torch.float64)
            return (psi(q) * psi(k)).sum(-1)

        if label.readout == "krelu":

            def excess() -> float:
                return abs(float((alphas() == 0).double().mean()) - 0.75**8)

            statement = "A share (3/4)^8 of normal q, k, n = 8, has coefficient 0: the zero set has positive measure."
            yield Check("V6 zeros", statement, "against Principle 2.1, Corollary 2.1", excess, 3e-3, contradicts=True)
        else:
            statement = "No coefficient of normal q, k with n = 8 is 0: the zero set is empty."
            yield Check("V6 zeros", statement, source, lambda: float(alphas().min()), is_difference=True)
        return
    normal = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    edge = {"id": NEAR_ZERO, "relu": NEAR_ZERO, "exp": math.log(NEAR_ZERO), "elu": math.log(NEAR_ZERO)}
    edge |= {"softplus": math.log(math.expm1(NEAR_ZERO)), "sigmoid": -math.log(1 / NEAR_ZERO - 1)}
    below = float(normal.cdf(torch.tensor(edge[label.readout], dtype=torch.float64)))
    near = below - (1 - below) if label.readout == "id" else below
    exact = 0.5 if label.readout == "relu" else 0.0

    def share(bound: float, expected: float) -> float:
        s = normal.icdf((torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID)
        return abs(float((parts.read_out(label.readout, s).abs() <= bound).double().mean()) - expected)

    statement = f"A share {exact:g} of normal scores has coefficient 0."
    yield Check("V6 zeros", statement, source, lambda: share(0.0, exact), 1e-12)
    statement = f"A share {near:.2g} of normal scores has a coefficient within 0.001 of 0."
    yield Check("V6 near zero", statement, source, lambda: share(NEAR_ZERO, near), 1 / GRID)
    if label.readout == "exp":
        yield from _example(edge["exp"])


def _example(edge: float) -> Iterator[Check]:
    """The checks V6 that contradict Example 1, which is about the readout exp.

    Not all negative scores q.h have coefficients near 0, and the angles are not those printed. ``edge`` is the largest
    score whose coefficient is at most 0.001.
    """
    source = "against Example 1"
    scores = torch.linspace(edge, 0, 102, dtype=torch.float64)[1:-1]
    angles = math.pi * torch.linspace(1.5, 2.5, 102, dtype=torch.float64)[1:-1]

    def least_coefficient() -> float:
        return float(parts.read_out("exp", scores).min())

    def least_product() -> float:
        return float(angles.cos().min())

    statement = f"Scores from {edge:.1f} to 0 are negative, but none of their coefficients is within 0.001 of 0."
    yield Check(
        "V6 negative scores", statement, source, least_coefficient, NEAR_ZERO, is_difference=True, contradicts=True
    )
    statement = "Between the angles 3 pi/2 and 5 pi/2, those for n = 1, q.h is positive: n pi should be 2 n pi."
    yield Check("V6 angles", statement, source, least_product, is_difference=True, contradicts=True)


def _suppression(samples: SampleMixers) -> Iterator[Check]:
    """The checks V7 (Corollary 2.2): a query can give the coefficient 0 to n - 1 tokens, but not to n tokens.

    n is the key width.
    """
    label, source = samples.label, "Principle 2.2, Corollary 2.2"

    def states(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        """The states (H, T, n) of all tokens as the last row sees them, each scaled to length 1."""
        state, evolutions = mixer.ingredients(x)[0].k[0], mixer.evolution(x)[0]
        for t in range(1, LENGTH):
            state = torch.cat((state[:, :t] @ evolutions[t].mT, state[:, t:]), dim=1)
        length: Tensor = state.norm(dim=-1, keepdim=True)
        return state / length

    def unsuppressed(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        h = states(mixer, x)[:, 1:]
        q: Tensor = torch.linalg.svd(h).Vh[:, -1]
        return (h @ q[..., None]).abs().max()

    def least(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        sizes: Tensor = torch.linalg.svdvals(states(mixer, x))
        return sizes.min()

    free = ", qbar free" if label.is_kernel else ""
    reason = "" if label.is_recurrent else "the zeros of phi are not a hyperplane of queries"
    statement = f"Some query gives coefficient 0 to n - 1 tokens{free}."
    yield Check("V7 n - 1 zeros", statement, source, samples.largest(unsuppressed), 1e-12, reason=reason)
    if label.readout == "krelu" or label.gate == "dm":
        many = "features may all be zero" if label.readout == "krelu" else "coordinates may decay below rounding"
        reason = reason or f"{many}, so that states are dependent"
    least_angle = 1e-10 if label.is_kernel else 1e-6  # positive features are nearly parallel if b is small
    none, run = f"No query gives coefficient 0 to n tokens{free}.", samples.smallest(least)
    yield Check("V7 n zeros", none, source, run, least_angle, is_difference=True, reason=reason)


def _positions(samples: SampleMixers) -> Check:
    """The check V8 positions (Lemma 3): equal tokens at different positions have equal coefficients if A = I.

    A is the matrix by which a token changes the states of earlier tokens. If the label has a gate, a mirror, RoPE or a
    convolution, the check requires different coefficients instead.
    """
    label = samples.label

    def difference(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        x[:, 8] = x[:, 2]
        a = mixer.coefficients(x).a[:, :, 8:]
        return (a[..., 2] - a[..., 8]).abs().max()

    if label.gate or label.mirror or label.rope or label.conv:
        statement = "Equal tokens at different positions have different coefficients."
        run = samples.smallest(difference)
        return Check("V8 positions", statement, "Principle 3, Lemma 3, Remark 3", run, 1e-9, is_difference=True)
    statement = "With A = I, equal tokens have equal coefficients at all positions."
    return Check("V8 positions", statement, "Principle 3, Lemma 3", samples.largest(difference), 1e-12)


def _evolution(samples: SampleMixers) -> Iterator[Check]:
    """The checks V9 (Lemma 4) of the matrix A by which a token changes the states of earlier tokens.

    They test the structure of A, such as a multiple of the identity, and whether A is a contraction.
    """
    label, source = samples.label, "Lemma 4"

    def structure(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        d, a = mixer.ingredients(x)[0], mixer.evolution(x).transpose(1, 2)
        eye = torch.eye(a.shape[-1], dtype=a.dtype)
        if not label.mirror:
            expected = a * eye if label.gate in DIAGONAL_GATES else a[..., :1, :1] * eye
            return (a - expected).abs().max()
        change = (a if d.log_gate is None else a / d.log_gate.exp()[..., None, :]) - eye
        values = torch.linalg.svdvals(change)
        assert d.mirrors is not None  # of a label with a mirror
        beta = d.mirrors.beta
        # unit() adds 1e-12 to a squared length, which is visible if Delta scales a kernel's keys down
        length = d.k.square().sum(-1) if label.is_kernel and label.mirror[1] == "k" else torch.ones_like(beta)
        eigenvalue = -beta * length / (length + parts.EPS)
        trace = change.diagonal(dim1=-2, dim2=-1).sum(-1)
        residuals = ((change - change.mT).abs().max(), values[..., 1].max(), (trace - eigenvalue).abs().max())
        return torch.stack(residuals).max()

    kind = "a multiple of the identity" if label.gate not in DIAGONAL_GATES else "diagonal"
    if label.mirror:
        kind = "a gate times I - beta w w^T, |w| = 1"
    tolerance = 1e-8 if label.conv else 1e-10  # convolved keys are short, so that the 1e-12 of unit() is visible
    yield Check("V9 structure", f"A is {kind}.", source, samples.largest(structure), tolerance)

    def excess(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.matrix_norm(mixer.evolution(x), 2)
        return norms.max() - 1

    statement, run = "A is a contraction: its largest singular value is at most 1.", samples.largest(excess)
    reason = "no contraction if a gate exceeds 1, as se may" if label.gate == "se" else ""
    if label.has_growing_gate:
        statement, run = "A is not a contraction: its largest singular value exceeds 1.", samples.smallest(excess)
    is_difference = label.has_growing_gate
    yield Check("V9 contraction", statement, source, run, 1e-10, is_difference=is_difference, reason=reason)


def _variance(samples: SampleMixers) -> Iterator[Check]:
    """The checks V10 (Lemma 5): the variance of the scores of random tokens, and its growth with the key width n."""
    label, source = samples.label, "Principle 5, Lemma 5"
    exponent = 1 if label.scaling == "b1" else 0
    formula = "The variance of a score of tokens from N(0, Sigma) is b^2 tr(W_q Sigma W_q^T W_k Sigma W_k^T)."
    grows = f"grows as n^{exponent}" if exponent else "is independent of n"
    slope = f"The variance of a score {grows}."
    reason = _has_other_variance(label)

    @functools.cache
    def variances(n: int, seed: int) -> tuple[Tensor, Tensor]:
        """The measured and the predicted variances of the scores of each head, (H,) each, for the key width ``n``."""
        mixer, x = samples.sample(seed, batch=500, length=20, qk_rank=HEADS * n)
        root = 1 + torch.randn(len(x.mT[0]), generator=torch.Generator().manual_seed(seed), dtype=x.dtype) / 4
        x = x * root
        s = forms.scores(mixer.dynamics(x)[0])
        pairs = torch.ones(s.shape[2:], dtype=torch.bool).tril(-1)
        w_q, w_k = (side.weight.unflatten(0, (HEADS, n)) for side in (mixer.q, mixer.k))  # (H, n, d)
        w_q, w_k = w_q * root, w_k * root
        expected = (w_q @ w_q.mT * (w_k @ w_k.mT)).sum((-2, -1)) * (1 if exponent else 1 / n)
        return s[..., pairs].square().mean((0, 2)), expected

    def error() -> float:
        errors = []
        for n in KEY_WIDTHS:
            measured, expected = (torch.stack(side) for side in zip(*(variances(n, seed) for seed in CHECK_SEEDS)))
            errors.append(((measured / expected).mean() - 1).abs())
        return float(torch.stack(errors).max())

    def growth() -> float:
        logs = [math.log(sum(float(variances(n, seed)[0].mean()) for seed in CHECK_SEEDS)) for n in KEY_WIDTHS]
        return abs((logs[-1] - logs[0]) / math.log(KEY_WIDTHS[-1] / KEY_WIDTHS[0]) - exponent)

    yield Check("V10 variance", formula, source, error, 0.03, reason=reason)
    yield Check("V10 growth", slope, source, growth, 0.1, reason=reason)


def _has_other_variance(label: CdLabel) -> str:
    """The reason why Lemma 5 does not apply to a label. Empty if it applies."""
    if label.is_kernel:
        return "features are not linear in the tokens"
    if label.gate or label.mirror:
        return "with A other than I the variance depends on the lag"
    if label.scaling not in ("", "b1"):
        return "b depends on the token"
    if label.unit:
        return "queries and keys of length 1 have variance 1/n for any b"
    return "queries and keys are not products of a matrix and one token" if label.rope or label.conv else ""


def _boundedness(samples: SampleMixers) -> Check:
    """The check V11 bounded (Lemma 6, Remark 5): for equal keys, the first token's coefficient grows or stays bounded.

    The label decides which of the two is expected as the sequence becomes longer.
    """
    label, name, source = samples.label, "V11 bounded", "Principle 6, Lemma 6, Remark 5"
    log_lambda = math.log(1.05) if label.gate == "se" else math.log(float(label.gate)) if label.is_constant else 0.0
    # growth is slow for a constant gate close to 1
    tolerance = min(1e-3, abs(log_lambda) / 20) if log_lambda else 1e-3
    grows = "For equal keys with q . k = 1, the coefficient of the first grows without bound."
    bounded = "For equal keys with q . k = 1, the coefficient of the first does not grow."
    reason = ""
    if label.rope or label.conv:
        reason = "the keys of equal tokens are not equal"
    elif label.mirror and (label.norm in ("sum", "max") or log_lambda):
        reason = "mirrors shrink or rotate the key, regardless of eta"

    def first() -> Tensor:
        """The coefficients a_i1 of the first token in all rows i, (seeds, H, T)."""
        coefficients = []
        for seed in CHECK_SEEDS:
            mixer, x = samples.sample(seed, length=LONGER)
            coefficients.append(equal_keys(mixer, x).coefficients(x).a[0, ..., 0])
        return torch.stack(coefficients)

    def slope() -> float:
        """The largest mean slope of log |a_i1| over the second half of the rows i, of all seeds and heads."""
        logs = first().abs().clamp(min=1e-12).log()[..., LONGER // 2 :]
        return float((logs[..., -1] - logs[..., 0]).max()) / (LONGER // 2 - 1)

    if reason:
        return Check(name, bounded, source, slope, tolerance, reason=reason)
    if label.norm in ("sum", "max") or (label.readout == "sigmoid" and label.norm != "pow" and log_lambda > 0):
        statement = "For equal keys with q . k = 1, no coefficient exceeds its bound 1."
        return Check(name, statement, source, lambda: float(first().max()) - 1, 1e-12)
    if label.norm == "pow":
        # phi(lambda^i) / lambda^i grows if phi(0) > 0 is divided by a vanishing power, or if exp outgrows the power
        is_linear = label.is_recurrent or label.readout == "relu"
        is_growing = label.readout == "exp" if log_lambda > 0 else not is_linear
    else:
        is_growing = log_lambda > 0
    return Check(name, grows if is_growing else bounded, source, slope, tolerance, is_difference=is_growing)


def equal_keys(mixer: CoefficientMixer, x: Tensor) -> CoefficientMixer:
    """Change ``x`` and the weights in place so that all keys are equal and q . k is 1. Return the mixer.

    Every token becomes the first unit vector, on which gates have their initial values. The gate ``se`` gets the value
    1.05.
    """
    x.zero_()[..., 0] = 1
    for layer in (mixer.decay, mixer.decay_down, mixer.strength, mixer.scale, mixer.eta):
        if layer:
            layer.weight[:, 0] = 0
    if mixer.label.gate == "se" and mixer.decay is not None:
        mixer.decay.bias.fill_(math.log(1.05))
    width = mixer.allocation.key_width
    for side in (mixer.q, mixer.k):
        side.weight[:, 0] = width**-0.5
    scale = mixer.ingredients(x)[0].k[0, :, 0].sum(-1) * width**-0.5  # b of each head
    if not (mixer.label.is_kernel or mixer.label.unit):
        mixer.q.weight[:, 0] /= scale.repeat_interleave(width)
    return mixer


def _geometry(samples: SampleMixers) -> Check:
    """The check V12 geometry (Corollary 6.1, Table 2): outputs are combinations of values of the expected kind.

    The label decides which kind is expected: convex, conical, affine or linear combinations.
    """
    label, name, source = samples.label, "V12 geometry", "Corollary 6.1, Table 2"

    def below_zero(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        return (-mixer.coefficients(x).a.min()).clamp(min=0)

    def not_one(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        rows = mixer.coefficients(x)
        away = (rows.a.sum(-1) - 1).abs() / rows.a.abs().sum(-1).clamp(min=1)
        return away[rows.alpha.abs().sum(-1) > 1e-9].max()  # without the zero rows that ReLU can give

    def not_convex(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        return torch.maximum(below_zero(mixer, x), not_one(mixer, x))

    if is_positive(label) and label.norm == "sum":
        statement = "Outputs are convex combinations of values: a >= 0 with sum 1."
        return Check(name, statement, source, samples.largest(not_convex), 1e-12)
    if is_positive(label):
        return Check(name, "Outputs are conical combinations of values: a >= 0.", source, samples.largest(below_zero))
    if label.norm == "sum":
        statement = "Outputs are affine combinations of values: a has sum 1 but may leave [0, 1]."
        return Check(name, statement, source, samples.largest(not_one), 1e-12)
    statement = "Outputs are linear combinations of values: some a are negative."
    reason = "mirrored features may have either sign" if label.is_kernel else ""
    return Check(name, statement, source, samples.smallest(below_zero), is_difference=True, reason=reason)


def _invisible_scale(samples: SampleMixers) -> Check:
    """The check V13 invisible b (eq. 2): a constant factor of b, the scale of scores, has no effect on outputs.

    It applies to labels in which the factor cancels, because coefficients are divided by their sum or outputs by an
    RMSNorm.
    """
    label, name, source = samples.label, "V13 invisible b", "eq. 2"
    other = rescaled(label)
    statement = f"The factor between b and {other.scaling or '1/sqrt(n)'} has no effect."
    reason = "" if twin(label) else "b has an effect: neither a sum nor an RMSNorm divides by it"
    if label.is_kernel and label.mirror[1:2] == "k":
        reason = reason or "the 1e-12 of unit() is visible in the directions of short keys"

    def difference() -> float:
        differences = []
        for seed in CHECK_SEEDS:
            (original, x), (rescaled_mixer, _) = samples.sample(seed), replace(samples, label=other).sample(seed)
            rescaled_mixer.load_state_dict(original.state_dict())
            for mixer in (original, rescaled_mixer):
                mixer.v.weight.mul_(1e9)  # so that the eps of the RMSNorm is negligible
            y = original(x)
            differences.append((rescaled_mixer(x) - y).abs().max() / y.abs().max())
        return float(torch.stack(differences).max())

    return Check(name, statement, source, difference, 1e-12, reason=reason)
