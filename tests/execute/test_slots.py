"""The division of this machine's cores among the jobs of an experiment."""

from __future__ import annotations

import math
import os

import pytest

from madbench.errors import ConfigError
from madbench.execute.options import RunOptions
from madbench.execute.slots import JobBatch, Threads, choose_threads, most_bytes, plan_batches, slots_in_memory
from madbench.suites import size_of
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.suites.mad.suite import MAD, MadProfile
from madbench.training import cost, devices
from sample_jobs import language_job


def text(steps=240, **model):
    training = LanguageTraining(steps=steps, tokens_per_step=2048, warmup_steps=24, eval_every=20, eval_sequences=64)
    return language_job(model=GPTConfig(**{"d_model": 128, "n_layer": 4, "seq_len": 128} | model), training=training)


def mad(*tasks, label="S"):
    return MAD.jobs([label], MadProfile.load("quick"), tasks=tasks or None)


@pytest.fixture
def set_cores(monkeypatch):
    """``set_cores(3)``: this process may use three cores."""
    monkeypatch.setattr(devices, "cpu_quota", lambda: math.inf)
    return lambda count: monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)), raising=False)


@pytest.fixture(autouse=True)
def two_cores(set_cores, monkeypatch):
    set_cores(2)
    monkeypatch.setattr(devices, "memory_bytes", lambda: 16e9)


def test_jobs_of_all_suites_share_single_threaded_slots_longest_first():
    jobs = [*mad(), text()]
    [pool] = plan_batches(jobs, "cpu")
    assert (pool.slots, pool.threads) == (2, 1) and {job.id for job in pool.jobs} == {job.id for job in jobs}
    flops = [size_of(job).flops for job in pool.jobs]
    assert flops == sorted(flops, reverse=True)


def test_a_job_longer_than_all_others_together_gets_all_cores():
    jobs, long = mad("compression"), text(24_000)
    assert plan_batches([*jobs, long], "cpu") == [JobBatch(jobs, 1, 1), JobBatch([long], 1, 2)]
    assert plan_batches([long], "cpu") == [JobBatch([long], 1, 2)]


def test_two_language_models_train_side_by_side():
    jobs = [text(), text(220)]
    assert plan_batches(jobs, "cpu") == [JobBatch(jobs, 2, 1)]


def test_stored_jobs_do_not_influence_the_threads_of_batches():
    jobs, last = mad(), text()
    assert [batch.threads for batch in plan_batches([*jobs, last], "cpu", unfinished=[last])] == [1, 2]


@pytest.mark.parametrize(
    ("device", "how", "expected"),
    [
        ("cuda", {}, [(1, 1), (1, 2)]),
        ("cuda", {"slots": 4}, [(4, 1), (1, 2)]),
        ("cuda", {"gpus": ["0", "1"]}, [(2, 1), (1, 2)]),
        ("cpu", {"slots": 1}, [(1, 1), (1, 2)]),
        ("cpu", {"slots": 8}, [(7, 1)]),
    ],
)
def test_suites_train_one_after_another_on_gpus_or_with_few_slots(device, how, expected):
    found = plan_batches([*mad(), text()], device, RunOptions(**how))
    assert [(batch.slots, batch.threads) for batch in found] == expected


def test_the_default_is_one_job_per_cpu_core_and_one_per_gpu(set_cores):
    set_cores(3)
    for device, count in (("cpu", 3), ("cuda", 1), ("cuda:1", 1)):
        assert [(batch.slots, batch.threads) for batch in plan_batches(mad(), device)] == [(count, 1)]


def plan(jobs, threads, **how):
    return [(batch.slots, batch.threads) for batch in plan_batches(jobs, "cpu", RunOptions(**how), threads=threads)]


@pytest.mark.parametrize(
    ("threads", "how", "expected"),
    [
        (Threads(1), {}, [(2, 1)]),
        (Threads(2), {}, [(1, 2)]),
        (Threads(8), {}, [(1, 8)]),
        (Threads(2), {"slots": 2}, [(2, 2)]),
        (Threads(2), {"slots": 1}, [(1, 2)]),
        (Threads(1), {"slots": 1}, [(1, 1), (1, 1)]),
    ],
)
def test_options_of_threads_set_the_threads_of_jobs_and_reduce_slots(threads, how, expected):
    assert plan([*mad(), text()], threads, **how) == expected


