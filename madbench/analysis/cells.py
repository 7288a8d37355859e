"""The cells of result tables: means over seeds, marks for the best of a column, ranks, and the legend."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from madbench.analysis.inference import LEVEL, Rank, Sample, binomial_interval, not_best, ranks
from madbench.analysis.marked_text import BEST, WITHIN_NOISE, Shows, with_minus
from madbench.analysis.rendering import without_nan
from madbench.analysis.samples import samples_of
from madbench.labels.budgets import MOST_MATCHED
from madbench.suites.columns import Column
from madbench.suites.planning import LEAST_SEEDS

OVER_BUDGET = "‖"
"""The sign of a label whose budget ratio is too high for a fair comparison, so that it cannot be the best."""


@dataclass(frozen=True)
class Cell:
    """One number of a table, with the seeds and jobs that it was computed from."""

    sample: Sample
    """The values of the seeds that have a number, from at least one finished job each."""
    done: int = 1
    """The number of jobs with a result."""
    expected: int = 1
    """The number of jobs that the final mean needs, whether they are done or not."""
    diverged: int = 0
    """The number of jobs whose training diverged: it ended in NaN or Inf."""
    is_over_budget: bool = False
    """True for a cell of the budget column if the label is too far over budget to compete."""
    mark: str = ""
    """``best``, ``within_noise`` (not significantly worse than the best) or empty; see :func:`with_marks`."""
    rank: Rank | None = None
    """The rank among the labels that compete; see :func:`with_ranks`. None if the label does not compete."""

    @classmethod
    def of_number(cls, value: float) -> Cell:
        """A cell for a number that is not a mean over seeds, such as a count."""
        return cls(Sample(np.array([float(value)])))

    @property
    def n(self) -> int:
        """The number of seeds from which the mean is computed. 0 if no seed has a number."""
        return self.sample.n

    @property
    def is_whole(self) -> bool:
        """True if all expected jobs of the cell are done."""
        return self.done == self.expected

    @property
    def can_compete(self) -> bool:
        """True if the cell may be the best of its column: it has at least ``LEAST_SEEDS`` seeds, and all jobs are done.

        In a column of steps to a loss, at least one seed must also reach the loss.
        """
        return self.n >= LEAST_SEEDS and self.is_whole and not self.is_out_of_reach

    @property
    def mean(self) -> float:
        """The mean over seeds. In a column of steps to a loss: the mean over the seeds that reach the loss."""
        values = self.sample.finite_values
        return float(values.mean()) if self._is_of_steps and len(values) else self.sample.mean

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95% interval of the mean.

        Both are NaN for a single seed, for unfinished jobs, and for steps to a loss that some seeds do not reach.
        """
        return self.sample.interval if self.is_whole and not self._is_of_steps else (math.nan, math.nan)

    @property
    def is_out_of_reach(self) -> bool:
        """True if the column counts the steps to a loss and no seed reaches it."""
        return self._is_of_steps and self.sample.all_diverged

    @property
    def _is_of_steps(self) -> bool:
        return self.sample.has_diverged and self.sample.scale.is_counted

    @property
    def deviation(self) -> float:
        """The standard deviation, with denominator n - 1, of the seeds in :attr:`mean`. NaN for a single seed."""
        finite = self.sample.finite_values
        values = finite if self._is_of_steps and len(finite) else self.sample.values
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    def text(self, column: Column, n: int | None = None, shows: Shows = "interval") -> str:
        """The cell as text, or ``column.missing`` if no job is done.

        Examples: ``61.2 ±3.0``; ``76.1† (3/6)`` for one seed with 3 of 6 jobs done; ``800 [2/3]`` for steps to a loss
        that 2 of 3 seeds reach; ``3 [1,7]`` for a rank with its interval, ``-`` for a label without a rank;
        ``diverged`` if all seeds diverged.

        Args:
            column: the column of the cell.
            n: the number of seeds of the row. If the cell has fewer seeds, but more than one, the text ends in the
                number of seeds of the cell, such as ``n=3``.
            shows: the content of the cell. Columns in which no direction is better always show the number alone.
        """
        if shows == "rank" and column.better:
            return self.rank.text if self.rank else "-"
        sample = self.sample
        if self.done == 0 or not self.n:
            return column.missing
        partial = f" ({self.done}/{self.expected})" if not self.is_whole else ""
        if sample.has_diverged and sample.all_diverged:
            return column.missing if self.is_out_of_reach else f"diverged{partial}"
        number = with_minus(f"{self.mean:,.{column.digits}f}")
        if not column.better:
            return f"{number}{OVER_BUDGET}" if self.is_over_budget else number
        if self.n == 1:
            noise = "†"
        elif shows == "sd":
            noise = "" if math.isnan(self.deviation) else f" ±{self.deviation:,.{column.digits}f}"
        elif partial:
            noise = ""
        elif self._is_of_steps:
            noise = f" [{len(sample.finite_values)}/{self.n}]"
        else:
            noise = f" ±{sample.half_width:,.{column.digits}f}"
        signs = "‡" if sample.has_diverged and not column.is_steps else ""
        fewer = f" n={self.n}" if not partial and "/" not in noise and n is not None and 1 < self.n < n else ""
        return number + noise + signs + partial + fewer

    def numbers(self, column: Column) -> dict[str, Any]:
        """The numbers of the cell by name, for programs. A number that does not exist is ``None``.

        - ``mean``, ``low`` and ``high``: the mean over seeds and its 95% interval. ``spread``: the standard deviation.
        - ``n``: the number of seeds. ``done``, ``expected``, ``diverged``: numbers of jobs.
        - ``rank``, ``rank_low`` and ``rank_high``: the rank and its interval, only if the cell has a rank.
        - ``solved``: the number of seeds that solve the task. ``solved_low``, ``solved_high``: the 95% interval of the
          probability that a seed solves it.
        - ``diverged_high``: the upper end of the 95% interval of the probability that a seed diverges.
        - ``mark``: :attr:`mark`.
        """
        low, high = self.interval
        deviation = self.deviation if column.better else math.nan
        numbers = {"mean": self.mean, "low": low, "high": high, "spread": deviation, "n": self.n}
        if self.rank:
            numbers |= {"rank": self.rank.place, "rank_low": self.rank.low, "rank_high": self.rank.high}
        solved, ends = None, (math.nan, math.nan)
        if self.sample.has_threshold:
            solved = self.sample.solved
            ends = binomial_interval(solved, self.n)
        diverged = binomial_interval(self.sample.diverged_count, self.n)[1] if self.n and column.better else math.nan
        shares = {"solved_low": ends[0], "solved_high": ends[1], "diverged_high": diverged}
        jobs = {"done": self.done, "expected": self.expected, "diverged": self.diverged}
        return without_nan(numbers | {"solved": solved, **shares, "mark": self.mark}) | jobs


