"""A table of text in the formats people paste: terminal, Markdown, LaTeX, HTML, CSV."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from madbench.labels.names import shown_in

if TYPE_CHECKING:
    from rich.console import RenderableType

PUBLISHED = "  published"
"""First cell of a row with the published numbers of the label above it."""

BEST, WITHIN_NOISE = "best", "within_noise"
"""Marks of a cell: the best of its column, and what may be the best as well."""

SIGNS = {BEST: "*", WITHIN_NOISE: "~", "": ""}
"""What stands for the marks where text is neither bold nor underlined."""

_STYLES = {BEST: "bold", WITHIN_NOISE: "underline", "": ""}

_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}

_MOST_LATEX_COLUMNS = 9  # of a table in the size of the text, in one column of a page


class _Entry(NamedTuple):
    """A cell as text with its mark."""

    text: str
    mark: str = ""


class TextTable(ABC):
    """A label a row, rows of published numbers below theirs; subclasses say what is in it."""

    caption: str
    """In a sentence or two: what the numbers are and what the signs mean."""
    notes: str = ""
    """How the numbers came about, and what is missing."""
    shows_notes: bool = False
    """Whether text has the notes below the caption."""
    latex_name: str = r"\texttt{%s}"
    """How LaTeX sets the first cell of a row."""
    latex_label: str = "tab:results"

    @property
    def below(self) -> str:
        """What stands below the table."""
        return shown_in(f"{self.caption} {self.notes}".strip() if self.shows_notes else self.caption)

    @abstractmethod
    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as text; the published row of a label follows it."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Every cell as a mapping; numbers that do not exist are ``None``."""

    def marks(self) -> Mapping[tuple[str, int], str]:
        """The marks by the first cell of the row and the index of the column, as far as there are any."""
        return {}

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """For a terminal ``width`` columns wide, without the caption.

        Where it is narrow a cell takes several lines, and where it is very narrow a column has a line of its own.
        Without styles the marks are :data:`SIGNS`.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        headings, lines = self._entries(has_styles)
        is_wide = _width(headings, lines, gap=2) <= width
        if not is_wide:
            stacked = _stacked(headings, lines)
            headings, lines = stacked if _width(*stacked) <= width + 1 else _by_column(headings, lines)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, int(is_wide), 0, 0))
        for i, heading in enumerate(headings):
            table.add_column(Text(heading.text), justify="left" if i == 0 else "right", no_wrap=i == 0, overflow="fold")
        for line in lines:
            cells = [Text().append(entry.text, _STYLES[entry.mark] or None) for entry in line]
            table.add_row(*cells, style="dim" if line[0].text == PUBLISHED else None)
        return table

    def keeps_columns(self, width: int, has_styles: bool = True) -> bool:
        """Whether :meth:`to_rich` has a column a column."""
        return _width(*_stacked(*self._entries(has_styles))) <= width + 1  # no gap after the last

    def to_markdown(self) -> str:
        headings, lines = self._entries()
        around = {BEST: "**{}**", WITHIN_NOISE: "<u>{}</u>", "": "{}"}
        rows = [[entry.text for entry in headings], ["---", *["---:"] * (len(headings) - 1)]]
        for first, *rest in lines:
            name = first.text.replace(PUBLISHED, "*published*")
            rows.append([name, *(around[entry.mark].format(entry.text) for entry in rest)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{self.below}\n"

    def to_latex(self) -> str:
        """A ``table`` environment as wide as the page at most, over both columns of a page where it has many itself.

        Its first line names the packages it needs.
        """
        headings, lines = self._entries()
        is_wide = len(headings) > _MOST_LATEX_COLUMNS
        around = {BEST: r"\textbf{%s}", WITHIN_NOISE: r"\underline{%s}", "": "%s"}
        names = [_latex(entry.text) for entry in headings]
        if is_wide:
            names = [r"\shortstack[r]{%s}" % name.replace(" ", r"\\") if " " in name else name for name in names]
        rows = [" & ".join(names) + r" \\", r"\midrule"]
        for first, *rest in lines:
            name = self.latex_name % _latex(first.text) if first.text != PUBLISHED else r"\quad published"
            rows.append(" & ".join([name, *(around[entry.mark] % _latex_cell(entry.text) for entry in rest)]) + r" \\")
        columns = "l" + "r" * (len(headings) - 1)
        tabular = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *rows, r"\bottomrule", r"\end{tabular}"]
        size = [r"\small\setlength{\tabcolsep}{3pt}%"] if is_wide else []
        fit = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
        environment = "table*" if is_wide else "table"
        head = [r"% \usepackage{booktabs,graphicx}", rf"\begin{{{environment}}}", r"\centering"]
        caption = rf"\caption{{{_latex(self.below)}}}\label{{{self.latex_label}}}"
        return "\n".join([*head, caption, *size, r"\sbox0{%", *tabular, "}%", fit, rf"\end{{{environment}}}", ""])

    def to_html(self) -> str:
        """A page, which needs nothing else, with the table as the one ``table`` element in it."""
        import jinja2

        source = Path(__file__).with_name("table.html.j2").read_text(encoding="utf-8")
        template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
        headings, lines = self._entries()
        return template.render(headings=headings, lines=lines, caption=self.below, published=PUBLISHED) + "\n"

    def to_csv(self) -> str:
        """Long form, a line a cell, for other programs."""
        return pd.DataFrame(self.records()).to_csv(index=False, lineterminator="\n")

    def _entries(self, has_styles: bool = True) -> tuple[list[_Entry], list[list[_Entry]]]:
        headings, lines = self.text_rows()
        marks = self.marks()
        entries = [
            [_Entry(text if i else shown_in(text), marks.get((line[0], i), "")) for i, text in enumerate(line)]
            for line in lines
        ]
        if not has_styles:
            entries = [[_Entry(entry.text + SIGNS[entry.mark]) for entry in line] for line in entries]
        return [_Entry(heading) for heading in headings], entries


@dataclass(frozen=True)
class Listing(TextTable):
    """A table whose text and records are made with it."""

    rows: list[Any]
    """What it shows; a row may have several lines."""
    headings: list[str]
    lines: list[list[str]]
    cells: list[dict[str, Any]]
    """The records."""
    caption: str
    notes: str
    latex_label: str
    latex_name: str = TextTable.latex_name
    shows_notes: bool = False

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        return self.headings, self.lines

    def records(self) -> list[dict[str, Any]]:
        return self.cells


def known(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with None for NaN."""
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in record.items()}


