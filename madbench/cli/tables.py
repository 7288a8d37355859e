"""Tables of the terminal that several verbs share."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.progress import track
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from madbench.cli.options import JsonOption, option
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from madbench.analysis.rendering import TextTable

WIDEST = 1000  # columns of a terminal in which every table is as wide as it likes


PLAIN = {"markup": False, "highlight": False, "soft_wrap": True}
"""How text that is not ours, or must not wrap, goes to a console."""


class Format(str, enum.Enum):
    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    html = "html"
    json = "json"


@dataclass(frozen=True)
class PrintOptions:
    """Options of every verb that prints tables of results."""

    format: option(Format, "How to print the tables.", "--format", "-f") = Format.terminal
    as_json: JsonOption = False

    def __post_init__(self):
        if self.as_json and self.format not in (Format.terminal, Format.json):
            raise ConfigError(f"--json has no effect with --format {self.format.value}; give one of the two")

    @property
    def asked(self) -> Format:
        """The format that the two options ask for."""
        return Format.json if self.as_json else self.format


def print_text_table(table: TextTable, format: Format = Format.terminal) -> None:
    """Prints a table of results and its caption."""
    if format is Format.terminal:
        console = Console()
        has_styles = console.is_terminal and not console.legacy_windows
        console.print(table.to_rich(console.width, has_styles))
        console.print()
        caption = table.caption
        if not has_styles and any(table.marks().values()):
            caption += " In this plain text * stands for bold and ~ for underlined."
        console.print(caption, markup=False, highlight=False)
    elif format is Format.json:
        print(json.dumps({"caption": table.caption, "cells": table.records()}, indent=2))
    else:
        write = {"markdown": table.to_markdown, "latex": table.to_latex, "csv": table.to_csv}
        write["html"] = functools.partial(table.to_html, is_page=True)
        print(write[format.value](), end="")


def tracked(items: Sequence[Any], description: str = "") -> Iterable[Any]:
    """``items``, with a bar on stderr while they are gone through, where that is a terminal."""
    console = Console(stderr=True)
    return track(items, description, console=console, transient=True, disable=not console.is_terminal)


def plain_table(rows: list[dict[str, Any]], right: tuple[str, ...] = (), caption: str | None = None) -> Table:
    """One column a key of ``rows``; those in ``right`` are aligned right, the last one folds where the width ends."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
        caption=caption,
        caption_justify="left",
    )
    names = list(rows[0])
    for name in names:
        last = name == names[-1]
        table.add_column(name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_shown(value)) for value in row.values()))
    return table


@dataclass(frozen=True)
class Lines:
    """Lines of text with a style each. What is wider than the terminal folds; it prints far faster than a rich table."""

    styled: Sequence[tuple[str, str]]
    """Text and the name of its style, empty for none."""

    @property
    def width(self) -> int:
        return max((cell_len(text) for text, _ in self.styled), default=0)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        styles = {style: console.get_style(style) if style else None for _, style in self.styled}
        for text, style in self.styled:
            if cell_len(text) > options.max_width:
                yield Text(text, style, overflow="fold")
            else:
                yield Segment(text, styles[style])
                yield Segment.line()


def plain_lines(rows: list[dict[str, Any]], right: tuple[str, ...] = ()) -> Lines:
    """:func:`plain_table`, for thousands of rows of one line each."""
    names = list(rows[0])
    columns = [[name, *(_shown(row[name]) for row in rows)] for name in names]
    padded = []
    for name, cells in zip(names, columns):
        widths = [cell_len(cell) for cell in cells]
        widest = max(widths)
        gaps = [" " * (widest - width) for width in widths]
        padded.append([gap + cell if name in right else cell + gap for cell, gap in zip(cells, gaps)])
    head, *body = map("  ".join, zip(*padded))
    rule = "\u2500" * cell_len(head)
    return Lines([(head, "table.header"), (rule, ""), *((line, "") for line in body)])


def _shown(value: Any) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def print_whole(console: Console, rows: list[dict[str, Any]], right: tuple[str, ...] = ()) -> None:
    """Prints :func:`plain_table` with every cell on one line and uncut; a terminal too narrow breaks the lines itself."""
    table, own_width = plain_table(rows, right), console.width
    unlimited = console.options.update(width=WIDEST)
    console.width = max(own_width, Measurement.get(console, unlimited, table).maximum)
    console.print(table)
    console.width = own_width
