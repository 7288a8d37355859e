"""From a frame of scores to the samples that inference works on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from madbench.analysis.inference import Difference, Sample, Scale, difference
from madbench.analysis.quantities import MAD_AVERAGE, STEPS, column
from madbench.tasks import MAD_TASKS

Samples = dict[str, dict[str, Sample]]
"""By column, and by label."""


def samples_of(scores: pd.DataFrame, is_whole: bool = True) -> Samples:
    """The samples of ``scores`` (:mod:`madbench.analysis.scores`), of one protocol; seeds whose jobs are all done count.

    With ``is_whole`` false all seeds with a number count. A sample of the MAD average has those of its tasks, on the
    same seeds, as parts.
    """
    whole = whole_seeds(scores) if is_whole else scores.dropna(subset="value")
    whole = whole.sort_values("seed", kind="stable")
    found: Samples = {}
    for (name, label), rows in whole.groupby(["column", "label"], sort=False):
        found.setdefault(name, {})[label] = sample_of(name, rows)
    averages = found.get(MAD_AVERAGE, {})
    for label, average in averages.items():
        of_label = whole[whole.label == label]
        seeds = of_label.seed[of_label.column == MAD_AVERAGE]
        shared = of_label[of_label.seed.isin(seeds)]
        tasks = MAD_TASKS if set(MAD_TASKS) <= set(shared.column) else shared.column.unique()
        parts = tuple(sample_of(task, shared[shared.column == task]) for task in tasks if task != MAD_AVERAGE)
        averages[label] = replace(average, scale=replace(average.scale, solved=float("nan")), parts=parts)
    return found


def differences_from(scores: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """Differences of scores from those of the label ``baseline`` by (label, column); a seed counts once it is whole."""
    return {
        (label, name): difference(sample, of_column[baseline])
        for name, of_column in samples_of(scores).items()
        for label, sample in of_column.items()
        if label != baseline and baseline in of_column
    }


def whole_seeds(scores: pd.DataFrame) -> pd.DataFrame:
    """The rows of seeds whose jobs are all done and have a number."""
    return scores[(scores.done > 0) & (scores.done == scores.expected)].dropna(subset="value")


def count_left_out(scores: pd.DataFrame) -> int:
    """How many results of a label, column and seed are begun and not whole; averages are not counted again."""
    begun = scores[(scores.done > 0) & (scores.column != MAD_AVERAGE)]
    return len(begun) - len(whole_seeds(begun))


def sample_of(name: str, rows: pd.DataFrame) -> Sample:
    """The sample of one label on the column ``name``: ``rows`` of a frame of scores, one a seed."""
    values = rows.value.to_numpy(float)
    shown = column(name)
    resolution = 10**-shown.digits
    if is_counted := name.startswith(STEPS):
        resolution = float(np.gcd.reduce(values.astype(int))) or 1.0
    chance, solved, ceiling = rows[["chance", "solved", "ceiling"]].mean().tolist()
    scale = Scale(chance, solved, ceiling, shown.limits, resolution, is_counted)
    return Sample(values, scale, rows.is_diverged.to_numpy(bool))
