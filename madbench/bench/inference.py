"""Simulates stores and counts how often intervals hold the truth and how often a whole table has a false verdict.

    python -m madbench.bench.inference [--stores 100] [--seeds 2 3 5 10] [--kinds Gaussian ...] [--seed 0]

A store has every label that a claim needs, on the six tasks of MAD and as a language model, with values whose means are
known: drawn around one value; split between solved and not; diverging now and then; or the mean of four settings whose
noise is correlated within a seed. Of most kinds all labels are equally good, so that every difference that a verb
reports is false; of "mixed tasks" each task is of another kind, of "unlike labels" each label, whose means differ.

Planted are cells on which tests are known to fail: two values of which no seed solves the task ("unsolved"); every
other label at one value, the rest at two with the same mean ("level, two values"); every other label with a third of
the spread and, or, 10/3 as many seeds ("3:10"), or the best of rates that are as good ("six rates"); at the
heuristic of a noise model, and solved by all, under it.

Frames of scores go through the functions that the verbs call. Columns of the table that is printed, in Markdown:

- cells, differences: the share of 95% intervals, where one is given, that hold the truth (and how many are given); that
  of a cell in which no run diverged is of the runs that do not diverge;
- compare, attribute, findings: the share of tables with a verdict that is false;
- marks: the share of columns, and of tables, in which the label with the best true mean is not marked.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import stats

from madbench.analysis.attribution import attribute
from madbench.analysis.cells import cells_of, with_marks
from madbench.analysis.claims import CLAIMS, orientation
from madbench.analysis.comparison import comparison_table
from madbench.analysis.findings import Finding, findings
from madbench.analysis.noise_model import Noise
from madbench.analysis.quantities import column, suite_of_column
from madbench.suites import default_headline, main_suite
from madbench.suites.scoring import COLUMNS, mean_over, scoring_of

TASKS = main_suite().usual_tasks()
AVERAGE, LOSS = default_headline()
"""Of the tasks, and what is trained beside them."""
LABELS = list(dict.fromkeys(label for claim in CLAIMS for label in claim.labels(range(len(claim.pairs)))))
BASELINE, COMPARED = "S", ("R", "R-cg-q-12o", "G-cg-q-12o")
CHANCE, SOLVED, CEILING = 4.0, 90.4, 100.0
UNIFORM = math.log(320)
"""Loss of a language model that has learned nothing."""
SETTINGS = 4
"""Of a task, where their noise is correlated within a seed."""

Draws = tuple[np.ndarray, np.ndarray]
"""Values and which of them diverged; of any shape."""
Draw = Callable[[np.random.Generator, tuple[int, ...]], Draws]


def gaussian(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
    """Seeds that scatter about 60."""
    return rng.normal(60, 3, shape), np.zeros(shape, bool)


@functools.cache
def bimodal(share: float) -> Draw:
    """``share`` of the seeds solve the task; the others are at 20."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
        values = np.where(rng.random(shape) < share, rng.normal(99.5, 0.3, shape), rng.normal(20, 3, shape))
        return np.clip(values, 0, 100), np.zeros(shape, bool)

    return draw


@functools.cache
def diverging(share: float, chance: float = CHANCE, mean: float = 60, spread: float = 3) -> Draw:
    """As :func:`gaussian` or about another mean, but ``share`` of the seeds diverge, whose value is that of chance."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
        diverged = rng.random(shape) < share
        return np.where(diverged, chance, rng.normal(mean, spread, shape)), diverged

    return draw


def of_settings(correlation: float, share: float | None = None) -> Draw:
    """The mean of settings that share ``correlation`` of their noise; ``share`` of them are solved, if given."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
        shared, own = rng.normal(size=(*shape, 1)), rng.normal(size=(*shape, SETTINGS))
        noise = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
        if share is None:
            return (60 + 4 * noise).mean(axis=-1), np.zeros(shape, bool)
        solved = noise < stats.norm.ppf(share)
        values = np.where(solved, 99.5, 20.0).mean(axis=-1) + rng.normal(0, 0.3, shape)
        return np.clip(values, 0, 100), np.zeros(shape, bool)

    return draw


