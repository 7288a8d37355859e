"""The jobs of a sweep as Slurm jobs, through submitit; the results folder must be on a disk that all nodes see.

``<results>/slurm/`` holds submitit's scripts and logs; those of a job that ended well are removed. What Slurm preempts
or stops at its wall time it queues again, and the job goes on from its checkpoint. A driver that ended without
cancelling its jobs, as when a login node kills it, leaves a note in their work folders: the same command takes them
over, those that have ended meanwhile included.
"""

from __future__ import annotations

import functools
import logging
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from madbench.errors import ConfigError, MissingExtraError, TrainingError
from madbench.execute.base import Executor, OnEvent, Policy, Summary, Train, ignore_event, worker_environment
from madbench.execute.remote import Message, Task, run_remotely
from madbench.execute.remote_worker import Outcome, source_checkout
from madbench.execute.submitit_job import NEWS, NOTE, SlurmCall, read_note, write_note
from madbench.files import remove
from madbench.store.runs import Store

MOST_TIMEOUTS = 10
"""Wall times that a job may use up before it fails."""
FORCE_SECONDS = 60.0
"""How often Slurm is asked what its jobs are doing; a result shows at once, a dead job only so."""
LOG_LINES = 20

_LOST = ("TIMEOUT", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL")


def slurm_executor(
    partition: str | None = None,
    minutes: int = 60,
    cpus_per_job: int = 1,
    gpus_per_job: int = 0,
    memory_gb: float | None = None,
    slots: int = 64,
    extra: Mapping[str, Any] = {},
    cluster: Literal["slurm", "local"] = "slurm",
) -> Executor:
    """An executor (:mod:`madbench.execute.base`) whose jobs are Slurm jobs.

    Args:
        partition: where to queue them; Slurm's own default.
        minutes: wall time of a job, at the end of which it is queued again and goes on.
        cpus_per_job: cores of a job, and threads it computes in.
        gpus_per_job: GPUs of a job.
        memory_gb: memory of a job; Slurm's own default.
        slots: jobs in the queue or running at a time; those handed over together are one job array.
        extra: other options of sbatch by their long names, such as ``{"account": "me", "qos": "low"}``.
        cluster: ``local`` runs them as processes of this machine instead, for a trial.

    Raises ``MissingExtraError`` without submitit, and ``ConfigError`` for what cannot be and where there is no Slurm.
    """
    try:
        import submitit
    except ImportError:
        raise MissingExtraError("executor slurm", "slurm") from None
    counts = {"minutes": minutes, "cpus_per_job": cpus_per_job, "slots": slots}
    for name, value in counts.items():
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}")
    if gpus_per_job != int(gpus_per_job) or gpus_per_job < 0:
        raise ConfigError(f"gpus_per_job must be a whole number with Slurm, got {gpus_per_job:g}")
    if memory_gb is not None and not memory_gb > 0:
        raise ConfigError(f"memory_gb must be above 0, got {memory_gb:g}")
    if cluster == "slurm" and submitit.SlurmExecutor.affinity() < 0:
        raise ConfigError("there is no Slurm here (no srun on the PATH); run this on a login node")
    parameters = {
        "name": "madbench",
        "timeout_min": minutes,
        "cpus_per_task": cpus_per_job,
        "slurm_array_parallelism": slots,
        "slurm_setup": _setup(cpus_per_job),
        "slurm_additional_parameters": dict(extra),
    }
    if gpus_per_job:
        parameters["gpus_per_node"] = int(gpus_per_job)
    if partition is not None:
        parameters["slurm_partition"] = partition
    if memory_gb is not None:
        parameters["mem_gb"] = memory_gb
    return functools.partial(_execute, parameters=parameters, slots=slots, cluster=cluster)


def _setup(threads: int) -> list[str]:
    """Shell commands that a job begins with."""
    lines = [f"export {name}={value}" for name, value in worker_environment(threads).items()]
    if checkout := source_checkout():
        lines.append(f"export PYTHONPATH={shlex.quote(str(checkout))}${{PYTHONPATH:+:$PYTHONPATH}}")
    return lines


def _execute(
    jobs: Iterable[Any],
    store: Store,
    train: Train,
    on_event: OnEvent = ignore_event,
    policy: Policy = Policy(),
    *,
    parameters: dict[str, Any],
    slots: int,
    cluster: str,
) -> Summary:
    @contextmanager
    def connect() -> Iterator[SlurmBackend]:
        yield SlurmBackend(store.root.absolute() / "slurm", parameters, slots, cluster)

    return run_remotely(jobs, store, train, connect, on_event, policy)


