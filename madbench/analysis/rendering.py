"""Tables of text, written in several formats: terminal, Markdown, LaTeX, HTML and CSV."""

from __future__ import annotations

import io
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import pandas as pd

from madbench.analysis.latex import latex_table
from madbench.analysis.marked_text import BEST, WITHIN_NOISE, MarkedText, Origin, Width, with_hyphens
from madbench.labels.names import row_display_name

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PUBLISHED = "  published"
"""The first cell of a row with the published numbers of the label above it."""

SIGNS = {BEST: "*", WITHIN_NOISE: "~", "": ""}
"""The sign that replaces each mark of a cell in text that cannot have bold and underlined letters."""

_MARKUP = re.compile(r"[\\`*$~]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)|\](?=\()|&(?=#?\w+;)")
"""The characters to escape: those with a meaning in Markdown, or in formulas within Markdown."""

Line = list[MarkedText]
Lines = list[Line]

_STYLES = {BEST: "bold", WITHIN_NOISE: "underline", "": ""}


class TextTable(ABC):
    """A table of text cells, with methods that write it in each format. Subclasses give the content.

    A label with published numbers has a second row below its own. The first cell of this second row is
    :data:`PUBLISHED`.
    """

    if TYPE_CHECKING:  # fields of some subclasses, of which dataclasses would take these properties for the defaults

        @property
        @abstractmethod
        def caption(self) -> str:
            """Sentences that say what the numbers and the signs of the table mean."""

        @property
        @abstractmethod
        def notes(self) -> str:
            """Sentences that say how the numbers are computed, and which runs are missing."""

    shows_notes: bool = False
    """True if the notes are printed below the caption."""
    notes_explain: str = "how the numbers were computed"
    """The words for the content of the notes in the hint ``--notes explains ...`` below a table on a terminal."""
    latex_name: str = r"\texttt{%s}"
    """The LaTeX format of the first cell of a row, with ``%s`` for its text."""
    latex_label: str = "tab:results"

    def with_notes_if(self, shows_notes: bool) -> TextTable:
        """A copy of the table that prints its notes if ``shows_notes`` is True."""
        assert is_dataclass(self)
        return replace(self, shows_notes=shows_notes)

    @property
    def paper_caption(self) -> str:
        """The caption of the table in a paper: :attr:`caption` without advice and commands, which only users need."""
        return self.caption

    @property
    def below(self) -> str:
        """The text to print below the table: the caption, and the notes if :attr:`shows_notes`."""
        return self.with_notes() if self.shows_notes else self.caption

    @property
    def below_in_paper(self) -> str:
        """:attr:`below` with :attr:`paper_caption` in place of the caption."""
        return self.with_notes(in_paper=True) if self.shows_notes else self.paper_caption

    def with_notes(self, in_paper: bool = False) -> str:
        """The text below a table that shows its notes: the caption, followed by the notes.

        If ``in_paper``, the caption is :attr:`paper_caption`. Subclasses leave out sentences of the caption that the
        notes repeat.
        """
        return f"{self.paper_caption if in_paper else self.caption} {self.notes}".strip()

    @abstractmethod
    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the headings, and the rows as lists of texts, with rows of published numbers below their labels."""

    @abstractmethod
    def json_rows(self) -> list[dict[str, Any]]:
        """The content of the table for programs, as a list of mappings. A number that does not exist is ``None``.

        The keys depend on the table. One row of the printed table may have several mappings, for example one per
        column.
        """

    def content(self) -> dict[str, Any]:
        """The table for programs, as a mapping: ``caption``, ``notes``, and :meth:`json_rows` as ``cells``."""
        texts = {"caption": self.caption, "notes": self.notes}
        return {name: with_hyphens(text) for name, text in texts.items()} | {"cells": self.json_rows()}

    def marks(self) -> Mapping[tuple[str, int], str]:
        """The mark of each cell, such as ``best``. Cells without a mark may be missing.

        A key is a pair: the text of the row's first cell, and the index of the marked cell in its row, where the first
        cell has the index 0.
        """
        return {}

    def row_heading(self, name: str) -> str:
        """The text to print in the first cell of the row ``name``, with the display name of its label."""
        return row_display_name(name)

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """The table for a terminal of ``width`` characters, without the caption.

        On a narrow terminal the headings have several lines. If that is not enough, so have columns of words, then all
        columns. On a very narrow terminal each cell has a line of its own. Marks
        are bold and underlined letters, or :data:`SIGNS` if ``has_styles`` is False.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        headings, lines = self._entries(has_styles)
        is_wide = _width(headings, lines, gap=2) <= width
        if not is_wide:
            layouts = [(headings, lines), *(_stack(headings, lines, cells) for cells in ("none", "words", "all"))]
            fitting = (layout for layout in layouts if _width(*layout) <= width + 1)  # no gap after the last column
            headings, lines = next(fitting, None) or _by_column(headings, lines)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, int(is_wide), 0, 0))
        for i, heading in enumerate(headings):
            table.add_column(Text(heading.text), justify="left" if i == 0 else "right", no_wrap=i == 0, overflow="fold")
        for line in lines:
            cells = [Text().append(entry.text, _STYLES[entry.mark] or None) for entry in line]
            table.add_row(*cells, style="dim" if line[0].text == PUBLISHED else None)
        return table

    def shown(self, console: Console, hint: str = "") -> RenderableType:
        """The table for a ``console``, followed by the text below it (:attr:`below`), and by ``hint`` at its end."""
        from rich.console import Group
        from rich.text import Text

        has_styles = console.is_terminal and not console.legacy_windows
        signs = "" if has_styles or not any(self.marks().values()) else " In plain text * is bold and ~ is underlined."
        return Group(self.to_rich(console.width, has_styles), "", Text(self.below + signs + hint))

    def __str__(self) -> str:
        """The table and its caption as plain text, as the command line prints them into a file."""
        from rich.console import Console

        text = io.StringIO()
        console = Console(file=text, force_terminal=False, force_jupyter=False)
        console.print(self.shown(console))
        return text.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        headings, lines = self.text_rows()
        counts = [(len(lines), "row"), (len(headings), "column")]
        shape = " and ".join(f"{count} {noun if count == 1 else f'{noun}s'}" for count, noun in counts)
        return f"<{type(self).__name__} of {shape}>"

    def keeps_columns(self, width: int, has_styles: bool = True) -> bool:
        """True if :meth:`to_rich` prints the columns of this table on a terminal of ``width`` characters.

        On a narrower terminal, :meth:`to_rich` prints each cell on a line of its own.
        """
        return _width(*_stack(*self._entries(has_styles))) <= width + 1  # no gap after the last

    def to_markdown(self) -> str:
        headings, lines = self._entries()
        templates = {BEST: "**{}**", WITHIN_NOISE: "<u>{}</u>", "": "{}"}
        rows = [[markdown(entry.text) for entry in headings], ["---", *["---:"] * (len(headings) - 1)]]
        for first, *rest in lines:
            name = markdown(first.text).replace(PUBLISHED, "*published*")
            rows.append([name, *(templates[entry.mark].format(markdown(entry.text)) for entry in rest)])
        rows = [[text.replace("|", r"\|") for text in row] for row in rows]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\n{markdown(self.below)}\n"

    def to_latex(self, label: str = "", width: Width | None = None) -> str:
        r"""The table in LaTeX (:func:`madbench.analysis.latex.latex_table`).

        ``label`` is the name of the table for ``\ref``, by default :attr:`latex_label`. ``width`` is ``single`` for one
        column of a two-column page, ``double`` for the page, and None to choose.
        """
        headings, lines = self._entries()
        names = [heading.text for heading in headings]
        return latex_table(names, lines, self.below_in_paper, label or self.latex_label, self.latex_name, width)

    def to_html(self, tables_below: Sequence[TextTable] = ()) -> str:
        """A self-contained HTML page with a ``table`` element for this table, and one for each of ``tables_below``."""
        import jinja2

        source = Path(__file__).with_name("table.html.j2").read_text(encoding="utf-8")
        template = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source)
        headings, lines = self._entries()
        page = template.render(headings=headings, lines=lines, caption=self.below, published=PUBLISHED) + "\n"
        end = page.index("</table>") + len("</table>")
        return page[:end] + "".join(f"\n<br>\n{table._repr_html_()}" for table in tables_below) + page[end:]

    def _repr_html_(self) -> str:
        """The table element of :meth:`to_html`, for notebooks."""
        page = self.to_html()
        table = page[page.index("<table") : page.index("</table>")] + "</table>"
        return table.replace("<caption>", '<caption style="caption-side: bottom; text-align: left">')

    def to_csv(self, tables_below: Sequence[TextTable] = ()) -> str:
        """The JSON rows of this table, followed by those of ``tables_below``, as CSV with one line per JSON row.

        Without any JSON row, the CSV has only the headings of this table.
        """
        frame = pd.DataFrame([json_row for table in (self, *tables_below) for json_row in table.json_rows()])
        if frame.empty:
            frame = pd.DataFrame(columns=self.text_rows()[0])
        return with_hyphens(frame.to_csv(index=False, lineterminator="\n"))

    def _entries(self, has_styles: bool = True) -> tuple[Line, Lines]:
        headings, lines = self.text_rows()
        marks = self.marks()
        entries = [
            [
                MarkedText(text if i else self.row_heading(text), marks.get((line[0], i), ""))
                for i, text in enumerate(line)
            ]
            for line in lines
        ]
        if not has_styles:
            entries = [[MarkedText(entry.text + SIGNS[entry.mark]) for entry in line] for line in entries]
        return [MarkedText(heading) for heading in headings], entries


