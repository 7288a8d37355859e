"""The language-model half of the ablation table: losses and steps to thresholds, a label a row."""

from __future__ import annotations

import csv
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from madbench.analysis.language_caption import caption, equal_time_heading, timing_differences
from madbench.analysis.language_runs import only_protocol
from madbench.analysis.loss_curves import (
    LOSSES,
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    run_losses,
    steps_name,
    thresholds_above,
)
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.errors import ConfigError
from madbench.resources import PUBLISHED as PUBLISHED_TABLES
from madbench.runs import Run

_NO_SPREAD = ("tokens_per_second", "budget_ratio")  # what differs between seeds is not their noise


@dataclass(frozen=True)
class Statistic:
    """One number of a label over its seeds."""

    mean: float
    """Mean over the seeds that have the number; NaN where none has it, or one should have it but diverged."""
    spread: float
    """Standard deviation over those seeds (n - 1); NaN for fewer than two, and for speed and budget."""
    n: int
    """Seeds that have the number."""
    seeds: int
    """Seeds with a run."""
    diverged: int = 0
    """Seeds that do not have it because they diverged."""

    def text(self, digits: int) -> str:
        """``3.067 ±0.012``; ``14 (1/2)`` where one of two seeds has the number; nothing where none has it."""
        if self.diverged:
            return "diverged"
        if self.n == 0:
            return ""
        spread = "" if math.isnan(self.spread) else f" ±{self.spread:,.{digits}f}"
        partial = f" ({self.n}/{self.seeds})" if self.n < self.seeds else ""
        return f"{self.mean:,.{digits}f}{spread}{partial}"


@dataclass(frozen=True)
class Column:
    """One number of every label; ``name`` is that of :func:`madbench.analysis.loss_curves.run_losses`."""

    name: str
    heading: str
    digits: int
    """Decimal places."""


@dataclass(frozen=True)
class LanguageTable(TextTable):
    """Rows of :class:`Statistic`, by label and column; see :func:`language_table`."""

    columns: list[Column]
    rows: dict[str, dict[str, Statistic]]
    published: dict[str, dict[str, float]]
    """The paper's numbers by label and column; empty where they may not be set against ours."""
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", *(column.heading for column in self.columns), "n"]
        lines = []
        for label, row in self.rows.items():
            lines.append([label, *(row[column.name].text(column.digits) for column in self.columns)])
            lines[-1].append(str(row["loss_l5"].seeds))
            if theirs := self.published.get(label):
                numbers = [theirs.get(column.name, "") for column in self.columns]
                lines.append([PUBLISHED, *(f"{x:.3f}" if isinstance(x, float) else str(x) for x in numbers), ""])
        return headings, lines

    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "label": label,
                "quantity": name,
                "mean": None if math.isnan(value.mean) else value.mean,
                "spread": None if math.isnan(value.spread) else value.spread,
                "n": value.n,
                "seeds": value.seeds,
                "diverged": value.diverged,
                "published": self.published.get(label, {}).get(name),
            }
            for label, row in self.rows.items()
            for name, value in row.items()
        ]


def language_table(
    runs: Sequence[Run], labels: Sequence[str] | None = None, thresholds: Sequence[float] | None = None
) -> LanguageTable:
    """The table of ``runs``, means over seeds.

    Args:
        runs: finished and diverged language-model runs of one protocol, with their curves.
        labels: order of the rows; that of the runs by default.
        thresholds: losses x of the columns "to x": by default the paper's where its rows are shown, else the four
            multiples of 0.1 down to the lowest training loss of any run.

    Raises ``ConfigError`` for no run, for runs of several protocols, and for a threshold that is no loss.
    """
    protocol = only_protocol(runs)
    published = published_losses() if protocol.is_comparable_with_paper else {}
    if thresholds is None:
        lowest = min((row["train_loss"] for run in runs for row in evaluations(run)), default=math.nan)
        thresholds = PAPER_THRESHOLDS if published else thresholds_above(lowest)
    _check(thresholds)
    losses = run_losses(runs, thresholds)
    losses["budget_ratio"] = [run.record.details.get("budget_ratio", math.nan) for run in runs]
    by_label = dict(list(losses.groupby("label", sort=False)))
    columns = _columns(runs, losses, thresholds)
    rows = {
        label: {column.name: _statistic(by_label[label], column.name) for column in columns}
        for label in labels or by_label
        if label in by_label
    }
    return LanguageTable(columns, rows, published, caption(runs, losses, thresholds, bool(published)))


def _check(thresholds: Sequence[float]) -> None:
    for threshold in thresholds:
        if not 0 < threshold < math.inf:
            raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
    if len(set(thresholds)) < len(thresholds):
        raise ConfigError(f"thresholds {', '.join(f'{x:g}' for x in thresholds)}: give each once")


def _columns(runs: Sequence[Run], losses: pd.DataFrame, thresholds: Sequence[float]) -> list[Column]:
    """The columns that say something: no bytes or no comparison of times, no column of them."""
    one_seed = losses.label.is_unique
    columns = [Column("loss_l5", "L5", 3), Column("validation_loss", "Val", 3)]
    if losses.validation_bits_per_byte.notna().any():
        columns.append(Column("validation_bits_per_byte", "Bits/byte", 3))
    columns += [Column(steps_name(x), f"to {float(x)}", 0 if one_seed else 1) for x in thresholds]
    if not timing_differences(runs):
        common = common_seconds(runs)
        if losses.label.nunique() > 1 and math.isfinite(common):
            columns.append(Column("equal_time_validation_loss", equal_time_heading(common), 3))
        columns.append(Column("tokens_per_second", "Tokens/s", 0))
    return [*columns, Column("budget_ratio", "Budget", 3)]


def _statistic(of_label: pd.DataFrame, name: str) -> Statistic:
    values = of_label[name].astype(float)
    diverged = int((of_label.status == "diverged").sum()) if name in LOSSES else 0
    mean = math.nan if diverged else values.mean()
    spread = math.nan if diverged or name in _NO_SPREAD else values.std()
    return Statistic(mean, spread, int(values.notna().sum()), len(values), diverged)


@functools.cache
def published_losses() -> dict[str, dict[str, float]]:
    """Table 1, right, of the HyperMLP paper: loss_l5 and steps_to_x by label, without the steps it has not."""
    with open(PUBLISHED_TABLES / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        return {
            row["label"]: {"loss_l5": float(row["nanogpt_loss_l5"])}
            | {name: int(value) for name, value in row.items() if name.startswith("steps_to_") and value}
            for row in csv.DictReader(file)
        }
