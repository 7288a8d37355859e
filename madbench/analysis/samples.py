"""Making samples (:class:`madbench.analysis.inference.Sample`) from a frame of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from madbench.analysis.inference import Difference, Sample, Scale, difference
from madbench.analysis.quantities import column, is_average, parts_of
from madbench.suites import Column

_SCALE = ("chance", "solved_threshold", "ceiling", "heuristic")
Samples = dict[str, dict[str, Sample]]
"""Samples by the name of the column and then by label."""


def samples_of(scores: pd.DataFrame, is_whole: bool = True) -> Samples:
    """The samples in a frame of scores (:mod:`madbench.analysis.scores`), by the name of the column and then by label.

    A seed counts if all its jobs are done. With ``is_whole=False``, it counts if it has a number. All scores of a
    column must have one protocol. The sample of an average has the samples of its tasks, on the same seeds, as
    ``parts``, so ``scores`` must have these tasks.
    """
    complete_scores = whole_seeds(scores) if is_whole else scores.dropna(subset="value")
    complete_scores = complete_scores.sort_values("seed", kind="stable")
    arrays = {
        name: complete_scores[name].to_numpy()
        for name in ("seed", "value", *_SCALE, "is_diverged")
        if name in complete_scores
    }
    places: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(complete_scores.label, complete_scores.column)):
        places.setdefault(key, []).append(i)
    rows = {key: {name: array[of_key] for name, array in arrays.items()} for key, of_key in places.items()}
    samples: Samples = {}
    for (label, name), of_key in rows.items():
        sample = sample_of(name, of_key)
        if is_average(name):
            rows_of_label = {name: of_name for (other, name), of_name in rows.items() if other == label}
            of_label = {name: of_name for name, of_name in rows_of_label.items() if not is_average(name)}
            tasks = parts_of(name) or tuple(of_label)
            scale = replace(sample.scale, solved_threshold=float("nan"))
            sample = replace(sample, scale=scale, parts=_parts(tasks, of_label, of_key["seed"]))
        samples.setdefault(name, {})[label] = sample
    return samples


def _parts(tasks: Sequence[str], rows: Mapping[str, Mapping[str, np.ndarray]], seeds: np.ndarray) -> tuple[Sample, ...]:
    """The samples of the ``tasks`` of an average, restricted to the ``seeds`` of the average.

    ``rows`` has the scores of one label, by task and then by the name of a column of the frame of scores, such as
    ``seed`` or ``value``. They are arrays with one value per seed.
    """
    assert set(tasks) <= rows.keys(), "scores with an average lack one of its tasks"
    shared = {task: np.isin(rows[task]["seed"], seeds) for task in tasks}
    assert all(is_shared.sum() == len(seeds) for is_shared in shared.values()), (
        "an average has a seed that its tasks lack"
    )
    return tuple(sample_of(task, {name: array[shared[task]] for name, array in rows[task].items()}) for task in tasks)


def differences_from(scores: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """The mean of each other label minus that of ``baseline``, with interval and test, by (label, name of the column).

    A seed counts if all its jobs are done. Columns in which one of the two labels has no seed that counts are left out.
    """
    return {
        (label, name): difference(sample, of_column[baseline])
        for name, of_column in samples_of(scores).items()
        for label, sample in of_column.items()
        if label != baseline and baseline in of_column
    }


def select_columns(scores: pd.DataFrame, has: Callable[[Column], bool]) -> pd.DataFrame:
    """The rows of the frame ``scores`` that belong to a column of results for which ``has`` returns True."""
    return scores[scores.column.map({name: has(column(name)) for name in scores.column.unique()}).astype(bool)]


def whole_seeds(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of the frame ``scores`` with a number and with all jobs done. A row has the score of one seed."""
    return scores[(scores.done > 0) & (scores.done == scores.expected)].dropna(subset="value")


def count_left_out(scores: pd.DataFrame) -> int:
    """The number of seeds with only some of their jobs done, counted per label and column. Averages do not count."""
    started_scores = scores[(scores.done > 0) & ~scores.column.map(is_average).astype(bool)]
    return len(started_scores) - len(whole_seeds(started_scores))


def sample_of(name: str, rows: Mapping[str, np.ndarray]) -> Sample:
    """The sample of one label in the column of results ``name``.

    ``rows`` has the scores of the label in this column: arrays with one value per seed, by the name of a column of the
    frame of scores. ``value`` and ``is_diverged`` are required. Reference values such as ``chance``, which may differ
    between seeds, are averaged.
    """
    values = np.asarray(rows["value"], dtype=float)
    shown_column = column(name)
    resolution = shown_column.resolution
    if is_counted := shown_column.is_steps:  # values are multiples of the number of steps between evaluations
        resolution = float(np.gcd.reduce(values.astype(int))) or resolution
    of_scale = (np.asarray(rows.get(name, ()), dtype=float) for name in _SCALE)
    numbers = (array[~np.isnan(array)] for array in of_scale)
    chance, threshold, ceiling, heuristic = (float(array.mean()) if len(array) else float("nan") for array in numbers)
    scale = Scale(chance, threshold, ceiling, shown_column.limits, resolution, is_counted, heuristic)
    return Sample(values, scale, np.asarray(rows["is_diverged"], dtype=bool))