@dataclass(frozen=True, repr=False)
class Listing(TextTable):
    """A table whose texts and JSON rows are computed before and given to its constructor."""

    rows: list[Any]
    """The objects that the table shows. One object may have several lines."""
    headings: list[str]
    lines: list[list[str]]
    cells: list[dict[str, Any]]
    """The JSON rows, see :meth:`TextTable.json_rows`."""
    own_caption: str
    """The caption without the sentences of :attr:`origin`."""
    own_notes: str
    """The notes without the sentences of :attr:`origin`."""
    latex_label: str
    latex_name: str = TextTable.latex_name
    shows_notes: bool = False
    notes_explain: str = TextTable.notes_explain
    origin: Origin = Origin()
    """Sentences on how the results were made, which follow :attr:`own_caption` and :attr:`own_notes`."""

    def of_origin(self, origin: Origin | None) -> Self:
        """A copy of the table with the sentences of ``origin`` in caption and notes. None stands for no sentences."""
        return replace(self, origin=origin or Origin())

    @property
    def caption(self) -> str:
        return self._caption()

    @property
    def notes(self) -> str:
        return " ".join(filter(None, [self.own_notes, self.origin.notes]))

    @property
    def paper_caption(self) -> str:
        return self._caption(in_paper=True)

    def with_notes(self, in_paper: bool = False) -> str:
        return " ".join(filter(None, [self._caption(in_paper, names_profiles=False), self.notes]))

    def _caption(self, in_paper: bool = False, names_profiles: bool = True) -> str:
        """The caption. The arguments choose the sentences of :attr:`origin` (:meth:`Origin.in_caption`)."""
        return " ".join(filter(None, [self.own_caption, self.origin.in_caption(in_paper, names_profiles)]))

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        return self.headings, self.lines

    def json_rows(self) -> list[dict[str, Any]]:
        return self.cells


