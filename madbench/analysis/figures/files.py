"""Figures as files and as text for a page. The same figure gives the same bytes."""

from __future__ import annotations

import html
import io
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from madbench.analysis.figures.style import style
from madbench.files import explain_os_errors, write_atomically

_FAMILIES = ["DejaVu Sans", "Verdana", "Arial", "Helvetica"]  # of the text of a page, which need not have the first
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Writes ``stem``.png and ``stem``.pdf."""
    with explain_os_errors(stem.parent):
        stem.parent.mkdir(parents=True, exist_ok=True)
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in _METADATA]
    for path, metadata in zip(paths, _METADATA.values()):
        content = io.BytesIO()
        with style():
            figure.savefig(content, format=path.suffix[1:], metadata=metadata)
        write_atomically(path, content.getvalue())
    return paths


def svg(figure: Figure, name: str = "") -> str:
    """The figure as an ``<svg>`` element for a page; its text is text, its title and notes are read aloud.

    Every id begins with ``name``, by default the figure's kind, so that several figures can stand in one page.
    """
    name = name or str(figure.get_label() or "figure")
    content = io.StringIO()
    with style(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.sans-serif": _FAMILIES}):
        figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = content.getvalue()
    opening = text[text.index("<svg") + len("<svg") : text.index(">", text.index("<svg"))]
    drawn = text[text.index('<g id="figure_1">') :]  # without metadata, and styles that would hold for the whole page
    for before in (' id="', 'href="#', "url(#"):
        drawn = drawn.replace(before, f"{before}{name}-")
    title, notes = (html.escape(" ".join(part.split())) for part in (figure.get_suptitle(), figure.get_supxlabel()))
    start = f'<svg role="img" aria-labelledby="{name}-title {name}-notes" stroke-linejoin="round" stroke-linecap="butt"'
    described = f'<title id="{name}-title">{title}</title>\n <desc id="{name}-notes">{notes}</desc>'
    return f"{start}{opening}>\n {described}\n {drawn}"
