"""The figures of the page, those for which there is something to draw.

Drawing takes most of the time of a report, so the figures are kept in ``<results>/index/figures.json`` and taken from
there as long as nothing that they show has changed. The file can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
from madbench.runs import Run

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


def page_figures(material: Material, records: Mapping[str, Run]) -> tuple[list[PageFigure], dict[str, str]]:
    """The figures, and why each other kind is left out, by caption; ``records`` are all runs of the store, by id."""
    path = material.store.root / "index" / "figures.json"
    key = _key(material, records)
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_bytes())
        if kept["key"] == key:
            figures = [PageFigure(one["name"], one["caption"], Markup(one["svg"])) for one in kept["figures"]]
            return figures, dict(kept["reasons"])
    from madbench.analysis.figures.files import svg
    from madbench.analysis.figures.kinds import KINDS

    figures, reasons = [], {}
    for name, kind in KINDS.items():
        try:
            frame = kind.frame(material)
            drawn = svg(kind.draw(frame, styles=material.styles), f"figure-{name}")
        except NothingToDrawError as error:
            reasons[CAPTIONS[name]] = str(error)
        else:
            figures.append(PageFigure(name, CAPTIONS[name], Markup(drawn)))
    content = json.dumps({"key": key, "figures": [asdict(figure) for figure in figures], "reasons": reasons})
    with suppress(StoreError), explain_os_errors(path.parent):  # a store that is read-only or full keeps none
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, content.encode())
    return figures, reasons


def _key(material: Material, records: Mapping[str, Run]) -> str:
    """What decides the figures: the runs and their results, the choice of them, and the code that draws."""
    digest = hashlib.sha256(f"{version('matplotlib')} {material.labels} {material.both_sentences}".encode())
    for source in sorted(Path(madbench.analysis.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    for run_id, run in records.items():
        record = run.record
        digest.update(f"{run_id} {record.status} {record.metrics} {record.details.get('seconds')}".encode())
    if made := material.experiment:
        digest.update(f"{made.profile} {made.fidelity} {made.counting} {' '.join(material.collected.id)}".encode())
    for run in material.language_runs:
        digest.update(f"{run.folder} {run.record.curve[-1:]}".encode())
    return digest.hexdigest()
