"""The jobs of a sweep as Slurm jobs, through submitit; the results folder must be on a disk that all nodes see.

``<results>/slurm/`` holds submitit's scripts, pickles and logs; those of a job that ended well are removed once its
result is stored. What Slurm preempts or stops at its wall time it queues again, and training resumes from the
checkpoint.

Where a driver ended without cancelling its Slurm jobs, as when a login node kills it, the next driver that claims their
jobs finds them by submitit's pickles, which are named after the Slurm job and have what it trains. It takes over those
that run, wait or have left a result, if they train the same group in the same way; the others it cancels, and queues
new ones, which resume from the checkpoints. A driver holds the claim of each job that its Slurm jobs train: no two
drivers share one.
"""

from __future__ import annotations

import functools
import json
import logging
import pickle
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from madbench.errors import ConfigError, TrainingError, require
from madbench.execute.base import Executor, Outcome, check_counts, source_checkout, worker_environment
from madbench.execute.driver import Backend, Message, Task, drive
from madbench.execute.slurm_job import (
    BEGUN,
    ENDED,
    WAITING,
    LeftJob,
    SlurmCall,
    find_left_jobs,
    has_ended,
    how_it_ended,
    record_file,
    remove_files,
    tidy,
)
from madbench.store.runs import Store

MOST_TIMEOUTS = 10  # wall times that a job may use up before it fails
FORCE_SECONDS = 60.0  # how often Slurm is asked for the states of its jobs; a result shows at once, a dead job only so


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
    _check_words({"partition": partition or "", **extra} | {f"option {name!r}": name for name in extra})
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
        _check_folder(store.root.absolute())
        return nullcontext(SlurmBackend(store, parameters))

    return functools.partial(drive, connect=connect)


def _check_words(words: Mapping[str, Any]) -> None:
    """Raises ``ConfigError`` for text, by its name, that could begin a line of its own in a job script."""
    for name, word in words.items():
        if not str(word).isprintable():
            raise ConfigError(f"{name} {str(word)!r}: control characters cannot go into a Slurm script; leave them out")


def _check_folder(results: Path) -> None:
    """Raises ``ConfigError`` for a results folder of which Slurm would make another one."""
    _check_words({"results": results})
    for character in "%\\":
        if character in str(results):
            problem = f"Slurm gives {character} in the path of a log a meaning of its own, and would write elsewhere"
            raise ConfigError(f"results {str(results)!r}: {problem}; choose a results folder without it")


