"""A Slurm job as its driver sees it: its end, and its takeover by another driver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.base import WorkerResult
from madbench.execute.driver import Task, Told
from madbench.execute.slurm_folder import SlurmFolder, read_object, slurm_folders, training_of
from madbench.jobs import Job

LOG_LINES = 20
OUTCOME_SECONDS = 15.0  # longest delay of the outcome of an ended job on a network disk
LOST = ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
WAITING = ("PENDING", "REQUEUED")
BEGUN = ("RUNNING", "RESIZING", "SUSPENDED")
"""States of a job that has begun and goes on by itself. A suspended job also resumes by itself."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "DEADLINE", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
"""Slurm's states of a job that does not run any more. A preempted job may be queued again."""


class SlurmJob:
    """A Slurm job of this sweep, by its id. ``name`` distinguishes it from other jobs of the user with this id."""

    def __init__(self, parent: Path, slurm_id: str, name: str):
        import submitit

        self.slurm_id, self.name = slurm_id, name
        self.folder = SlurmFolder(parent, slurm_id)
        self._inner = submitit.SlurmJob(parent, slurm_id)
        self.logs = (self._inner.paths.stderr, self._inner.paths.stdout)

    def state(self, ask: bool) -> str:
        """The state of the job in Slurm's terms. With ``ask``, Slurm is queried now, for all jobs at once."""
        return self._inner.watcher.get_state(self.slurm_id, "force" if ask else "cache").split()[0]

    def has_ended(self, ask: bool) -> bool:
        """True if the job has an outcome, or Slurm reports its end. With ``ask``, Slurm is queried now."""
        self._refresh()
        if self.folder.outcome.exists():
            return True
        is_done = self._inner.watcher.is_done(self.slurm_id, "force" if ask else "standard")
        return is_done and self.state(ask=False) not in BEGUN  # submitit counts a suspended job as ended

    def _refresh(self) -> None:
        """Refresh the folder on a network disk."""
        with suppress(OSError):
            self.folder.path.chmod(self.folder.path.stat().st_mode)

    def how_it_ended(self, jobs: Sequence[Job]) -> Told:
        """The last message about an ended Slurm job that trained these jobs of a sweep."""
        deadline = time.monotonic() + OUTCOME_SECONDS
        while not self.folder.outcome.exists() and time.monotonic() < deadline:
            time.sleep(0.5)
            self._refresh()
        log = self.logs[0]
        if self.folder.outcome.exists():
            try:
                return "done", self.folder.read_outcome(jobs)
            except StoreError as error:
                return "lost", f"the result of Slurm job {self.slurm_id} is damaged: {error}"
        ending = f"Slurm job {self.slurm_id} ended as {self.state(ask=False)}"
        if ending.endswith(LOST):
            return "lost", ending
        if ending.endswith("OUT_OF_MEMORY"):
            return "lost", f"{ending}; more --memory helps; its log is {log}"
        tail = self._log().splitlines()[-LOG_LINES:]
        if any("No module named 'madbench" in line for line in tail):
            return "done", WorkerResult(broken=f"a Slurm job cannot import madbench; its log is {log}")
        return "failed", "\n".join([*tail, f"{ending}; its log is {log}"])

    def _log(self) -> str:
        for path in self.logs:
            with suppress(OSError):
                if text := path.read_text(errors="replace"):
                    return text
        return ""

    def cancel(self) -> None:
        with suppress(OSError):
            subprocess.run(["scancel", f"--name={self.name}", self.slurm_id], check=False)

    def remove_logs(self) -> None:
        for path in self.logs:
            with suppress(OSError):
                path.unlink()


@dataclass
class LeftJob:
    """A Slurm job left by a driver that has ended."""

    job: SlurmJob
    call: Mapping[str, Any]

    @property
    def ids(self) -> list[str]:
        """The ids of the jobs that it trains."""
        return list(self.call["jobs"])

    def is_training(self, task: Task) -> bool:
        """True if it trains the jobs of the task in the same way, possibly with other jobs."""
        mine = training_of(task.assignment)
        wanted = {job_id: (mine["jobs"][job_id], mine["works"][job_id]) for job_id in mine["jobs"]}
        here = {job_id: (self.call["jobs"].get(job_id), self.call["works"].get(job_id)) for job_id in wanted}
        same = all(self.call.get(key) == mine[key] for key in ("version", "time_limit", "train"))
        return same and here == wanted and not task.assignment.policy.redo

    def outcome_for(self, task: Task) -> WorkerResult | None:
        """The outcome for the jobs of the task.

        None unless the Slurm job has ended well and trained them in the same way.
        """
        if not (self.job.folder.outcome.exists() and self.is_training(task)):
            return None
        kind, outcome = self.job.how_it_ended(task.jobs)
        if kind != "done" or outcome.broken:
            return None
        is_whole = None not in outcome.records  # otherwise a job did not end and is trained alone now
        return outcome if is_whole or len(task.jobs) == len(self.ids) > 1 else None


def find_left_jobs(parent: Path, name: str, job_ids: Collection[str], own: Collection[str]) -> list[LeftJob]:
    """The Slurm jobs, except ``own``, that train any of these jobs. Slurm jobs with an outcome come first.

    Their drivers have ended, because this driver could claim the jobs.
    """
    left = []
    for folder in slurm_folders(parent):
        if folder.slurm_id not in own and (call := read_object(folder.call)) is not None:
            is_whole = isinstance(call.get("jobs"), dict) and isinstance(call.get("works"), dict)
            if is_whole and not call["jobs"].keys().isdisjoint(job_ids):
                left.append(LeftJob(SlurmJob(parent, folder.slurm_id, name), call))
    return sorted(left, key=lambda old: not old.job.folder.outcome.exists())
