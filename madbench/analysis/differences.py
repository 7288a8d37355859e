"""Differences of scores from those of a baseline, paired by seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from madbench.analysis.statistics import students_t


@dataclass(frozen=True)
class Difference:
    """A row's mean minus that of the baseline, paired by seed."""

    mean: float
    low: float
    """Lower end of the 95% interval of Student's t; NaN for a single pair."""
    high: float
    n: int
    """Pairs."""

    def text(self, digits: int) -> str:
        """``+1.3 [-0.2,+2.8]``."""
        if math.isnan(self.low):
            return f"{self.mean:+.{digits}f}"
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f},{self.high:+.{digits}f}]"


def paired_differences(scores: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """Differences of scores from those of the label ``baseline`` by (label, column), over the seeds that both have.

    A seed counts once all its jobs are done. None where a seed of either side has no number, because it diverged.
    """
    whole = scores.loc[scores.done == scores.expected, ["label", "column", "seed", "value"]]
    pairs = whole[whole.label != baseline].merge(whole[whole.label == baseline], on=["column", "seed"])
    differences = (pairs.value_x - pairs.value_y).groupby([pairs.label_x, pairs.column], sort=False)
    return {key: _difference(values) for key, values in differences if not values.isna().any()}


def _difference(values: pd.Series) -> Difference:
    n, mean = len(values), math.fsum(values) / len(values)
    if n < 2:
        return Difference(mean, math.nan, math.nan, n)
    half = students_t(n - 1) * values.std() / math.sqrt(n)
    return Difference(mean, mean - half, mean + half, n)
