"""Counts how often the test of madbench is wrong, and how often it finds a difference, beside Welch's test with Holm.

    python studies/calibration.py STORE [--tables 200] [--check]

STORE is the imported ``results/measured/evening-noise.tar.xz``: thirty seeds of eight labels on six tasks. These runs
were not used to choose the constants of the test. The truth is known from three sources:

- disjoint groups of the seeds of one label: every reported difference between them is false;
- the seeds that were not drawn: the interval of the drawn seeds should contain their mean;
- planted kinds: all labels are drawn from known distributions with equal means.

A table has six tasks and their average, a baseline, and 1, 7 or 32 rivals. In ``3:5`` the baseline has 3 seeds and each
rival has 5. Holm's method runs over all tests of a table. The power is the share of true differences (means of all
thirty seeds more than four standard errors apart) that are found with the right sign. Prints Markdown tables. With
``--check`` it compares the numbers with the committed bounds instead.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from madbench.analysis.inference import LEVEL, VarianceTerms, step_down, terms_of_mean
from madbench.analysis.samples import samples_of
from madbench.analysis.selection import Selection
from madbench.suites import main_suite

TASKS = 6
SIZES = ((3, 3), (5, 5), (3, 5), (3, 10))
RIVALS = (1, 7, 32)
RANGE = 100.0
RESOLUTION = 0.1
CLEAR = 4.0
"""The number of standard errors beyond which a difference of means counts as true."""
BOUNDS = {(3, 3): 0.04, (5, 5): 0.02, (3, 10): 0.03}
"""The largest share of tables with a false verdict, by seeds, on real seeds with 1 or 7 rivals."""

Draw = Callable[[np.random.Generator, tuple[int, int, int, int]], np.ndarray]
"""Values (tables, labels, tasks, seeds); the first label is the baseline."""


def madbench_terms(values: np.ndarray) -> VarianceTerms:
    """madbench's test: the terms of each task's mean (..., tasks, seeds)."""
    return terms_of_mean(values, RANGE, RESOLUTION)


def welch_terms(values: np.ndarray) -> VarianceTerms:
    """Welch's test: the terms of each task's mean (..., tasks, seeds)."""
    n = values.shape[-1]
    variance = np.maximum(values.var(axis=-1, ddof=1), RESOLUTION**2 / 12)[..., None] / n
    return VarianceTerms(variance, np.full_like(variance, n - 1.0))


METHODS = {"madbench": madbench_terms, "Welch": welch_terms}


def average_terms(values: np.ndarray, terms: VarianceTerms, method: str) -> VarianceTerms:
    """The terms of the mean over tasks, from the terms of the tasks, or from the averages of seeds if they vary more.

    Welch's test always uses the averages of seeds.
    """
    n, tasks = values.shape[-1], values.shape[-2]
    own = np.maximum(values.mean(axis=-2).var(axis=-1, ddof=1), 1e-12) / n
    parts = VarianceTerms(*(x.reshape(*x.shape[:-2], -1) for x in (terms.variances / tasks**2, terms.freedoms)))
    is_own = np.full(own.shape, True) if method == "Welch" else parts.variance < own
    alone = np.zeros_like(parts.variances)
    alone[..., 0] = own
    variances = np.where(is_own[..., None], alone, parts.variances)
    return VarianceTerms(variances, np.where(is_own[..., None], n - 1.0, parts.freedoms))


def p_values(first: np.ndarray, rivals: np.ndarray, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Differences and p-values (tables, rivals, tasks + 1) of ``first`` (tables, tasks, n) and its rivals."""
    gaps, terms = [], []
    for values in (first[:, None], rivals):
        of_tasks = METHODS[method](values)
        gaps.append(np.concatenate([values.mean(-1), values.mean((-2, -1))[..., None]], axis=-1))
        terms.append((of_tasks, average_terms(values, of_tasks, method)))
    estimate = gaps[1] - gaps[0]
    joined = [_added(*pair) for pair in zip(*terms)]
    p = [joined[0].p(estimate[..., :-1]), joined[1].p(estimate[..., -1])[..., None]]
    return estimate, np.concatenate(p, axis=-1)


def _added(first: VarianceTerms, second: VarianceTerms) -> VarianceTerms:
    shape = np.broadcast_shapes(first.variances.shape[:-1], second.variances.shape[:-1])
    every = [
        VarianceTerms(*(np.broadcast_to(x, (*shape, x.shape[-1])) for x in (t.variances, t.freedoms)))
        for t in (first, second)
    ]
    return VarianceTerms.sum_of(every)


def adjusted(p: np.ndarray) -> np.ndarray:
    """Adjust p-values (tables, rivals, columns) by Holm over all tests of each table."""
    return step_down(p.reshape(len(p), -1)).reshape(p.shape)


def false_tables(first: np.ndarray, rivals: np.ndarray, method: str) -> float:
    """The share of tables of equal labels with a significant difference."""
    _, p = p_values(first, rivals, method)
    return float((adjusted(p) <= LEVEL).any(axis=(1, 2)).mean())


