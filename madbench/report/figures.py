"""The figures of the page, those for which there is something to draw.

Drawing takes most of the time of a report, so it is done in several processes, and the figures are kept in
``<results>/index/figures.json`` and taken from there as long as nothing that they show has changed. The file can be
deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

import madbench.analysis
from madbench.analysis.figures.material import Material
from madbench.analysis.frames import NothingToDrawError
from madbench.devices import available_cores
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


def page_figures(material: Material, records: Mapping[str, Record]) -> tuple[list[PageFigure], dict[str, str]]:
    """The figures, and why each other kind is left out, by caption; ``records`` are all of the store, by id."""
    path = material.store.root / "index" / "figures.json"
    key = _key(material, records)
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads(path.read_bytes())
        if kept["key"] == key:
            figures = [PageFigure(one["name"], one["caption"], Markup(one["svg"])) for one in kept["figures"]]
            return figures, dict(kept["reasons"])
    from madbench.analysis.figures.kinds import KINDS  # not where all is kept: drawing takes a second to import

    done = _in_processes(list(KINDS), material, min(available_cores(), len(KINDS)))
    drawn = {name: done[name] if name in done else _draw(name, material) for name in KINDS}
    figures = [PageFigure(name, CAPTIONS[name], Markup(text)) for name, (text, _) in drawn.items() if text]
    reasons = {CAPTIONS[name]: reason for name, (text, reason) in drawn.items() if not text}
    content = json.dumps({"key": key, "figures": [asdict(figure) for figure in figures], "reasons": reasons})
    with suppress(StoreError), explain_os_errors(path.parent):  # a store that is read-only or full keeps none
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, content.encode())
    return figures, reasons


def _draw(name: str, material: Material) -> tuple[str, str]:
    """The SVG of one kind; or nothing, and why."""
    from madbench.analysis.figures.files import svg
    from madbench.analysis.figures.kinds import KINDS

    kind = KINDS[name]
    try:
        return svg(kind.draw(kind.frame(material), styles=material.styles), f"figure-{name}"), ""
    except NothingToDrawError as error:
        return "", str(error)


def _in_processes(names: list[str], material: Material, workers: int) -> dict[str, tuple[str, str]]:
    """What ``workers`` processes draw of the kinds ``names``.

    A kind that fails there is left out, so that it fails again in this process, with its own traceback. Nothing at all
    is drawn where processes cannot share the memory of this one, or where a single one would do it.
    """
    if workers == 1 or sys.platform != "linux":
        return {}
    if material.experiment:
        _ = material.cells  # once, for all processes
    drawn = {}
    with warnings.catch_warnings():  # of threads in this process: none of them holds what drawing needs
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _start_worker, (material,))
        tasks = {name: pool.submit(_draw_in_worker, name) for name in reversed(names)}  # the slowest kind first
    try:
        for name, task in tasks.items():
            with suppress(Exception):
                drawn[name] = task.result()
    finally:
        pool.shutdown(cancel_futures=True)
    return drawn


def _start_worker(material: Material) -> None:
    global _material
    _material = material
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C goes to the whole group; a worker ends without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Ends a worker whose parent was killed; it would wait for work for ever."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _draw_in_worker(name: str) -> tuple[str, str]:
    return _draw(name, _material)


def _key(material: Material, records: Mapping[str, Record]) -> str:
    """What decides the figures: the runs and their results, the choice of them, and the code that draws."""
    digest = hashlib.sha256(f"{version('matplotlib')} {material.labels} {material.both_sentences}".encode())
    for source in sorted(Path(madbench.analysis.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    results = [(run_id, one.status, one.metrics, one.details.get("seconds")) for run_id, one in records.items()]
    digest.update(marshal.dumps(results, 2))  # a version without references: equal results are equal bytes
    if made := material.experiment:
        digest.update(f"{made.profile} {made.fidelity} {made.counting} {' '.join(material.collected.id)}".encode())
    for run in material.language_runs:
        digest.update(f"{run.folder} {run.record.curve[-1:]}".encode())
    return digest.hexdigest()
