"""The executor on Slurm, through submitit. The results folder must be on a disk that all nodes see.

submitit writes the job script and knows the states of Slurm jobs. Its pickles are not used: ``<results>/slurm/`` has
one folder of text files per Slurm job (:mod:`madbench.execute.slurm_folder`), and the logs. The files of a successful
Slurm job are removed once its results are stored. A Slurm job that is preempted or reaches its wall time is queued
again, and its training resumes from the checkpoint.

A driver may end without cancelling its Slurm jobs, for example if a login node kills it. The next driver that locks the
same jobs finds these Slurm jobs by their folders. It takes over a Slurm job that runs, waits or has left a result, if
the Slurm job trains the same group in the same way. It cancels all others and queues new Slurm jobs, which resume from
the checkpoints. A driver holds the lock of each job that its Slurm jobs train, so no two drivers train the same job.

If Slurm refuses a submission after it accepted an earlier one, the submission is repeated with growing pauses, and
running jobs go on. If the reason is a limit on submissions, fewer Slurm jobs are queued at a time.
"""

from __future__ import annotations

import functools
import logging
import math
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from madbench.config import short_repr
from madbench.errors import ConfigError, TrainingError, require
from madbench.execute.base import Executor, check_counts, source_checkout, worker_environment
from madbench.execute.driver import Backend, LockedGroup, drive
from madbench.execute.messages import GroupRequeued, JobProgress, JobResult, Message, WorkerResult, WorkerStarted
from madbench.execute.slurm_folder import as_json, content_digest, encode_call
from madbench.execute.slurm_job import BEGUN, ENDED, WAITING, LeftJob, SlurmJob, find_left_jobs
from madbench.files import explain_os_errors, refuse_link
from madbench.jobs import Progress
from madbench.store.runs import Store

FOLDER = "slurm"  # folder in the results folder
NAME = "madbench"  # name of a Slurm job
SLOTS = 64  # Slurm jobs at a time
SUBMIT_SECONDS = 120.0  # longest time of sbatch
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0  # seconds between a refused submission and the next try
ASK_SECONDS = 60.0  # interval of state queries; results are seen at once, dead jobs only by a query


_LIMIT = re.compile("submit[a-z]*limit|submit limit|job array specification", re.IGNORECASE)
"""Matches messages of sbatch about too many jobs, such as ``QOSMaxSubmitJobPerUserLimit``."""


@dataclass(frozen=True)
class SlurmConfig:
    """The resources of each Slurm job. It is the content of the file in ``--on slurm:FILE.yaml``."""

    partition: str | None = None
    """Partition of the Slurm jobs; by default Slurm's default."""
    minutes: int = 60
    """Wall time of a Slurm job; at its end it is queued again and resumes."""
    cpus_per_job: int = 1
    """Cores of a Slurm job, which is also the number of its threads."""
    gpus_per_job: float | None = None
    """GPUs of a Slurm job, a whole number."""
    memory_gb: float | None = None
    """Memory of a Slurm job in GB; by default Slurm's default."""
    sbatch: dict[str, Any] = field(default_factory=dict)
    """Other options of sbatch by their long names, such as {account: me, qos: low}."""