PLUS_MINUS = {
    "interval": "±: half-width of the 95% interval of the mean over seeds. A variance of few seeds is increased,"
    " because few seeds can hide a larger spread, or a label that solves a task in some seeds only.",
    "sd": "±: standard deviation over seeds.",
    "rank": "",
}
"""The sentences of the notes that explain ±, by the content of the cells (:data:`Shows`)."""
LEGEND = (
    "‡: some runs diverged; they count at chance. †: single seed, not tested. n=: fewer seeds than the row"
    " has. (d/e): d of e jobs are done, so the number is not final and not compared. Bold: the best mean of its"
    " column, to the digits shown. Underlined: not significantly worse than the best, by"
    f" the test of madbench compare (two-sided, Holm-corrected over the table, {LEVEL:.0%}, at least"
    f" {LEAST_SEEDS} seeds). {OVER_BUDGET}: over budget (! or a ratio above {MOST_MATCHED}); such labels do not"
    " compete."
)
"""The sentences of the notes that explain all signs of cells except ±."""
RANK_NOTE = (
    "Ranks: 1 is the best mean; labels that do not compete have no rank. An interval has every rank that the tests do"
    f" not rule out: all pairs of a column are tested, Holm-corrected at {LEVEL:.0%}. So the intervals of a column hold"
    f" for all labels at once with a probability of {1 - LEVEL:.0%}. Equally good labels may have any rank among them."
)
"""The sentences that explain ranks in the notes."""

Cells = Mapping[str, Mapping[str, Cell]]
"""Cells by the name of the row and the name of the column."""


