"""A Slurm job as its driver sees it: its state, how it ended, and whether another driver can take it over."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.driver import LockedGroup
from madbench.execute.messages import Ending, WorkerFailed, WorkerLost, WorkerResult
from madbench.execute.slurm_folder import SlurmFolder, read_object, slurm_folders, training_of
from madbench.jobs import Job

LOG_LINES = 20
OUTCOME_SECONDS = 15.0  # longest delay of the outcome of an ended job on a network disk
LOST = ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
WAITING = ("PENDING", "REQUEUED")
BEGUN = ("RUNNING", "RESIZING", "SUSPENDED")
"""Slurm's states of a job that has begun and has not ended. A suspended job resumes by itself."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "DEADLINE", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL")
"""Slurm's states of a job that is not running any more. A preempted job is not among them: it may be queued again."""


class SlurmJob:
    """A Slurm job of this sweep, or one that an earlier sweep left.

    Cancelling it needs its id and its ``name``, so that no other Slurm job is ended.
    """

    def __init__(self, parent: Path, slurm_id: str, name: str):
        import submitit

        self.slurm_id, self.name = slurm_id, name
        self.folder = SlurmFolder(parent, slurm_id)
        self._inner = submitit.SlurmJob(parent, slurm_id)
        self.logs: tuple[Path, Path] = (self._inner.paths.stderr, self._inner.paths.stdout)

    def state(self, ask: bool) -> str:
        """The state of the Slurm job in Slurm's terms, such as ``RUNNING``.

        If ``ask`` is true, Slurm is asked now, for all Slurm jobs at once. Otherwise the state is that of the last
        query.
        """
        state: str = self._inner.watcher.get_state(self.slurm_id, "force" if ask else "cache")
        return state.split()[0]

    def has_ended(self, ask: bool) -> bool:
        """True if the Slurm job has written its outcome, or if Slurm reports that it has ended.

        If ``ask`` is true, Slurm is asked now, for all Slurm jobs at once. Otherwise it is asked only from time to
        time.
        """
        self._refresh()
        if self.folder.outcome.exists():
            return True
        is_done = self._inner.watcher.is_done(self.slurm_id, "force" if ask else "standard")
        return is_done and self.state(ask=False) not in BEGUN  # submitit counts a suspended job as ended

    def _refresh(self) -> None:
        """Set the mode of the Slurm job's folder to its present value.

        This makes a network disk show the newest files in it.
        """
        with suppress(OSError):
            self.folder.path.chmod(self.folder.path.stat().st_mode)

    def how_it_ended(self, jobs: Sequence[Job]) -> Ending:
        """The last message about a Slurm job that has ended and that trained ``jobs``.

        Wait up to ``OUTCOME_SECONDS`` seconds for the file with the outcome, which a network disk may show late.
        """
        deadline = time.monotonic() + OUTCOME_SECONDS
        while not self.folder.outcome.exists() and time.monotonic() < deadline:
            time.sleep(0.5)
            self._refresh()
        log = self.logs[0]
        if self.folder.outcome.exists():
            try:
                return self.folder.read_outcome(jobs)
            except StoreError as error:
                return WorkerLost(f"the result of Slurm job {self.slurm_id} is damaged: {error}")
        ending = f"Slurm job {self.slurm_id} ended as {self.state(ask=False)}"
        if ending.endswith(LOST):
            return WorkerLost(ending)
        if ending.endswith("OUT_OF_MEMORY"):
            return WorkerLost(f"{ending}; more memory_gb in the file of --on helps; its log is {log}")
        tail = self._log().splitlines()[-LOG_LINES:]
        if any("No module named 'madbench" in line for line in tail):
            return WorkerResult(broken=f"a Slurm job cannot import madbench; its log is {log}")
        return WorkerFailed("\n".join([*tail, f"{ending}; its log is {log}"]))

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
    """A Slurm job whose driver has ended without cancelling it, and the content of its ``call.json``."""

    job: SlurmJob
    call: Mapping[str, Any]

    @property
    def ids(self) -> list[str]:
        """The ids of the jobs that the Slurm job trains."""
        return list(self.call["jobs"])

    def is_training(self, group: LockedGroup) -> bool:
        """True if the Slurm job trains all jobs of the group in the way that the group requires.

        It may train further jobs.
        """
        ours = training_of(group.assignment)
        our_jobs = {job_id: (ours["jobs"][job_id], ours["works"][job_id]) for job_id in ours["jobs"]}
        their_jobs = {job_id: (self.call["jobs"].get(job_id), self.call["works"].get(job_id)) for job_id in our_jobs}
        is_same_training = all(self.call.get(key) == ours[key] for key in ("version", "time_limit", "train"))
        return is_same_training and their_jobs == our_jobs and not group.assignment.policy.redo

    def outcome_for(self, group: LockedGroup) -> WorkerResult | None:
        """The result of the Slurm job for the jobs of the group.

        None if the Slurm job has failed or has not ended, or if it trained these jobs in another way
        (:meth:`is_training`). Also None if a job of the group has no record and the group is only a part of what the
        Slurm job trained.
        """
        if not (self.job.folder.outcome.exists() and self.is_training(group)):
            return None
        outcome = self.job.how_it_ended(group.jobs)
        if not isinstance(outcome, WorkerResult) or outcome.broken:
            return None
        is_whole = None not in outcome.records  # otherwise a job did not end; it is trained alone next
        return outcome if is_whole or len(group.jobs) == len(self.ids) > 1 else None


def find_left_jobs(parent: Path, name: str, job_ids: Collection[str], own_ids: Collection[str]) -> list[LeftJob]:
    """The Slurm jobs in ``parent`` that train any of the jobs ``job_ids`` and whose drivers have ended.

    ``own_ids`` has the ids of this driver's Slurm jobs, which are left out. All other drivers of these jobs have ended,
    because this driver holds the locks of the jobs. Slurm jobs with an outcome come first. ``name`` is the name under
    which the Slurm jobs can be cancelled.
    """
    left_jobs = []
    for folder in slurm_folders(parent):
        if folder.slurm_id not in own_ids and (call := read_object(folder.call)) is not None:
            is_whole = isinstance(call.get("jobs"), dict) and isinstance(call.get("works"), dict)
            if is_whole and not call["jobs"].keys().isdisjoint(job_ids):
                left_jobs.append(LeftJob(SlurmJob(parent, folder.slurm_id, name), call))
    return sorted(left_jobs, key=lambda old: not old.job.folder.outcome.exists())
