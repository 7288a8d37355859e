"""Checks of the paper's theorems on the training and the generalization of full couplings.

The operators are those of the labels ``hfa:C..`` and ``ha:C..`` without a causal mask, in float64 and small worlds.
Training is gradient descent on the paper's loss, as in the proofs (Appendices C and G.4). All agents with the same
symbol have the same value, so a sample is given by its counts of symbols. The effects T of a trained operator are (E C
E^T) * (E w)^T for the embedding E (Corollary D.3).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy import ndarray as Array

from madbench.mixers import Check
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.theorems.representation import (
    largest,
    linear_attention,
    outputs,
)
from madbench.papers.interactions.worlds import Alliances, Colliding
from madbench.papers.interactions.worlds.agents import Control, Embedding

EMBEDDINGS: tuple[Embedding, ...] = ("one_hot", "sinusoidal")
_SMALL: dict[str, Any] = {"positions": 8, "radius": 1, "length": 6, "samples": 300, "test_samples": 300}


@dataclass(frozen=True)
class Descent:
    """The result of gradient descent on C and w. C starts at 0, and w gives every symbol the value 1."""

    c: Array
    """The learned matrix C, (d, d')."""
    w: Array
    """The learned weights w of values, (d',)."""
    effects: Array
    """The matrix T of effects that C and w give, (S, P) for S symbols and P acting symbols or pairs."""
    losses: Array
    """The paper's loss before each step, (steps,)."""
    drift: float
    """The largest change during training of w_mu^2 - |C_(:,mu)|^2 / |x|^2, over symbols mu. Gradient flow would not
    change it. w_mu is the value of symbol mu, and C_(:,mu) are its couplings to all symbols. |x| is the length of an
    embedding."""
    least: float
    """The smallest value that a symbol has during training."""


def descend(counts: Array, features: Array, targets: Array, rate: float, steps: int, e: Array, f: Array) -> Descent:
    """Run full-batch gradient descent on the squared error, summed over agents and averaged over samples (Appendix C).

    Args:
        counts: s (B, S), the count of each symbol in each sample.
        features: (B, P), the count of each acting symbol, or pair of symbols, in each sample.
        targets: (B, S), the value of an agent of each symbol in each sample.
        rate: the step size, as time of the gradient flow.
        steps: the number of steps.
        e: embedding (S, d) of the agents.
        f: embedding (P, d') of the acting symbols or pairs.
    """
    c, w = np.zeros((e.shape[1], f.shape[1])), np.linalg.solve(f, np.ones(len(f)))
    losses, drift, least = [], 0.0, math.inf
    norm = (e[0] ** 2).sum()
    for _ in range(steps):
        couplings, values = e @ c @ f.T, f @ w
        least = min(least, values.min())
        drift = max(drift, abs(values**2 - (couplings**2).sum(0) / norm - 1).max())
        errors = features @ (couplings * values).T - targets
        losses.append((counts * errors**2).sum() / len(counts))
        slope = 2 / len(counts) * (counts * errors).T @ features
        c, w = c - rate * e.T @ (slope * values) @ f, w - rate * f.T @ (slope * couplings).sum(0)
    return Descent(c, w, (e @ c @ f.T) * (f @ w), np.array(losses), drift, least)


def occurrences(symbols: Array, size: int) -> Array:
    """The number of times that each symbol occurs in each sample: ``symbols`` (B, L) -> (B, S), where S is ``size``."""
    return np.stack([np.bincount(row, minlength=size) for row in symbols]).astype(float)


def rank(counts: Array) -> int:
    """The rank of a tall matrix of small whole numbers. It is computed from its Gram matrix, exactly and fast."""
    return int(np.linalg.matrix_rank(counts.T @ counts, hermitian=True))


def _problem(world: Colliding) -> tuple[Array, Array]:
    """The counts (B, S) of each symbol in each training sample, and the values (B, S) of agents by their symbol."""
    symbols, _ = world.data("train", world.length, 0)
    counts = occurrences(symbols, world.symbols)
    return counts, counts @ world.effects.T + (world.control == "without_itself")


@functools.cache
def _train(embedding: Embedding = "one_hot", control: Control = "", time: float = 14.0, rate: float = 0.002) -> Descent:
    world = Colliding(**_SMALL, embedding=embedding, control=control)
    counts, targets = _problem(world)
    e = world.vectors
    norm = (e[0] ** 2).sum()  # scales the flow's time
    return descend(counts, counts, targets, rate / norm, round(time / rate), e, e)


def training() -> Iterator[Check]:
    """The checks of training with pairs: gradients, conservation, convergence and limit (Lemma C.2, Theorem 4.4)."""

    def gradients() -> float:
        world = Colliding(positions=6, radius=1, length=5, samples=7)
        symbols, values = world.data("train", 5, 0)
        operator = Coupling(1, 6, 1, causal=False).double()
        generator = torch.Generator().manual_seed(0)
        for parameter in operator.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        x, y = torch.from_numpy(world.vectors[symbols]), torch.from_numpy(values)
        with torch.enable_grad():
            errors = operator(x)[..., 0] - y
            (errors.square().sum() / len(x)).backward()
        x, errors = x.numpy(), errors.detach().numpy()
        c, w = operator.c.detach().numpy()[0, 0], operator.w.detach().numpy()[0, 0, :, 0]
        of_c = 2 / len(x) * sum(np.outer(a.T @ d, w) @ a.T @ a for a, d in zip(x, errors))
        of_w = 2 / len(x) * sum(a.T @ a @ c.T @ a.T @ d for a, d in zip(x, errors))
        pairs = ((operator.c.grad.numpy()[0, 0], of_c), (operator.w.grad.numpy()[0, 0, :, 0], of_w))
        return max(largest(actual - expected) / largest(expected) for actual, expected in pairs)

    def conservation(embedding: str) -> float:
        coarse, fine = (_train(embedding, time=1.0, rate=rate).drift for rate in (0.002, 0.001))
        return abs(coarse / fine - 2)

    def positive() -> float:
        descents = [_train(embedding, time=1.0, rate=0.002) for embedding in EMBEDDINGS]
        return max(1 - descent.least - descent.drift for descent in descents)

    def convergence() -> float:
        world = Colliding(**_SMALL)
        counts, _ = _problem(world)
        least = min(np.linalg.eigvalsh((counts * counts[:, [mu]]).T @ counts)[0] for mu in range(world.symbols))
        losses, rate = _train(time=1.0, rate=0.002).losses, 0.002
        bounds = losses[0] * np.exp(-4 * least / len(counts) * rate * np.arange(len(losses)))
        return float((losses / bounds)[1:].max())

    def limit(embedding: Embedding) -> float:
        world, descent = Colliding(**_SMALL, embedding=embedding), _train(embedding)
        e, reached = world.vectors, 4 * world.radius + 1
        expected = math.sqrt((1 + math.sqrt(1 + 4 * reached / (e[0] ** 2).sum())) / 2)
        couplings, values = e @ descent.c @ e.T, e @ descent.w
        return max(largest(values - expected), largest(couplings - world.effects / expected))

    what = "The gradients of C and w are those of the proof."
    yield Check("gradients of the loss", what, "Appendix C", gradients, 1e-12)
    for embedding in EMBEDDINGS:
        what = "w_mu^2 - |C_(:,mu)|^2 / |x|^2 stays as it is: its drift halves with the step size."
        yield Check(f"conservation, {embedding}", what, "Lemma C.2", functools.partial(conservation, embedding), 0.1)
    what = "No value falls below its start, but for the drift."
    yield Check("values stay positive", what, "Lemma C.2", positive, 1e-12)
    what = "The loss stays below L(0) exp(-4 psi t / B) at every step."
    yield Check("convergence", what, "Theorem 4.4", convergence, 1.0)
    for embedding in EMBEDDINGS:
        what = (
            "Values end at sqrt((b^2 + sqrt(b^4 + 4 m / |x|^2)) / 2), m = 4 R + 1, and couplings at -1 / w within 2 R."
        )
        yield Check(f"limit, {embedding}", what, "follows from Lemma C.2", functools.partial(limit, embedding), 0.01)


def generalization() -> Iterator[Check]:
    """The checks of trained linear attention on new samples and at other lengths (Theorems 4.6 and 4.8).

    Further checks are on the conditions of these theorems on the training data.
    """

    what = "Of the drawn data, those with any one symbol have counts of full rank."
    yield Check("versatile data", what, "Assumption 4.2", lambda: 24 - _least_rank(""))
    what = "They miss it by one dimension."
    yield Check("distinct positions", what, "Remark D.1", lambda: abs(23 - _least_rank("distinct")))
    what = "The share of data sets of full rank grows to 1 with the number of samples."
    yield Check("full rank with more data", what, "Theorem E.2", _enough_data)
    what = (
        "At a fixed length counts add up to it and their covariance is singular, of uniform symbols too: Assumption "
        "E.1 does not hold, its conclusion does."
    )
    yield Check("singular covariance", what, "against Remark E.3", _covariance, 1e-12, contradicts=True)
    for embedding in EMBEDDINGS:
        what = "Trained at one length, errors on fresh agents are nothing at that length and at others."
        yield Check(
            f"test and length, {embedding}", what, "Theorems 4.6, 4.8", functools.partial(_learned, embedding), 1e-6
        )
    controls: tuple[tuple[Control, str], ...] = (
        ("without_itself", "Without the agent itself in its value, errors are (L / L* - 1)^2."),
        ("distinct", "With distinct positions, errors are (a (L* - L) / (L* - 1))^2, a what T's diagonal is off by."),
    )
    for name, statement in controls:
        yield Check(f"control {name}", statement, "Theorem 4.8, Appendix D.2", functools.partial(_control, name), 1e-2)
    for embedding in EMBEDDINGS:
        what = "The learned T is that of the devised weights, entry by entry."
        yield Check(f"learned matrix, {embedding}", what, "Corollary D.3", functools.partial(_matrix, embedding), 1e-6)
    what = "Two C with equal row sums of T differ in output: Corollary 4.9's sum over nu is no equivalence."
    yield Check(
        "row sums say less", what, "against Corollary 4.9", _row_sums, 0.1, is_difference=True, contradicts=True
    )


def _tested(embedding: Embedding, control: Control = "") -> Iterator[tuple[Colliding, int, float]]:
    world, descent = Colliding(**_SMALL, embedding=embedding, control=control), _train(embedding, control)
    for length in (2, 3, 6, 9):
        symbols, values = world.data("test", length, 0)
        errors = linear_attention(descent.c, descent.w, world.vectors[symbols]) - values
        yield world, length, float((errors**2).mean())


def _learned(embedding: Embedding) -> float:
    return max(error for _, _, error in _tested(embedding))


def _control(name: Control) -> float:
    off = np.square(_train("one_hot", name).effects - Colliding(**_SMALL).effects).diagonal().mean()
    return max(abs(error - world.control_error(n, off)) for world, n, error in _tested("one_hot", name))


def _matrix(embedding: Embedding) -> float:
    return float(np.square(_train(embedding).effects - Colliding(**_SMALL).effects).mean())


def _row_sums() -> float:
    world = Colliding(**_SMALL)
    symbols, values = world.data("test", 6, 0)
    c, w = world.solution
    moved = c + np.roll(np.eye(len(c)), 1, axis=1) - np.eye(len(c))
    assert np.allclose(((moved - c) * w).sum(1), 0)
    return float(np.square(linear_attention(moved, w, world.vectors[symbols]) - values).mean())


def _least_rank(control: Control) -> int:
    world = Colliding(control=control, samples=2000)
    counts, _ = _problem(world)
    return min(rank(counts[counts[:, mu] > 0]) for mu in range(world.symbols))


def _enough_data() -> float:
    shares = [float(np.mean([_has_fullrank(b, seed) for seed in range(20)])) for b in (20, 60, 120, 400)]
    return max(1 - shares[-1], *(max(0.0, before - after) for before, after in itertools.pairwise(shares)))


def _covariance() -> float:
    counts, _ = _problem(Colliding(samples=2000))
    sizes = np.linalg.eigvalsh(np.cov(counts.T))
    return float(abs(sizes[0]) / sizes[-1])


def _has_fullrank(samples: int, seed: int) -> bool:
    world = Colliding(positions=8, radius=1, length=6)
    counts = occurrences(world.draw(np.random.default_rng(seed), samples, 6), 8)
    return all(rank(counts[counts[:, mu] > 0]) == 8 for mu in range(8))


@functools.cache
def _train_allies(rate: float, steps: int) -> Descent:
    counts, pairs, world = _triple_problem()
    targets = pairs @ world.effects.reshape(world.types, -1).T
    return descend(counts, pairs, targets, rate, steps, np.eye(world.types), np.eye(world.types**2))


@functools.cache
def _triple_problem() -> tuple[Array, Array, Alliances]:
    """Return the counts of symbols and of pairs of symbols in B training samples, and the world of the samples.

    The counts of the K symbols are (B, K), and the counts of the pairs are (B, K^2). The count of the pair (b, c) in a
    sample x is the number of pairs of positions j1 >= j2 with x_j1 = b and x_j2 = c.
    """
    world = Alliances(types=4, length=6, samples=600)
    symbols, _ = world.data("train", 6, 0)
    newest, oldest = np.tril_indices(6)
    pairs = occurrences(symbols[:, newest] * world.types + symbols[:, oldest], world.types**2)
    return occurrences(symbols, world.types), pairs, world


def triples() -> Iterator[Check]:
    """The checks of training with triples of agents (Lemma G.9, Assumption G.10, Theorem G.7)."""

    def conservation() -> float:
        return abs(_train_allies(0.002, 250).drift / _train_allies(0.001, 500).drift - 2)

    def positive() -> float:
        descent = _train_allies(0.002, 250)
        return 1 - descent.least - descent.drift

    def versatility() -> float:
        counts, pairs, world = _triple_problem()
        return world.types**2 - min(rank(pairs[counts[:, mu] > 0]) for mu in range(world.types))

    def tensor() -> float:
        _, _, world = _triple_problem()
        return largest(_train_allies(0.01, 8000).effects.reshape((world.types,) * 3) - world.effects)

    def lengths() -> float:
        _, _, world = _triple_problem()
        descent, worst, k = _train_allies(0.01, 8000), 0.0, world.types
        c, w = descent.c.reshape(1, k, k, k), descent.w.reshape(1, k, k, 1)
        for length in (3, 6, 9):
            symbols, values = world.data("test", length, 0)
            actual = outputs(c, w, world.vectors[symbols], degree=3)[..., 0]
            worst = max(worst, np.square(actual - values).mean())
        return float(worst)

    what = "w_bc^2 - |C_(:,bc)|^2 stays as it is: its drift halves with the step size."
    yield Check("conservation of triples", what, "Lemma G.9", conservation, 0.1)
    what = "No value of a pair falls below its start, but for the drift."
    yield Check("triples stay positive", what, "Lemma G.9", positive, 1e-12)
    what = "Of the drawn data, those with any one symbol have counts of ordered pairs of full rank."
    yield Check("versatile triples", what, "Assumption G.10", versatility)
    what = "Trained from C = 0, the product of C and W becomes the exact tensor of alliances."
    yield Check("learned tensor", what, "Theorem G.7", tensor, 1e-2)
    what = "So trained at one length, errors on fresh agents are next to nothing at that length and at others."
    yield Check("test and length", what, "Theorems G.7, 4.8", lengths, 1e-2)
