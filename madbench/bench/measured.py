"""Counts how often the verbs are wrong about real seeds, of which any two groups of one label are equally good.

    python -m madbench.bench.measured STORE ... [--noise FILE] [--seeds 3 5] [--rival-seeds 10] [--stores 20]
        [--disjoint] [--column loss_l5]

A table has the labels of the paper's Table 1, but the seeds of every one are drawn from those of one measured label, so
that every difference that a verb reports is false. Measured are the labels with enough seeds of every task
(``--least``). ``--noise`` names the noise model in place of the shipped one: to judge a model, fit it on labels that
are not measured here (``madbench.bench.noise --half``), and name the others.

By default labels are independent draws of the distribution whose quantiles are the stored seeds, joined by lines. Its
mean is known exactly, and all verbs are counted; of further seeds than are stored it says nothing.

``--disjoint`` draws the stored seeds themselves, a baseline whose seeds no rival has, and judges its cells by the mean
of the seeds that it did not draw. That mean has an error of its own, for which nothing is allowed, so the shares of
cells are on the low side. Rivals beyond the first share seeds with one another, and so are wrong together more often
than those of a user's table.

``--column`` counts one column alone in place of MAD's tasks and their average, as of language models the mean of the
last five training losses.

``--twins`` makes tables of all measured labels, each several times, as often as the stored seeds give disjoint groups.
Groups of one label are equally good; labels differ, and are ordered by the means of all their seeds. So marks and
ranks of many labels are counted on seeds that none share.

Columns of the table that is printed, in Markdown, of which each kind has some; rows are a label and the seeds of the
baseline and of the others, and all labels together:

- cells, differences: the share of 95% intervals that hold the truth;
- compare 1, 7, 32, attribute, findings: the share of tables with a false verdict, of so many rivals;
- compare: that of tables of twins with a difference from a baseline's twin;
- mark: that of tables which do not mark the first of several labels that are the best, which is what marks promise;
- marks: that of tables which do not mark any label that is as good as the best;
- ranks: that of tables with an interval that leaves out a place which the label may have;
- Welch 1: that of tables of one rival in which Welch's test of any column has p of 0.05 or less;
- Holm 1, 7, 32: the same after Holm's method over the columns of so many rivals;
- Student's: the share of Student's intervals of the same cells that hold the truth;
- width, agreeing: how many times as wide as Student's our intervals are, the median of all cells, and of averages
  whose tasks are solved by all their seeds or by none;
- splits: how many disjoint draws the stored seeds hold at once, of every task. So many are independent; the others
  deal the same seeds again.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from madbench.analysis.attribution import attribute
from madbench.analysis.cells import cells_of as table_cells
from madbench.analysis.cells import with_marks, with_ranks
from madbench.analysis.comparison import comparison_table
from madbench.analysis.findings import findings
from madbench.analysis.inference import LEVEL, Sample, holm
from madbench.analysis.noise_model import Noise, NoiseModel, by_protocol, noise_models
from madbench.analysis.quantities import column, suite_of_column
from madbench.analysis.samples import samples_of
from madbench.bench.inference import AVERAGE, LOSS, TASKS, frame_of
from madbench.bench.noise import cells_of, measured
from madbench.errors import ConfigError, MadbenchError, did_you_mean
from madbench.labels import expand

RIVALS = (1, 7, 32)
COMPARED = tuple(f"compare {count}" for count in RIVALS)
OF_HOLM = tuple(f"Holm {count}" for count in RIVALS)
COUNTED = ("cells", "differences", *COMPARED, "attribute", "findings", "mark", "marks", "ranks")
WIDTHS = ("width", "agreeing")
"""Columns that are medians, of ratios; the others are shares."""
OF_DISJOINT = ("cells", "Student's", *WIDTHS, "differences", *COMPARED, "Welch 1", *OF_HOLM)
"""Columns of ``--disjoint``."""
OF_TWINS = ("compare", "marks", "ranks")
"""Columns of ``--twins``."""

Cells = Mapping[str, np.ndarray]
"""By task or other column, the values of all seeds of one label."""
Counted = dict[str, list[float]]
"""By column, what each interval, table or cell gave: 1 or 0, or a ratio."""


def table_labels() -> list[str]:
    """The labels of a table, the baseline first."""
    return sorted(map(str, expand("@table1")), key=lambda label: label != "S")


def table_of(
    cells: Cells, labels: Sequence[str], counts: Sequence[int], noises: Mapping[str, Noise], rng: np.random.Generator
) -> pd.DataFrame:
    """A frame of scores in which all ``labels`` are draws of the same ``cells``, of as many seeds as ``counts`` say.

    They are drawn from the distribution of :func:`mean_of`.
    """
    draws = {
        (label, task): np.quantile(values, rng.random(count))
        for label, count in zip(labels, counts, strict=True)
        for task, values in cells.items()
    }
    return scores_of(draws, noises)


def mean_of(values: np.ndarray) -> float:
    """The mean of the distribution whose quantiles are ``values``, joined by lines."""
    return float(np.trapezoid(np.sort(values)) / (len(values) - 1))


def disjoint_table_of(
    cells: Cells,
    labels: Sequence[str],
    seeds: int,
    rival_seeds: int,
    noises: Mapping[str, Noise],
    rng: np.random.Generator,
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Scores in which no rival has a seed of the first label's; by column, the mean of the seeds left to rivals."""
    draws, truth = {}, {}
    for task, values in cells.items():
        own, others = np.split(rng.permutation(values), [seeds])
        draws[labels[0], task] = own
        draws |= {(rival, task): rng.choice(others, rival_seeds, replace=False) for rival in labels[1:]}
        truth[task] = float(others.mean())
    return scores_of(draws, noises), with_average(truth)


