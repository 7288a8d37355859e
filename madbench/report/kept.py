"""The report of a store, kept for as long as nothing that it shows has changed.

Making it takes seconds, so ``<results>/index/report`` holds the page that was made last, whole. It can be deleted at any
time.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from markupsafe import escape

import madbench
from madbench import config
from madbench.errors import StoreError
from madbench.files import explain_os_errors, write_atomically
from madbench.report.commands import language_words
from madbench.report.facts import Stored
from madbench.report.missing import Missing
from madbench.report.page import page_of


@dataclass(frozen=True)
class Report:
    """A page but for the command and the date, in whose places are ``key`` and the word."""

    key: str
    html: bytes
    count: int
    """Jobs."""
    missing: list[Missing]

    def page(self, command: str, written: datetime) -> bytes:
        """The HTML: one file that needs no other and no network."""
        date = f"{written:%Y-%m-%d %H:%M} UTC"
        html = self.html.replace(f"{self.key} command".encode(), escape(command).encode())
        return html.replace(f"{self.key} date".encode(), date.encode())


def report_of(stored: Stored, waiting: Callable[[], AbstractContextManager] = nullcontext) -> Report:
    """The report of what is ``stored``; ``waiting`` shows that it is being made, where it is."""
    key, path = _key(stored), stored.store.root / "index" / "report"
    if kept := _read(path, key):
        return kept
    page = page_of(stored, waiting)
    report = Report(key, page.render(f"{key} command", f"{key} date"), page.count, page.missing)
    with suppress(StoreError), explain_os_errors(path.parent):  # a store that is read-only or full keeps none
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, _head(report) + b"\n" + report.html)
    return report


def _head(report: Report) -> bytes:
    missing = [[one.text, one.command] for one in report.missing]
    digest = hashlib.sha256(report.html).hexdigest()
    return json.dumps({"key": report.key, "count": report.count, "missing": missing, "sha256": digest}).encode()


def _read(path: Path, key: str) -> Report | None:
    with suppress(OSError, ValueError, TypeError, KeyError):
        head, _, html = path.read_bytes().partition(b"\n")
        kept = json.loads(head)
        report = Report(kept["key"], html, kept["count"], [Missing(*one) for one in kept["missing"]])
        if report.key == key and head == _head(report):
            return report
    return None


def _key(stored: Stored) -> str:
    """What decides the page: the runs and their results, the choice of them, and the code and tables that it rests on."""
    digest = hashlib.sha256(f"{version('matplotlib')} {stored.folder} {stored.labels} {stored.problems}".encode())
    folders = (Path(madbench.__file__).parent, config.VARIANTS, config.TASKS, config.PUBLISHED)
    for path in sorted(path for folder in folders for path in folder.rglob("*.*") if path.suffix != ".pyc"):
        digest.update(path.read_bytes())
    results = [
        (run_id, one.status, one.metrics, one.details.get("seconds"), one.error)
        for run_id, one in stored.records.items()
    ]
    digest.update(marshal.dumps(results, 2))  # a version without references: equal results are equal bytes
    if made := stored.experiment:
        digest.update(f"{made.profile_name} {made.profile} {made.overrides} {made.fidelity} {made.counting}".encode())
        digest.update(" ".join(job.id for job in made.jobs).encode())
    if stored.language:
        digest.update(" ".join(language_words(stored.language[0], str(stored.store.root))).encode())
        digest.update(" ".join(run.job.id for run in stored.language).encode())
    return digest.hexdigest()
