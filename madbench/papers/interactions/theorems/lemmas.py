"""Checks of lemmas, corollaries, remarks and counts on which the theorems of the paper rest."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array

from madbench.mixers import Check, solve
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.theorems.representation import ROUNDING, largest
from madbench.papers.interactions.worlds import Colliding, ring, sinusoids, wave_couplings

DRAWN = 20_000
"""The number of random data sets from which :func:`deficient` estimates a share (Theorem E.2)."""
CELLS = 360
"""N, the number of cells per axis in the paper's counts of parameters (Appendix F.1)."""
PAPER_COUNTS = {"hfa": 1e6, "attention": 1e7}
"""The numbers of parameters that the paper gives for hunters and prey (Appendix F.1)."""
TABLE2 = (768, 3, 1024)
"""The size of a layer of the models of Table 2: d_model, number of heads, and number of tokens."""
TABLE2_LABELS = ("hfa:2", "hfa:3", "hfa:1+2", "hfa:2+3")
"""The labels of HyperFeatureAttention in Table 2, for both readings of their orders."""


def of_waves() -> Iterator[Check]:
    """The checks of Lemmas B.4 and B.5, eq. 16 and Remark B.7, on Fourier series of functions on a ring.

    Fourier coefficients have a factor 1 / N.
    """

    def window() -> float:
        n, reach = 24, 4
        k = np.arange(1, n)
        waves = np.sin(2 * np.pi * (reach + 0.5) * k / n) / np.sin(np.pi * k / n) / n
        return largest(np.fft.fft(1.0 * (ring(n)[0] <= reach)) / n - [2 * (reach + 0.5) / n, *waves])

    def real_series() -> float:
        worst = 0.0
        for n in (7, 12):
            f = np.random.default_rng(n).normal(size=n)
            spectrum, angle = np.fft.fft(f) / n, 2 * np.pi * np.arange(n) / n
            a, b = 2 * spectrum.real, -2 * spectrum.imag
            series = a[0] / 2 + sum(a[k] * np.cos(k * angle) + b[k] * np.sin(k * angle) for k in range(1, (n + 1) // 2))
            if n % 2 == 0:
                series = series + a[n // 2] / 2 * np.cos(n // 2 * angle)
            worst = max(worst, abs(series - f).max())
        return worst

    def orthogonal() -> float:
        return largest(sinusoids(12) @ sinusoids(12).T - 6 * np.eye(12))

    def diagonal() -> float:
        f = np.random.default_rng(0).normal(size=12)
        c = wave_couplings(f + np.roll(f[::-1], 1))
        return largest(c - np.diag(np.diag(c)))

    what = "The series of a window of 2 R to both sides is the quotient of sines, F[0] = (4 R + 1) / N."
    yield Check("window", what, "Lemma B.4", window, ROUNDING)
    what = "Cosines with 2 Re F and sines with -2 Im F give a function back, at odd and at even N."
    yield Check("real series", what, "Lemma B.5", real_series, ROUNDING)
    yield Check(
        "sinusoids", "Positions in sines and cosines are orthogonal, of square N / 2.", "eq. 16", orthogonal, ROUNDING
    )
    what = "Effects that are equal to both sides have a diagonal C."
    yield Check("diagonal", what, "Remark B.7", diagonal, ROUNDING)


def of_descent() -> Iterator[Check]:
    """The checks of Lemmas C.1, C.3 and C.4 and of Remark D.2, which the proofs on gradient descent use."""

    def counts() -> float:
        generator = np.random.default_rng(0)
        base = np.linalg.qr(generator.normal(size=(6, 6)))[0]
        symbols = generator.integers(6, size=15)
        x = base[symbols]
        return largest(base @ x.T @ x @ base.T - np.diag(np.bincount(symbols, minlength=6)))

    def least_eigenvalue() -> float:
        generator, worst = np.random.default_rng(0), 0.0
        for _ in range(50):
            m, x = generator.normal(size=(7, 5)), generator.normal(size=5)
            a = m.T @ m
            worst = max(worst, np.linalg.eigvalsh(a)[0] * x @ a @ x / (x @ a @ a @ x))
        return worst

    def decay() -> float:
        generator, step, psi = np.random.default_rng(0), 1e-3, 0.5
        x = start = generator.normal(size=5)
        worst = 0.0
        for i in range(1, 5001):
            m = generator.normal(size=(5, 5))
            x = x - step * (m @ m.T + psi * np.eye(5)) @ x
            worst = max(worst, float(np.linalg.norm(x) / np.linalg.norm(start) / math.exp(-psi * step * i)))
        return worst

    def skip() -> float:
        world = Colliding(positions=6, radius=1, length=5, samples=7)
        x = torch.from_numpy(world.vectors[world.data("train", 5, 0)[0]])
        generator = torch.Generator().manual_seed(0)
        learned, devised = (Coupling(1, 6, 6, causal=False).double() for _ in range(2))
        for parameter in (*learned.parameters(), *devised.parameters()):
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        with torch.enable_grad():
            plain = (learned(x) - devised(x).detach()).square().sum()
            skipped = ((learned(x) + x) - (devised(x).detach() + x)).square().sum()
            slopes = (torch.autograd.grad(loss, [*learned.parameters()]) for loss in (plain, skipped))
        return max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*slopes))

    what = "In the domain base X^T X is the diagonal of the counts of symbols."
    yield Check("counts on the diagonal", what, "Lemma C.1", counts, ROUNDING)
    what = "x^T (M^T M)^2 x is at least the least eigenvalue of M^T M times |M x|^2."
    yield Check("least eigenvalue", what, "Lemma C.3", least_eigenvalue, 1.0)
    what = "With eigenvalues of A(t) from psi on, x falls at least as exp(-psi t)."
    yield Check("decay", what, "Lemma C.4", decay, 1.0)
    what = "A skip in the model and in what it learns leaves every gradient as it is."
    yield Check("skip", what, "Remark D.2", skip, 1e-12)


def of_rank() -> Iterator[Check]:
    """The check of Theorem E.2 on data that satisfy its assumption: the counts of different symbols are independent."""

    def squared() -> float:
        shares = {samples: deficient(samples) for samples in (4, 8, 16)}
        assert 0 < shares[4] < 1
        noise = {samples: 3 * math.sqrt(share / DRAWN) for samples, share in shares.items()}
        return max((shares[2 * samples] - noise[2 * samples]) / shares[samples] ** 2 for samples in (4, 8))

    what = "Twice the samples at least square the share of data sets below full rank: it falls exponentially."
    yield Check("exponential", what, "Theorem E.2", squared, 1.0)


def deficient(samples: int, symbols: int = 3) -> float:
    """The share of random data sets whose matrix of counts (samples, symbols) does not have full rank.

    The counts are binomial and independent.
    """
    counts = np.random.default_rng(0).binomial(2, 0.3, size=(DRAWN, samples, symbols)).astype(float)
    return float((np.linalg.matrix_rank(counts) < symbols).mean())


def of_features() -> Iterator[Check]:
    """The checks of Appendix F.1 on the numbers of parameters for hunters and prey.

    There are two species, two policies and N x N cells.
    """

    def off(count: int, paper: float) -> float:
        return abs(math.log10(count / paper))

    def side_by_side(cells: int = 3) -> float:
        """The root mean square error of the bilinear form that best fits an effect of pairs of cells.

        The effect of the cells (x, y) and (x', y') is 1 if x - x' = y - y', and else 0. The vector of a cell (x, y) is
        the one-hot vector of x followed by the one-hot vector of y. The mean is over all pairs of cells.
        """
        x, y = np.divmod(np.arange(cells**2), cells)
        places = np.hstack([np.eye(cells)[x], np.eye(cells)[y]])
        collides = (1.0 * (np.subtract.outer(x, x) == np.subtract.outer(y, y))).ravel()
        forms = np.kron(places, places)
        return float(np.sqrt(np.square(forms @ np.linalg.lstsq(forms, collides, rcond=None)[0] - collides).mean()))

    of_hfa, of_attention = PAPER_COUNTS.values()
    against: dict[str, Any] = {"is_difference": True, "contradicts": True}
    source = "against Appendix F.1"
    factored = 3 * (2**2 + 2**2 + CELLS**4)
    what = f"For N = 360, |S_r| = N^2, three heads have 3 (2^2 + 2^2 + |S_r|^2) = {factored:.1e} couplings, not 10^6."
    yield Check("factored couplings", what, source, lambda: off(factored, of_hfa), 1, **against)
    whole = (2 * 2 * CELLS**2) ** 2
    what = f"For N = 360 linear attention has (2 * 2 * N^2)^2 = {whole:.1e} couplings by Theorem 3.1, and not 10^7."
    yield Check("couplings of symbols", what, source, lambda: off(whole, of_attention), 1, **against)
    shorter = 3 * (2**2 + 2**2 + CELLS**2)
    what = f"With x - y as a feature of N values instead, three heads have {shorter:,} couplings: about 10^6."
    source = "ours, after Appendix F.1"
    yield Check("couplings of a difference", what, source, lambda: off(shorter, of_hfa), 0.5)
    few, many = 3 * (2**2 + 2**2 + (2 * CELLS) ** 2), (2 * 2 * 2 * CELLS) ** 2
    what = f"With |S_r| = 2 N, x beside y, the counts are {few:,} and {many:,}: about 10^6 and 10^7, as printed."
    source, worst = "a reading of Appendix F.1", lambda: max(off(few, of_hfa), off(many, of_attention))
    yield Check("couplings of coordinates", what, source, worst, 0.5)
    what = "No coupling of x beside y is the effect x - x' = y - y' of agents with different policies."
    source = "against that reading"
    yield Check("coordinates side by side", what, source, side_by_side, 0.1, is_difference=True)


def of_cost() -> Iterator[Check]:
    """The check that HyperFeatureAttention needs almost no extra compute, as the caption of Table 2 says.

    The caption is ambiguous about the orders of the models. The check covers both readings (:data:`TABLE2_LABELS`).
    """

    def extra() -> float:
        flops = {label: solve(label, *TABLE2).flops_per_token(TABLE2[-1]) for label in ("S", *TABLE2_LABELS)}
        return max(flops.values()) / flops["S"] - 1

    what = "By FLOPs of a layer of Table 2's size, products of scores add less than 0.1% to softmax attention's."
    yield Check("extra compute", what, "caption of Table 2", extra, 1e-3)


def of_triples(has_all_pairs: bool) -> Iterator[Check]:
    """The checks of Lemma G.8 and of Theorem G.4 on couplings of triples.

    Theorem G.4 is checked for sums over all pairs of other tokens if ``has_all_pairs`` is true, and otherwise for sums
    over ordered pairs.
    """

    def ordered_counts() -> float:
        symbols = np.random.default_rng(0).integers(4, size=9)
        x = np.eye(4)[symbols]
        earlier = np.tril(np.ones((9, 9)))  # [k, j] is 1 for j <= k
        sums = np.einsum("kj,ja,jb,kc,kd->abcd", earlier, x, x, x, x)
        gamma = np.einsum("kj,ja,kc->ac", earlier, x, x)
        return largest(sums - np.einsum("ac,ab,cd->abcd", gamma, np.eye(4), np.eye(4)))

    what = "Sums over j <= k of X_j X_j X_k X_k are the counts Gamma of ordered pairs, on the diagonal."
    yield Check("ordered counts", what, "Lemma G.8, as its proof has it", ordered_counts)
    if has_all_pairs:
        what = "With keys and values shared by both slots, any effects and values symmetric in them are represented."
        yield Check("shared slots", what, "Theorem G.4", shared_slots, ROUNDING)
        return
    what = "Of sequences of one length, or without repeats, ordered pairs give the sum over all pairs of any effects."
    source, lengths = "Theorem G.4 with Def. 6.1", range(2, 5)

    def represented() -> float:
        return max(ordered_error(lengths, has_repeats=False), *(ordered_error([length]) for length in lengths))

    yield Check("ordered pairs", what, source, represented, ROUNDING)
    what = "Of sequences of 2 to 4 symbols, some repeated, no C of ordered pairs gives it at every length."
    run = functools.partial(ordered_error, lengths)
    yield Check("ordered pairs, every length", what, "limit of Theorem G.4, ours", run, 0.1, is_difference=True)


def ordered_error(lengths: Iterable[int], has_repeats: bool = True, symbols: int = 4) -> float:
    """The largest error with which sums over ordered pairs j1 <= j2 (Definition 6.1) replace sums over all pairs.

    The sums are those of a row with symbol 0. Each pair of the S = ``symbols`` symbols has a random effect on it. The
    exact sum of a sequence is over all pairs of its tokens. The ordered sum uses the coupling C with which it is
    nearest to the exact sum, by least squares over all sequences. The sequences are all those of the given ``lengths``
    that contain symbol 0, without those with repeated symbols if ``has_repeats`` is false. The error is the largest
    over sequences.
    """
    effects, ordered, full = np.random.default_rng(0).normal(size=symbols**2), [], []
    for sequence in (sequence for length in lengths for sequence in itertools.product(range(symbols), repeat=length)):
        if 0 in sequence and (has_repeats or len({*sequence}) == len(sequence)):
            x = np.eye(symbols)[list(sequence)]
            ordered.append((x.T @ np.triu(np.ones((len(x), len(x)))) @ x).ravel())
            full.append(np.outer(x.sum(0), x.sum(0)).ravel() @ effects)
    return float(abs(ordered @ np.linalg.lstsq(np.array(ordered), full, rcond=None)[0] - full).max())


def shared_slots(symbols: int = 4) -> float:
    """The largest error of linear HyperAttention of order 3 with shared slots (Definition G.1) on symmetric effects.

    The effects and values of pairs are random and symmetric in the two slots. The weights are set by hand.
    """
    generator = np.random.default_rng(0)
    f, w = generator.normal(size=(symbols,) * 3), generator.normal(size=(symbols,) * 2)
    f, w = f + f.transpose(0, 2, 1), w + w.T
    q, k = _factors(f)
    u, v = _factors(w[None])
    tokens = generator.integers(symbols, size=7)
    scores = np.einsum("is,js,ks->ijk", q[tokens], k[tokens], k[tokens])
    values = np.einsum("s,js,ks->jk", u[0], v[tokens], v[tokens])
    expected = np.einsum("ijk,jk->i", f[np.ix_(tokens, tokens, tokens)], w[np.ix_(tokens, tokens)])
    return largest(np.einsum("ijk,jk->i", scores, values) - expected)


def _factors(effects: Array) -> tuple[Array, Array]:
    """Factor effects (A, S, S) into Q (A, R) and K (S, R), R = A S, with effects_abc = sum_r Q_ar K_br K_cr.

    Each of the A matrices must be symmetric. Its eigenvectors are columns of K, and its eigenvalues are in row a of Q.
    """
    sizes, directions = np.linalg.eigh(effects)
    rows = np.zeros((len(effects), *sizes.shape))
    rows[np.arange(len(effects)), np.arange(len(effects))] = sizes
    return rows.reshape(len(effects), -1), directions.transpose(1, 0, 2).reshape(effects.shape[1], -1)