class SlurmBackend(Backend):
    """Tasks as submitit's jobs."""

    def __init__(self, store: Store, parameters: dict[str, Any]):
        import submitit

        folder = store.root.absolute() / "slurm"
        self.store = store
        logging.getLogger("submitit").setLevel(logging.ERROR)
        self.slots = parameters["slurm_array_parallelism"]
        self.executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=MOST_TIMEOUTS)
        self.executor.update_parameters(**parameters)
        self.needs_gpu = "gpus_per_node" in parameters
        self.asked = {name: value for name, value in parameters.items() if name != "slurm_array_parallelism"}
        self.jobs: dict[Task, Any] = {}  # that have not ended
        self.ended: dict[Task, Any] = {}  # whose results are not stored yet
        self.taken: dict[Task, LeftJob] = {}  # from another driver
        self.results: dict[Task, Outcome] = {}  # of Slurm jobs that had ended when they were taken over
        self.news: dict[Task, dict[str, Any]] = {}
        self.last_force = time.monotonic()

    def submit(self, tasks: Sequence[Task]) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        for task in tasks:
            self._forget(task)
        if not (tasks := self._take_over(tasks)):
            return
        calls = [SlurmCall(task.assignment.pack(), self.news_file(task), self.needs_gpu, self.asked) for task in tasks]
        try:
            jobs = self.executor.submit_array(calls)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            raise TrainingError(f"sbatch does not take the jobs: {' '.join(str(error).split())}") from error
        self.jobs |= zip(tasks, jobs, strict=True)

    def _take_over(self, tasks: Sequence[Task]) -> list[Task]:
        """Takes over the Slurm jobs that another driver left of these tasks, and gives the tasks that need new ones.

        Those that cannot be taken over are cancelled: a job must not be trained twice at a time.
        """
        own = {job.job_id for job in (*self.jobs.values(), *self.ended.values())}
        left = find_left_jobs(self.executor.folder, {job.id for task in tasks for job in task.jobs}, own)
        states = {}
        for index, old in enumerate(left):  # asking of one asks of all
            states[old.job.job_id] = old.job.watcher.get_state(old.job.job_id, "cache" if index else "force").split()[0]
        needing, taken = [], set()
        for task in tasks:
            for old in left:
                if result := old.outcome_for(task):
                    self.results[task] = result
                    self._end(task, old.job, is_done=True)
                elif self._goes_on_with(old, states[old.job.job_id], task):
                    self.jobs[task], self.taken[task] = old.job, old
                else:
                    continue
                taken.add(old.job.job_id)
                break
            else:
                needing.append(task)
                self._remove_news(task)
        for old in left:
            if old.job.job_id not in taken:
                if states[old.job.job_id] not in ENDED:
                    old.job.cancel(check=False)
                tidy(old.job, keeps_logs=False)
        return needing

    def _goes_on_with(self, old: LeftJob, state: str, task: Task) -> bool:
        """Whether a Slurm job trains, or will train, the task and nothing besides it that has not ended yet."""
        is_alive = state in BEGUN or (state in WAITING and old.call.asked == self.asked)
        others = set(old.ids) - {job.id for job in task.jobs}
        return is_alive and old.is_training(task) and all(map(self.store.status, others))

    def news_file(self, task: Task) -> Path:
        """File of what the Slurm job of a task says while it runs."""
        return self.taken[task].call.news if task in self.taken else self.executor.folder / f"{task.jobs[0].id}.news"

    def _remove_news(self, task: Task) -> None:
        ids = self.taken[task].ids if task in self.taken else [job.id for job in task.jobs]
        remove_files(self.news_file(task), *(record_file(self.executor.folder, job_id) for job_id in ids))
        self.news.pop(task, None)
        self.taken.pop(task, None)

    def poll(self, seconds: float) -> Iterator[Message]:
        if not self.results:
            time.sleep(seconds)
        while self.results:
            task, outcome = self.results.popitem()
            yield task, "done", outcome
        force = time.monotonic() - self.last_force > FORCE_SECONDS
        if force:
            self.last_force = time.monotonic()
        for task, job in list(self.jobs.items()):
            yield from self._read_news(task)
            yield from self._read_records(task)
            is_done, force = has_ended(job, force), False  # asking of one asks of all
            if is_done:
                kind, value = how_it_ended(job)
                if kind == "done" and task in self.taken:
                    value = self.taken[task].share_of(task, value)
                self._end(task, self.jobs.pop(task), is_done=kind == "done")
                yield task, kind, value

    def _read_news(self, task: Task) -> Iterator[Message]:
        before = self.news.get(task, {})
        try:
            news = json.loads(self.news_file(task).read_bytes())
        except OSError:  # there is none yet
            return
        if news != before:
            self.news[task] = news
            if news.get("start") != before.get("start"):
                yield task, "started" if news.get("start") else "waiting", None
            for item in news.get("progress", {}).items():
                yield task, "progress", item

    def _read_records(self, task: Task) -> Iterator[Message]:
        """The records of jobs that have ended before their group."""
        for job in [claim.job for claim in task.claims] if len(task.jobs) > 1 else ():
            with suppress(OSError, EOFError, pickle.UnpicklingError):
                record = pickle.loads(record_file(self.executor.folder, job.id).read_bytes())
                yield task, "record", (job.id, record, {})

    def _end(self, task: Task, job: Any, is_done: bool) -> None:
        """Removes the files of a Slurm job that has ended, those of a result when it is stored and not before."""
        tidy(job, keeps_logs=not is_done, keeps_result=is_done)
        self.ended[task] = job
        task.drop_results = functools.partial(self._forget, task)

    def _forget(self, task: Task) -> None:
        self.results.pop(task, None)
        if job := self.ended.pop(task, None):
            self._remove_news(task)
            tidy(job, keeps_logs=True)

    def cancel(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            if job := self.jobs.pop(task, None):
                job.cancel(check=False)
                self._remove_news(task)
                tidy(job, keeps_logs=False)
