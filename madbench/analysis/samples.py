"""From a frame of scores to the samples that inference works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from madbench.analysis.inference import Difference, Sample, Scale, difference
from madbench.analysis.quantities import MAD_AVERAGE, STEPS, column
from madbench.tasks import MAD_TASKS

_SCALE = ("chance", "solved", "ceiling")
Samples = dict[str, dict[str, Sample]]
"""By column, and by label."""


def samples_of(scores: pd.DataFrame, is_whole: bool = True) -> Samples:
    """The samples of ``scores`` (:mod:`madbench.analysis.scores`), of one protocol; a seed counts once all is done.

    With ``is_whole`` false all seeds with a number count. A sample of the MAD average has those of its tasks, on the
    same seeds, as parts.
    """
    whole = whole_seeds(scores) if is_whole else scores.dropna(subset="value")
    whole = whole.sort_values("seed", kind="stable")
    arrays = {name: whole[name].to_numpy() for name in ("seed", "value", *_SCALE, "is_diverged")}
    places: dict[tuple[str, str], list[int]] = {}
    for i, key in enumerate(zip(whole.label, whole.column)):
        places.setdefault(key, []).append(i)
    rows = {key: {name: array[of_key] for name, array in arrays.items()} for key, of_key in places.items()}
    found: Samples = {}
    for (label, name), of_key in rows.items():
        found.setdefault(name, {})[label] = sample_of(name, of_key)
    for label, average in found.get(MAD_AVERAGE, {}).items():
        seeds = rows[label, MAD_AVERAGE]["seed"]
        others = [name for one, name in rows if one == label and name != MAD_AVERAGE]
        parts = []
        for task in MAD_TASKS if set(MAD_TASKS) <= set(others) else others:
            is_shared = np.isin(rows[label, task]["seed"], seeds)
            if is_shared.any():
                parts.append(sample_of(task, {name: array[is_shared] for name, array in rows[label, task].items()}))
        scale = replace(average.scale, solved=float("nan"))
        found[MAD_AVERAGE][label] = replace(average, scale=scale, parts=tuple(parts))
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


def sample_of(name: str, rows: Mapping[str, np.ndarray]) -> Sample:
    """The sample of one label on the column ``name``; ``rows`` are columns of a frame of scores, one row a seed."""
    values = np.asarray(rows["value"], dtype=float)
    shown = column(name)
    resolution = 10**-shown.digits
    if is_counted := name.startswith(STEPS):
        resolution = float(np.gcd.reduce(values.astype(int))) or 1.0
    known = (array[~np.isnan(array)] for array in (np.asarray(rows[one], dtype=float) for one in _SCALE))
    chance, solved, ceiling = (float(array.mean()) if len(array) else float("nan") for array in known)
    scale = Scale(chance, solved, ceiling, shown.limits, resolution, is_counted)
    return Sample(values, scale, np.asarray(rows["is_diverged"], dtype=bool))
