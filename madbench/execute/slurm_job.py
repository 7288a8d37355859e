"""A Slurm job: what it runs, how it ended, and what it leaves behind, by which another driver can take it over."""

from __future__ import annotations

import functools
import json
import os
import pickle
import sys
import time
import warnings
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from madbench._version import __version__
from madbench.errors import StoreError
from madbench.execute.base import Assignment, Files, Outcome, Packed, Train, now_and_then, work_remotely
from madbench.execute.driver import Task
from madbench.files import write_atomically
from madbench.jobs import Record, StopTraining

REPORT_SECONDS = 5.0
LOG_LINES = 20
LOST = ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
WAITING = ("PENDING", "REQUEUED")
BEGUN = ("RUNNING", "RESIZING", "SUSPENDED")
"""States in which a job has begun and goes on by itself, as a suspended one does when its turn comes."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "DEADLINE", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
"""States of Slurm after which a job does not run any more; a preempted one may be queued again."""
_SUBMITTED = "_submitted.pkl"  # how submitit's pickles end, behind the Slurm job's id


@dataclass
class SlurmCall:
    """What a Slurm job runs."""

    packed: Packed
    news: Path  # file for what the driver is to know while it runs
    needs_gpu: bool
    asked: Mapping[str, Any] | None = None  # with what options it is queued
    is_requeued: bool = False

    def __call__(self) -> Outcome:
        from submitit import JobEnvironment
        from submitit.core.job_environment import SignalHandler

        remove_files(half_written(JobEnvironment().paths))  # by this job before its node went down; submitit minds it
        start = f"{os.environ.get('SLURM_JOB_ID', '')}-{os.getpid()}-{time.time()}"
        self.write_news(start=start)
        send_sometimes = now_and_then(REPORT_SECONDS, lambda progress: self.write_news(start=start, progress=progress))

        def send(job_id: str, progress: dict[str, Any]) -> None:
            if self.is_requeued:
                raise StopTraining
            send_sometimes(job_id, progress)

        # Once it has the job queued again submitit would exit wherever the run is, which the run takes for an error. It
        # stops at its next report instead, and saves its state.
        SignalHandler._exit = lambda self: None
        try:
            outcome = work_remotely(self.packed, send, self.needs_gpu, self.hand_in)
        except StopTraining:
            sys.exit(-1)
        if self.is_requeued:
            sys.exit(-1)
        return outcome

    def write_news(self, **news: Any) -> None:
        with suppress(StoreError):
            write_atomically(self.news, json.dumps(news).encode())

    def hand_in(self, job_id: str, record: Record, files: Files) -> None:
        """Leaves the record of a job whose group goes on; its files are in its work folder."""
        with suppress(StoreError):
            write_atomically(record_file(self.news.parent, job_id), pickle.dumps(record))

    def checkpoint(self) -> Any:
        """Called by submitit on Slurm's signal, before it has the job queued again."""
        from submitit.helpers import DelayedSubmission

        self.is_requeued = True
        self.write_news()
        return DelayedSubmission(replace(self, is_requeued=False))


@dataclass
class LeftJob:
    """A Slurm job of a driver that has ended."""

    job: Any
    call: SlurmCall
    assignment: Assignment

    def is_training(self, task: Task) -> bool:
        """Whether it trains the jobs of the task in the same way, others beside them or not."""
        mine, theirs = self.assignment, task.assignment
        folders = dict(zip(self.ids, mine.works or ()))
        return (
            self.call.packed[0] == __version__
            and not theirs.policy.redo
            and mine.policy.time_limit == theirs.policy.time_limit
            and all(folders.get(job.id) == work for job, work in zip(theirs.jobs, theirs.works or ()))
            and _content(mine.train) == _content(theirs.train)
        )

    def outcome_for(self, task: Task) -> Outcome | None:
        """The outcome for the jobs of the task, if the Slurm job has ended well and trained them in the same way."""
        if not (self.job.paths.result_pickle.exists() and self.is_training(task)):
            return None
        kind, outcome = how_it_ended(self.job)
        if kind != "done" or outcome.broken:
            return None
        share = self.share_of(task, outcome)
        is_whole = None not in share.records  # else one did not end, and is to be trained alone now
        return share if is_whole or len(task.jobs) == len(self.ids) > 1 else None

    def share_of(self, task: Task, outcome: Outcome) -> Outcome:
        """What the Slurm job gave for the jobs of the task, in their order."""
        records = dict(zip(self.ids, outcome.records))
        return replace(outcome, records=[records.get(job.id) for job in task.jobs], files=[{}] * len(task.jobs))

    @property
    def ids(self) -> list[str]:
        """Ids of the jobs that it trains."""
        return [job.id for job in self.assignment.jobs]