class SlurmBackend:
    """Tasks as submitit's jobs (:class:`madbench.execute.remote.Backend`)."""

    shares_folder = True

    def __init__(self, folder: Path, parameters: dict[str, Any], slots: int, cluster: str):
        import submitit

        logging.getLogger("submitit").setLevel(logging.ERROR)
        self.slots = slots
        self.poll_interval = 1.0 if cluster == "slurm" else 0.1
        self.executor = submitit.AutoExecutor(folder, cluster=cluster, slurm_max_num_timeout=MOST_TIMEOUTS)
        self.executor.update_parameters(**parameters)
        self.needs_gpu = "gpus_per_node" in parameters
        self.jobs: dict[Task, Any] = {}
        self.news: dict[Task, dict[str, Any]] = {}
        self.last_force = time.monotonic()

    def capacity(self) -> int:
        return self.slots

    def submit(self, tasks: Sequence[Task]) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        new = [task for task in tasks if task.attempt > 1 or not self._take_over(task)]
        calls = []
        for task in new:
            _remove(task.work / NEWS)
            self.news.pop(task, None)
            calls.append(SlurmCall(task.assignment.pack(), task.work, os.urandom(8).hex(), self.needs_gpu))
            write_note(task.work / NOTE, ticket=calls[-1].ticket)
        try:
            jobs = self.executor.submit_array(calls) if calls else []
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            _remove(*(task.work / NOTE for task in new))
            raise TrainingError(f"sbatch does not take the jobs: {' '.join(str(error).split())}") from error
        for task, call, job in zip(new, calls, jobs, strict=True):
            self.jobs[task] = job
            write_note(task.work / NOTE, ticket=call.ticket, slurm_job=job.job_id)

    def _take_over(self, task: Task) -> bool:
        """Whether a Slurm job of an earlier driver is at work on the task, or has done it."""
        import submitit

        note, news = read_note(task.work / NOTE), read_note(task.work / NEWS)
        if "slurm_job" not in note and "ticket" in note and news.get("ticket") == note["ticket"]:
            note = news  # the driver was killed after it had queued the job, and before it had noted which it is
        if "slurm_job" not in note or self.executor.cluster != "slurm":
            return False
        self.jobs[task] = submitit.SlurmJob(self.executor.folder, note["slurm_job"])
        return True

    def poll(self, seconds: float) -> Iterator[Message]:
        is_quiet = True
        force = time.monotonic() - self.last_force > FORCE_SECONDS
        for task, job in list(self.jobs.items()):
            for kind, value in self._told(task):
                is_quiet = False
                yield task, kind, value
            if force:
                self.last_force = time.monotonic()
            is_done, force = job.done(force_check=force), False
            if is_done:
                is_quiet = False
                yield from self._ended(task, job)
        if is_quiet:
            time.sleep(min(seconds, self.poll_interval))

    def _ended(self, task: Task, job: Any) -> Iterator[Message]:
        kind, value = _result(job)
        if kind != "done" or value.record is None or value.record.status == "failed":
            _remove(task.work / NOTE, task.work / NEWS)
            del self.jobs[task]
            yield task, kind, value
        else:
            yield task, kind, value  # its notes go when the result is stored, and not before
            self.jobs.pop(task, None)
        _tidy(job, keeps_logs=kind != "done")

    def _told(self, task: Task) -> Iterator[tuple[Any, Any]]:
        """What the worker has written since it was asked last."""
        news = read_note(task.work / NEWS)
        if not news:
            return
        before = self.news.get(task, {})
        self.news[task] = news
        if news.get("start") != before.get("start"):
            yield ("started" if news.get("start") else "waiting"), None
        if news.get("progress") and news != before:
            yield "progress", news["progress"]

    def cancel(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if job := self.jobs.pop(task, None):
                job.cancel(check=False)
                _remove(task.work / NOTE, task.work / NEWS)
                _tidy(job, keeps_logs=False)


def _result(job: Any) -> tuple[str, Any]:
    """How a job ended that has ended."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    try:
        return "done", job.result()
    except FailedJobError as error:
        text = str(error)
        if "No module named" in text:
            return "done", Outcome(broken=f"a Slurm job cannot import what it is to run; its log is {job.paths.stderr}")
        return "failed", text
    except UncompletedJobError:
        state = str(job.state).split()[0]
        if state in _LOST:
            return "lost", f"Slurm job {job.job_id} ended as {state}"
        return "failed", f"{_log_tail(job)}\nSlurm job {job.job_id} ended as {state}; its log is {job.paths.stderr}"


def _log_tail(job: Any) -> str:
    lines = (job.stderr() or job.stdout() or "").splitlines()
    return "\n".join(lines[-LOG_LINES:])


def _tidy(job: Any, keeps_logs: bool) -> None:
    paths = job.paths
    _remove(paths.submitted_pickle, paths.result_pickle, paths.submission_file)
    if not keeps_logs:
        _remove(paths.stdout, paths.stderr)


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            remove(path)