def scores_of(draws: Mapping[tuple[str, str], np.ndarray], noises: Mapping[str, Noise]) -> pd.DataFrame:
    """A frame of scores of the values of seeds by label and task, none of which diverged."""
    frame = frame_of({key: (values, np.zeros(len(values), bool)) for key, values in draws.items()})
    noise_of_row = [noises.get(name) for name in frame.column]
    return frame.assign(noise=pd.Series(noise_of_row, frame.index, dtype=object))


def with_average(truth: Mapping[str, float]) -> dict[str, float]:
    """The means of the tasks, and that of these; of another column its mean alone."""
    has_all = {*TASKS} <= {*truth}
    return {**truth, **({AVERAGE: float(np.mean([truth[task] for task in TASKS]))} if has_all else {})}


def nothing_of(names: Sequence[str]) -> Counted:
    """Columns in which nothing is counted yet."""
    return {name: [] for name in names}


def read(counted: Counted, scores: pd.DataFrame, labels: Sequence[str], truth: Mapping[str, float]) -> None:
    """Adds what the verbs say of a frame of scores of which no difference is true."""
    columns = [column(name) for name in truth]
    cells = with_ranks(columns, with_marks(columns, table_cells(scores, columns), labels), labels)
    is_first_lost, lost, is_placed = False, False, False
    for name in truth:
        of_column = [row[name] for row in cells.values()]
        marks = [cell.mark for cell in of_column]
        lost |= any(marks) and not all(marks)
        is_first_lost |= any(marks) and not cells[labels[0]][name].mark
        places = [cell.rank for cell in of_column if cell.rank]
        is_placed |= any((place.low, place.high) != (1, len(places)) for place in places)
        for cell in of_column:
            if not math.isnan(cell.interval[0]):
                counted["cells"].append(_holds(cell.interval, truth[name], name))
    counted["mark"].append(is_first_lost)
    counted["marks"].append(lost)
    counted["ranks"].append(is_placed)
    compare(counted, scores, labels)
    counted["attribute"].append(any(effect.is_significant for effect in attribute(scores)))
    false = ("supported", "contradicted")  # a line that is not 0 contradicts a claim rightly
    is_false = any(finding.verdict in false and abs(finding.line) < 1e-9 for finding in findings(scores))
    counted["findings"].append(is_false)


