"""A table of text in the formats people paste: terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from rich.table import Table

PUBLISHED = "  published"
"""First cell of a row with the published numbers of the label above it."""

_LATEX = {character: "\\" + character for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


class TextTable(ABC):
    """A label a row, rows of published numbers below theirs; subclasses say what is in it."""

    caption: str

    @abstractmethod
    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as text; the published row of a label follows it."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Every cell as a mapping; numbers that do not exist are ``None``."""

    def to_rich(self, width: int) -> Table:
        """For a terminal ``width`` columns wide, without the caption.

        Where it is narrow a cell takes several lines, and where it is very narrow a column has a line of its own.
        """
        from rich import box
        from rich.table import Table

        headings, lines = self.text_rows()
        widths = [max(map(len, column)) for column in zip(headings, *lines)]
        is_wide = sum(widths) + 2 * len(widths) <= width
        if not is_wide:
            stacked = [[line[0], *(text.replace(" ", "\n") for text in line[1:])] for line in [headings, *lines]]
            widths = [max(len(part) for text in column for part in text.split("\n")) for column in zip(*stacked)]
            if sum(widths) + len(widths) - 1 > width:
                headings, lines = _by_column(headings, lines)
            else:
                headings, lines = stacked[0], stacked[1:]
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, int(is_wide), 0, 0))
        for i, heading in enumerate(headings):
            table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=i == 0, overflow="fold")
        for line in lines:
            table.add_row(*line, style="dim" if line[0] == PUBLISHED else None)
        return table

    def to_markdown(self) -> str:
        headings, lines = self.text_rows()
        rule = ["---", *["---:"] * (len(headings) - 1)]
        body = [[line[0].replace(PUBLISHED, "*published*"), *line[1:]] for line in lines]
        rows = "\n".join("| " + " | ".join(row) + " |" for row in [headings, rule, *body])
        return f"{rows}\n\n{self.caption}\n"

    def to_latex(self) -> str:
        """A ``table`` environment; needs the booktabs package."""
        headings, lines = self.text_rows()
        rows = [" & ".join(_latex(text) for text in headings) + r" \\", r"\midrule"]
        for line in lines:
            name = r"\quad published" if line[0] == PUBLISHED else rf"\texttt{{{_latex(line[0])}}}"
            rows.append(" & ".join([name, *(_latex(text) for text in line[1:])]) + r" \\")
        columns = "l" + "r" * (len(headings) - 1)
        head = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(self.caption)}}}"]
        head.append(rf"\begin{{tabular}}{{{columns}}}")
        return "\n".join([*head, r"\toprule", *rows, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])

    def to_csv(self) -> str:
        """Long form, a line a cell, for other programs."""
        buffer = io.StringIO()
        pd.DataFrame(self.records()).to_csv(buffer, index=False)
        return buffer.getvalue()


def _by_column(headings: list[str], lines: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The same table with a line for every column of a label, and the published numbers, if any, in a column."""
    has_published = any(line[0] == PUBLISHED for line in lines)
    turned = []
    for line, following in zip(lines, [*lines[1:], [""]]):
        if line[0] == PUBLISHED:
            continue
        columns = [headings, line]
        if has_published:
            columns.append(following if following[0] == PUBLISHED else [""] * len(line))
        turned.append([line[0], *[""] * (len(columns) - 1)])
        turned += [[f" {name}", *texts] for name, *texts in list(zip(*columns))[1:]]
    headings = ["Label", "ours", "published"] if has_published else ["Label", ""]
    return headings, turned


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
