"""The figures of the page, those for which there is something to draw.

Drawing takes most of the time of a report, so the figures are kept in ``<results>/index/figures.json`` and taken from
there as long as nothing that they show has changed. The file can be deleted at any time.
"""

from __future__ import annotations

import functools
import hashlib
import json
import marshal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

import madbench.analysis
from madbench.analysis.figures.material import Material
from madbench.analysis.frames import NothingToDrawError
from madbench.errors import StoreError
from madbench.files import explain_os_errors, write_atomically
from madbench.jobs import Record

CAPTIONS = {
    "mad": "Accuracy on each task, by label",
    "learning": "Learning curves of the MAD runs",
    "loss": "Loss curves of the language models",
    "effects": "What each factor is worth",
    "budget": "Accuracy and L5 loss against the budget",
    "difficulty": "Accuracy against difficulty",
}


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    name: str
    caption: str
    svg: Markup
    """An ``<svg>`` element with a title and a description."""


class PageFigures:
    """The figures of ``material``, as far as they are kept; else what draws them. ``records`` are all of the store, by id."""

    def __init__(self, material: Material, records: Mapping[str, Record]):
        self._path = material.store.root / "index" / "figures.json"
        self._key = _key(material, records)
        self._kept = self._read()
        if not self._kept:
            import madbench.analysis.figures.kinds  # noqa: F401 - for all processes: it takes a second
        self.tasks = {} if self._kept else {name: functools.partial(_draw, name, material) for name in reversed(CAPTIONS)}
        """The SVG of each kind to be drawn, or nothing and why, by name; the slowest kind first."""

    def collect(self, result: Callable[[str], tuple[str, str]]) -> tuple[list[PageFigure], dict[str, str]]:
        """The figures, and why each other kind is left out, by caption; ``result`` gives what a task gave."""
        if self._kept:
            return self._kept
        drawn = {name: result(name) for name in CAPTIONS}
        figures = [PageFigure(name, CAPTIONS[name], Markup(text)) for name, (text, _) in drawn.items() if text]
        reasons = {CAPTIONS[name]: reason for name, (text, reason) in drawn.items() if not text}
        content = json.dumps({"key": self._key, "figures": [asdict(figure) for figure in figures], "reasons": reasons})
        with suppress(StoreError), explain_os_errors(self._path.parent):  # a store that is read-only or full keeps none
            self._path.parent.mkdir(exist_ok=True)
            write_atomically(self._path, content.encode())
        return figures, reasons

    def _read(self) -> tuple[list[PageFigure], dict[str, str]] | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            kept = json.loads(self._path.read_bytes())
            if kept["key"] == self._key:
                figures = [PageFigure(one["name"], one["caption"], Markup(one["svg"])) for one in kept["figures"]]
                return figures, dict(kept["reasons"])
        return None


def _draw(name: str, material: Material) -> tuple[str, str]:
    from madbench.analysis.figures.files import svg
    from madbench.analysis.figures.kinds import KINDS

    kind = KINDS[name]
    try:
        return svg(kind.draw(kind.frame(material), styles=material.styles), f"figure-{name}"), ""
    except NothingToDrawError as error:
        return "", str(error)


def _key(material: Material, records: Mapping[str, Record]) -> str:
    """What decides the figures: the runs and their results, the choice of them, and the code that draws."""
    digest = hashlib.sha256(f"{version('matplotlib')} {CAPTIONS} {material.labels} {material.both_sentences}".encode())
    for source in sorted(Path(madbench.analysis.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    results = [(run_id, one.status, one.metrics, one.details.get("seconds")) for run_id, one in records.items()]
    digest.update(marshal.dumps(results, 2))  # a version without references: equal results are equal bytes
    if made := material.experiment:
        digest.update(f"{made.profile} {made.fidelity} {made.counting} {' '.join(material.collected.id)}".encode())
    for run in material.language_runs:
        digest.update(f"{run.folder} {run.record.curve[-1:]}".encode())
    return digest.hexdigest()