def slurm_executor(config: SlurmConfig = SlurmConfig(), slots: int | None = None) -> Executor:
    """Return an executor (:mod:`madbench.execute.base`) that runs each group of jobs as a Slurm job.

    At most ``slots`` Slurm jobs are queued or running at a time, by default ``SLOTS``, and fewer if Slurm has a lower
    limit. Slurm jobs that are submitted together form one job array.

    Raises ``MissingExtraError`` without submitit, and ``ConfigError`` for wrong values or without Slurm.
    """
    submitit = require("submitit", "executor slurm", "slurm")
    slots = SLOTS if slots is None else slots
    gpus, memory, cpus = config.gpus_per_job or 0, config.memory_gb, config.cpus_per_job
    check_counts(minutes=config.minutes, cpus_per_job=cpus, slots=slots)
    if gpus != int(gpus) or gpus < 0:
        raise ConfigError(f"gpus_per_job must be a whole number with Slurm, got {gpus:g}")
    if memory is not None and not memory > 0:
        raise ConfigError(f"memory_gb must be above 0, got {memory:g}")
    option_names = {f"option {short_repr(name)}": name for name in config.sbatch}
    _check_words({"partition": config.partition or "", **config.sbatch} | option_names)
    if submitit.SlurmExecutor.affinity() < 0:
        raise ConfigError("there is no Slurm here (no srun on the PATH); run this on a login node")
    environment = worker_environment(cpus)
    setup = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
    if checkout := source_checkout():
        setup.append(f"export PYTHONPATH={shlex.quote(str(checkout))}${{PYTHONPATH:+:$PYTHONPATH}}")
    options = {"name": NAME, "timeout_min": config.minutes, "cpus_per_task": cpus, "mem_gb": memory}
    options |= {"gpus_per_node": int(gpus) or None, "slurm_partition": config.partition, "slurm_setup": setup}
    options |= {"slurm_array_parallelism": slots, "slurm_additional_parameters": dict(config.sbatch)}
    parameters = {name: value for name, value in options.items() if value is not None}

    def connect(store: Store) -> AbstractContextManager[SlurmBackend]:
        _check_folder(store.root.absolute())
        refuse_link(store.root / FOLDER)
        return nullcontext(SlurmBackend(store, parameters))

    return functools.partial(drive, connect=connect)