# Real seeds


def permuted(values: np.ndarray, tables: int, rng: np.random.Generator) -> np.ndarray:
    """The seeds (tasks, n) of one label in a random order in each of ``tables``."""
    order = rng.random((tables, *values.shape)).argsort(-1)
    return np.take_along_axis(np.broadcast_to(values, order.shape), order, -1)


def rivals_of(rest: np.ndarray, count: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Groups of seeds (tables, count, tasks, n) without the baseline's seeds. Disjoint if there are enough seeds."""
    tables, tasks, left = rest.shape
    if count * n <= left:
        return rest[..., : count * n].reshape(tables, tasks, count, n).swapaxes(1, 2)
    order = rng.random((tables, count, tasks, left)).argsort(-1)[..., :n]
    return np.take_along_axis(np.broadcast_to(rest[:, None], (tables, count, tasks, left)), order, -1)


def false_on_real_seeds(labels: np.ndarray, n: int, m: int, count: int, tables: int, method: str, seed: int) -> float:
    rng, shares = np.random.default_rng([seed, n, m, count]), []
    for values in labels:
        mixed = permuted(values, tables, rng)
        shares.append(false_tables(mixed[..., :n], rivals_of(mixed[..., n:], count, m, rng), method))
    return float(np.mean(shares))


def coverage(labels: np.ndarray, n: int, tables: int, method: str, seed: int) -> tuple[float, float]:
    """The share of intervals of ``n`` seeds that contain the mean of the other seeds, and their mean half-width."""
    rng, held, widths = np.random.default_rng([seed, n]), [], []
    for values in labels:
        mixed = permuted(values, tables, rng)
        half = METHODS[method](mixed[..., :n]).half_width
        held.append(np.abs(mixed[..., :n].mean(-1) - mixed[..., n:].mean(-1)) <= half)
        widths.append(half)
    return float(np.mean(held)), float(np.mean(widths))


def power(labels: np.ndarray, n: int, count: int, tables: int, method: str, seed: int) -> float:
    """The share of true differences that a table of one baseline and ``count`` rivals finds."""
    rng, found = np.random.default_rng([seed, n, count]), []
    means = np.concatenate([labels.mean(-1), labels.mean((1, 2))[:, None]], axis=-1)
    errors = labels.var(-1, ddof=1) / labels.shape[-1]
    errors = np.concatenate([errors, errors.sum(-1, keepdims=True) / TASKS**2], axis=-1)
    mixed = np.stack([permuted(values, tables, rng)[..., :n] for values in labels], axis=1)
    for i in range(len(labels)):
        others = [j for j in range(len(labels)) if j != i]
        gaps = means[others] - means[i]
        is_true = np.abs(gaps) > CLEAR * np.sqrt(errors[others] + errors[i])
        estimate, p = p_values(mixed[:, i], mixed[:, others], method)
        each = adjusted(p) if count > 1 else np.stack([adjusted(p[:, [k]])[:, 0] for k in range(len(others))], axis=1)
        is_found = (each <= LEVEL) & (np.sign(estimate) == np.sign(gaps))
        found.append(is_found[:, is_true])
    return float(np.mean(np.concatenate([x.ravel() for x in found])))


# Planted kinds


def normal(spread: float, rival_spread: float | None = None) -> Draw:
    def draw(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
        spreads = np.full(shape[1], spread if rival_spread is None else rival_spread)
        spreads[0] = spread
        return 60 + spreads[:, None, None] * rng.standard_normal(shape)

    return draw


def splitting(share: float, tasks: int = TASKS) -> Draw:
    """Draw seeds of which a ``share`` solves each of the first ``tasks`` tasks. In other tasks seeds are alike."""

    def draw(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
        is_split = np.arange(shape[2])[:, None] < tasks
        levels = np.where(is_split, np.where(rng.random(shape) < share, 90.0, 40.0), 60.0)
        return levels + 2 * rng.standard_normal(shape)

    return draw


def as_in_evening(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Draw tables in which 15% of tasks have seeds that solve them and seeds that do not.

    The share of solving seeds is drawn for each such task, and is the same for all labels.
    """
    of_tasks = (shape[0], 1, shape[2], 1)
    is_split, share = rng.random(of_tasks) < 0.15, rng.random(of_tasks)
    return 60 + 35 * is_split * (rng.random(shape) < share) + 2 * rng.standard_normal(shape)


def unlike_splits(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Draw tables in which 15% of labels, in each task, have seeds that solve it and seeds that do not.

    The share of solving seeds is drawn for each such label. All labels have the same mean.
    """
    of_labels = (*shape[:3], 1)
    is_split, share = rng.random(of_labels) < 0.15, rng.random(of_labels)
    return 60 + 35 * is_split * ((rng.random(shape) < share) - share) + 2 * rng.standard_normal(shape)


def level_or_two(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Draw tables in which rivals have two values in one task, and the baseline has the mean of these values."""
    values = np.full(shape, 60.0)
    values[:, 1:, 0] = np.where(rng.random(values[:, 1:, 0].shape) < 0.5, 40.0, 80.0)
    return values + rng.standard_normal(shape)


def falling(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    return 60 - 40 * (rng.random(shape) < 0.1) + rng.standard_normal(shape)


def heavy(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    return 60 + 3 * rng.standard_t(2, shape)


def ceiling(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    return 100 - rng.exponential(2, shape)


def correlated(rng: np.random.Generator, shape: tuple[int, int, int, int]) -> np.ndarray:
    shared = rng.standard_normal((*shape[:2], 1, shape[3]))
    values: np.ndarray = 60 + 8 * (np.sqrt(0.7) * shared + np.sqrt(0.3) * rng.standard_normal(shape))
    return values


KINDS: dict[str, Draw] = {
    "normal, sd 2": normal(2),
    "normal, sd 10": normal(10),
    "a noisier rival, sd 2:10": normal(2, 10),
    "a noisier baseline, sd 10:2": normal(10, 2),
    "heavy tails (t with 2), sd 3": heavy,
    "one seed in ten falls by 40": falling,
    "a ceiling, exponential": ceiling,
    "tasks correlated within a seed": correlated,
    "tasks split as often as in evening": as_in_evening,
    "the same, each label with a share of its own": unlike_splits,
    "a level label, two-valued rivals, in one task": level_or_two,
    "half of the seeds solve, in one task": splitting(0.5, 1),
    "a fifth of the seeds solves, in all tasks": splitting(0.2),
    "half of the seeds solve, in all tasks": splitting(0.5),
}


def false_on_planted(draw: Draw, n: int, m: int, count: int, tables: int, method: str, seed: int) -> float:
    values = draw(np.random.default_rng([seed, n, m, count]), (tables, 1 + count, TASKS, max(n, m)))
    return false_tables(values[:, 0, :, :n], values[:, 1:, :, :m], method)


# The program


def seeds_of(store: Path) -> np.ndarray:
    """The accuracies (labels, tasks, seeds) of a store of the usual profile."""
    suite = main_suite()
    results = Selection(tasks=suite.usual_tasks(), profile=suite.default, results=store).select()
    samples = samples_of(results.scores)
    labels = list(samples[suite.usual_tasks()[0]])
    return np.array([[samples[task][label].values for task in suite.usual_tasks()] for label in labels])


def lines(labels: np.ndarray, tables: int, seed: int) -> Iterator[str]:
    columns = ["3:3", "5:5", "3:5", "3:10", "coverage 3, 5, 10", "half-width 3, 5", "power 3:3", "power 5:5"]
    yield f"| Real seeds | {' | '.join(columns)} |"
    yield "| --- |" + " ---: |" * len(columns)
    for method in METHODS:
        cells = [
            ", ".join(_share(false_on_real_seeds(labels, n, m, k, tables, method, seed)) for k in RIVALS)
            for n, m in SIZES
        ]
        covered = [coverage(labels, n, tables, method, seed) for n in (3, 5, 10)]
        cells += [", ".join(_share(share) for share, _ in covered), ", ".join(f"{half:.1f}" for _, half in covered[:2])]
        cells += [", ".join(_share(power(labels, n, k, min(tables, 60), method, seed)) for k in (1, 7)) for n in (3, 5)]
        yield f"| {method}{' with Holm' if method == 'Welch' else ''} | {' | '.join(cells)} |"
    yield ""
    yield f"| Kind of seeds | {' | '.join(f'{n}:{m}' for n, m in SIZES)} |"
    yield "| --- |" + " ---: |" * len(SIZES)
    for name, draw in KINDS.items():
        cells = []
        for n, m in SIZES:
            of_method = [
                ", ".join(_share(false_on_planted(draw, n, m, k, tables, method, seed), 2) for k in RIVALS)
                for method in METHODS
            ]
            cells.append(" / ".join(of_method))
        yield f"| {name} | {' | '.join(cells)} |"


def _share(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def failures(labels: np.ndarray, tables: int, seed: int) -> list[str]:
    """The bounds of the test that do not hold on real seeds."""
    found = []
    for ((n, m), most), count in itertools.product(BOUNDS.items(), (1, 7)):
        if (share := false_on_real_seeds(labels, n, m, count, tables, "madbench", seed)) > most:
            found.append(f"{n}:{m}, {count} rivals: {share:.3f} of the tables have a false verdict, more than {most}")
    share, half = coverage(labels, 3, tables, "madbench", seed)
    if not 0.95 <= share <= 0.97 or half > 13.5:
        found.append(f"intervals of three seeds hold {share:.3f} and have a half-width of {half:.1f}")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path, help="results folder with the imported seeds")
    parser.add_argument("--tables", type=int, default=200, help="of each label or kind, number of seeds and rivals")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bound does not hold")
    options = parser.parse_args(arguments)
    labels = seeds_of(options.store)
    if options.check:
        sys.exit("\n".join(failures(labels, options.tables, options.seed)) or 0)
    for line in lines(labels, options.tables, options.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
