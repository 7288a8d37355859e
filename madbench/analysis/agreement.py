"""Rank correlations of two columns, and the agreement of the seeds in one column, each with a 95% interval.

Each label is one observation, whereas :mod:`madbench.analysis.inference` has one observation per seed. So an interval
shows how much a statistic would change with other labels of the same kind. Intervals are percentiles of a bootstrap
over labels (Efron 1979) with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from madbench.analysis.inference import LEVEL

DRAWS = 2000
"""The number of bootstrap draws of the labels."""
LEAST_LABELS = 4
"""The smallest number of labels for which a statistic is computed. The order of fewer labels means almost nothing."""


@dataclass(frozen=True)
class Agreement:
    """A rank correlation or an intraclass correlation over labels, with its 95% interval.

    ``value`` is the correlation, and ``low`` and ``high`` are the ends of the interval. All three are NaN if the
    correlation cannot be computed. ``labels`` is the number of labels.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    labels: int = 0


def rank_correlation(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Agreement:
    """Spearman's rank correlation of two columns of a table, over the labels that have a number in both columns.

    ``ours`` and ``theirs`` map each label to its number in one column. Equal numbers share their mean rank. The result
    is NaN for fewer than :data:`LEAST_LABELS` common labels, and if all numbers of a column are equal.
    """
    labels = [label for label in ours if label in theirs]
    x, y = (np.array([column[label] for label in labels], float) for column in (ours, theirs))
    return _bootstrap(lambda index: _spearman(x[index], y[index]), len(labels))


def intraclass_correlation(values: Sequence[np.ndarray]) -> Agreement:
    """The intraclass correlation ICC(1): the share of the variance between runs that is due to their labels.

    The result is NaN for fewer than :data:`LEAST_LABELS` labels, and if no label has two seeds. The method is a one-way
    analysis of variance, so the estimate can be negative. If labels have different numbers of seeds, the method uses
    the effective number of seeds per label (Donner and Koval 1980).

    Args:
        values: one array (seeds,) per label, with one value per seed.
    """
    counts, means = (np.array([measure(label_values) for label_values in values], float) for measure in (len, np.mean))
    squares = np.array([label_values.size * label_values.var() for label_values in values], float)
    return _bootstrap(lambda index: _icc(counts[index], means[index], squares[index]), len(values))


def _bootstrap(statistic: Callable[[np.ndarray], np.ndarray], labels: int) -> Agreement:
    """Compute a statistic over labels and its bootstrap interval. NaN for fewer than :data:`LEAST_LABELS` labels.

    Args:
        statistic: a function from label indices, an array (draws, labels), to the statistic of each draw, an array
            (draws,).
        labels: the number of labels.
    """
    if labels < LEAST_LABELS:
        return Agreement(labels=labels)
    value = float(statistic(np.arange(labels)[None])[0])
    if math.isnan(value):
        return Agreement(labels=labels)
    statistics = statistic(np.random.default_rng(0).integers(labels, size=(DRAWS, labels)))
    low, high = np.nanquantile(statistics, [LEVEL / 2, 1 - LEVEL / 2])  # a draw of equal values gives NaN
    return Agreement(value, float(low), float(high), labels)


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # importing it takes half a second

    ranks = [rankdata(column, axis=1) for column in (x, y)]
    a, b = (table - table.mean(axis=1, keepdims=True) for table in ranks)
    with np.errstate(invalid="ignore"):
        correlations: np.ndarray = (a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    return correlations


def _icc(counts: np.ndarray, means: np.ndarray, squares: np.ndarray) -> np.ndarray:
    labels, runs = counts.shape[1], counts.sum(axis=1)
    grand = (counts * means).sum(axis=1) / runs
    between_labels = (counts * (means - grand[:, None]) ** 2).sum(axis=1) / (labels - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        within_labels = squares.sum(axis=1) / (runs - labels)
        effective = (runs - (counts**2).sum(axis=1) / runs) / (labels - 1)
        shares: np.ndarray = (between_labels - within_labels) / (between_labels + (effective - 1) * within_labels)
    return shares
