"""Common types of all parts of the benchmark: settings, rows, and the table of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.analysis.rendering import TextTable
from madbench.bench.timing import TimingLimits
from madbench.jobs import MixedPrecision
from madbench.labels.names import typed_label

BenchRow = dict[str, Any]
"""A row of a table: key to value. If it has no numbers, ``error`` is the reason."""

PEER = "peer"
"""The label of the reference model in the rows."""


@dataclass(frozen=True)
class BenchSetup:
    """The settings of a measurement: what is measured, where, and for how long."""

    labels: Sequence[str]
    device: str
    precision: MixedPrecision
    limits: TimingLimits
    profile: str
    """Profile of MAD training."""
    lengths: Sequence[int] = ()
    """Lengths of sequences. Empty for the default lengths of each part."""
    batch: int | None = None
    """Sequences per batch. None for the default number of each part."""
    d_model: int | None = None
    """Width of the model. None for the default width of each part."""
    peer: Path | None = None
    """The folder with a checkout of the reference code. None to leave the reference out."""
    paths: Sequence[str] = ()
    """Paths of mixers. Empty for all paths that run here."""
    compiles: bool = False
    """True to compile models, and to time the compiled chunked path of a mixer too."""

    @property
    def is_cpu(self) -> bool:
        return self.device == "cpu"

    def in_time(self, groups: Iterable[Any]) -> Iterator[Any]:
        """Yield the cases ``groups`` one by one, until the time limit is over. The first is always yielded."""
        for i, group in enumerate(groups):
            if i and self.limits.is_over:
                return
            yield group


@dataclass(frozen=True)
class BenchColumn:
    """A column of the table of a :class:`BenchPart`."""

    name: str
    """The key of the column's value in a row."""
    heading: str
    format: str = "{}"
    """The format of the value, as for ``str.format``. It may name other values of the row."""

    def text(self, row: BenchRow) -> str:
        """The text of the column's cell in ``row``. "-" if the row has no value."""
        value = row.get(self.name)
        return "-" if value is None else self.format.format(value, **row)


@dataclass(frozen=True)
class RatioColumn(BenchColumn):
    """A column of numbers. The ratio in the key ``NAME_ratio`` of a row, if there is one, follows in parentheses.

    ``NAME`` is the name of the column.
    """

    def text(self, row: BenchRow) -> str:
        ratio = row.get(f"{self.name}_ratio")
        return super().text(row) if ratio is None else f"{super().text(row)} ({ratio:.2f})"


@dataclass(frozen=True)
class Curve:
    """The description of the figure of a benchmark part.

    ``x``, ``y``, ``series`` and ``panel`` are keys of the part's rows, whose values are drawn. ``x_label`` and
    ``y_label`` are the labels of the axes. The figure has one line per series, or bars if the values of ``x`` are not
    numbers.
    """

    x: str
    y: str
    y_label: str
    x_label: str = ""
    series: str = ""
    """Rows with equal values of this key form one series, with a color of its own. Empty for a single series."""
    panel: str = ""
    """Rows with equal values of this key are drawn in one panel. Empty for a single panel."""


@dataclass(frozen=True)
class BenchPart:
    """One part of the benchmark: how its rows are measured, and its table and figure."""

    name: str
    what: str
    """The title of the table, in a few words."""
    caption: str
    columns: Sequence[BenchColumn]
    curve: Curve
    measure: Callable[[BenchSetup], Iterator[BenchRow]]
    group: Sequence[str]
    """Keys of a row. Rows with equal values of all these keys form a group, whose members are timed in turns."""
    count: Callable[[BenchSetup], int]
    """Function that returns the number of groups (:attr:`group`) that a setup gives."""


@dataclass(frozen=True, repr=False)
class BenchTable(TextTable):
    """The measured rows of a :class:`BenchPart` as a table. Rows with an error are named below it."""

    part: BenchPart
    rows: Sequence[BenchRow]
    caption: str
    notes: str = ""
    shows_notes: bool = False
    latex_label: str = "tab:bench"

    @property
    def below(self) -> str:
        return super().below + self._failures

    @property
    def below_in_paper(self) -> str:
        return super().below_in_paper + self._failures

    @property
    def _failures(self) -> str:
        failed = "; ".join(_failure(row) for row in self.rows if row.get("error"))
        return f" Not timed: {failed}." if failed else ""

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        timed_rows, columns = [row for row in self.rows if not row.get("error")], self.part.columns
        used_columns = [
            column for column in columns if any(row.get(column.name) is not None for row in timed_rows)
        ] or columns[:1]
        return [column.heading for column in used_columns], [
            [column.text(row) for column in used_columns] for row in timed_rows
        ]

    def json_rows(self) -> list[dict[str, Any]]:
        """The measured rows. ``canonical`` is the canonical label, and ``label`` the label as the table shows it."""
        return [
            {**row, "label": typed_label(row["label"]), "canonical": row["label"]} if row.get("label") else dict(row)
            for row in self.rows
        ]


def _failure(row: BenchRow) -> str:
    """The text for a row that was not timed: its label, task, shape and path, and in parentheses the reason."""
    what = [str(row[key]) for key in ("label", "heading", "shape", "path") if row.get(key) is not None]
    return f"{' '.join(what)} ({row['error']})"
