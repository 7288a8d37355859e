"""Writing a figure as PNG and PDF, its data as CSV, and the figure as SVG for an HTML page.

Equal figures give equal bytes.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from madbench.analysis.figures.style import GRAY, SHADE, style
from madbench.errors import ConfigError
from madbench.files import explain_os_errors, output_file, write_atomically

_FAMILIES = ["DejaVu Sans", "Verdana", "Arial", "Helvetica"]  # fonts of the text of a page; the first may be missing
_THEME = {"#ffffff": "--page", SHADE: "--panel", "#000000": "--text", GRAY: "--soft"}
"""The custom properties of a page's style sheet that replace colors in an SVG, by the color that is replaced."""
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}
FORMATS = tuple(_METADATA)
"""The formats of the pages of a figure, which are also the suffixes of their files."""


class NothingToDrawError(ConfigError):
    """Raised if there are no data for a figure. The message says what is missing."""


def frame_of(rows: Iterable[Mapping[str, object]], columns: Mapping[str, type], protocol: str) -> pd.DataFrame:
    """A data frame of ``rows`` with the given ``columns`` and their types, and ``protocol`` in every row.

    A missing value is NaN in a column of floats, 0 in a column of integers, and the empty text in a column of text.
    """
    frame = pd.DataFrame(list(rows), columns=list(columns), dtype=object).assign(protocol=protocol)
    for name, kind in columns.items():
        if kind is not float:
            frame[name] = frame[name].where(frame[name].notna(), kind())
    return frame.astype(columns)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write the data of a figure as a CSV file, from which :func:`read_frame` reads the same frame.

    Missing folders are created.
    """
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())


def read_frame(path: Path, types: Mapping[str, type], what: str) -> pd.DataFrame:
    """Read the data of a figure from a CSV file that :func:`write_frame` wrote.

    Raises ``ConfigError`` if the file cannot be read, lacks a column, or has a value of the wrong type.

    Args:
        path: the CSV file.
        types: the type of each column to return, by its name. An empty cell is NaN, or the empty text in a column of
            text.
        what: the words for the expected content in the error message, such as ``learning``.
    """
    try:
        frame = pd.read_csv(path, dtype=str, encoding="utf-8", keep_default_na=False)
        if missing := [name for name in types if name not in frame]:
            raise ConfigError(f"{path}: no {what}: without column {missing[0]!r}")
        frame = frame[list(types)]
        numbers = [name for name, kind in types.items() if kind is not str]
        frame[numbers] = frame[numbers].replace("", "nan")
        return frame.astype(types)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # parser errors of pandas, undecodable bytes, and cells that are not numbers
        raise ConfigError(f"{path}: no {what}: {str(error).strip()}") from error


def save_figure(
    figure: Figure, stem: Path, formats: Collection[str] = FORMATS, follow_links: bool = False
) -> list[Path]:
    """Write ``stem``.png and .pdf, further pages as ``stem``-2.png and so on, and a caption as ``stem``.txt.

    ``formats`` selects ``png``, ``pdf`` or both. The caption is written only if the figure has one. A link of one of
    these names is replaced. If ``follow_links`` is True, the file to which it points is replaced instead. Return the
    paths of the written files.
    """
    with explain_os_errors(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, page in enumerate((figure, *getattr(figure, "following", ())), start=1):
        for ending, metadata in ((each, _METADATA[each]) for each in formats):
            name = f"{stem.name}-{number}" if number > 1 else stem.name
            path, content = stem.with_name(f"{name}.{ending}"), io.BytesIO()
            with style():
                page.savefig(content, format=ending, metadata=metadata)
            write_atomically(output_file(path) if follow_links else path, content.getvalue())
            paths.append(path)
    if caption := getattr(figure, "caption", ""):
        paths.append(stem.with_name(f"{stem.name}.txt"))
        write_atomically(output_file(paths[-1]) if follow_links else paths[-1], f"{caption}\n".encode())
    return paths


def svg(figure: Figure, name: str) -> str:
    """The figure as an ``<svg>`` element for an HTML page.

    Text remains text, and title and notes of the figure are available to screen readers. Text, axes and background have
    the colors of the page's style sheet, or are black on white if it defines none. Every id begins with ``name``, so
    that a page can have several figures.
    """
    content = io.StringIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.sans-serif": _FAMILIES}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = content.getvalue()
    opening = text[text.index("<svg") + len("<svg") : text.index(">", text.index("<svg"))]
    drawing = text[text.index('<g id="figure_1">') :]  # without metadata and styles that would apply to the whole page
    for before in (' id="', 'href="#', "url(#"):
        drawing = drawing.replace(before, f"{before}{name}-")
    for color, name_of_page in _THEME.items():
        drawing = re.sub(rf"(fill|stroke): {color}", rf"\1: var({name_of_page}, {color})", drawing)
    title, notes = (html.escape(" ".join(part.split())) for part in (figure.get_suptitle(), figure.get_supxlabel()))
    start = f'<svg role="img" aria-labelledby="{name}-title {name}-notes" '
    start += 'fill="currentColor" stroke-linejoin="round" stroke-linecap="butt"'
    description = f'<title id="{name}-title">{title}</title>\n <desc id="{name}-notes">{notes}</desc>'
    return f"{start}{opening}>\n {description}\n {drawing}"
