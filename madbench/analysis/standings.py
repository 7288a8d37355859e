"""Standings of models: the mean rank over several columns, and the number of columns in which a model is the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Standing:
    """The standing of one model: its mean rank over all columns, and the number of columns in which it is the best."""

    average_rank: float
    top1: int


def standings(rows: Mapping[str, Sequence[float]]) -> dict[str, Standing]:
    """The mean rank and the number of first places of each model. Papers call them Avg Rank and #Top1.

    ``rows`` has the values of each model, one per column; higher is better. Ranks begin at 1. Models that are equal in
    a column share their mean rank, and every best model of a column counts as first.

    >>> standings({"a": [0.3, 0.2], "b": [0.1, 0.2], "c": [0.2, 0.1]})["b"]
    Standing(average_rank=2.25, top1=1)
    """
    columns = list(zip(*rows.values(), strict=True))

    def rank(value: float, column: Sequence[float]) -> float:
        return sum(other > value for other in column) + (1 + column.count(value)) / 2

    return {
        name: Standing(
            fmean(rank(value, column) for value, column in zip(values, columns)),
            sum(value == max(column) for value, column in zip(values, columns)),
        )
        for name, values in rows.items()
    }
