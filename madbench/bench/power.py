"""Counts how many true differences of measured labels ``compare`` finds with few seeds, beside Welch's test.

    python -m madbench.bench.power STORE ... [--seeds 3 4 5] [--stores 20] [--clear 4]

A difference of two labels on a column is taken as true where the means of all their stored seeds are more than
``--clear`` standard errors apart. A table has the measured labels themselves, each with seeds drawn without replacement
from its own, and a difference is found where its verdict has the right sign. The drawn seeds are some of those that
say what is true, which favours every test alike.

Columns of the table that is printed, in Markdown: the seeds of every label; the size of the differences in points and
their number; the share that is found by ``compare`` with one rival and with all others; and by Welch's test alone, with
a p-value of 0.05 or less, and after Holm's method over the columns of one rival. How often Welch's test finds a
difference of equal labels, ``madbench.bench.measured --disjoint`` counts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from madbench.analysis.comparison import comparison_table
from madbench.analysis.inference import LEVEL, holm
from madbench.analysis.noise_model import Noise
from madbench.analysis.samples import samples_of
from madbench.bench.inference import AVERAGE, TASKS
from madbench.bench.measured import Cells, add_options, measured_labels, parsed, scores_of, welch_p, with_average
from madbench.errors import ConfigError, MadbenchError

SIZES = ((0, 5), (5, 15), (15, 100))
"""Bands of the size of a difference, in points."""
TESTS = ("compare 1", "compare all", "Welch", "Welch, Holm")

Pair = tuple[str, str, str]
"""A label, the one that is subtracted, and a column."""


def true_differences(cells: Mapping[str, Cells], clear: float) -> dict[Pair, float]:
    """The differences of the means of all seeds that are more than ``clear`` standard errors, each pair once."""
    means, variances = {}, {}
    for label, of_label in cells.items():
        means[label] = with_average({task: float(of_label[task].mean()) for task in TASKS})
        of_tasks = {task: float(of_label[task].var(ddof=1)) / len(of_label[task]) for task in TASKS}
        variances[label] = of_tasks | {AVERAGE: sum(of_tasks.values()) / len(TASKS) ** 2}
    differences = {}
    for first, second in itertools.combinations(cells, 2):
        for name in (*TASKS, AVERAGE):
            difference = means[first][name] - means[second][name]
            if abs(difference) > clear * math.sqrt(variances[first][name] + variances[second][name]):
                differences[first, second, name] = difference
    return differences


def signs_of(scores: pd.DataFrame, labels: Sequence[str]) -> dict[str, dict[Pair, float]]:
    """By test the sign of every difference that it finds in a frame of scores, 0 where it finds none."""
    signs: dict[str, dict[Pair, float]] = {test: {} for test in TESTS}
    samples = samples_of(scores)
    for first, second in itertools.combinations(labels, 2):
        p_values = {name: welch_p(of_name[first].values, of_name[second].values) for name, of_name in samples.items()}
        adjusted = dict(zip(p_values, holm([*p_values.values()])))
        for name, of_name in samples.items():
            sign = float(np.sign(of_name[first].mean - of_name[second].mean))
            signs["Welch"][first, second, name] = sign * (p_values[name] <= LEVEL)
            signs["Welch, Holm"][first, second, name] = sign * (adjusted[name] <= LEVEL)
        signs["compare 1"] |= _verdicts(second, [first], scores)
    for second in labels[1:]:
        signs["compare all"] |= _verdicts(second, [label for label in labels if label != second], scores)
    return signs


def _verdicts(baseline: str, labels: Sequence[str], scores: pd.DataFrame) -> dict[Pair, float]:
    signs = {"higher": 1.0, "lower": -1.0}
    rows = comparison_table(baseline, labels, scores).rows
    return {(row.label, baseline, row.quantity): signs.get(row.verdict, 0.0) for row in rows}


def shares_found(
    cells: Mapping[str, Cells],
    differences: Mapping[Pair, float],
    seeds: int,
    noises: Mapping[str, Noise],
    stores: int,
    rng: np.random.Generator,
) -> dict[tuple[float, float], dict[str, float]]:
    """By band of :data:`SIZES` and test the share of ``differences`` found in ``stores`` tables; 0 of no difference."""
    counts: dict[tuple[tuple[float, float], str], list[bool]] = defaultdict(list)
    for _ in range(stores):
        draws = {
            (label, task): rng.choice(values, seeds, replace=False)
            for label, of_label in cells.items()
            for task, values in of_label.items()
        }
        for test, signs in signs_of(scores_of(draws, noises), [*cells]).items():
            for pair, difference in differences.items():
                counts[band_of(difference), test].append(signs[pair] == np.sign(difference))
    return {
        band: {test: float(np.mean(counts[band, test])) if counts[band, test] else 0.0 for test in TESTS}
        for band in SIZES
    }


def band_of(difference: float) -> tuple[float, float]:
    """The band of :data:`SIZES` that holds the size of a difference."""
    return next(band for band in reversed(SIZES) if abs(difference) >= band[0])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, (3, 4, 5), 20)
    parser.add_argument("--clear", type=float, default=4.0, help="standard errors of a true difference")
    options = parsed(parser, arguments)
    if not options.clear > 0:
        parser.error("--clear must be above 0")
    least = max(options.least, *options.seeds)
    try:
        cells, noises = measured_labels(options.store, options.profile, least, options.labels, options.noise)
        differences = true_differences(cells, options.clear)
        if not differences:
            raise ConfigError(f"no difference of {len(cells)} labels is more than {options.clear:g} standard errors")
    except MadbenchError as error:
        sys.exit(str(error))
    print(f"| seeds | size | differences | {' | '.join(TESTS)} |\n| --- | --- |{' ---: |' * (1 + len(TESTS))}")
    for n in options.seeds:
        rng = np.random.default_rng([options.seed, n])
        for band, shares in shares_found(cells, differences, n, noises, options.stores, rng).items():
            count = sum(band_of(difference) == band for difference in differences.values())
            numbers = " | ".join(f"{share:.3f}" if count else "-" for share in shares.values())
            print(f"| {n} | {band[0]} to {band[1]} | {count} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