def find_left_jobs(folder: Path, job_ids: Collection[str], own: Collection[str]) -> list[LeftJob]:
    """The Slurm jobs but for ``own`` that train any of these jobs, those with results first.

    They are found by submitit's pickles. Other drivers have left them: this one has claimed the jobs.
    """
    import submitit
    from submitit.core.utils import DelayedSubmission

    left = []
    for path in sorted(folder.glob(f"*{_SUBMITTED}")):
        name = path.name.removesuffix(_SUBMITTED)
        if name not in own:
            with suppress(Exception):  # one that is gone, damaged or of another version does not say what it trains
                call = DelayedSubmission.load(path).function
                assignment = pickle.loads(call.packed[1])
                if {job.id for job in assignment.jobs}.intersection(job_ids):
                    left.append(LeftJob(submitit.SlurmJob(folder, name), call, assignment))
    return sorted(left, key=lambda old: not old.job.paths.result_pickle.exists())


def _content(train: Train) -> Any:
    """A training function such that two of equal content do the same."""
    return (train.func, train.args, train.keywords) if isinstance(train, functools.partial) else train


def has_ended(job: Any, force: bool) -> bool:
    """Whether a job has ended; with ``force`` Slurm is asked now. Submitit alone takes a suspended one for ended."""
    if not job.done(force_check=force):
        return False
    return job.paths.result_pickle.exists() or job.watcher.get_state(job.job_id, "cache").split()[0] not in BEGUN


def how_it_ended(job: Any) -> tuple[str, Any]:
    """How a job ended that has ended."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    log = job.paths.stderr
    try:
        with warnings.catch_warnings(action="ignore"):
            return "done", job.result()
    except FailedJobError as error:
        if "No module named" in str(error):
            return "done", Outcome(broken=f"a Slurm job cannot import what it is to run; its log is {log}")
        return "failed", str(error)
    except UncompletedJobError:
        ending = f"Slurm job {job.job_id} ended as {str(job.state).split()[0]}"
        if ending.endswith(LOST):
            return "lost", ending
        if ending.endswith("OUT_OF_MEMORY"):
            return "lost", f"{ending}; more --memory helps; its log is {log}"
        tail = (job.stderr() or job.stdout() or "").splitlines()[-LOG_LINES:]
        return "failed", "\n".join([*tail, f"{ending}; its log is {log}"])
    except Exception as error:  # whatever half a pickle raises
        return "lost", f"the result of Slurm job {job.job_id} is damaged: {type(error).__name__}: {error}"


def record_file(folder: Path, job_id: str) -> Path:
    """The file in which a Slurm job leaves the record of a job that has ended before its group."""
    return folder / f"{job_id}.record"


def half_written(paths: Any) -> Path:
    """The files that submitit writes a result to, before it is whole."""
    return paths.result_pickle.with_name(f"{paths.result_pickle.name}.save_tmp")


def tidy(job: Any, keeps_logs: bool, keeps_result: bool = False) -> None:
    """Removes the files of a job that has ended; ``keeps_result`` leaves those by which it can be taken over."""
    paths = job.paths
    remove_files(paths.submission_file)
    if not keeps_result:
        remove_files(
            paths.submitted_pickle,
            paths.result_pickle,
            paths.result_pickle.with_name(f"{paths.result_pickle.name}.save_tmp"),
        )
    if not keeps_logs:
        remove_files(paths.stdout, paths.stderr)


def remove_files(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
