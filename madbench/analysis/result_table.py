"""The table of results, with one row per label (or per row of a grid) and one column per task or loss.

Published numbers of a label are in an extra row below it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from madbench.analysis.baselines import Baseline
from madbench.analysis.cells import LEGEND, OVER_BUDGET, PLUS_MINUS, RANK_NOTE, Cell, row_texts
from madbench.analysis.inference import LEVEL, SETTLING_SEEDS, Difference
from madbench.analysis.marked_text import Origin, Shows, with_minus
from madbench.analysis.quantities import BUDGET_RATIO, NUM_SEEDS, difference_text
from madbench.analysis.rendering import PUBLISHED, TextTable, without_nan
from madbench.config import short_repr
from madbench.errors import ConfigError, did_you_mean
from madbench.labels.names import row_display_name
from madbench.rows import Row
from madbench.suites import Column, Suite
from madbench.suites.code_marks import SIGN

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_NAMED = 6
"""The largest number of labels per column that a caption names. For more labels it gives only their number."""
_OTHER_CODE = f"{SIGN}: some runs used other code"
_OTHER_CODE_IN_PAPER = f"{SIGN}: some runs used another version of the code"


@dataclass(frozen=True, repr=False)
class ResultTable(TextTable):
    """A table of results. :func:`madbench.analysis.tables.result_table` makes it."""

    suites: tuple[Suite, ...]
    columns: list[Column]
    """The columns of the table: for each suite its results, its budget ratio and its number of seeds."""
    rows: dict[str, Row]
    """The rows by name, in the order of the table."""
    cells: dict[str, dict[str, Cell]]
    """The cells by the name of the row and the name of the column."""
    published: Mapping[str, Mapping[str, float]]
    """The published numbers by the name of the row and the name of the column."""
    short: str
    """The protocol in a few words."""
    describe: Callable[[], str]
    """Returns sentences on the protocol for the notes. It is slow, so it is called only if notes are shown."""
    baseline: str = ""
    """The name of the row with which the other rows are compared. Empty without a comparison."""
    compared: Column | None = None
    """The column in which the differences from the baseline are shown. It need not be one of ``columns``."""
    differences: Mapping[tuple[str, str], Difference] = field(default_factory=dict)
    """The difference of a row from the baseline, by (name of the row, name of the column)."""
    published_sources: tuple[str, ...] = ()
    """Sentences that name the sources of the published numbers."""
    origin: Origin = Origin()
    """Sentences on how the results were made (:meth:`madbench.analysis.scores.Results.origin`)."""
    score_baselines: Callable[[], Mapping[Baseline, Mapping[str, float]]] = dict
    """Computes :attr:`baselines`. It is called only if the baselines are shown, and for JSON."""
    shows: Shows = "interval"
    shows_baselines: bool = False
    """True if scores that need no learning (:attr:`baselines`) have rows below the labels."""
    shows_notes: bool = False
    other_code: frozenset[str] = frozenset()
    """The names of the rows with runs that used other code than the installed code
    (:mod:`madbench.suites.code_marks`)."""
    parts: tuple[ResultTable, ...] = ()
    """One table per suite, if this table shows several suites side by side. Otherwise empty."""

    @functools.cached_property
    def baselines(self) -> Mapping[Baseline, Mapping[str, float]]:
        """The scores that need no learning, such as chance, by baseline and then by the name of the column."""
        return self.score_baselines()

    @property
    def title(self) -> str:
        return " and ".join(suite.title for suite in self.suites)

    @property
    def caption(self) -> str:
        return self._caption()

    @property
    def paper_caption(self) -> str:
        return self._caption(in_paper=True)

    def _caption(self, in_paper: bool = False) -> str:
        rows = (zip(self.columns, row_texts(self.columns, self.cells[name], self.shows)) for name in self.rows)
        cells = [cell for row in rows for cell in row]
        texts = "".join(text for _, text in cells)
        legends = dict.fromkeys(column.legend for column in self.columns if column.legend)
        counted_columns = [column for column, text in cells if "[" in text]
        marks = "".join(self.marks().values())
        signs = {
            **dict.fromkeys(legends, True),
            "±: 95% interval" if self.shows == "interval" else "±: standard deviation over seeds": "±" in texts,
            **{column.counts: True for column in counted_columns if column.counts and self.shows == "interval"},
            "†: single seed": "†" in texts,
            "‡: some runs diverged": "‡" in texts,
            _OTHER_CODE_IN_PAPER if in_paper else _OTHER_CODE: self.other_code,
            f"{OVER_BUDGET}: over budget, not compared": OVER_BUDGET in texts,
            "(d/e): d of e jobs are done": "(" in texts,
            f"bold: best; underlined: not significantly worse than the best ({LEVEL:.0%}, Holm-corrected)": marks,
            f"vs baseline: difference to {row_display_name(self.baseline)}": self.compared,
        }
        what = " and ".join(suite.measure for suite in self.suites)
        number = "rank of the mean over n seeds, [95% interval for all labels at once]" if self.shows == "rank" else ""
        meanings = "; ".join(text for text, is_there in signs.items() if is_there)
        caption = f"{what.capitalize()}, {number or 'mean over n seeds'} ({self.short}){meanings and f'. {meanings}'}."
        texts = [caption, *self.published_sources, self.origin.in_caption(in_paper), *self._sentences(in_paper)]
        return " ".join(filter(None, texts))

    def with_notes(self, in_paper: bool = False) -> str:
        """The text below a table that shows its notes: the notes, and sentences of the caption that they do not repeat.

        If ``in_paper``, the sentences of the caption have no advice and no commands.
        """
        signs = list(dict.fromkeys(column.legend for column in self.columns if column.legend))
        if self.other_code:
            signs.append(_OTHER_CODE_IN_PAPER if in_paper else _OTHER_CODE)
        texts = [
            self.notes,
            f"{'; '.join(signs)}." if signs else "",
            *self.published_sources,
            self.origin.in_caption(in_paper),
            *self._sentences(in_paper),
        ]
        return " ".join(filter(None, texts))

    def _sentences(self, in_paper: bool) -> list[str]:
        """Sentences for both caption and notes.

        They name the columns whose task only some seeds solve, and explain the rows of scores that need no learning, if
        shown.
        """
        return [self._split_sentence(in_paper), *(baseline.sentence for baseline in self._shown_baselines)]

    def _split_sentence(self, in_paper: bool) -> str:
        """A sentence that names, per column, the labels with some seeds that solve the task and some that do not.

        Unless ``in_paper``, it advises to train more seeds if there are few. Empty if there are no such labels, or if
        the table shows ranks.
        """
        if self.shows == "rank":
            return ""
        split = {column.heading: self._split_rows(column) for column in self.columns if column.better}
        split = {heading: names for heading, names in split.items() if names}
        texts = []
        for heading, names in split.items():
            shown = map(row_display_name, names) if len(names) <= MOST_NAMED else [f"{len(names)} labels"]
            texts.append(f"{heading} ({', '.join(shown)})")
        fewest = min((self.cells[x][c.name].n for c in self.columns for x in self._split_rows(c)), default=0)
        if not texts:
            return ""
        advice = (
            f" (train {SETTLING_SEEDS} seeds for a reliable mean)" if fewest < SETTLING_SEEDS and not in_paper else ""
        )
        return f"Solved by some seeds and not by others{advice}: {', '.join(texts)}."

    def _split_rows(self, column: Column) -> list[str]:
        return [
            name
            for name in self.rows
            if column.name in self.cells[name] and self.cells[name][column.name].sample.splits
        ]

    @property
    def _shown_baselines(self) -> list[Baseline]:
        return [baseline for baseline, values in self.baselines.items() if values] if self.shows_baselines else []

    @functools.cached_property
    def notes(self) -> str:
        parts = [self.describe(), PLUS_MINUS[self.shows], LEGEND, RANK_NOTE if self.shows == "rank" else ""]
        parts.append(self.origin.notes)
        return " ".join(filter(None, parts))

    def texts(self, name: str) -> list[str]:
        """The cells of the row ``name`` as text, without the first cell, which has the name.

        If the table compares its rows with a baseline, the last text is the difference from the baseline.
        """
        texts = row_texts(self.columns, self.cells.get(name, {}), self.shows)
        if self.compared is None:
            return texts
        difference = self.differences.get((name, self.compared.name))
        text = difference_text(difference, self.compared.name) if difference else "-"
        return [*texts, "baseline" if name == self.baseline else text]

    def published_texts(self, name: str) -> list[str]:
        """The published numbers of the row ``name`` as texts, for the row below it: one per text of :meth:`texts`.

        A text is empty if no number was published. In the column of differences from the baseline, it is always empty.
        """
        numbers = self.published.get(name, {})
        texts = [with_minus(f"{numbers[x.name]:.{x.digits}f}") if x.name in numbers else "" for x in self.columns]
        return [*texts, ""] if self.compared else texts

    def baseline_texts(self) -> list[tuple[str, list[str]]]:
        """The rows of scores that need no learning, as pairs (name of the baseline, one text per column).

        Empty if the table does not show them.
        """
        texts = []
        for baseline in self._shown_baselines:
            values = self.baselines[baseline]
            texts.append(
                (baseline.name, [f"{values[x.name]:.{x.digits}f}" if x.name in values else "" for x in self.columns])
            )
        return texts

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = []
        for name in self.rows:
            lines.append([name, *self.texts(name)])
            if any(theirs := self.published_texts(name)):
                lines.append([PUBLISHED, *theirs])
        lines += [[name, *texts] for name, texts in self.baseline_texts()]
        headings = ["Label", *(column.heading for column in self.columns)]
        if self.compared:
            headings.append("vs baseline")
        return headings, [line + [""] * (len(headings) - len(line)) for line in lines]

    def row_heading(self, name: str) -> str:
        return f"{super().row_heading(name)} {SIGN}" if name in self.other_code else super().row_heading(name)

    def marks(self) -> dict[tuple[str, int], str]:
        return {
            (name, i): row[column.name].mark
            for name, row in self.cells.items()
            for i, column in enumerate(self.columns, 1)
            if column.name in row
        }

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """The table for a terminal of ``width`` characters. On a narrow terminal each suite has a table of its own."""
        from rich.console import Group

        if not self.parts or self.keeps_columns(width, has_styles):
            return super().to_rich(width, has_styles)
        first, *others = (part.to_rich(width, has_styles) for part in self.parts)
        return Group(first, *(item for other in others for item in ("", other)))

    def json_rows(self) -> list[dict[str, Any]]:
        """One JSON row per row and column with a cell, suite by suite. The key ``task`` has the name of the column."""
        if self.parts:
            return [json_row for part in self.parts for json_row in part.json_rows()]
        columns = [column for column in self.columns if column.name not in (BUDGET_RATIO.name, NUM_SEEDS.name)]
        pairs = itertools.product(self.rows.values(), columns)
        return [self._json_row(row, column) for row, column in pairs if column.name in self.cells[row.name]]

    def _json_row(self, row: Row, column: Column) -> dict[str, Any]:
        cells = self.cells[row.name]
        cell = cells[column.name]
        json_row = {"label": row.name, "task": column.name} | cell.numbers(column)
        if row.name in self.other_code:
            json_row["has_other_code"] = True
        budget = cells.get(BUDGET_RATIO.name)
        json_row |= {"budget_ratio": budget and budget.mean, "over_budget": budget and budget.is_over_budget}
        json_row["published"] = self.published.get(row.name, {}).get(column.name)
        json_row |= {baseline.name: values.get(column.name) for baseline, values in self.baselines.items()}
        if not self.baseline:
            return json_row
        json_row = {"row": row.name} | json_row | {"label": row.label, "changes": " ".join(map(str, row.changes))}
        difference = self.differences.get((row.name, column.name))
        names = {"difference": "estimate", "difference_low": "low", "difference_high": "high", "difference_p": "p"}
        numbers = {key: getattr(difference, name, math.nan) for key, name in names.items()}
        return json_row | without_nan(numbers) | {"difference_n": difference.n if difference else 0}

    def sort_keys(self) -> dict[str, tuple[dict[str, float], bool]]:
        """The numbers by which each column sorts the rows, and the direction, by the name of the column.

        Each value is a pair: a mapping from the name of a row to its number, for all rows with a cell in the column,
        and True if the row with the largest number comes first.
        """
        return {
            column.name: (
                {name: row[column.name].mean for name, row in self.cells.items() if column.name in row},
                column.better != "lower" and not column.name.endswith(BUDGET_RATIO.name),
            )
            for column in self.columns
        }

    def sorted_by(self, key: str) -> ResultTable:
        """A copy of the table, sorted by the column with the name ``key``, the best row first.

        Rows without a number come last. If ``key`` is ``label``, the order is not changed. Raises ``ConfigError`` for
        an unknown column.
        """
        if key == "label":
            return self
        keys = self.sort_keys()
        if key not in keys:
            raise ConfigError(f"--sort {short_repr(key)}: no such column{did_you_mean(key, ['label', *keys])}")
        numbers, is_descending = keys[key]
        first = [name for name in self.rows if not math.isnan(numbers.get(name, math.nan))]
        first.sort(key=numbers.__getitem__, reverse=is_descending)
        return self._in_order(list(dict.fromkeys([*first, *self.rows])))

    def _in_order(self, names: Sequence[str]) -> ResultTable:
        rows = {name: self.rows[name] for name in names if name in self.rows}
        return replace(self, rows=rows, parts=tuple(part._in_order(names) for part in self.parts))
