"""The jobs of a sweep as Slurm jobs, through submitit; the results folder must be on a disk that all nodes see.

``<results>/slurm/`` holds submitit's scripts and logs; those of a job that ended well are removed. What Slurm preempts
or stops at its wall time it queues again, and training resumes from the checkpoint. Where a driver ended without
cancelling its Slurm jobs, as when a login node kills it, the same command cancels them by the notes that are left in
that folder, and queues new ones, which resume from the checkpoints.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from madbench.errors import ConfigError, StoreError, TrainingError, require
from madbench.execute.base import (
    Executor,
    Outcome,
    Packed,
    check_counts,
    now_and_then,
    source_checkout,
    work_remotely,
    worker_environment,
)
from madbench.execute.driver import Backend, Message, Task, drive
from madbench.files import write_atomically
from madbench.jobs import Job
from madbench.store.runs import Store

REPORT_SECONDS = 5.0
MOST_TIMEOUTS = 10  # wall times that a job may use up before it fails
FORCE_SECONDS = 60.0  # how often Slurm is asked for the states of its jobs; a result shows at once, a dead job only so
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
) -> Executor:
    """An executor (:mod:`madbench.execute.base`) whose groups of jobs are Slurm jobs.

    Args:
        partition: where to queue them; Slurm's own default.
        minutes: wall time of a Slurm job, at the end of which it is queued again and resumes.
        cpus_per_job: cores of a Slurm job, and threads it computes in.
        gpus_per_job: GPUs of a Slurm job.
        memory_gb: memory of a Slurm job; Slurm's own default.
        slots: Slurm jobs queued or running at a time; those handed over together are one job array.
        extra: other options of sbatch by their long names, such as ``{"account": "me", "qos": "low"}``.

    Raises ``MissingExtraError`` without submitit, and ``ConfigError`` for wrong values and where there is no Slurm.
    """
    submitit = require("submitit", "executor slurm", "slurm")
    check_counts(minutes=minutes, cpus_per_job=cpus_per_job, slots=slots)
    if gpus_per_job != int(gpus_per_job) or gpus_per_job < 0:
        raise ConfigError(f"gpus_per_job must be a whole number with Slurm, got {gpus_per_job:g}")
    if memory_gb is not None and not memory_gb > 0:
        raise ConfigError(f"memory_gb must be above 0, got {memory_gb:g}")
    if submitit.SlurmExecutor.affinity() < 0:
        raise ConfigError("there is no Slurm here (no srun on the PATH); run this on a login node")
    environment = worker_environment(cpus_per_job)
    setup = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if checkout := source_checkout():
        setup.append(f"export PYTHONPATH={shlex.quote(str(checkout))}${{PYTHONPATH:+:$PYTHONPATH}}")
    asked = {"name": "madbench", "timeout_min": minutes, "cpus_per_task": cpus_per_job, "mem_gb": memory_gb}
    asked |= {"gpus_per_node": int(gpus_per_job) or None, "slurm_partition": partition, "slurm_setup": setup}
    asked |= {"slurm_array_parallelism": slots, "slurm_additional_parameters": dict(extra)}
    parameters = {name: value for name, value in asked.items() if value is not None}

    def connect(store: Store) -> AbstractContextManager[SlurmBackend]:
        return nullcontext(SlurmBackend(store.root.absolute() / "slurm", parameters))

    return functools.partial(drive, connect=connect)


@dataclass
class SlurmCall:
    """What a Slurm job runs."""

    packed: Packed
    news: Path  # file for what the driver is to know while it runs
    needs_gpu: bool
    is_requeued: bool = False

    def __call__(self) -> Outcome:
        start = f"{os.environ.get('SLURM_JOB_ID', '')}-{os.getpid()}-{time.time()}"
        self.tell(start=start)
        send = now_and_then(REPORT_SECONDS, lambda progress: self.tell(start=start, progress=progress))
        outcome = work_remotely(self.packed, send, self.needs_gpu)
        if self.is_requeued:  # submitit's exit on the signal, which a run takes for one of its own
            sys.exit(-1)
        return outcome

    def tell(self, **news: Any) -> None:
        with suppress(StoreError):
            write_atomically(self.news, json.dumps(news).encode())

    def checkpoint(self) -> Any:
        """Called by submitit on Slurm's signal, before it has the job queued again."""
        from submitit.helpers import DelayedSubmission

        self.is_requeued = True
        self.tell()
        return DelayedSubmission(replace(self, is_requeued=False))


