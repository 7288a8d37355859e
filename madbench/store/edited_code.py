"""Stored runs that differ from a planned job only in the user's code, because the code of its label or task changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from madbench.errors import StoreError
from madbench.identity.listing import code_state
from madbench.jobs import Job
from madbench.labels.names import display_name
from madbench.store.reading import Snapshot, StoredRuns
from madbench.suites.code import listed_code
from madbench.suites.code_marks import UNRECORDED, CodeMarks, of_other_version, runs_of
from madbench.suites.identity import without_code


@dataclass(frozen=True)
class EarlierRuns:
    """A count of stored runs that do not serve a plan, because a file of the user's code has changed since.

    All of the runs are of one label or task. Apart from the changed code, their jobs equal planned jobs. There is one
    object per label or task and per changed file.
    """

    subject: str
    """The display name of the label, or the task in the form ``task NAME``."""
    file: str
    """Location of the changed file. Empty if unknown."""
    count: int

    @property
    def text(self) -> str:
        """A clause such as ``4 runs of my:my_mixers.MyMixer are from another version of my_mixers.py``."""
        return of_other_version(self.count, self.subject, self.file or "its code")

    @property
    def runs_text(self) -> str:
        """A noun phrase such as ``4 stored runs of my:my_mixers.MyMixer``."""
        return runs_of(self.count, self.subject, "stored run")

    @property
    def reason(self) -> str:
        """A sentence that says why jobs are trained although the store has runs of them with earlier code."""
        if self.file:
            return f"{self.file} changed since {self.runs_text}; training again"
        return f"{self.runs_text} had other code, or {UNRECORDED}; training again"


def earlier_runs(jobs: Iterable[Job], store: StoredRuns) -> list[EarlierRuns]:
    """The counts of stored runs that differ from a job in ``jobs`` only in code outside of this package.

    Jobs that are stored themselves are ignored. :func:`counts_by_file` says how runs are counted.
    """
    jobs = [job for job in jobs if job.has_outside_code]
    if not jobs:
        return []
    stored_jobs = store.jobs()
    by_identity = {without_code(job): job for job in jobs if job.id not in stored_jobs}
    if not by_identity:
        return []
    alike = ((job, by_identity.get(without_code(job))) for job in stored_jobs.values() if job.has_outside_code)
    return counts_by_file([(job, planned_job) for job, planned_job in alike if planned_job], store)


def counts_by_file(pairs: Sequence[tuple[Job, Job]], store: StoredRuns) -> list[EarlierRuns]:
    """Count stored runs per label or task and per changed file of the user's code.

    Each pair has the job of a stored run, and a planned job that differs from it only in the user's code. Failed,
    missing and damaged runs are not counted. A run counts for its label if the code of its mixer changed, and else for
    its task.
    """
    records = store.records({job.id for job, _ in pairs})
    counts: dict[tuple[str, str], int] = {}
    for job, other in pairs:
        record = records.get(job.id)
        if record is None or record.status == "failed":
            continue
        is_of_mixer = job.family != other.family
        subject = display_name(other.label) if is_of_mixer else f"task {other.task}"
        files = listed_code(record.details, "mixer" if is_of_mixer else "task")
        key = (subject, code_state(files).file)
        counts[key] = counts.get(key, 0) + 1
    return [EarlierRuns(*key, count) for key, count in counts.items()]


def notes_on_earlier_code(jobs: Iterable[Job], results: Path) -> list[str]:
    """Sentences for the user about stored runs that were trained with other code than the installed one.

    They say which jobs train again because the user's code changed, and which stored runs have other code of madbench.
    Empty if there are no such runs, or if the store cannot be read.
    """
    by_id = {job.id: job for job in jobs}
    with suppress(StoreError, OSError):  # training itself reports a damaged store
        if (results / "runs").is_dir():
            store = Snapshot.open(results)
            records = {name: record for name, record in store.records(set(by_id)).items() if record.status != "failed"}
            labels_and_code = [
                (by_id[name].label, store.run_code(by_id[name], record.details)) for name, record in records.items()
            ]
            reasons = [runs.reason for runs in earlier_runs(by_id.values(), store)]
            return [*reasons, *CodeMarks.from_runs(labels_and_code).sentences]
    return []
