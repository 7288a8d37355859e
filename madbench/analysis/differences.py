"""Differences of scores from those of a baseline, paired by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd


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
    found = {}
    whole = scores[scores.done == scores.expected]
    for column, rows in whole.groupby("column", sort=False):
        by_seed = {label: of_label.set_index("seed").value for label, of_label in rows.groupby("label", sort=False)}
        if baseline not in by_seed:
            continue
        for label, ours in by_seed.items():
            paired = pd.concat([ours, by_seed[baseline]], axis=1, join="inner")
            if label != baseline and len(paired) and not paired.isna().any(axis=None):
                found[label, column] = _difference((paired.iloc[:, 0] - paired.iloc[:, 1]).tolist())
    return found


def _difference(values: Sequence[float]) -> Difference:
    from scipy import stats

    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Difference(mean, math.nan, math.nan, n)
    half = stats.t.ppf(0.975, n - 1) * math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return Difference(mean, mean - half, mean + half, n)