def cells_of(scores: pd.DataFrame, columns: Sequence[Column]) -> dict[str, dict[str, Cell]]:
    """The cells of a frame of scores, by the name of the row and of the column, without marks and ranks.

    A seed without a finished job is left out of the mean, but its jobs count as expected. If one of the ``columns`` is
    an average, ``scores`` must contain its tasks, because the interval of the average is computed from them.
    """
    samples = samples_of(scores[scores.done > 0], is_whole=False)
    own_scores = scores[scores.column.isin([column.name for column in columns])]
    counts = own_scores.groupby(["label", "column"], sort=False)[["done", "expected", "diverged"]].sum()
    no_sample = Sample(np.array([]))
    cells: dict[str, dict[str, Cell]] = {}
    for (label, name), (done, expected, diverged) in zip(counts.index, counts.to_numpy().tolist()):
        sample = samples.get(name, {}).get(label, no_sample)
        cells.setdefault(label, {})[name] = Cell(sample, done, expected, diverged)
    return cells


def _competing(columns: Sequence[Column], cells: Cells, names: Container[str]) -> dict[str, dict[str, Cell]]:
    """The cells that compete to be the best of their column, by the name of the column and then of the row.

    A cell competes if its row is in ``names`` and :attr:`Cell.can_compete` is true. A column is left out if fewer than
    two cells compete, or if none of the competing labels has learned the task.
    """
    competing: dict[str, dict[str, Cell]] = {}
    for column in (column for column in columns if column.better):
        rows = {name: row[column.name] for name, row in cells.items() if column.name in row and name in names}
        competitors = {name: cell for name, cell in rows.items() if cell.can_compete}
        if len(competitors) > 1 and any(cell.sample.has_learned for cell in competitors.values()):
            competing[column.name] = competitors
    return competing


def with_ranks(columns: Sequence[Column], cells: Cells, names: Container[str]) -> dict[str, dict[str, Cell]]:
    """A copy of ``cells`` in which each cell that competes for the best of its column has its rank.

    Only the rows in ``names`` compete, under the conditions of :func:`with_marks`. Other cells keep the rank None.
    """
    new_cells, competing = {name: dict(row) for name, row in cells.items()}, _competing(columns, cells, names)
    for column in (column for column in columns if column.name in competing):
        samples = {name: cell.sample for name, cell in competing[column.name].items()}
        for name, rank in ranks(samples, column.better == "higher").items():
            new_cells[name][column.name] = replace(new_cells[name][column.name], rank=rank)
    return new_cells


def with_marks(columns: Sequence[Column], cells: Cells, names: Container[str]) -> dict[str, dict[str, Cell]]:
    """A copy of ``cells`` with marks on the best cell of each column and on cells that are not significantly worse.

    A cell competes to be the best if its row is in ``names``, it has at least ``LEAST_SEEDS`` seeds, and all its jobs
    are done. In a column of steps to a loss, at least one seed must also reach the loss. A column has no marks if fewer
    than two cells compete, or if no competing label has learned the task.

    Every competing mean that equals the best, after rounding to the resolution of the column, is marked as the best.
    The test is :func:`madbench.analysis.inference.not_best`. Holm's correction is over all columns with
    ``is_compared``, and separately over all other columns.
    """
    new_cells, competing = {name: dict(row) for name, row in cells.items()}, _competing(columns, cells, names)
    if not competing:
        return new_cells
    by_name = {column.name: column for column in columns}
    samples = {
        name: ({row: cell.sample for row, cell in of_column.items()}, by_name[name].better == "higher")
        for name, of_column in competing.items()
    }
    compared_samples = {name: of_column for name, of_column in samples.items() if by_name[name].is_compared}
    others = {name: of_column for name, of_column in samples.items() if name not in compared_samples}
    worse = not_best(compared_samples) | not_best(others)
    for name, (of_column, is_higher_better) in samples.items():
        counts = {row: np.round(sample.mean / by_name[name].resolution) for row, sample in of_column.items()}
        best = (max if is_higher_better else min)(counts.values())
        for row, count in counts.items():
            if row not in worse[name]:
                mark = BEST if count == best else WITHIN_NOISE
                new_cells[row][name] = replace(competing[name][row], mark=mark)
    return new_cells


def row_texts(columns: Sequence[Column], row: Mapping[str, Cell], shows: Shows = "interval") -> list[str]:
    """The cells of one row as text, one text per column. A missing cell has the text ``column.missing``.

    The text of a cell ends in its number of seeds if it has several seeds, but fewer than another cell of the row. Only
    cells with the same direction are compared for this: accuracies (higher is better), or losses and steps (lower is
    better).
    """
    seeds: dict[str, int] = {}
    for column in columns:
        if column.better and column.name in row:
            seeds[column.better] = max(seeds.get(column.better, 0), row[column.name].n)
    return [
        row[column.name].text(column, seeds.get(column.better), shows) if column.name in row else column.missing
        for column in columns
    ]