def compare(counted: Counted, scores: pd.DataFrame, labels: Sequence[str]) -> None:
    """Adds what ``compare`` says of the first label and its rivals, of which none differs."""
    for count in RIVALS:
        rows = comparison_table(labels[0], labels[1 : count + 1], scores).rows
        counted[f"compare {count}"].append(any(row.verdict in ("higher", "lower") for row in rows))
    for row in rows:
        if not math.isnan(row.difference.low):
            counted["differences"].append(_holds((row.difference.low, row.difference.high), 0, row.quantity))


def read_cells(counted: Counted, samples: Mapping[str, Sample], truth: Mapping[str, float]) -> None:
    """Adds what the intervals of one label's columns hold, and their widths, beside Student's."""
    for name, sample in samples.items():
        if math.isnan(sample.half_width):
            continue
        half = float(stats.t.ppf(1 - LEVEL / 2, sample.n - 1)) * sample.deviation / math.sqrt(sample.n)
        counted["cells"].append(_holds(sample.interval, truth[name], name))
        counted["Student's"].append(_holds((sample.mean - half, sample.mean + half), truth[name], name))
        ratio = sample.half_width / half if half else math.inf
        counted["width"].append(ratio)
        if sample.parts and all(part.solved in (0, part.n) for part in sample.parts):
            counted["agreeing"].append(ratio)