def _check_words(words: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` if a value has characters that cannot be printed, such as a line break.

    ``words`` has values for the job script by name. A line break would start a new line in the script.
    """
    for name, word in words.items():
        if not str(word).isprintable():
            raise ConfigError(
                f"{name} {short_repr(str(word))}: control characters cannot go into a Slurm script; leave them out"
            )


def _check_folder(results: Path) -> None:
    """Raise ``ConfigError`` if the path of the results folder has characters that Slurm would replace."""
    _check_words({"results": results})
    for character in "%\\":
        if character in str(results):
            problem = f"Slurm replaces {character} in the path of a log, and would write elsewhere"
            raise ConfigError(f"results {str(results)!r}: {problem}; choose a results folder without it")


class SlurmBackend(Backend):
    """The backend that runs each group as a Slurm job."""

    def __init__(self, store: Store, parameters: dict[str, Any]):
        self.store = store
        self.folder = store.root.absolute() / FOLDER
        logging.getLogger("submitit").setLevel(logging.ERROR)
        self.parameters = parameters
        self.most_slots = self.slots = parameters["slurm_array_parallelism"]
        extra = parameters.get("slurm_additional_parameters", {})
        self.name = str(extra.get("job-name", extra.get("job_name", NAME)))
        self.needs_gpu = "gpus_per_node" in parameters
        self.sbatch_options = as_json(
            {name: value for name, value in parameters.items() if name != "slurm_array_parallelism"}
        )
        self.waiting: list[LockedGroup] = []  # groups that wait for submission
        self.notes: list[str] = []  # sentences for the user
        self.reported_problems: set[str] = set()
        self.pause, self.next_try = 0.0, -math.inf
        self.has_begun = False  # True once Slurm has accepted a submission
        self.jobs: dict[LockedGroup, SlurmJob] = {}  # Slurm jobs that have not ended
        self.ended: dict[LockedGroup, SlurmJob] = {}  # ended Slurm jobs with unstored results
        self.results: dict[LockedGroup, WorkerResult] = {}  # results of Slurm jobs that had ended before their takeover
        self.news: dict[LockedGroup, dict[str, Any]] = {}
        self.last_ask = time.monotonic()

    def submit(self, groups: Sequence[LockedGroup]) -> None:
        for group in groups:
            self._forget(group)
        self.waiting += self._take_over(groups)
        self._queue_waiting()

    def _queue_waiting(self) -> None:
        """Submit waiting groups to Slurm if there are free slots. If Slurm refuses, set the time of the next try.

        If a submission exceeds a limit of Slurm, the first half of its groups is submitted immediately. If that half
        also exceeds the limit, it is halved again, down to one group. Raises ``TrainingError`` if Slurm refuses all
        groups before it has accepted any.
        """
        if time.monotonic() < self.next_try:
            return
        batch, problem = self.waiting[: max(0, self.slots - len(self.jobs))], None
        is_over_limit = False
        while batch:
            try:
                self._queue(batch)
                break
            except TrainingError as error:
                problem, is_over_limit = error, bool(_LIMIT.search(str(error)))
                batch = batch[: len(batch) // 2] if is_over_limit else []
        if problem and not batch and not self.has_begun:
            raise problem
        self.has_begun |= bool(batch)
        self.waiting = [group for group in self.waiting if group not in batch]
        if is_over_limit or self.slots < self.most_slots:
            self.slots = min(self.most_slots, len(self.jobs) + 1)  # one Slurm job more than now, since limits change
        if problem is None:
            self.pause = 0.0
            return
        if str(problem) not in self.reported_problems:
            self.reported_problems.add(str(problem))
            goes_on = f"{len(self.jobs)} Slurm jobs go on, and new ones are tried again with growing pauses"
            self.notes.append(f"{problem}; {goes_on}")
        self.pause = min(LONGEST_PAUSE, 2 * self.pause or FIRST_PAUSE)
        self.next_try = time.monotonic() + self.pause

    def _queue(self, groups: Sequence[LockedGroup]) -> None:
        """Submit each group as a new Slurm job, together as a job array.

        Raises ``TrainingError`` if Slurm refuses them.
        """
        calls = [encode_call(group.assignment, self.needs_gpu, self.sbatch_options, self.name) for group in groups]
        with explain_os_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
        script = self.script([content_digest(call) for call in calls])
        try:
            output = subprocess.run(
                ["sbatch"], check=True, input=script, capture_output=True, text=True, timeout=SUBMIT_SECONDS
            ).stdout
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or error
            raise TrainingError(f"sbatch does not accept the jobs: {' '.join(str(reason).split())}") from error
        if not (job_id := re.search("job ([0-9]+)", output)):
            raise TrainingError(f"sbatch did not print the id of the jobs, but {output!r}")
        for index, (group, call) in enumerate(zip(groups, calls)):
            job = SlurmJob(self.folder, job_id[1] if len(groups) == 1 else f"{job_id[1]}_{index}", self.name)
            job.folder.write_call(call)
            self.jobs[group] = job

    def script(self, digests: Sequence[str]) -> str:
        """The job script of the Slurm job whose ``call.json`` has the digest in ``digests``.

        Several digests give the script of a job array, with one task per digest. The script goes to Slurm through a
        pipe, and Slurm keeps its own copy, so nobody can change it on a disk.
        """
        import submitit

        executor = submitit.AutoExecutor(self.folder, cluster="slurm")
        executor.update_parameters(**self.parameters)
        slurm = executor._executor
        if len(digests) > 1:
            slurm.parameters["map_count"] = len(digests)
        program = [sys.executable, "-u", "-P", "-m", "madbench.execute.slurm_worker", str(self.folder), *digests]
        text: str = slurm._make_submission_file_text(shlex.join(program), "")
        return text

    def _take_over(self, groups: Sequence[LockedGroup]) -> list[LockedGroup]:
        """Take over the Slurm jobs that an earlier driver left and that train these groups.

        Return the groups that need new Slurm jobs. Slurm jobs that train jobs of these groups but cannot be taken over
        are cancelled, so that no job is trained twice.
        """
        own_ids = {job.slurm_id for job in (*self.jobs.values(), *self.ended.values())}
        left_jobs = find_left_jobs(self.folder, self.name, {job.id for group in groups for job in group.jobs}, own_ids)
        states = {}
        for index, old in enumerate(left_jobs):
            states[old.job.slurm_id] = old.job.state(ask=index == 0)
        needing, taken_ids = [], set()
        for group in groups:
            for old in left_jobs:
                if result := old.outcome_for(group):
                    self.results[group] = result
                    self._end(group, old.job, is_done=True)
                elif self._goes_on_with(old, states[old.job.slurm_id], group):
                    self.jobs[group], self.has_begun = old.job, True
                else:
                    continue
                taken_ids.add(old.job.slurm_id)
                break
            else:
                needing.append(group)
        for old in left_jobs:
            if old.job.slurm_id not in taken_ids:
                if states[old.job.slurm_id] not in ENDED:
                    self._cancel_left(old)
                old.job.folder.remove()
                old.job.remove_logs()
        return needing

    def _cancel_left(self, old: LeftJob) -> None:
        """Cancel a Slurm job that an earlier driver left, if it has the name of this sweep's Slurm jobs.

        The id of ``old`` comes from a results folder to which others may write, so it could be the id of any Slurm job.
        Raises ``TrainingError`` if the name differs.
        """
        if old.call.get("name") != self.name:
            slurm_id, name = old.job.slurm_id, old.call.get("name")
            raise TrainingError(
                f"Slurm job {slurm_id}, named {short_repr(name)}, may still train jobs of this sweep, not named "
                f"{short_repr(self.name)}; end it with scancel {slurm_id}, delete {old.job.folder.path} and run again"
            )
        old.job.cancel()

    def _goes_on_with(self, old: LeftJob, state: str, group: LockedGroup) -> bool:
        """True if ``old``, whose driver has ended, trains or will train ``group`` in the way that ``group`` requires.

        ``state`` is Slurm's state of ``old``. If ``old`` has not begun, it must have been queued with the sbatch
        options of this driver. All jobs that ``old`` trains and that are not in ``group`` must be stored.
        """
        is_alive = state in BEGUN or (state in WAITING and old.call.get("asked") == self.sbatch_options)
        other_ids = set(old.ids) - {job.id for job in group.jobs}
        return is_alive and old.is_training(group) and all(map(self.store.status, other_ids))

    def poll(self, seconds: float) -> Iterator[tuple[LockedGroup, Message]]:
        if not self.results:
            time.sleep(seconds)
        self._queue_waiting()
        while self.results:
            yield self.results.popitem()
        ask = time.monotonic() - self.last_ask > ASK_SECONDS
        if ask:
            self.last_ask = time.monotonic()
        for group, job in list(self.jobs.items()):
            yield from self._read_news(group, job)
            yield from self._read_records(group, job)
            has_ended, ask = job.has_ended(ask), False  # one query returns all states
            if has_ended:
                message = job.how_it_ended(group.jobs)
                self._end(group, self.jobs.pop(group), is_done=isinstance(message, WorkerResult))
                yield group, message

    def take_notes(self) -> list[str]:
        notes, self.notes = self.notes, []
        return notes

    def _read_news(self, group: LockedGroup, job: SlurmJob) -> Iterator[tuple[LockedGroup, Message]]:
        previous, news = self.news.get(group, {}), job.folder.read_news()
        if news and news != previous:
            self.news[group] = news
            if news.get("start") != previous.get("start"):
                yield group, WorkerStarted() if news.get("start") else GroupRequeued()
            ids = {job.id for job in group.jobs}
            by_job = news.get("progress")
            for job_id, progress in by_job.items() if isinstance(by_job, dict) else ():
                if job_id in ids and isinstance(progress, dict):
                    yield group, JobProgress(job_id, cast(Progress, progress))

    def _read_records(self, group: LockedGroup, job: SlurmJob) -> Iterator[tuple[LockedGroup, Message]]:
        """Yield the records of those jobs of a Slurm job that ended before the rest of their group."""
        is_whole = len(group.jobs) == 1 or job.folder.outcome.exists()  # all records then come together
        for lock in [] if is_whole else list(group.locks):
            if record := job.folder.read_record(lock.job):
                yield group, JobResult(lock.job.id, record)

    def _end(self, group: LockedGroup, job: SlurmJob, is_done: bool) -> None:
        """Remove the files of a Slurm job that has ended.

        If ``is_done`` is true, its results are only removed once they are stored.
        """
        if is_done:
            job.remove_logs()
        else:
            job.folder.remove()
        self.next_try = min(self.next_try, time.monotonic() + FIRST_PAUSE)  # Slurm may still count it for a while
        self.ended[group] = job
        group.drop_results = functools.partial(self._forget, group)

    def _forget(self, group: LockedGroup) -> None:
        self.results.pop(group, None)
        self.news.pop(group, None)
        if job := self.ended.pop(group, None):
            job.folder.remove()

    def cancel(self, groups: Iterable[LockedGroup]) -> None:
        groups = list(groups)
        self.waiting = [group for group in self.waiting if group not in groups]
        for group in groups:
            if job := self.jobs.pop(group, None):
                job.cancel()
                self.news.pop(group, None)
                job.folder.remove()
                job.remove_logs()
