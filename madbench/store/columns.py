"""Columns of stored runs as plain values, such as suite and profile, in the index of a store.

Tables are made from these columns, so that code of labels, tasks and profiles need not run in order to read. Other
programs read them by SQL. For example, this command lists the runs of a profile:
``sqlite3 results/index/runs.sqlite 'SELECT label, seed FROM runs WHERE profile = "evening"'``.

The columns of a run depend on its job, on its record, and on the files of this package (:func:`stamp`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from madbench.config import TASKS, VARIANTS
from madbench.errors import MadbenchError
from madbench.jobs import Job, Record, mapping_text
from madbench.labels import factors_of_text, is_of_package, parse
from madbench.suites import REGISTRY as SUITES
from madbench.suites import suite_of, suites
from madbench.suites.code import RunCode, run_code
from madbench.suites.identity import mixer_identity, names_outside_code
from madbench.suites.profile import has_settings
from madbench.suites.protocol import protocol_id
from madbench.tasks import task_problem


@dataclass(frozen=True)
class RunColumns:
    """The columns of one run."""

    suite: str
    task: str
    setting: str
    """The task's setting as JSON."""
    label: str
    seed: int
    profile: str
    """The names of the shipped profiles that contain this run's job, separated by spaces. If no profile contains it,
    the profile that needs the fewest changes, or ``of its own`` if these are too many. Empty if the label or the task
    is not installed.
    """
    changes: str
    """The changes to the nearest profile that give this run's job. Empty if a shipped profile contains the job
    unchanged.
    """
    protocol: str
    """The id of the run's own protocol. Empty if the label or the task is not installed."""
    fidelity: str
    budget: str
    precision: str
    corpus: str
    """The digest of the corpus. Empty if the task needs no corpus."""
    source: str
    """The version of the label's family, and the hashes of the source code of family and task if this code is outside
    of this package.
    """
    is_known: int
    """1 if this package alone has the code of the label, the task and the suite, and can show the run. The columns
    below depend on this code. They are 0 or empty if the run is not known.
    """
    is_present: int
    """1 if the label's family has the version that trained the run."""
    is_over_budget: int
    """1 if the label says that it exceeds its budget, as with ``!``."""
    code: str
    """The state of the code that trained the run, as JSON: the fields of :class:`madbench.suites.code.RunCode`."""

    @property
    def run_code(self) -> RunCode | None:
        """The column ``code``. None if the run is not known."""
        return RunCode(*json.loads(self.code)) if self.code else None

    def is_of_profile(self, name: str) -> bool:
        """True if the shipped profile ``name`` contains this run's job without changes."""
        return not self.changes and name in self.profile.split()


NAMES = tuple(field.name for field in fields(RunColumns))
_NUMBERS = ("seed", "is_known", "is_present", "is_over_budget")


def read_columns(values: Sequence[Any]) -> RunColumns:
    """The columns of a run from the values in a row of the index. Raises ``TypeError`` if a value has another type."""
    columns = RunColumns(*values)
    for name, value in vars(columns).items():
        if type(value) is not (int if name in _NUMBERS else str):
            raise TypeError(f"{name}: not a value of this column")
    columns.run_code  # noqa: B018  raises if it is not the JSON of this column
    return columns


def columns_of(job: Job, record: Record) -> RunColumns:
    """The columns of the run with this job and record."""
    setting, corpus = mapping_text(job.setting), suite_of(job).corpus_of(job)
    decided_by = (job.suite, job.task, job.label, job.fidelity, job.budget, setting, job.mixer, job.model, job.training)
    key = repr(decided_by)
    if key not in _BELONGS_TO:
        _BELONGS_TO[key] = _belongs_to(job)
    profile, changes, protocol = _BELONGS_TO[key]
    return RunColumns(
        job.suite,
        job.task,
        setting,
        job.label,
        job.seed,
        profile,
        changes,
        protocol,
        job.fidelity,
        job.budget,
        job.training.precision,
        corpus.digest if corpus else "",
        " ".join(filter(None, [job.family, job.task_source])),
        *_code_columns(job, record),
    )


def _code_columns(job: Job, record: Record) -> tuple[int, int, int, str]:
    """The columns from ``is_known`` on."""
    if not _is_known(job) or isinstance(record.details.get("code"), dict):
        return 0, 0, 0, ""
    code = run_code(job, record.details)
    is_over = factors_of_text(job.label).get("budget") == "over"
    return 1, int(_is_present(job)), int(is_over), json.dumps([code.state, code.what, code.is_recorded])


def _is_known(job: Job) -> bool:
    if names_outside_code(job) or job.suite not in SUITES.built_in or not is_of_package(job.label):
        return False
    if not has_settings(job.label) or str(parse(job.label)) != job.label:
        return False
    return job.task in suite_of(job).tasks() and not task_problem(job.task)


def _is_present(job: Job) -> bool:
    return mixer_identity(job.label, job.task, job.fidelity) == job.family


_BELONGS_TO: dict[str, tuple[str, str, str]] = {}


def _belongs_to(job: Job) -> tuple[str, str, str]:
    """The columns ``profile``, ``changes`` and ``protocol`` of a job."""
    if has_settings(job.label):
        suite = suite_of(job)
        with suppress(MadbenchError):  # the task is not installed
            exact = [name for name, profile in suite.shipped().items() if not profile.changes(job)]
            profile, changes = (" ".join(exact), ()) if exact else suite.nearest(job)
            return profile, " ".join(map(str, changes)), protocol_id(suite, job)
    return "", "", ""


def stamp() -> str:
    """A digest of the profiles of all suites, and of the names, sizes and times of this package's files.

    The columns of a run are out of date if it changes.
    """
    digest = hashlib.sha256()
    for suite in suites().values():
        for path in suite.Profile.files().values():
            digest.update(f"{suite.name} {path.name}\n".encode() + path.read_bytes())
    for folder in (Path(__file__).parents[1], TASKS, VARIANTS):
        for line in sorted(_file_lines(folder)):
            digest.update(line.encode())
    return digest.hexdigest()[:16]


def _file_lines(folder: Path | str) -> Iterator[str]:
    """One line per file in a folder and its subfolders, which changes with the file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir() and entry.name != "__pycache__":
                yield from _file_lines(entry.path)
            elif entry.is_file():
                state = entry.stat()
                yield f"{entry.path} {state.st_size} {state.st_mtime_ns}\n"
