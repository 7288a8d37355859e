"""Checks of cases that the paper's lemmas leave open, and of cases in which the lemmas do not hold as printed."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.cd import parts
from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.sample_mixers import CHECK_SEEDS, LONGER, SampleMixers, is_positive
from madbench.mixers.ranks import CONV_TAPS
from madbench.papers.coefficients.theorems.lemmas import equal_keys

PAIRED, KEY_WIDTH = 24, 8  # number of queries and keys in rank checks, and n
BIASED = (0.001, 0.1)  # range of the initial Delta of Mamba-2 (Example 2)


def checks(samples: SampleMixers) -> Iterator[Check]:
    """The checks of cases that the lemmas leave open, or in which they fail, for the label of ``samples``.

    They are named V5 and V8 to V12, like the checks of the lemmas, and come in this order.
    """
    yield _rank(samples.label)
    yield from _positions(samples)
    yield from _mirrors(samples)
    yield from _start(samples)
    yield from _limit(samples)
    yield from _beyond(samples)


def _rank(label: CdLabel) -> Check:
    """The check V5 rank (Lemma 1) of the smallest size of a linear state from which queries can read their outputs.

    The size is the rank of the matrix of coefficients of random queries and keys. It is at most the key width n for
    labels with a recurrence, and larger for others.
    """

    def excess() -> float:
        generator = torch.Generator().manual_seed(0)
        q, k = torch.randn(2, PAIRED, KEY_WIDTH, generator=generator, dtype=torch.float64)
        if label.is_kernel:
            psi = parts.FEATURES[label.readout]
            return int(torch.linalg.matrix_rank(psi(q) @ psi(k).mT)) - KEY_WIDTH
        return int(torch.linalg.matrix_rank(parts.read_out(label.readout, q @ k.mT))) - KEY_WIDTH

    which = f"The coefficients of {PAIRED} queries and {PAIRED} keys with n = {KEY_WIDTH}"
    if label.is_recurrent:
        return Check("V5 rank", f"{which} have rank at most n: a state of n x V numbers suffices.", "Lemma 1", excess)
    statement = f"{which} have a rank above n: no linear state of n x V numbers suffices."
    return Check("V5 rank", statement, "Lemma 1", excess, is_difference=True)


def _positions(samples: SampleMixers) -> Iterator[Check]:
    """The checks V8 (Lemma 3, Remark 3) of cases in which tokens at different positions have equal coefficients.

    They apply to labels without a gate and RoPE. If every token reflects the state (a mirror of strength 2), a token
    has the same coefficient before and after pairs of equal tokens. With a convolution and no mirror, copies of one
    repeated token have equal coefficients.
    """
    label = samples.label

    def mirrored_back(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        x[:, 4], x[:, 6], x[:, 7], x[:, 8] = x[:, 3], x[:, 5], x[:, 2], x[:, 2]
        a = mixer.coefficients(x).a[:, :, 8:]
        return (a[..., 2] - a[..., 8]).abs().max()

    def repeated(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        x[:] = x[:, :1].clone()
        a = mixer.coefficients(x).a[:, :, -1, CONV_TAPS - 1 :]
        return (a - a[..., :1]).abs().max()

    if label.mirror[-1:] == "r" and not (label.gate or label.rope or label.conv):
        statement = (
            "A is a mirror at every token and never I. Even so, after pairs of equal tokens, a token has the same "
            "coefficient as before them."
        )
        run = samples.largest(mirrored_back)
        yield Check("V8 mirrored back", statement, "against Lemma 3", run, 1e-9, contradicts=True)
    if label.conv and not (label.gate or label.mirror or label.rope):
        statement = "If one token is repeated, all keys whose convolution is complete have the same coefficient."
        yield Check("V8 repeated token", statement, "Remark 3", samples.largest(repeated), 1e-12)


def _mirrors(samples: SampleMixers) -> Iterator[Check]:
    """The checks V9 (Lemma 4 c, Remark 4) of labels with a mirror, a matrix A = I - beta w w^T.

    Two consecutive mirrors can rotate keys if beta is 2, and cannot if beta is below 1. A mirror whose vector w is
    longer than 1 can stretch keys.
    """
    kind = samples.label.mirror[-1:]

    def turns(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        """The largest imaginary part of the eigenvalues of A_(t+1) A_t, (pairs, H), for pairs of consecutive rows.

        A_t is the matrix by which row t changes the state.
        """
        a = mixer.evolution(x)[0]
        eigenvalues: Tensor = torch.linalg.eigvals(a[1::2] @ a[::2])
        return eigenvalues.imag.abs().amax(-1)

    def stretch() -> float:
        w = 2 * torch.nn.functional.normalize(torch.arange(1, KEY_WIDTH + 1, dtype=torch.float64), dim=0)
        sizes = torch.linalg.eigvalsh(torch.eye(KEY_WIDTH, dtype=torch.float64) - 2 * torch.outer(w, w))
        return float((sizes - torch.tensor([-7.0] + [1.0] * (KEY_WIDTH - 1), dtype=torch.float64)).abs().max())

    if kind == "r":
        what = "Two consecutive mirrors rotate keys: their product has complex eigenvalues. A single A is symmetric."
        run = samples.smallest(lambda mixer, x: turns(mixer, x).min())
        yield Check("V9 rotation", what, "Lemma 4", run, 1e-3, is_difference=True)
    if kind == "1":
        what = "With a strength below 1, two consecutive A do not rotate keys: their product has real eigenvalues."
        run = samples.largest(lambda mixer, x: turns(mixer, x).max())
        yield Check("V9 rotation", what, "Lemma 4; the limit is ours", run, 1e-6)
    if kind:
        what = "With beta = 2 and |w| = 2, the part of a key along w is scaled by -7, the rest stays: no contraction."
        yield Check("V9 long direction", what, "Remark 4", stretch, 1e-12)


def _start(samples: SampleMixers) -> Iterator[Check]:
    """The check V10 start (Example 2): the initial step size Delta of Mamba-2 is within [0.001, 0.1]."""

    def outside(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        assert mixer.decay is not None  # of a label with the gate sm
        delta = torch.nn.functional.softplus(mixer.decay.bias)
        return torch.maximum(BIASED[0] - delta.min(), delta.max() - BIASED[1]).clamp(min=0)

    if samples.label.scaling == "bd" and samples.label.gate == "sm":
        what = "The initial Delta is within [0.001, 0.1], which is 1/sqrt(n) for n from 100 to 1,000,000."
        yield Check("V10 start", what, "Example 2", samples.largest(outside), 1e-6)


def _limit(samples: SampleMixers) -> Iterator[Check]:
    """The check V11 limit (Lemma 6): with equal keys, the coefficient of the first token tends to the lemma's bound.

    It applies to labels with a constant gate lambda above 1, normalization by powers of lambda, and a readout phi(s)
    that grows like s. The bound of the lemma is L / m. Here m is lambda, and L is 1, the limit of phi(s) / s for large
    scores s.
    """
    label = samples.label

    def distance() -> float:
        worst = 0.0
        for seed in CHECK_SEEDS:
            mixer, x = samples.sample(seed, length=4 * LONGER)
            last = equal_keys(mixer, x).coefficients(x).a[0, :, -1, 0]
            worst = max(worst, float((last * float(label.gate) - 1).abs().max()))
        return worst

    is_plain = not (label.mirror or label.rope or label.conv)
    if is_plain and label.has_growing_gate and label.norm == "pow" and label.readout in ("relu", "softplus", "elu"):
        what = "For equal keys with q . k = 1, the coefficient of the first tends to the lemma's bound L / m."
        yield Check("V11 limit", what, "Lemma 6", distance, 1e-4)


def _beyond(samples: SampleMixers) -> Iterator[Check]:
    """The check V12 beyond 1 (Corollary 6.1): coefficients of both signs that are divided by their sum leave [0, 1]."""

    def excess(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        a = mixer.coefficients(x).a
        return torch.maximum(-a.min(), a.max() - 1)

    if samples.label.norm == "sum" and not is_positive(samples.label):
        what = "Coefficients of both signs, divided by their sum, leave [0, 1]: the corollary requires phi >= 0."
        run = samples.smallest(excess)
        yield Check("V12 beyond 1", what, "against Corollary 6.1", run, is_difference=True, contradicts=True)
