"""Columns of stored runs as plain text, such as suite and profile, for programs that read the index of a store by SQL.

``sqlite3 results/index/runs.sqlite 'SELECT label, seed FROM runs WHERE profile = "evening"'`` lists the runs of a
profile. The columns of a run depend only on its job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

from madbench.errors import MadbenchError
from madbench.jobs import Job, mapping_text
from madbench.suites import suite_of, suites
from madbench.suites.profile import has_settings
from madbench.suites.protocol import protocol_id


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

    def is_of_profile(self, name: str) -> bool:
        """True if the shipped profile ``name`` contains this run's job without changes."""
        return not self.changes and name in self.profile.split()


NAMES = tuple(field.name for field in fields(RunColumns))


def read_columns(values: Sequence[Any]) -> RunColumns:
    """The columns of a run from the values in a row of the index. Raises ``TypeError`` if a value has another type."""
    columns = RunColumns(*values)
    for name, value in vars(columns).items():
        if type(value) is not (int if name == "seed" else str):
            raise TypeError(f"{name}: not a value of this column")
    return columns


def columns_of(job: Job) -> RunColumns:
    """The columns of the run that has this job."""
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
    )


_BELONGS_TO: dict[str, tuple[str, str, str]] = {}


def _belongs_to(job: Job) -> tuple[str, str, str]:
    """The columns ``profile``, ``changes`` and ``protocol`` of a job."""
    if has_settings(job.label):
        suite = suite_of(job)
        with suppress(MadbenchError):  # the task is not installed
            exact = [name for name, profile in suite.shipped().items() if not profile.changes(job)]
            profile, changes = (" ".join(exact), ()) if exact else suite.nearest(job)
            return profile, " ".join(changes), protocol_id(suite, job)
    return "", "", ""


def stamp() -> str:
    """A digest of the profile files of all suites. The columns of a run are out of date if it changes."""
    digest = hashlib.sha256()
    for suite in suites().values():
        for path in suite.Profile.files().values():
            digest.update(f"{suite.name} {path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
