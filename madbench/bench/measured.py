"""Counts how often the verbs are wrong about real seeds, of which any two groups of one label are equally good.

    python -m madbench.bench.measured STORE ... [--noise FILE] [--seeds 3 5] [--rival-seeds 10] [--stores 50]
        [--disjoint]

A table has the labels of the paper's Table 1, but the seeds of every one are drawn from those of one measured label, so
that every difference that a verb reports is false. Seeds are drawn independently for each label: without replacement
where twice as many are stored, else with it, which repeats seeds and so has smaller spreads than seeds have. The truth
is the mean of all that are stored. Measured are the labels with enough seeds of every task (``--least``). ``--noise``
names the noise model in place of the shipped one: to judge a model, fit it on labels that are not measured here
(``madbench.bench.noise --half``), and name the others.

Columns of the table that is printed, in Markdown: the seeds of the baseline and of the others; the share of intervals
of cells and of differences that hold the truth; the share of tables with a false verdict, of compare with 1, 7 and 32
rivals, of attribute and of findings; the share of tables that do not mark a label that is as good as the best.

Labels that draw from the same few stored seeds share some, and so differ by less than labels do: of 10 stored seeds the
mean of 5 has 0.71 times its standard deviation. ``--disjoint`` draws for two labels alone, which share none, and has
the columns that are about two: as far as seeds are stored, these are the shares that hold of new ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from madbench.analysis.attribution import attribute
from madbench.analysis.cells import cells_of as table_cells
from madbench.analysis.cells import with_marks
from madbench.analysis.comparison import comparison_table
from madbench.analysis.findings import findings
from madbench.analysis.noise_model import Noise, NoiseModel, by_protocol, noise_models
from madbench.bench.inference import AVERAGE, TASKS, Counts, frame_of
from madbench.bench.noise import cells_of, measured
from madbench.labels import expand
from madbench.suites import main_suite

RIVALS = (1, 7, 32)
ROUNDING = 0.05
"""So far beyond its end an interval still holds a number."""
COUNTED = ("cells", "differences", *(f"compare {count}" for count in RIVALS), "attribute", "findings", "marks")
OF_TWO = ("differences", "compare 1")
"""Those of them that two labels have."""

Cells = Mapping[str, np.ndarray]
"""By task, the values of all seeds of one label."""


def table_of(
    cells: Cells, labels: Sequence[str], counts: Sequence[int], noises: Mapping[str, Noise], rng: np.random.Generator
) -> pd.DataFrame:
    """A frame of scores in which all ``labels`` are draws of the same ``cells``, of as many seeds as ``counts`` say."""
    drawn = {}
    for label, count in zip(labels, counts, strict=True):
        for task, values in cells.items():
            seeds = rng.choice(values, count, replace=2 * count > len(values))
            drawn[label, task] = seeds, np.zeros(count, bool)
    frame = frame_of(drawn)
    return frame.assign(noise=_noise_column(frame, noises))


def read(
    counted: Mapping[str, Counts], scores: pd.DataFrame, labels: Sequence[str], truth: Mapping[str, float]
) -> None:
    """Adds to the counts what the verbs say of a frame of scores of which no difference is true."""
    columns = main_suite().columns(TASKS)
    cells = with_marks(columns, table_cells(scores, columns), labels)
    lost = False
    for column in columns:
        marks = [row[column.name].mark for row in cells.values()]
        lost |= any(marks) and not all(marks)
        for row in cells.values():
            low, high = row[column.name].interval
            if not math.isnan(low):
                counted["cells"].add(low - ROUNDING <= truth[column.name] <= high + ROUNDING)
    counted["marks"].add(lost)
    for count in RIVALS:
        rows = comparison_table(labels[0], labels[1 : count + 1], scores).rows
        counted[f"compare {count}"].add(any(row.verdict in ("higher", "lower") for row in rows))
    for row in rows:
        if not math.isnan(row.difference.low):
            counted["differences"].add(row.difference.low - ROUNDING <= 0 <= row.difference.high + ROUNDING)
    counted["attribute"].add(any(effect.is_significant for effect in attribute(scores)))
    false = ("supported", "contradicted")  # a line that is not 0 contradicts a claim rightly
    counted["findings"].add(any(finding.verdict in false and abs(finding.line) < 1e-9 for finding in findings(scores)))


def simulate(
    cells: Cells, seeds: int, rival_seeds: int, noises: Mapping[str, Noise], stores: int, seed: int = 0
) -> dict[str, Counts]:
    """What ``stores`` tables of one measured label get right or wrong."""
    labels = [*expand("@table1")]
    labels = sorted(map(str, labels), key=lambda label: label != "S")
    counts = [seeds] + [rival_seeds] * (len(labels) - 1)
    truth = {task: float(values.mean()) for task, values in cells.items()}
    truth[AVERAGE] = float(np.mean([truth[task] for task in TASKS]))
    rng, counted = np.random.default_rng([seed, seeds, rival_seeds]), {name: Counts() for name in COUNTED}
    for _ in range(stores):
        read(counted, table_of(cells, labels, counts, noises, rng), labels, truth)
    return counted


def split(
    cells: Cells, seeds: int, rival_seeds: int, noises: Mapping[str, Noise], stores: int, seed: int = 0
) -> dict[str, Counts]:
    """What ``stores`` comparisons of two labels get right or wrong, whose seeds are disjoint parts of those stored."""
    rng, counted = np.random.default_rng([seed, seeds, rival_seeds]), {name: Counts() for name in OF_TWO}
    for _ in range(stores):
        drawn = {}
        for task, values in cells.items():
            chosen = rng.permutation(values)[: seeds + rival_seeds]
            drawn["S", task], drawn["R", task] = np.split(chosen, [seeds])
        scores = frame_of({key: (values, np.zeros(len(values), bool)) for key, values in drawn.items()})
        rows = comparison_table("S", ["R"], scores.assign(noise=_noise_column(scores, noises))).rows
        counted["compare 1"].add(any(row.verdict in ("higher", "lower") for row in rows))
        for row in rows:
            if not math.isnan(row.difference.low):
                counted["differences"].add(row.difference.low - ROUNDING <= 0 <= row.difference.high + ROUNDING)
    return counted


def _noise_column(scores: pd.DataFrame, noises: Mapping[str, Noise]) -> pd.Series:
    return pd.Series([noises.get(name) for name in scores.column], scores.index, dtype=object)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", nargs="+", type=Path, help="results folders")
    parser.add_argument("--profile", default=main_suite().default, help="that the runs follow")
    parser.add_argument("--noise", type=Path, help="a noise model's file")
    parser.add_argument("--labels", nargs="+", help="measured labels; by default all with enough seeds")
    parser.add_argument("--least", type=int, default=10, help="seeds of every task of a measured label")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5], help="of every label of a table")
    parser.add_argument("--rival-seeds", type=int, nargs="*", default=[], help="of all but the first, besides")
    parser.add_argument("--stores", type=int, default=20, help="of each label and numbers of seeds")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")
    parser.add_argument("--disjoint", action="store_true", help="compare two labels that share no seed")
    options = parser.parse_args(arguments)
    names, count = (OF_TWO, split) if options.disjoint else (COUNTED, simulate)
    scores, protocols = measured(options.store, options.profile)
    of_protocol = by_protocol([NoiseModel.load(options.noise)] if options.noise else noise_models())
    noises = {task: of_protocol[own] for task, (own, _) in protocols.items() if own in of_protocol}
    by_task = {task: cells_of(scores, task) for task in TASKS}
    chosen = options.labels or sorted(set.intersection(*(set(cells) for cells in by_task.values())))
    print(f"| label | seeds | {' | '.join(names)} |\n| --- |{' ---: |' * (len(names) + 1)}")
    pairs = [(n, n) for n in options.seeds] + [(n, m) for n in options.seeds for m in options.rival_seeds if n < m]
    for n, m in pairs:
        totals = {name: Counts() for name in names}
        for label in chosen:
            cells = {task: by_task[task].get(label, np.array([])) for task in TASKS}
            if min(map(len, cells.values())) < max(options.least, (n + m) * options.disjoint):
                continue
            counted = count(cells, n, m, noises, options.stores, options.seed)
            for name, counts in counted.items():
                totals[name].held += counts.held
                totals[name].total += counts.total
            print(row_text(label, n, m, counted), flush=True)
        print(row_text("all", n, m, totals), flush=True)


def row_text(label: str, seeds: int, rival_seeds: int, counted: Mapping[str, Counts]) -> str:
    """A row of the table."""
    return f"| {label} | {seeds}:{rival_seeds} | {' | '.join(f'{counts.share:.3f}' for counts in counted.values())} |"


if __name__ == "__main__":
    main()
