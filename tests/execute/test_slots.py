"""How the cores of this machine are shared by the jobs of an experiment."""

from __future__ import annotations

import pytest

from madbench.execute.slots import Shift, most_bytes, plan_shifts, slots_in_memory
from madbench.suites import MAD, size_of
from madbench.suites.language import GPTConfig, LanguageTraining
from madbench.suites.mad import MadProfile
from madbench.training import cost, devices
from sample_jobs import language_job


def text(steps=240, **model):
    training = LanguageTraining(steps, 2048, warmup_steps=24, eval_every=20, eval_sequences=64)
    return language_job(model=GPTConfig(**{"d_model": 128, "n_layer": 4, "seq_len": 128} | model), training=training)


def mad(*tasks, label="S"):
    return MAD.jobs([label], MadProfile.load("quick"), tasks=tasks or None)


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 2)
    monkeypatch.setattr(devices, "memory_bytes", lambda: 16e9)


def test_all_suites_share_one_pool_of_single_threads_longest_first():
    jobs = [*mad(), text()]
    [pool] = plan_shifts(jobs, "cpu")
    assert (pool.slots, pool.threads) == (2, 1) and set(job.id for job in pool.jobs) == {job.id for job in jobs}
    flops = [size_of(job).flops for job in pool.jobs]
    assert flops == sorted(flops, reverse=True)


def test_a_job_longer_than_all_others_together_has_all_cores():
    jobs, long = mad("compression"), text(24_000)
    assert plan_shifts([*jobs, long], "cpu") == [Shift(jobs, 1, 1), Shift([long], 1, 2)]
    assert plan_shifts([long], "cpu") == [Shift([long], 1, 2)]


def test_two_language_models_train_side_by_side():
    jobs = [text(), text(220)]
    assert plan_shifts(jobs, "cpu") == [Shift(jobs, 2, 1)]


def test_only_what_is_left_to_do_decides():
    jobs, last = mad(), text()
    assert [shift.threads for shift in plan_shifts([*jobs, last], "cpu", left=[last])] == [1, 2]


@pytest.mark.parametrize(
    ("device", "how", "expected"),
    [
        ("cuda", {}, [(1, 1), (1, 2)]),
        ("cuda", {"slots": 4}, [(4, 1), (1, 2)]),
        ("cuda", {"devices": ["0", "1"]}, [(2, 1), (1, 2)]),
        ("cpu", {"slots": 1}, [(1, 1), (1, 2)]),
        ("cpu", {"slots": 8}, [(7, 1)]),
    ],
)
def test_suites_take_turns_on_gpus_and_with_fewer_slots_than_cores(device, how, expected):
    found = plan_shifts([*mad(), text()], device, **how)
    assert [(shift.slots, shift.threads) for shift in found] == expected


def test_a_job_a_core_on_the_cpu_and_one_on_a_gpu(monkeypatch):
    monkeypatch.setattr(devices, "available_cores", lambda: 3)
    for device, count in (("cpu", 3), ("cuda", 1), ("cuda:1", 1)):
        assert [(shift.slots, shift.threads) for shift in plan_shifts(mad(), device)] == [(count, 1)]


def test_no_jobs_make_no_shift():
    assert plan_shifts([], "cpu") == []


def test_small_jobs_are_not_measured(monkeypatch):
    monkeypatch.setattr(cost, "peak_memory_bytes", None)
    assert slots_in_memory([*mad(), text()], 2) == 2


@pytest.mark.parametrize(("memory", "expected"), [(1e12, 16), (100e9, 11), (10e9, 1), (1e9, 1)])
def test_large_jobs_are_as_many_as_fit(memory, expected, monkeypatch):
    large = text(seq_len=1024, d_model=768, n_layer=12)
    monkeypatch.setattr(cost, "peak_memory_bytes", lambda job, micro_batch: 4_000_000_000)
    monkeypatch.setattr(devices, "memory_bytes", lambda: memory)
    assert slots_in_memory([large, *mad()], 16) == expected


def test_a_mixer_that_cannot_run_without_data_counts_by_the_bound(monkeypatch):
    def fail(job, micro_batch):
        raise RuntimeError("no fake tensors")

    monkeypatch.setattr(cost, "peak_memory_bytes", fail)
    large = text(seq_len=1024, d_model=768, n_layer=12)
    monkeypatch.setattr(devices, "memory_bytes", lambda: 8 * most_bytes(large))
    assert 1 < slots_in_memory([large], 16) < 8


@pytest.mark.parametrize("label", ["S", "G-cg-q-12o", "ha:3", "cd:gdn-cg"])
def test_the_bound_of_memory_is_above_what_a_step_takes(label):
    for job in mad("compression", "in_context_recall", label=label):
        assert cost.peak_memory_bytes(job, size_of(job).sequences_per_step) < most_bytes(job) / 2
