"""The choice of how many jobs train at a time on this machine, and in how many threads each.

On a CPU, by default one single-threaded job trains per core. Fewer jobs with more threads each are chosen if they are
expected to be faster. The threads of one job wait for each other, so one delayed thread delays all of them. A job
therefore never gets more threads than there are free cores, unless the user asks for it. Single-threaded jobs share
busy cores without harm. Measured: with a dozen other processes on two cores, a HyperGLU of profile tiny trained 679
tokens/s in one thread and 512 in two (medians of three).
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from madbench.execute.base import check_counts
from madbench.execute.options import RunOptions
from madbench.jobs import Job
from madbench.suites import size_of, suite_of
from madbench.training import devices as machine

THREADS_GAIN = 0.7
"""The exponent of the assumed speed-up: c threads are c^0.7 times as fast as one thread, so two threads 1.6 times."""
MEMORY_SHARE = 0.8  # share of the machine's memory for all slots
PROCESS_BYTES = 500_000_000  # memory of a process with torch and a suite's data, before training
HEADROOM = 1.6  # memory of a process over its live tensors (the allocator keeps freed memory); measured: 1.5 to 1.9


@dataclass(frozen=True)
class JobBatch:
    """Jobs that one call of the executor on this machine trains, and the number of slots and threads for them."""

    jobs: Sequence[Job]
    slots: int
    """Number of jobs that train at a time."""
    threads: int
    """Number of threads of each job."""
    reason: str = ""
    """Reason for the number of threads. Empty if it only follows from the number of cores."""

    def text(self, slots: int | None = None) -> str:
        """A phrase for the user, such as ``2 at a time, 1 thread each``, followed by the reason if there is one.

        If ``slots`` is given, it replaces the batch's own number of jobs at a time.
        """
        because = f" ({self.reason})" if self.reason else ""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{slots or self.slots} at a time, {threads} each{because}"


@dataclass(frozen=True)
class Threads:
    """Limits on the number of threads of each job."""

    per_job: int | None = None
    """Number of threads per job that the user set. If None, each job gets a share of the free cores."""
    free: int | None = None
    """Number of cores that other processes leave free. None for all cores."""
    reason: str = ""

    @property
    def may_meet_others(self) -> bool:
        """True if jobs may share cores with other processes, because some cores are busy.

        Also true if the user set the number of threads, because busy cores are then not counted.
        """
        return bool(self.reason)


def choose_threads(jobs: Iterable[Job], requested: int | None = None) -> Threads:
    """Choose how many threads each job gets: ``requested``, else a number from the environment, else the free cores.

    The environment variables are ``OMP_NUM_THREADS`` and ``MKL_NUM_THREADS``. Free cores are measured only if a job can
    use more than one core. A core counts as busy if it is busy now and was busy over the last minute: other programs
    come and go, but a job keeps its number of threads for its whole run. Raises ``ConfigError`` if ``requested`` is
    below 1.
    """
    check_counts(threads=requested)
    if requested is not None:
        return Threads(requested, reason=f"--threads {requested}")
    if from_environment := machine.environment_threads():
        return Threads(from_environment[0], reason=from_environment[1])
    cores = machine.available_cores()
    if cores == 1 or not any(suite_of(job).uses_all_cores for job in jobs):
        return Threads()
    now = machine.busy_cores()
    free = machine.free_cores(min(now, machine.load_average()))
    if free < cores:
        return Threads(free=free, reason=f"{cores - free} of {cores} cores busy")
    busy_now = cores - machine.free_cores(now)  # cores that are busy only for the moment also delay threads
    return Threads(free=free, reason=f"{busy_now} of {cores} cores busy for the moment" if busy_now else "")


def plan_batches(
    jobs: Iterable[Job],
    device: str,
    options: RunOptions = RunOptions(),
    unfinished: Iterable[Job] | None = None,
    threads: Threads = Threads(),
) -> list[JobBatch]:
    """Split jobs into batches. Batches train one after the other, and the jobs within a batch several at a time.

    On a CPU there are two plans, and the one with the shorter estimated time is chosen:

    - One batch has the jobs of all suites, longest first, each in one thread. Its number of slots is ``options.slots``
      or the number of cores, but fewer if memory is short.
    - Each suite has a batch of its own. If the jobs of a suite can use all cores, they train one at a time by default,
      in all free cores. This is faster if, for example, one job is longer than all others together.

    The second plan is always used on GPUs, and if ``options.slots`` is below the number of cores. If
    ``threads.per_job`` is set, each job has that many threads, and the default number of slots is the number of cores
    divided by it.

    Time and memory are estimated from the jobs that are still to train (``unfinished``), by default all.
    """
    jobs = list(jobs)
    todo = {job.id for job in (jobs if unfinished is None else unfinished)}
    by_suite: dict[str, list[Job]] = {}
    for job in jobs:
        by_suite.setdefault(job.suite, []).append(job)
    batches = [_suite_batch(of_suite, device, options, threads) for of_suite in by_suite.values()]
    threads_per_job = threads.per_job or 1
    places, slots = _places(threads_per_job), options.slots
    if device != "cpu" or options.gpus or not batches or (slots is not None and slots < places):
        return batches
    fit = slots or slots_in_memory([job for job in jobs if job.id in todo], places, options.micro_batch)
    pool = JobBatch(sorted(jobs, key=_flops, reverse=True), min(fit, len(jobs)), threads_per_job, threads.reason)
    return [pool] if _duration(pool, todo) <= sum(_duration(batch, todo) for batch in batches) else batches


def _places(threads: int) -> int:
    """The number of jobs with ``threads`` threads each that this machine can run without sharing a core. At least 1."""
    return max(1, machine.available_cores() // threads)


def _suite_batch(jobs: Sequence[Job], device: str, options: RunOptions, threads: Threads) -> JobBatch:
    """The batch of the jobs of one suite, with the slots and threads of the second plan of :func:`plan_batches`."""
    takes_all, cores, gpus = suite_of(jobs[0]).uses_all_cores, machine.available_cores(), options.gpus
    usual = len(gpus) if gpus else _places(threads.per_job or 1) if device == "cpu" and not takes_all else 1
    slots = min(options.slots or usual, len(jobs))
    share = max(1, min(cores, threads.free or cores) // slots) if takes_all else 1
    return JobBatch(jobs, slots, threads.per_job or share, threads.reason)


def _flops(job: Job) -> float:
    return size_of(job).flops


def _duration(batch: JobBatch, todo: Container[str]) -> float:
    """The estimated duration of the unfinished jobs of a batch. ``todo`` has the ids of unfinished jobs.

    The unit is the time in which one thread computes one FLOP.
    """
    costs = (_flops(job) / batch.threads**THREADS_GAIN for job in batch.jobs if job.id in todo)
    return makespan(costs, min(batch.slots, _places(batch.threads)))


def makespan(costs: Iterable[float], slots: int) -> float:
    """The time from the first start to the last end of tasks with the durations ``costs``, on ``slots`` machines.

    Each task starts, in order, on the machine that is free first.
    """
    free = [0.0] * slots
    for cost in costs:
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


def slots_in_memory(jobs: Sequence[Job], most: int, micro_batch: int | None = None) -> int:
    """The largest number of ``jobs``, from 1 to ``most``, that fit into memory when they train at the same time.

    The memory of jobs that surely fit (:func:`most_bytes`) is not measured. Of the other jobs, the largest of each
    suite is measured (:func:`madbench.training.cost.peak_memory_bytes`). With ``micro_batch``, a job has only so many
    sequences in memory at a time.
    """
    memory = MEMORY_SHARE * machine.memory_bytes()
    room = memory / most - PROCESS_BYTES
    bounds = {job.id: HEADROOM * most_bytes(job, micro_batch) for job in jobs}
    large = [job for job in jobs if bounds[job.id] > room]
    if not large:
        return most
    largest = {job.suite: job for job in sorted(large, key=lambda job: bounds[job.id])}
    largest_bytes = max(_measured_bytes(job, micro_batch) or bounds[job.id] for job in largest.values())
    return min(most, max(1, int(memory / (HEADROOM * largest_bytes + PROCESS_BYTES))))


def most_bytes(job: Job, micro_batch: int | None = None) -> float:
    """An upper bound on the bytes that a training step needs: 16 per parameter, and one per FLOP of the forward pass.

    16 bytes are the weight, the gradient and two moments of a parameter. One byte per FLOP is enough for activations,
    because each number that is kept for the backward pass is a sum of products, or is made from a few such sums. With
    ``micro_batch``, only so many sequences are in memory at a time.
    """
    size = size_of(job)
    at_once = min(micro_batch or size.sequences_per_step, size.sequences_per_step)
    return 16 * size.parameters + at_once * size.seq_len * size.flops_per_token


def _measured_bytes(job: Job, micro_batch: int | None) -> int | None:
    """The measured peak memory of a training step in bytes. ``micro_batch`` is the number of sequences at a time.

    None if measuring fails, as for a mixer that needs real data.
    """
    from madbench.training.cost import peak_memory_bytes, sequences_at_once

    try:
        return peak_memory_bytes(job, sequences_at_once(job, micro_batch))
    except Exception:  # the run itself will report the error
        return None
