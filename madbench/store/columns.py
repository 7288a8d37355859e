"""The plain columns of a stored run, such as suite and profile, which other programs can read in a store's index.

``sqlite3 results/index/runs.sqlite 'SELECT label, seed FROM runs WHERE profile = "evening"'`` lists the runs of a
profile. The columns are made from the run's job alone.
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
    """The shipped profiles that train the run, or else the nearest one. Empty if the label or task is not installed."""
    changes: str
    """The changes with which the nearest profile trains the run. Empty if a shipped profile trains it unchanged."""
    protocol: str
    """The id of the run's own protocol. Empty if the label or the task is not installed."""
    fidelity: str
    budget: str
    precision: str
    corpus: str
    """The digest of the corpus. Empty if the task needs no corpus."""
    source: str
    """The version of the operator's family and, for code outside of this package, the hash of its source."""

    def is_of_profile(self, name: str) -> bool:
        """True if the shipped profile trains the run without changes."""
        return not self.changes and name in self.profile.split()


NAMES = tuple(field.name for field in fields(RunColumns))


def read_columns(values: Sequence[Any]) -> RunColumns:
    """The columns that an index holds. Raises ``TypeError`` for a value of another type."""
    columns = RunColumns(*values)
    for name, value in vars(columns).items():
        if type(value) is not (int if name == "seed" else str):
            raise TypeError(f"{name}: not a value of this column")
    return columns


def columns_of(job: Job) -> RunColumns:
    """The columns of the run of a job."""
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
    """The profile, its changes and the protocol of a job."""
    if has_settings(job.label):
        suite = suite_of(job)
        with suppress(MadbenchError):  # the task is not installed
            exact = [name for name, profile in suite.shipped().items() if not profile.changes(job)]
            profile, changes = (" ".join(exact), ()) if exact else suite.nearest(job)
            return profile, " ".join(changes), protocol_id(suite, job)
    return "", "", ""


def stamp() -> str:
    """A digest of the named profiles of all suites, from which the columns were made."""
    digest = hashlib.sha256()
    for suite in suites().values():
        for path in suite.Profile.files().values():
            digest.update(f"{suite.name} {path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