def welch_p(first: np.ndarray, second: np.ndarray) -> float:
    """The p-value of Welch's test; of seeds without any scatter 1 where their means agree, else 0."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of seeds that agree to the last bit
        p = float(stats.ttest_ind(first, second, equal_var=False).pvalue)
    return float(first.mean() == second.mean()) if math.isnan(p) else p


def simulate(
    cells: Cells, seeds: int, rival_seeds: int, noises: Mapping[str, Noise], stores: int, rng: np.random.Generator
) -> Counted:
    """What ``stores`` tables of one measured label get right or wrong whose labels are independent."""
    labels, counted = table_labels(), nothing_of(COUNTED)
    counts = [seeds] + [rival_seeds] * (len(labels) - 1)
    truth = with_average({task: mean_of(values) for task, values in cells.items()})
    for _ in range(stores):
        read(counted, table_of(cells, labels, counts, noises, rng), labels, truth)
    return counted


def split(
    cells: Cells, seeds: int, rival_seeds: int, noises: Mapping[str, Noise], stores: int, rng: np.random.Generator
) -> Counted:
    """What ``stores`` tables of one measured label get right or wrong whose baseline shares no seed with a rival."""
    labels, counted = table_labels(), nothing_of(OF_DISJOINT)
    for _ in range(stores):
        scores, truth = disjoint_table_of(cells, labels, seeds, rival_seeds, noises, rng)
        samples = samples_of(scores)
        first = {name: of_name[labels[0]] for name, of_name in samples.items()}
        read_cells(counted, first, truth)
        p_values = [
            [welch_p(sample.values, samples[name][rival].values) for name, sample in first.items()]
            for rival in labels[1:]
        ]
        counted["Welch 1"].append(min(p_values[0]) <= LEVEL)
        for count, name in zip(RIVALS, OF_HOLM):
            counted[name].append(min(holm(list(itertools.chain.from_iterable(p_values[:count])))) <= LEVEL)
        compare(counted, scores, labels)
    return counted


def twins(
    cells: Mapping[str, Cells],
    seeds: int,
    rival_seeds: int,
    noises: Mapping[str, Noise],
    stores: int,
    rng: np.random.Generator,
) -> Counted:
    """What ``stores`` tables get right or wrong that have every measured label as often as it has disjoint groups.

    The first group of a label has ``seeds``, the others ``rival_seeds``. ``compare`` takes the first group of each
    label in turn as the baseline of all other rows, and is wrong where it says that a twin differs.
    """
    counted = nothing_of(OF_TWINS)
    fewest = min(len(values) for of_label in cells.values() for values in of_label.values())
    count = 1 + (fewest - seeds) // rival_seeds
    ends = [seeds + i * rival_seeds for i in range(count)]
    rows = {label: [f"{label} ({i + 1})" for i in range(count)] for label in cells}
    every = [row for of_label in rows.values() for row in of_label]
    truth = {
        label: with_average({task: float(values.mean()) for task, values in of_label.items()})
        for label, of_label in cells.items()
    }
    names = list(next(iter(truth.values())))
    columns = [column(name) for name in names]
    sign = {own.name: -1 if own.better == "lower" else 1 for own in columns}
    for _ in range(stores):
        draws: dict[tuple[str, str], np.ndarray] = {}
        for label, of_label in cells.items():
            for task, values in of_label.items():
                groups = np.split(rng.permutation(values), ends)[:count]
                draws |= {(row, task): group for row, group in zip(rows[label], groups, strict=True)}
        scores = scores_of(draws, noises)
        table = with_ranks(columns, with_marks(columns, table_cells(scores, columns), every), every)
        lost, is_misplaced = False, False
        for name in names:
            is_marked = any(row[name].mark for row in table.values())
            for label in cells:
                gains = [sign[name] * (of_other[name] - truth[label][name]) for of_other in truth.values()]
                better, as_good = count * sum(gain > 0 for gain in gains), count * sum(gain >= 0 for gain in gains)
                own = [table[row][name] for row in rows[label]]
                lost |= is_marked and not better and not all(cell.mark for cell in own)
                places = [cell.rank for cell in own if cell.rank]
                is_misplaced |= any(place.low > better + 1 or place.high < as_good for place in places)
        counted["marks"].append(lost)
        counted["ranks"].append(is_misplaced)
        for first, *others in rows.values():
            compared = comparison_table(first, [row for row in every if row != first], scores).rows
            is_wrong = any(row.label in others and row.verdict in ("higher", "lower") for row in compared)
            counted["compare"].append(is_wrong)
    return counted


def _holds(interval: tuple[float, float], value: float, name: str) -> bool:
    """Whether an interval holds a value to the digits that a table shows of the column ``name``."""
    rounding = 0.5 * 10.0 ** -column(name).digits
    return interval[0] - rounding <= value <= interval[1] + rounding


def measured_labels(
    stores: Sequence[Path],
    profile: str | None,
    least: int,
    labels: Sequence[str] = (),
    noise: Path | None = None,
    columns: Sequence[str] = TASKS,
) -> tuple[dict[str, Cells], dict[str, Noise]]:
    """By label the seeds of its columns, of labels that have ``least`` of each; by task what is known of their noise.

    Columns are of one suite. Raises ``ConfigError`` where no label has so many seeds, or one of ``labels`` has not.
    """
    scores, protocols = measured(stores, profile, suite_of_column(columns[0]))
    of_protocol = by_protocol([NoiseModel.load(noise)] if noise else noise_models())
    noises = {task: of_protocol[own] for task, (own, _) in protocols.items() if own in of_protocol}
    by_task = {task: cells_of(scores, task) for task in columns}
    seeds = {
        label: min(len(of_task.get(label, ())) for of_task in by_task.values())
        for label in sorted(set().union(*by_task.values()))
    }
    for label in labels:
        if label not in seeds:
            raise ConfigError(f"label {label!r}: not stored{did_you_mean(label, seeds)}")
        if seeds[label] < least:
            raise ConfigError(f"label {label!r}: {seeds[label]} seeds of every task; {least} are needed")
    if max(seeds.values(), default=0) < least:
        most = max(seeds.values(), default=0)
        raise ConfigError(
            f"no label has {least} seeds of every task; the most is {most}: name more stores, or fewer seeds"
        )
    chosen = [label for label in labels or seeds if seeds[label] >= least]
    return {label: {task: by_task[task][label] for task in columns} for label in chosen}, noises


def row_text(label: str, seeds: int, rival_seeds: int, counted: Counted, splits: int | None = None) -> str:
    """A row of the table."""
    numbers = [f"{seeds}:{rival_seeds}"]
    for name, values in counted.items():
        middle = np.median if name in WIDTHS else np.mean
        numbers.append(f"{middle(values):{'.2f' if name in WIDTHS else '.3f'}}" if values else "-")
    return f"| {' | '.join([label, *numbers, *([] if splits is None else [str(splits)])])} |"


def add_options(parser: argparse.ArgumentParser, seeds: Sequence[int], stores: int) -> None:
    """The options that name measured seeds and how many to draw."""
    parser.add_argument("store", nargs="+", type=Path, help="results folders")
    parser.add_argument("--profile", help="that the runs follow; by default the usual one of the suite")
    parser.add_argument("--noise", type=Path, help="a noise model's file")
    parser.add_argument("--labels", nargs="+", default=(), help="measured labels; by default all with enough seeds")
    parser.add_argument("--least", type=int, default=10, help="seeds of every task of a measured label")
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds, help="of every label of a table")
    parser.add_argument("--stores", type=int, default=stores, help="tables of each number of seeds")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, or the parser's error where a number is out of range."""
    options = parser.parse_args(arguments)
    if min([*options.seeds, *getattr(options, "rival_seeds", ())]) < 2:
        parser.error("a label needs 2 seeds or more")
    if options.stores < 1 or options.least < 2 or options.seed < 0:
        parser.error("--stores must be at least 1, --least at least 2, and --seed at least 0")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, (3, 5), 20)
    parser.add_argument("--rival-seeds", type=int, nargs="*", default=[], help="of all but the first, besides")
    parser.add_argument("--column", choices=[*TASKS, LOSS], help="counted alone, in place of MAD's tasks and average")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--disjoint", action="store_true", help="draw a baseline that shares no seed with a rival")
    kinds.add_argument(
        "--twins", action="store_true", help="draw tables of all labels, of which no two rows share a seed"
    )
    options = parsed(parser, arguments)
    pairs = [(n, n) for n in options.seeds] + [(n, m) for n in options.seeds for m in options.rival_seeds if n < m]
    is_split = options.disjoint or options.twins
    least = max(options.least, *(n + m for n, m in pairs if is_split), 0)
    try:
        columns = (options.column,) if options.column else TASKS
        chosen, noises = measured_labels(options.store, options.profile, least, options.labels, options.noise, columns)
    except MadbenchError as error:
        sys.exit(str(error))
    names, count = (OF_DISJOINT, split) if options.disjoint else (COUNTED, simulate)
    names = OF_TWINS if options.twins else names
    headings = ["label", "seeds", *names, *["splits"] * is_split]
    print(f"| {' | '.join(headings)} |\n| --- |{' ---: |' * (len(headings) - 1)}")
    for n, m in pairs:
        totals = nothing_of(names)
        splits = [min(map(len, cells.values())) // (n + m) for cells in chosen.values()]
        if options.twins:
            totals = twins(chosen, n, m, noises, options.stores, np.random.default_rng([options.seed, n, m]))
        for i, (label, cells) in enumerate(chosen.items() if not options.twins else ()):
            counted = count(cells, n, m, noises, options.stores, np.random.default_rng([options.seed, n, m, i]))
            for name, values in counted.items():
                totals[name] += values
            print(row_text(label, n, m, counted, splits[i] if is_split else None), flush=True)
        print(row_text("all", n, m, totals, sum(splits) if is_split else None), flush=True)


if __name__ == "__main__":
    main()