def markdown(text: str) -> str:
    """``text`` with every special character of Markdown escaped."""
    return _MARKUP.sub(lambda sign: f"\\{sign[0]}", text)


def without_nan(json_row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a JSON row for programs: NaN becomes ``None``, and minus signs in text become hyphens."""
    texts = {name: with_hyphens(value) for name, value in json_row.items() if isinstance(value, str)}
    missing = {name: None for name, value in json_row.items() if isinstance(value, float) and math.isnan(value)}
    return {**json_row, **texts, **missing}


def _width(headings: Line, lines: Lines, gap: int = 1) -> int:
    """The width of a table in characters, with ``gap`` characters after every column, the last one included."""
    columns = zip(headings, *lines)
    return sum(max(len(part) for entry in column for part in entry.text.split("\n")) + gap for column in columns)


def _stack(headings: Line, lines: Lines, cells: Literal["none", "words", "all"] = "all") -> tuple[Line, Lines]:
    """Headings and rows with each word of a heading and of a cell on its own line.

    ``cells`` chooses the columns whose cells change: no column, those whose cells have no digits, or all columns. The
    first column never changes.
    """

    def is_stacked(column: Sequence[MarkedText]) -> bool:
        return cells == "all" or (cells == "words" and not re.search(r"\d", " ".join(entry.text for entry in column)))

    columns = [[heading, *column] for heading, *column in zip(headings, *lines)]
    for column in columns[1:]:
        end = len(column) if is_stacked(column[1:]) else 1
        column[:end] = [MarkedText(text.replace(" ", "\n"), mark) for text, mark in column[:end]]
    stacked_headings, *rows = map(list, zip(*columns))
    return stacked_headings, rows


def _by_column(headings: Line, lines: Lines) -> tuple[Line, Lines]:
    """Headings and rows of a table for very narrow terminals, in which each cell has a line of its own.

    The name of a row is on a line above its cells. If there are published numbers, they are in a column of their own.
    """
    has_published = any(line[0].text == PUBLISHED for line in lines)
    empty = MarkedText("")
    transposed_lines = []
    for line, following in zip(lines, [*lines[1:], [empty]]):
        if line[0].text == PUBLISHED:
            continue
        columns = [headings, line]
        if has_published:
            columns.append(following if following[0].text == PUBLISHED else [empty] * len(line))
        transposed_lines.append([line[0], *[empty] * (len(columns) - 1)])
        transposed_lines += [[MarkedText(f" {name.text}"), *entries] for name, *entries in list(zip(*columns))[1:]]
    return [MarkedText("Label"), *map(MarkedText, ["ours", "published"] if has_published else [""])], transposed_lines
