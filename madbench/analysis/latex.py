r"""Tables as LaTeX ``table`` environments that fit into one column of a page or into the page, in at least 7 points."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from madbench.analysis.marked_text import BEST, MINUS, WITHIN_NOISE, MarkedText, Width
from madbench.config import short_repr
from madbench.errors import ConfigError

Lines = Sequence[Sequence[MarkedText]]
"""The rows of a table, as lists of cells. The first cell of a row is its name."""

_LABEL = "[A-Za-z0-9][A-Za-z0-9:._/+-]*"
r"""The regular expression of names for ``\label`` and ``\ref``."""

_SCRIPT = 7.0
r"""The points of ``\scriptsize``: the smallest size of a table, and the size of half-widths of intervals."""
_SIZES = {10.0: "", 9.0: r"\small", 8.0: r"\footnotesize", _SCRIPT: r"\scriptsize"}
_LEAST_ON_ONE_LINE = 8.0  # smaller letters, in points, are used only after cells are broken into lines
_WIDTHS: dict[Width, float] = {"single": 200.0, "double": 397.0}
"""The width of a table in points: the narrowest column of a two-column page (class ``article``), or a 5.5-inch page."""
_ESCAPES = {character: "\\" + character for character in "&%$#_{}"} | {
    "±": r"$\pm$",
    MINUS: "$-$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "§": r"$\mathsection$",  # in math, because letters such as those of \texttt may lack an outline font for it
    "¶": r"$\mathparagraph$",
    "‖": r"$\|$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_STACK = r"\def\stack#1#2#3{\begin{tabular}[#1]{@{}#2@{}}#3\end{tabular}}%"
"""The definition of a macro that stacks lines in a cell. It applies only inside of the table."""

_SKIP = r"\setlength{\belowcaptionskip}{6pt}"
"""The space between the caption and the table. Classes such as ``article`` set none, because they expect captions
below."""

_MINUS_OR_DASH = re.compile(r"(?<![\w)\]-])-(?=\.?\d)|(?<=\d)-(?=\d)")

_EMS = {".,:;'!|[]il ": 0.33, "-()frtjI": 0.4, "0123456789/*+†‡§¶‖aceosxyz": 0.5, f"±<>=%mwMW~{MINUS}": 0.85}
"""Upper bounds of the widths of characters in Computer Modern at ten points, in em.