class SlurmBackend(Backend):
    """Tasks as submitit's jobs."""

    def __init__(self, folder: Path, parameters: dict[str, Any]):
        import submitit

        logging.getLogger("submitit").setLevel(logging.ERROR)
        self.slots = parameters["slurm_array_parallelism"]
        self.executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=MOST_TIMEOUTS)
        self.executor.update_parameters(**parameters)
        self.needs_gpu = "gpus_per_node" in parameters
        self.jobs: dict[Task, Any] = {}
        self.news: dict[Task, dict[str, Any]] = {}
        self.last_force = time.monotonic()

    def submit(self, tasks: Sequence[Task]) -> None:
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        for task in tasks:
            for job in task.jobs:
                with suppress(OSError):  # a note is left by a driver that was killed
                    slurm_job = self.file(job, "job").read_text()
                    submitit.SlurmJob(self.executor.folder, slurm_job).cancel(check=False)
            self.remove_notes(task)
        calls = [SlurmCall(task.assignment.pack(), self.file(task.jobs[0], "news"), self.needs_gpu) for task in tasks]
        try:
            jobs = self.executor.submit_array(calls)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            raise TrainingError(f"sbatch does not take the jobs: {' '.join(str(error).split())}") from error
        self.jobs |= zip(tasks, jobs, strict=True)
        for task in tasks:
            for job in task.jobs:
                write_atomically(self.file(job, "job"), self.jobs[task].job_id.encode())

    def file(self, job: Job, kind: str) -> Path:
        """``job``: the Slurm job that trains this one; ``news``: what one says that trains a group, by its first."""
        return self.executor.folder / f"{job.id}.{kind}"

    def remove_notes(self, task: Task) -> None:
        self.news.pop(task, None)
        _remove(*(self.file(job, kind) for job in task.jobs for kind in ("job", "news")))

    def poll(self, seconds: float) -> Iterator[Message]:
        time.sleep(seconds)
        force = time.monotonic() - self.last_force > FORCE_SECONDS
        if force:
            self.last_force = time.monotonic()
        for task, job in list(self.jobs.items()):
            yield from self._read_news(task)
            is_done, force = job.done(force_check=force), False  # asking of one asks of all
            if is_done:
                kind, value = _result(job)
                del self.jobs[task]
                self.remove_notes(task)
                yield task, kind, value
                _tidy(job, keeps_logs=kind != "done")

    def _read_news(self, task: Task) -> Iterator[Message]:
        before = self.news.get(task, {})
        try:
            news = json.loads(self.file(task.jobs[0], "news").read_bytes())
        except OSError:  # there is none yet
            return
        if news != before:
            self.news[task] = news
            if news.get("start") != before.get("start"):
                yield task, "started" if news.get("start") else "waiting", None
            for item in news.get("progress", {}).items():
                yield task, "progress", item

    def cancel(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if job := self.jobs.pop(task, None):
                job.cancel(check=False)
                self.remove_notes(task)
                _tidy(job, keeps_logs=False)


def _result(job: Any) -> tuple[str, Any]:
    """How a job ended that has ended."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    log = job.paths.stderr
    try:
        return "done", job.result()
    except FailedJobError as error:
        if "No module named" in str(error):
            return "done", Outcome(broken=f"a Slurm job cannot import what it is to run; its log is {log}")
        return "failed", str(error)
    except UncompletedJobError:
        ending = f"Slurm job {job.job_id} ended as {str(job.state).split()[0]}"
        if ending.endswith(_LOST):
            return "lost", ending
        if ending.endswith("OUT_OF_MEMORY"):
            return "lost", f"{ending}; more --memory helps; its log is {log}"
        tail = (job.stderr() or job.stdout() or "").splitlines()[-LOG_LINES:]
        return "failed", "\n".join([*tail, f"{ending}; its log is {log}"])


def _tidy(job: Any, keeps_logs: bool) -> None:
    paths = job.paths
    logs = () if keeps_logs else (paths.stdout, paths.stderr)
    _remove(paths.submitted_pickle, paths.result_pickle, paths.submission_file, *logs)


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()
