"""Printing of numbers, lists and tables on the command line."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.progress import track

from madbench.analysis.marked_text import with_minus
from madbench.files import make_printable
from madbench.store.text_table import aligned_lines

if TYPE_CHECKING:
    from madbench.analysis.rendering import TextTable
    from madbench.cli.shared.print_options import PrintOptions

Costs: TypeAlias = "Mapping[str, TextTable]"
"""The tables of costs below a table, by suite."""
PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
"""Console settings for text that is not ours or must not be wrapped."""


def quantity(value: float) -> str:
    """The text of a large number: ``950``, ``68.4 k``, ``1.2 M``, ``3.0 G``, ``4.5 T``."""
    if value < 999.5:
        return f"{value:.0f}"
    for prefix in "kMGTPE":
        value /= 1000
        if value < 999.95 or prefix == "E":
            return f"{value:.1f} {prefix}"
    raise AssertionError


def count_text(count: int, noun: str) -> str:
    """A count with its noun in the singular or plural: ``1 job``, ``2 jobs``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_words(text: str, console: Console, indent: int = 0) -> str:
    """Indent ``text`` by ``indent`` spaces and, if ``console`` is a terminal, wrap it between words.

    A line that begins with a space, such as a command, is not wrapped, so that it can be copied. Characters that cannot
    be printed become "?", because the text may quote a stranger's file.
    """
    space, lines = " " * indent, []
    for line in make_printable(text).split("\n"):
        if console.is_terminal and not line.startswith(" "):
            lines += textwrap.wrap(
                line,
                width=console.width,
                initial_indent=space,
                subsequent_indent=space,
                break_long_words=False,  # whole words
                break_on_hyphens=False,
            ) or [""]
        else:
            lines.append(space + line)
    return "\n".join(lines)


def first_of(lines: Sequence[str], most: int, more_text: str) -> list[str]:
    """The first ``most`` lines. If there are more, ``more_text`` follows, with their number in place of ``{}``."""
    return [*lines[:most], more_text.format(len(lines) - most)] if len(lines) > most else [*lines]


def track_progress(items: Sequence[Any], description: str = "") -> Iterable[Any]:
    """Return ``items`` for an iteration that shows a progress bar on stderr, if stderr is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:  # the argument `disable` of Rich before 14.3 would print an empty line
        return items
    return track(items, description, console=console, transient=True)


def print_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


@dataclass(frozen=True)
class TableFormat:
    """A format in which tables are printed."""

    write: Callable[[TextTable, Costs, PrintOptions, int], None]
    """Print a table with its tables of costs. The last argument is the index of the table in this output, from 0."""
    is_for_one_table: bool = False
    """True if several tables cannot be printed one after the other."""


def print_text_table(
    table: TextTable, print_options: PrintOptions, place: int = 0, costs: Mapping[str, TextTable] | None = None
) -> None:
    """Print a table of results in the format of ``print_options``, with its caption and, if requested, its notes.

    ``place`` is the index of the table in this output. From the second table on, LaTeX labels contain its number.
    ``costs`` are the tables of costs below the table, by suite.
    """
    table = table.with_notes_if(print_options.notes)
    shown_costs = {suite: cost_table.with_notes_if(print_options.notes) for suite, cost_table in (costs or {}).items()}
    FORMATS[print_options.format].write(table, shown_costs, print_options, place)


def with_costs(content: dict[str, Any], costs: Costs) -> dict[str, Any]:
    """Return the JSON content of a table, to which the contents of its tables of costs are added under ``costs``.

    ``costs`` has the tables by suite. If it is empty, nothing is added.
    """
    return content | ({"costs": {suite: table.content() for suite, table in costs.items()}} if costs else {})


def _write_to_terminal(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    _print_on_terminal(table, "" if options.notes else f" --notes explains {table.notes_explain}.")
    for cost_table in costs.values():
        print()
        _print_on_terminal(cost_table)


def _print_on_terminal(table: TextTable, hint: str = "") -> None:
    console = Console()
    console.print(table.shown(console, hint), markup=False, emoji=False, highlight=False)


def _write_markdown(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    print("\n".join(printed_table.to_markdown() for printed_table in (table, *costs.values())), end="")


def _write_latex(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    """Print the table in LaTeX. ``place`` is its index in this output, and from 1 on is a part of its LaTeX label."""
    label = options.tex_label or table.latex_label
    numbered_label = f"{label}-{place + 1}" if place else label
    print(table.to_latex(numbered_label, options.latex_width), end="")
    for i, cost_table in enumerate(costs.values()):
        suffix = f"-{i + 1}" if i else ""
        print(cost_table.to_latex(f"{numbered_label}-costs{suffix}", options.latex_width), end="")


def _write_csv(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    print(table.to_csv([*costs.values()]), end="")


def _write_html(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    print(table.to_html([*costs.values()]), end="")


def _write_json(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    print_json(with_costs(table.content(), costs))


FORMATS = {
    "terminal": TableFormat(_write_to_terminal),
    "markdown": TableFormat(_write_markdown),
    "latex": TableFormat(_write_latex),
    "csv": TableFormat(_write_csv, is_for_one_table=True),
    "html": TableFormat(_write_html),
    "json": TableFormat(_write_json),
}
"""The formats by name, in the order of the help. The option ``--format`` accepts these."""


def table_lines(rows: Sequence[Mapping[str, Any]], right: Collection[str] = (), width: int | None = None) -> list[str]:
    """The lines of a table as text: the headings, a rule and the rows. It has one column per key of the rows.

    Columns in ``right`` are aligned right. If the table is wider than ``width`` characters, the cells of its last
    column are folded, and if that is not enough, also those of the column before. Without ``width``, every row is one
    line.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [names, *([_cell_text(row.get(name)) for name in names] for row in rows)]
    lines = aligned_lines(cells, [name in right for name in names], width)
    return [lines[0], "\u2500" * cell_len(lines[0]), *lines[1:]]


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Print the lines that :func:`table_lines` returned, with the headings in bold on a terminal.

    A terminal that is too narrow wraps long lines.
    """
    console.out(lines[0], style="table.header", highlight=False)
    console.out("\n".join(lines[1:]), highlight=False)


def _cell_text(value: Any) -> str:
    return "-" if value is None else with_minus(f"{value:.2f}") if isinstance(value, float) else str(value)