@pytest.mark.slow
def test_a_job_has_no_more_threads_than_there_are_free_cores(set_cores):
    set_cores(8)
    long = text(24_000)
    assert [plan([long], Threads(free=free)) for free in (8, 5, 1)] == [[(1, 8)], [(1, 5)], [(1, 1)]]
    assert plan([long], Threads(free=5), slots=2) == [(1, 5)]
    assert plan([long, text(23_000)], Threads(free=6), slots=2) == [(2, 3)]


def test_single_threaded_jobs_use_all_cores_even_if_some_are_busy():
    jobs = [*mad("compression"), text(24_000)]
    assert plan(jobs, Threads(free=2)) == [(1, 1), (1, 2)]
    assert plan(jobs, Threads(free=1)) == [(2, 1)]


def test_threads_come_from_the_option_or_the_environment_or_the_free_cores(monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "busy_cores", lambda: 1.0)
    monkeypatch.setattr(devices, "load_average", lambda: 3.0)
    assert choose_threads([text()]) == Threads(free=1, reason="1 of 2 cores busy")
    monkeypatch.setattr(devices, "busy_cores", lambda: 0.2)
    assert choose_threads([text()]) == Threads(free=2)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert choose_threads([text()]) == Threads(3, reason="OMP_NUM_THREADS=3")
    assert choose_threads([text()], 2) == Threads(2, reason="--threads 2")
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        choose_threads([text()], 0)


@pytest.mark.parametrize(
    ("busy", "load", "free", "reason"),
    [
        (3.4, 9.0, 1, "3 of 4 cores busy"),
        (3.9, 1.1, 3, "1 of 4 cores busy"),
        (3.9, 0.3, 4, "3 of 4 cores busy for the moment"),
        (0.2, 9.0, 4, ""),  # what was busy has ended
        (2.0, math.inf, 2, "2 of 4 cores busy"),
    ],
)
def test_a_core_counts_as_busy_if_busy_now_and_over_the_last_minute(busy, load, free, reason, set_cores, monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    set_cores(4)
    monkeypatch.setattr(devices, "busy_cores", lambda: busy)
    monkeypatch.setattr(devices, "load_average", lambda: load)
    chosen = choose_threads([text()])
    assert chosen == Threads(free=free, reason=reason) and chosen.may_meet_others is bool(reason)


def test_busy_cores_are_counted_only_if_a_job_can_use_several_cores(set_cores, monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "busy_cores", lambda: pytest.fail("looked"))
    assert choose_threads(mad()) == Threads()
    set_cores(1)
    assert choose_threads([text()]) == Threads()


def test_a_batch_states_its_slots_and_threads():
    assert JobBatch([], 2, 1).text() == "2 at a time, 1 thread each"
    assert JobBatch([], 4, 3, "--threads 3").text(1) == "1 at a time, 3 threads each (--threads 3)"


def test_without_jobs_there_is_no_batch():
    assert plan_batches([], "cpu") == []


def test_the_memory_of_small_jobs_is_not_measured(monkeypatch):
    monkeypatch.setattr(cost, "peak_memory_bytes", None)
    assert slots_in_memory([*mad(), text()], 2) == 2


@pytest.mark.parametrize(("memory", "expected"), [(1e12, 16), (100e9, 11), (10e9, 1), (1e9, 1)])
def test_the_number_of_parallel_large_jobs_is_limited_by_memory(memory, expected, monkeypatch):
    large = text(seq_len=1024, d_model=768, n_layer=12)
    monkeypatch.setattr(cost, "peak_memory_bytes", lambda job, micro_batch: 4_000_000_000)
    monkeypatch.setattr(devices, "memory_bytes", lambda: memory)
    assert slots_in_memory([large, *mad()], 16) == expected


def test_a_mixer_whose_memory_cannot_be_measured_counts_with_the_upper_bound(monkeypatch):
    def fail(job, micro_batch):
        raise RuntimeError("no fake tensors")

    monkeypatch.setattr(cost, "peak_memory_bytes", fail)
    large = text(seq_len=1024, d_model=768, n_layer=12)
    monkeypatch.setattr(devices, "memory_bytes", lambda: 8 * most_bytes(large))
    assert 1 < slots_in_memory([large], 16) < 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("label", "task"),
    [
        ("S", "compression"),
        ("G-cg-q-12o", "in_context_recall"),
        ("ha:3", "compression"),
        ("cd:gdn-cg", "in_context_recall"),
    ],
)
def test_the_upper_bound_of_memory_is_above_the_measured_peak(label, task):
    for job in mad(task, label=label):
        assert cost.peak_memory_bytes(job, size_of(job).sequences_per_step) < most_bytes(job) / 2
