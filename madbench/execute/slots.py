"""How many jobs train at a time on this machine, and in how many threads: on a CPU one a core if that is no slower.

Threads of one job wait for each other, so that one that others hold up holds up all: a job never has more than there
are free cores, unless the user says so. Jobs in one thread each share busy cores without harm. A HyperGLU of profile
tiny beside a dozen processes on two cores trained 679 tokens/s in one thread and 512 in two, medians of three.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from madbench.execute.base import check_counts
from madbench.jobs import Job
from madbench.suites import size_of, suite_of
from madbench.training import devices as machine

THREADS_GAIN = 0.7
"""In c threads a job is c^0.7 times as fast as in one: 1.6 times in two."""
MEMORY_SHARE = 0.8  # of the machine's memory for all slots
PROCESS_BYTES = 500_000_000  # a process with torch and a suite's data, before it trains
HEADROOM = 1.6  # of a process over the tensors alive, as its allocator keeps what is freed; 1.5 to 1.9 were measured


@dataclass(frozen=True)
class JobBatch:
    """Jobs that train in one call of this machine's executor."""

    jobs: Sequence[Job]
    slots: int  # jobs at a time
    threads: int  # of each
    reason: str = ""  # what decided about the threads, where it was not the number of cores alone

    def text(self, slots: int | None = None) -> str:
        """The jobs at a time and their threads in words, with fewer ``slots`` where there are fewer groups of jobs."""
        because = f" ({self.reason})" if self.reason else ""
        return f"{slots or self.slots} at a time, {self.threads} thread{'s' * (self.threads > 1)} each{because}"


@dataclass(frozen=True)
class Threads:
    """What decides how many threads a job has."""

    each: int | None = None  # that many, as the user says; None for a share of the free cores
    free: int | None = None  # cores that others leave free; all by default
    reason: str = ""

    @property
    def may_meet_others(self) -> bool:
        """True if other processes use some of the cores, or it was not looked whether they do."""
        return bool(self.reason)


def choose_threads(jobs: Iterable[Job], asked: int | None = None) -> Threads:
    """The threads ``asked`` for, else those of ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS``, else what is free now.

    What is free is looked at where it matters: for jobs that can use more than one core. A core counts as busy that is
    so now and was over the last minute: other programs start and end, and a job has its threads for as long as it runs.
    """
    check_counts(threads=asked)
    if asked is not None:
        return Threads(asked, reason=f"--threads {asked}")
    if said := machine.environment_threads():
        return Threads(said[0], reason=said[1])
    cores = machine.available_cores()
    if cores == 1 or not any(suite_of(job).uses_all_cores for job in jobs):
        return Threads()
    now = machine.busy_cores()
    free = machine.free_cores(min(now, machine.load_average()))
    if free < cores:
        return Threads(free=free, reason=f"{cores - free} of {cores} cores busy")
    met = cores - machine.free_cores(now)  # not for long, but with them threads that spin would wait for each other
    return Threads(free=free, reason=f"{met} of {cores} cores busy for the moment" if met else "")


def plan_batches(
    jobs: Iterable[Job],
    device: str,
    slots: int | None = None,
    devices: Sequence[str] | None = None,
    micro_batch: int | None = None,
    left: Iterable[Job] | None = None,
    threads: Threads = Threads(),
) -> list[JobBatch]:
    """What trains together, in order; the jobs that are ``left`` to do decide, all by default.

    On a CPU all suites share one pool of single-threaded jobs, longest first, unless that takes longer than suite after
    suite with all cores for each job of a suite that can use them, as where one job is longer than all others together.
    There are as many slots as cores, or fewer where memory is short, unless the user gives their number; with fewer
    than there are cores, and on GPUs, the suites take turns. Where ``threads`` has a number each job has so many, and
    there are fewer slots for it.
    """
    jobs = list(jobs)
    todo = {job.id for job in (jobs if left is None else left)}
    by_suite: dict[str, list[Job]] = {}
    for job in jobs:
        by_suite.setdefault(job.suite, []).append(job)
    batches = [_alone(of_suite, device, slots, devices, threads) for of_suite in by_suite.values()]
    each = threads.each or 1
    places = _places(each)
    if device != "cpu" or devices or not batches or (slots is not None and slots < places):
        return batches
    fit = slots or slots_in_memory([job for job in jobs if job.id in todo], places, micro_batch)
    pool = JobBatch(sorted(jobs, key=_flops, reverse=True), min(fit, len(jobs)), each, threads.reason)
    return [pool] if _duration(pool, todo) <= sum(_duration(batch, todo) for batch in batches) else batches


def _places(threads: int) -> int:
    """Jobs of so many threads for which there are cores, and at least one."""
    return max(1, machine.available_cores() // threads)


def _alone(
    jobs: Sequence[Job], device: str, slots: int | None, devices: Sequence[str] | None, threads: Threads
) -> JobBatch:
    """The jobs of one suite."""
    takes_all, cores = suite_of(jobs[0]).uses_all_cores, machine.available_cores()
    usual = len(devices) if devices else _places(threads.each or 1) if device == "cpu" and not takes_all else 1
    slots = min(slots or usual, len(jobs))
    share = max(1, min(cores, threads.free or cores) // slots) if takes_all else 1
    return JobBatch(jobs, slots, threads.each or share, threads.reason)


def _flops(job: Job) -> float:
    return size_of(job).flops


def _duration(batch: JobBatch, todo: Container[str]) -> float:
    """FLOPs of one thread from the first start to the last end."""
    costs = (_flops(job) / batch.threads**THREADS_GAIN for job in batch.jobs if job.id in todo)
    return makespan(costs, min(batch.slots, _places(batch.threads)))


def makespan(costs: Iterable[float], slots: int) -> float:
    """Time from the first start to the last end of jobs that take ``costs``, each in the slot that is free first."""
    free = [0.0] * slots
    for cost in costs:
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


def slots_in_memory(jobs: Sequence[Job], most: int, micro_batch: int | None = None) -> int:
    """The number of jobs at a time that fit into memory, from 1 to ``most``.

    Jobs that fit by a bound are not looked at any closer. Of the others the largest by that bound is measured, for each
    suite (:func:`madbench.training.cost.peak_memory_bytes`).
    """
    memory = MEMORY_SHARE * machine.memory_bytes()
    room = memory / most - PROCESS_BYTES
    bounds = {job.id: HEADROOM * most_bytes(job, micro_batch) for job in jobs}
    large = [job for job in jobs if bounds[job.id] > room]
    if not large:
        return most
    largest = {job.suite: job for job in sorted(large, key=lambda job: bounds[job.id])}
    needed = max(_measured_bytes(job, micro_batch) or bounds[job.id] for job in largest.values())
    return min(most, max(1, int(memory / (HEADROOM * needed + PROCESS_BYTES))))


def most_bytes(job: Job, micro_batch: int | None = None) -> float:
    """Bytes that a training step of the job stays below: weights, gradients, moments, and one for each forward FLOP.

    A number that is kept for the backward pass came of a sum of products, or of a few numbers that did.
    """
    size = size_of(job)
    at_once = min(micro_batch or size.sequences_per_step, size.sequences_per_step)
    return 16 * size.parameters + at_once * size.seq_len * size.flops_per_token


def _measured_bytes(job: Job, micro_batch: int | None) -> int | None:
    """Bytes as measured; None for a mixer that cannot run without data."""
    from madbench.training.cost import peak_memory_bytes, sequences_at_once

    try:
        return peak_memory_bytes(job, sequences_at_once(job, micro_batch))
    except Exception:  # whatever it is, the run itself will say it
        return None