Characters that are not listed have ``_OTHER_EM``."""
_EM_OF = {character: width for characters, width in _EMS.items() for character in characters}
_OTHER_EM, _MONOSPACED_EM = 0.7, 0.525
_STRETCH = {10.0: 1.0, 9.0: 1.03, 8.0: 1.07, _SCRIPT: 1.14}
"""The factor by which letters of a smaller size are wider, in em, than at ten points, by the size in points."""
_LONGEST_NAME = 24
"""Longer words in a name are broken into lines of at most this many characters, if the table is too wide."""
_BOLD = 1.15  # width of bold letters relative to normal ones


class _Form(NamedTuple):
    """A way to set a table: its width, the size of its letters, and whether its cells are broken into lines."""

    width: Width
    size: float
    """The size of the letters in points."""
    is_broken: bool
    """True if every word of a cell stands on its own line."""

    @property
    def gap(self) -> float:
        """The space on each side of a column, in points."""
        return 2.0 if self.is_broken else 3.0

    def points(self, headings: Sequence[str], lines: Lines, is_monospaced: bool) -> float:
        """An upper bound of the width of the table in points. ``is_monospaced`` says if row names are monospaced."""
        names, *columns = _columns(headings, lines)
        of_names = [
            max(map(len, text.split("\n"))) * _MONOSPACED_EM
            if is_monospaced and not text.startswith(" ")
            else _ems(f"  {text}")
            for text, _ in names
        ]
        size = self.size * _STRETCH[self.size]
        widths = [size * max(of_names, default=0.0)]
        for heading, column in zip(headings[1:], columns):
            of_heading = size * max(map(_ems, heading.split(" ")))
            widths.append(max([of_heading, *map(self._cell_points, column)]))
        return sum(widths) + 2 * self.gap * len(widths)

    def _cell_points(self, cell: MarkedText) -> float:
        size, small = (
            points * _STRETCH[points] * (_BOLD if cell.mark == BEST else 1) for points in (self.size, _SCRIPT)
        )
        widths = [small * _ems(half) + size * _ems(rest) for half, rest in map(_half, _words(cell.text))]
        return max(widths) if self.is_broken else sum(widths) + size * _ems(" ") * (len(widths) - 1)


def latex_table(
    headings: Sequence[str],
    lines: Lines,
    caption: str,
    label: str,
    name_format: str = r"\texttt{%s}",
    width: Width | None = None,
) -> str:
    r"""The LaTeX code of a table: a comment with the packages that it needs, and a ``table`` or ``table*`` environment.

    The letters are as large as possible, from 10 to 7 points. If the table does not fit, cells are broken into lines.
    If it still does not fit, it is scaled down. If a table with a single row is too wide for one column of the page,
    its columns become rows, unless ``width`` is ``double``.

    Args:
        headings: the headings of the columns.
        lines: the rows. A first cell that begins with spaces belongs to the row above.
        caption: the caption above the table.
        label: the name for ``\ref``.
        name_format: the format of the first cells. Cells that belong to the row above have the font of the text.
        width: ``single`` for one column of a two-column page, ``double`` for the page. By default ``single`` if
            unbroken cells fit into it.

    Raises ``ConfigError`` for a ``label`` that LaTeX cannot read.
    """
    if not re.fullmatch(_LABEL, label):
        expected_form = "letters, digits and : . _ / + - as in \\ref, such as tab:ablation"
        raise ConfigError(f"--tex-label {short_repr(label)}: expected {expected_form}")
    form = _form(headings, lines, name_format, width)
    if width != "double" and (form.width == "double" or form.is_broken):
        narrow = [[first._replace(text=_broken_name(first.text)), *rest] for first, *rest in lines]
        narrow_form = _form(headings, narrow, name_format, width)
        if (narrow_form.width, narrow_form.is_broken) == ("single", False):
            form, lines = narrow_form, narrow
        elif upright := _upright(headings, narrow):
            return latex_table(*upright, caption, label, "%s", "single")
    columns = _columns(headings, lines)
    sides = ["l", *("r" if any(map(_is_number, column)) else "l" for column in columns[1:])]
    names = [_in_lines([latex(word) for word in text.split(" ")], side, "b") for text, side in zip(headings, sides)]
    rows = [" & ".join(names) + r" \\", r"\midrule"]
    for first, *rest in lines:
        cells = [_first(first.text, name_format), *(_cell(cell, form, side) for cell, side in zip(rest, sides[1:]))]
        rows.append(" & ".join(cells) + r" \\")
    stack = [_STACK] if any(r"\stack" in row for row in rows) else []
    tabular = [rf"\begin{{tabular}}{{{''.join(sides)}}}", r"\toprule", *rows, r"\bottomrule", r"\end{tabular}"]
    size = rf"{_SIZES[form.size]}\setlength{{\tabcolsep}}{{{form.gap:g}pt}}%"
    fit = r"\ifdim\wd0>\linewidth\resizebox{\linewidth}{!}{\usebox0}\else\usebox0\fi"
    environment = {"single": "table", "double": "table*"}[form.width]
    head = [r"% \usepackage{booktabs,graphicx}", rf"\begin{{{environment}}}", r"\centering", _SKIP]
    title = rf"\caption{{{latex(caption)}}}\label{{{label}}}"
    return "\n".join([*head, title, *stack, size, r"\sbox0{%", *tabular, "}%", fit, rf"\end{{{environment}}}", ""])


def latex(text: str) -> str:
    """``text`` escaped for LaTeX, with a minus sign before a number and a dash between two numbers.

    The hyphens of an option such as ``--force`` stay two hyphens.
    """
    parts = _MINUS_OR_DASH.split(text)
    signs = ["--" if before[-1:].isdigit() else "$-$" for before in parts[:-1]]
    escaped_parts = [
        "".join(_ESCAPES.get(character, character) for character in part).replace("--", "-{}-") for part in parts
    ]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(escaped_parts, signs, fillvalue="")))


def _form(headings: Sequence[str], lines: Lines, name_format: str, width: Width | None) -> _Form:
    """The best form in which the table fits into its width, or the narrowest form if it fits in none.

    Unbroken cells are preferred most, then a single column of the page, then large letters. ``width`` is the required
    width. If None, both widths are tried.
    """
    widths = [width] if width else [*_WIDTHS]
    forms = [_Form(each_width, size, False) for each_width in widths for size in _SIZES if size >= _LEAST_ON_ONE_LINE]
    forms += [_Form(widths[-1], size, True) for size in _SIZES]
    fits = (form for form in forms if form.points(headings, lines, "texttt" in name_format) <= _WIDTHS[form.width])
    return next(fits, forms[-1])


def _upright(headings: Sequence[str], lines: Lines) -> tuple[list[str], Lines] | None:
    """Transpose a table with a single row: each column becomes a row that has the column's heading and its cell.

    Return the new headings and lines. None if the table has no row or several rows, or fewer than three columns.
    """
    rows = [line for line in lines if any(cell.text for cell in line[1:])]
    if len(rows) != 1 or len(headings) < 3:
        return None
    name = " ".join(first.text.strip() for first, *_ in lines).replace("\n", " ")
    pairs = [[MarkedText(heading), cell] for heading, cell in zip(headings[1:], rows[0][1:])]
    return [headings[0], name], pairs


def _columns(headings: Sequence[str], lines: Lines) -> list[tuple[MarkedText, ...]]:
    return list(zip(*lines)) or [()] * len(headings)


def _ems(text: str) -> float:
    return sum(_EM_OF.get(character, _OTHER_EM) for character in text)


def _is_number(cell: MarkedText) -> bool:
    return re.match(rf"[+{MINUS}-]?[\d.<\[]", cell.text) is not None


def _words(text: str) -> list[str]:
    """The words of a cell. An interval in brackets is one word."""
    return re.split(r" (?![^\[(]*[\])])", text)


def _half(word: str) -> tuple[str, str]:
    """Split a word such as ``±1.2†`` into ``±1.2`` and the rest. The first part is empty if the word has no ±."""
    match = re.match(r"±[\d.,]*", word)
    length = match.end() if match else 0
    return word[:length], word[length:]


def _broken_name(text: str) -> str:
    """A name with line breaks in its long words (:data:`_LONGEST_NAME`), after dots, colons, underscores or hyphens."""
    return " ".join(map(_broken_word, text.split(" ")))


def _broken_word(text: str) -> str:
    if len(text) <= _LONGEST_NAME:
        return text
    lines = [""]
    for part in re.findall("[^.:_-]*[.:_-]|[^.:_-]+", text):
        if lines[-1] and len(lines[-1] + part) > _LONGEST_NAME:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _first(text: str, name_format: str) -> str:
    name = text.lstrip(" ")
    if "\n" in name:
        return _in_lines([name_format % latex(line).replace(" ", "~") for line in name.split("\n")], "l", "t")
    return name_format % latex(name).replace(" ", "~") if name == text else rf"\quad {latex(name)}"


def _cell(cell: MarkedText, form: _Form, side: str) -> str:
    words: list[str] = []
    for word in _words(cell.text):
        half, rest = _half(word)
        space = r"\," if half and not form.is_broken else " "
        small = rf"{{\scriptsize{space}{latex(half)}}}" if half else ""
        words.append(("" if half or not words or form.is_broken else " ") + small + latex(rest))
    if not form.is_broken:
        return _mark("".join(words), cell.mark)
    return _in_lines([_mark(words[0], cell.mark), *words[1:]], side, "t")


def _mark(text: str, mark: str) -> str:
    template = {BEST: r"\textbf{%s}", WITHIN_NOISE: r"\underline{%s}", "": "%s"}[mark]
    return template % text if text else ""


def _in_lines(words: Sequence[str], side: str, place: str) -> str:
    """LaTeX code for a cell with each of ``words``, which are LaTeX code, on its own line.

    ``side`` is the alignment of the lines, such as ``l``. ``place`` is ``t`` if the first line is level with the row of
    the table, and ``b`` if the last line is.
    """
    if len(words) == 1:
        return words[0]
    # LaTeX would read a bracket or star after \\ as its argument
    lines = [f"{{{word}}}" if word[:1] in ("[", "*") else word for word in words]
    separator = r"\\"
    return rf"\stack{{{place}}}{{{side}}}{{{separator.join(lines)}}}"
