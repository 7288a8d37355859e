"""The figures of the page, those for which there is something to draw.

Drawing takes longer than all the rest, so ``<results>/index/figures`` holds the SVGs of stores and selections that were
drawn last, a file each by the digest of what decides them. It can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

import madbench
from madbench.analysis.scores import Results
from madbench.config import PUBLISHED
from madbench.errors import StoreError
from madbench.files import explain_os_errors, write_atomically

CAPTIONS = {
    "mad": "Accuracy on each task, by label",
    "learning": "Learning curves of the MAD runs",
    "loss": "Loss curves of the language models",
    "effects": "What each factor is worth",
    "budget": "Accuracy and L5 loss against the budget",
    "difficulty": "Accuracy against difficulty",
}
"""By name of the figure, in the order of the page."""

MOST_FILES = 16
"""That are stored; the oldest go."""


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    name: str
    svg: Markup
    """An ``<svg>`` element with a title and a description; empty where there is nothing to draw."""
    reason: str = ""
    """Why there is nothing to draw."""

    @property
    def caption(self) -> str:
        return CAPTIONS[self.name]


def page_figures(results: Results) -> list[PageFigure]:
    """A figure of every name; drawn, or as they were drawn of the same runs before."""
    path = results.store.root / "index" / "figures" / f"{_digest(results)}.json"
    with suppress(OSError, ValueError, TypeError):
        found, content = path.read_bytes(), path.read_text("utf-8").partition("\n")[2]
        if found == _sealed(content):
            return [PageFigure(name, Markup(svg), reason) for name, svg, reason in json.loads(content)]
    figures = [_draw(name, results) for name in CAPTIONS]
    content = json.dumps([(figure.name, str(figure.svg), figure.reason) for figure in figures])
    with suppress(StoreError), explain_os_errors(path.parent):  # a store that is read-only or full has none
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _sealed(content))
        for old in sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-MOST_FILES]:
            old.unlink(missing_ok=True)
    return figures


def _draw(name: str, results: Results) -> PageFigure:
    from madbench.analysis.figures.files import NothingToDrawError, svg
    from madbench.analysis.figures.registry import FIGURES, FigureData, figure_frame

    try:
        figure = FIGURES[name].draw(figure_frame(name, FigureData(results)))
    except NothingToDrawError as error:
        return PageFigure(name, Markup(), str(error))
    return PageFigure(name, Markup(svg(figure, f"figure-{name}")))


def _digest(results: Results) -> str:
    """What decides the figures: the jobs that are shown, every result of the store, and the code that draws."""
    store = results.store
    records = store.records(store.jobs())
    names = ("device", "seconds", "budget_ratio", "mixer_parameters")
    given = [(id, one.status, one.metrics, [one.details.get(name) for name in names]) for id, one in records.items()]
    rows = results.experiment.rows
    protocols = [
        (row.name, row.protocol.profile_name, row.protocol.overrides, repr(row.protocol.profile)) for row in rows
    ]
    parts = [list(CAPTIONS), version("matplotlib"), protocols, [job.id for row in rows for job in row.jobs], given]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for file in sorted([*Path(madbench.__file__).parent.rglob("*.py"), *PUBLISHED.iterdir()]):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _sealed(content: str) -> bytes:
    """``content`` below its digest."""
    return f"{hashlib.sha256(content.encode()).hexdigest()}\n{content}".encode()