def _width(headings: list[_Entry], lines: list[list[_Entry]], gap: int = 1) -> int:
    """Characters of a row; a gap follows every column."""
    columns = zip(headings, *lines)
    return sum(max(len(part) for entry in column for part in entry.text.split("\n")) + gap for column in columns)


def _stacked(headings: list[_Entry], lines: list[list[_Entry]]) -> tuple[list[_Entry], list[list[_Entry]]]:
    """The same table with a line for every word of a cell, but for the first column's."""
    rows = [[row[0], *(_Entry(text.replace(" ", "\n"), mark) for text, mark in row[1:])] for row in (headings, *lines)]
    return rows[0], rows[1:]


def _by_column(headings: list[_Entry], lines: list[list[_Entry]]) -> tuple[list[_Entry], list[list[_Entry]]]:
    """The same table with a line for every column of a label, and the published numbers, if any, in a column."""
    has_published = any(line[0].text == PUBLISHED for line in lines)
    nothing = _Entry("")
    turned = []
    for line, following in zip(lines, [*lines[1:], [nothing]]):
        if line[0].text == PUBLISHED:
            continue
        columns = [headings, line]
        if has_published:
            columns.append(following if following[0].text == PUBLISHED else [nothing] * len(line))
        turned.append([line[0], *[nothing] * (len(columns) - 1)])
        turned += [[_Entry(f" {name.text}"), *entries] for name, *entries in list(zip(*columns))[1:]]
    return [_Entry("Label"), *map(_Entry, ["ours", "published"] if has_published else [""])], turned


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(text: str) -> str:
    """What follows a number with ± is smaller than it."""
    number, sign, rest = text.partition(" ±")
    half = re.match(r"[\d.,]*", rest)[0]
    return _latex(number) + rf"{{\scriptsize\,$\pm${half}}}{_latex(rest[len(half) :])}" if sign else _latex(text)