def unlearned(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
    """Seeds at chance."""
    return rng.normal(CHANCE + 0.2, 0.3, shape), np.zeros(shape, bool)


def split(low: float, high: float, share: float) -> Draw:
    """Seeds about one of two values, ``share`` of them about the higher one."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
        values = np.where(rng.random(shape) < share, high, low) + rng.normal(0, 1, shape)
        return np.clip(values, 0, 100), np.zeros(shape, bool)

    return draw


@functools.cache
def about(mean: float, spread: float) -> Draw:
    """Seeds that scatter about one value."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Draws:
        return np.clip(rng.normal(mean, spread, shape), 0, 100), np.zeros(shape, bool)

    return draw


SINGLE = {
    "Gaussian": gaussian,
    "bimodal 0.5": bimodal(0.5),
    "bimodal 0.8": bimodal(0.8),
    "bimodal 0.95": bimodal(0.95),
    "diverging 0.2": diverging(0.2),
    "settings 0.25": of_settings(0.25),
    "settings 0.5": of_settings(0.5),
    "bimodal settings 0.5": of_settings(0.5, 0.8),
    "unsolved 33, 65": split(33, 65, 0.2),
    "unsolved 25, 80": split(25, 80, 0.5),
    "3:10": about(60, 3),
    "at the heuristic": about(33, 1),
    "all solve": about(99.9, 0.05),
}
PLANTED = {
    "level, two values": (about(60, 1), split(20, 95, 40 / 75)),
    "level, two values unsolved": (about(60, 1), split(40, 80, 0.5)),
    "3:10, spreads 3:1": (about(60, 3), about(60, 1)),
    "3:10, spreads 1:3": (about(60, 1), about(60, 3)),
    "six rates": (about(60, 6), about(60, 1)),
}
"""What draws the values of :data:`BASELINE` and every other label, and of the rest."""
RATES = 6
MORE_SEEDS = 10 / 3
"""As many has the rest of the labels of a kind named 3:10."""
NOISE = Noise("", 33.0, CEILING, low=1.0, middle=1.0, high=0.05, lent=5.0, surprises=0.1, jump=10.0)
WITH_NOISE = ("at the heuristic", "all solve")
"""Kinds whose tasks have :data:`NOISE`."""
MIXED = [gaussian, bimodal(0.5), bimodal(0.8), bimodal(0.95), diverging(0.2), unlearned]
"""The kind of each task, or of each label in turn."""
KINDS = [*SINGLE, *PLANTED, "mixed tasks", "unlike labels"]


def _is_rest(label: str) -> bool:
    return (LABELS.index(label) - LABELS.index(BASELINE)) % 2 == 1


def kind_of(kind: str, label: str, task: str) -> Draw:
    """What draws the values of ``label`` on ``task``."""
    if kind in SINGLE:
        return SINGLE[kind]
    if kind in PLANTED:
        return PLANTED[kind][_is_rest(label)]
    return MIXED[(TASKS.index(task) if kind == "mixed tasks" else LABELS.index(label)) % len(MIXED)]


def loss_of(kind: str) -> Draw:
    """What draws losses of language models, which diverge where the tasks do."""
    return diverging(0.2 if kind == "diverging 0.2" else 0.0, UNIFORM, 3.0, 0.02)


Means = Mapping[tuple[str, str], float]
"""By label and column."""


def truth(kind: str, with_diverged: bool = True) -> Means:
    """The true mean of every label and column: of all seeds, diverged ones at chance, or of the others."""
    which = 0 if with_diverged else 1
    means: dict[tuple[str, str], float] = {}
    loss = _true_means(loss_of(kind))[which]
    for label in LABELS:
        for task in TASKS:
            means[label, task] = _true_means(kind_of(kind, label, task))[which]
        means[label, AVERAGE] = float(np.mean([means[label, task] for task in TASKS]))
        means[label, LOSS] = loss
    return means


@functools.cache
def _true_means(draw: Draw) -> tuple[float, float]:
    """The means of very many seeds, diverged ones at chance, and of those that do not diverge."""
    values, diverged = draw(np.random.default_rng(0), (1_000_000,))
    return float(values.mean()), float(values[~diverged].mean())


def store(kind: str, seeds: int, rng: np.random.Generator) -> pd.DataFrame:
    """A frame of scores of all labels, tasks and seeds, with averages and losses."""
    if kind == "six rates":
        return _of_rates(kind, seeds, rng)
    drawn = {}
    for label in LABELS:
        count = round(seeds * MORE_SEEDS) if kind.startswith("3:10") and _is_rest(label) else seeds
        drawn |= {(label, task): kind_of(kind, label, task)(rng, (count,)) for task in TASKS}
        drawn[label, LOSS] = loss_of(kind)(rng, (count,))
    frame = frame_of(drawn)
    if kind not in WITH_NOISE:
        return frame
    return frame.assign(noise=[NOISE if name in TASKS else None for name in frame.column])


def _of_rates(kind: str, seeds: int, rng: np.random.Generator) -> pd.DataFrame:
    """Scores of labels whose runs were tried at as good rates, of which a seed besides ``seeds`` chooses."""
    labels, tasks, every, rates = zip(*itertools.product(LABELS, TASKS, range(-1, seeds), range(RATES)))
    runs = pd.DataFrame({"label": labels, "column": tasks, "seed": every, "rate": rates})
    draws = [kind_of(kind, *case)(rng, ((seeds + 1) * RATES,))[0] for case in itertools.product(LABELS, TASKS)]
    runs = runs.assign(suite=main_suite().name, setting="", status="finished", is_held=True, budget_ratio=1.0)
    runs = runs.assign(value=np.concatenate(draws), chance=CHANCE, ceiling=1.0)
    scores = scoring_of(main_suite()).scores_of(runs.assign(selection=runs.value))  # a run is good on all data, or not
    losses = frame_of({(label, LOSS): loss_of(kind)(rng, (seeds,)) for label in LABELS})
    return pd.concat([scores, losses], ignore_index=True)


def frame_of(drawn: Mapping[tuple[str, str], Draws]) -> pd.DataFrame:
    """A frame of scores of what was drawn by label and column, with averages."""
    parts = [
        (label, name, seed, values[seed], diverged[seed])
        for (label, name), (values, diverged) in drawn.items()
        for seed in range(len(values))
    ]
    frame = pd.DataFrame(parts, columns=["label", "column", "seed", "value", "is_diverged"])
    is_loss = frame.column == LOSS
    frame["suite"] = np.where(is_loss, suite_of_column(LOSS).name, main_suite().name)
    frame["chance"] = np.where(is_loss, UNIFORM, CHANCE)
    frame["ceiling"], frame["solved"] = np.where(is_loss, np.nan, CEILING), np.where(is_loss, np.nan, SOLVED)
    frame["diverged"] = frame.is_diverged.astype(int)
    frame = frame.assign(done=1, expected=1, budget_ratio=1.0)[list(COLUMNS)]
    return pd.concat([frame, mean_over(frame, TASKS, AVERAGE)], ignore_index=True)


@dataclass
class Counts:
    """How often something held, and of how many."""

    held: int = 0
    total: int = 0

    def add(self, is_held: bool) -> None:
        self.held += bool(is_held)
        self.total += 1

    @property
    def share(self) -> float:
        """NaN of nothing."""
        return self.held / self.total if self.total else math.nan


@dataclass
class Outcome:
    """What the tables of simulated stores of one kind and number of seeds got right and wrong."""

    kind: str
    seeds: int
    cells: Counts = field(default_factory=Counts)
    """Intervals that hold the truth."""
    differences: Counts = field(default_factory=Counts)
    compare: Counts = field(default_factory=Counts)
    """Tables with a false verdict."""
    attribute: Counts = field(default_factory=Counts)
    findings: Counts = field(default_factory=Counts)
    marks: Counts = field(default_factory=Counts)
    """Columns that do not mark the best label."""
    marked_tables: Counts = field(default_factory=Counts)
    """Tables with such a column."""


_ROUNDING = {LOSS: 0.0005}
"""Half of a column's resolution, 0.05 by default: so far beyond its end an interval still holds a number."""


def simulate(kind: str, seeds: int, stores: int, seed: int = 0) -> Outcome:
    """Makes ``stores`` stores and reads each by all verbs."""
    outcome, means, of_trained = Outcome(kind, seeds), truth(kind), truth(kind, with_diverged=False)
    rng = np.random.default_rng([seed, seeds, KINDS.index(kind)])
    for _ in range(stores):
        scores = store(kind, seeds, rng)
        _add_cells(outcome, scores, means, of_trained)
        _add_comparison(outcome, scores, means)
        outcome.attribute.add(any(_false_effects(scores, means)))
        outcome.findings.add(any(is_false(finding, means) for finding in findings(scores)))
    return outcome


def _holds(low: float, high: float, name: str, value: float) -> bool:
    allowed = _ROUNDING.get(name, 0.05)
    return low - allowed <= value <= high + allowed


def is_wrong(estimate: float, value: float) -> bool:
    """Whether a difference that is reported as ``estimate`` has another sign, or is none."""
    return abs(value) < 1e-9 or (estimate > 0) != (value > 0)


def _add_cells(outcome: Outcome, scores: pd.DataFrame, means: Means, of_trained: Means) -> None:
    columns = [*main_suite().columns(TASKS), column(LOSS)]
    cells = with_marks(columns, cells_of(scores, columns), LABELS)
    lost = []
    for own in columns:
        best = max if own.better == "higher" else min
        best_label = best(LABELS, key=lambda label: means[label, own.name])
        lost.append(any(row[own.name].mark for row in cells.values()) and not cells[best_label][own.name].mark)
        outcome.marks.add(lost[-1])
    outcome.marked_tables.add(any(lost))
    for label, row in cells.items():
        for name, cell in row.items():
            low, high = cell.interval
            if not math.isnan(low):
                names = TASKS if cell.sample.parts else [name]
                parts = [
                    (means if part.has_diverged else of_trained)[label, part_name]
                    for part_name, part in zip(names, cell.sample.parts or [cell.sample], strict=True)
                ]
                outcome.cells.add(_holds(low, high, name, float(np.mean(parts))))


def _add_comparison(outcome: Outcome, scores: pd.DataFrame, means: Means) -> None:
    has_false = False
    for row in comparison_table(BASELINE, COMPARED, scores).rows:
        value = means[row.label, row.quantity] - means[row.baseline, row.quantity]
        outcome.differences.add(_holds(row.difference.low, row.difference.high, row.quantity, value))
        has_false |= row.verdict in ("higher", "lower") and is_wrong(row.difference.estimate, value)
    outcome.compare.add(has_false)


def _false_effects(scores: pd.DataFrame, means: Means) -> Iterator[bool]:
    for effect in attribute(scores):
        signs = (1, -1, -1, 1) if effect.is_interaction else (1, -1)
        values = [sum(s * means[x, effect.quantity] for s, x in zip(signs, case)) for case in effect.cases]
        yield effect.is_significant and is_wrong(effect.estimate.estimate, float(np.mean(values)))


def is_false(finding: Finding, means: Means) -> bool:
    """Whether the verdict is not that of the true means; on the line, neither is true."""
    if finding.verdict not in ("supported", "contradicted"):
        return False
    claim, sign = finding.claim, orientation(finding.quantity)
    cases = [claim.pairs.index(pair) for pair in finding.pairs]
    gains = [sign * sum(w * means[x, finding.quantity] for w, x in terms) for terms in claim.gains(cases).values()]
    beyond = (min(gains) - finding.line) * claim.sign(finding.quantity)
    return abs(beyond) < 1e-9 or (finding.verdict == "supported") != (beyond > 0)


HEADINGS = (
    "kind",
    "seeds",
    "cells",
    "differences",
    "compare",
    "attribute",
    "findings",
    "marks, column",
    "marks, table",
)


def texts(outcome: Outcome) -> list[str]:
    """The cells of a row of the table."""
    covered = [
        f"{coverage.share:.3f} ({coverage.total:,})" if coverage.total else "none"
        for coverage in (outcome.cells, outcome.differences)
    ]
    false = (outcome.compare, outcome.attribute, outcome.findings, outcome.marks, outcome.marked_tables)
    return [outcome.kind, str(outcome.seeds), *covered, *(f"{count.share:.3f}" for count in false)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", type=int, default=100, help="of each kind and number of seeds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5, 10], help="seeds of a store")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    options = parser.parse_args(arguments)
    if options.stores < 1 or min(options.seeds) < 1:
        parser.error("--stores and --seeds must be at least 1")
    print(f"| {' | '.join(HEADINGS)} |\n| --- |{' ---: |' * (len(HEADINGS) - 1)}")
    for kind in options.kinds:
        for seeds in options.seeds:
            print(f"| {' | '.join(texts(simulate(kind, seeds, options.stores, options.seed)))} |", flush=True)


if __name__ == "__main__":
    main()
