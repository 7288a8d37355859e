"""The jobs that form a group, and the measurement that decides whether they train together."""

from __future__ import annotations

import json
import math

import pytest
import torch

from group_numbers import assert_same_numbers
from madbench.training import loop, measured
from madbench.training.checkpoints import NAME
from madbench.training.groups import groups_of, shape_of
from madbench.training.member import GroupMember
from madbench.training.options import LoopOptions


@pytest.mark.slow
def test_jobs_that_cannot_share_a_step_train_one_after_another_with_a_warning(three_jobs, together, alone, monkeypatch):
    monkeypatch.setattr("madbench.training.stack.STACKABLE_BYTES", 0)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    warnings = set()
    records = together(three_jobs, lambda job, progress: warnings.add(progress.get("warning")))
    assert warnings == {None, "3 jobs cannot train as one: TrainingError: 15 tokens are too many for a dense path"}
    assert [record.curve for record in records] == [alone(job).curve for job in three_jobs]


def test_groups_are_consecutive_jobs_of_equal_shape_and_of_similar_size(make_job):
    first, second = ([make_job(label=label, seed=seed) for seed in range(5)] for label in ("S", "R-q-12o"))
    assert [len(group) for group in groups_of(first + second, 8)] == [5, 5]
    assert [len(group) for group in groups_of(first + second, 4)] == [2, 3, 2, 3]
    assert groups_of(first, 1) == [[job] for job in first]
    assert [job for group in groups_of(first + second, 3) for job in group] == first + second


def test_jobs_of_one_shape_differ_only_in_seed_learning_rate_and_weight_decay(make_job):
    job = make_job()
    same = [make_job(seed=1), make_job(learning_rate=1.0), make_job(weight_decay=0.5), make_job(min_learning_rate=1e-9)]
    assert {shape_of(other) for other in same} == {shape_of(job)}
    others = [make_job(label="S"), make_job(epochs=9), make_job(batch_size=8), make_job(task="compression")]
    others += [make_job(beta2=0.5), make_job(warmup_steps=2), make_job(fidelity="published")]
    assert len({shape_of(other) for other in [job, *others]}) == 1 + len(others)


class FakeStep:
    """A fake step of N members that advances a fake clock by the given time."""

    warm_up = 1

    def __init__(self, members, clock, seconds):
        self.members, self.clock, self.seconds = members, clock, seconds

    def __call__(self, rates):
        self.clock[0] += self.seconds
        return [torch.zeros(()) for _ in self.members], [None] * len(self.members)


@pytest.fixture
def measure(three_jobs, folders, monkeypatch, tmp_path):
    """``measure({number of members: seconds})``: whether three members train together, and the measured numbers."""
    clock, made = [0.0], []
    monkeypatch.setattr(measured.time, "process_time", lambda: clock[0])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(measured, "OVERHEAD_SECONDS", 2.0)
    members = [GroupMember(job, work, print) for job, work in zip(three_jobs, folders(three_jobs))]

    def call(seconds, folder=tmp_path / "measured"):
        made.clear()

        def make_step(some):
            made.append(len(some))
            if seconds[len(some)] is None:
                raise RuntimeError("too little memory")
            return FakeStep(some, clock, seconds[len(some)])

        return measured.is_faster(members, make_step, folder), list(made)

    return call


def test_a_common_step_is_taken_if_it_is_measured_faster(measure, tmp_path):
    for i, (seconds, expected) in enumerate([(1.0, True), (2.9, False), (None, False)]):
        assert measure({1: 1.0, 3: seconds}, tmp_path / str(i)) == (expected, [1, 3])


def test_training_shorter_than_a_measurement_is_not_measured(measure):
    assert measure({1: 0.01, 3: 0.001}) == (False, [1])  # 3 x 8 steps are 0.24 s


def test_on_a_cpu_jobs_with_long_steps_are_not_measured_together(measure):
    assert measure({1: 2.5, 3: 0.1}) == (False, [1])
    assert measure({1: 2.5, 3: 0.1}) == (False, [])


def test_a_measurement_is_stored_and_a_damaged_one_is_repeated(measure, tmp_path):
    assert measure({1: 1.0, 3: 1.0}) == (True, [1, 3])
    assert measure({1: 1.0, 3: 9.0}) == (True, [])
    [path] = (tmp_path / "measured").iterdir()
    content = path.read_text()
    damages = ["", "[]", content[:-9], content.replace("true", "false"), json.dumps({"is_faster": True})]
    for damaged in damages:
        path.write_text(damaged)
        assert measure({1: 1.0, 3: 9.0}) == (False, [1, 3])
        path.write_text(content)
    assert measure({1: 1.0, 3: 9.0}) == (True, [])


def test_a_measurement_that_cannot_be_stored_is_still_used(measure, tmp_path):
    (tmp_path / "file").touch()
    assert measure({1: 1.0, 3: 1.0}, tmp_path / "file") == (True, [1, 3])


@pytest.mark.slow
def test_measuring_step_times_does_not_change_the_results(three_jobs, folders, alone, monkeypatch):
    monkeypatch.setattr(measured, "WORTHWHILE_SECONDS", 0)
    monkeypatch.setattr(measured, "OVERHEAD_SECONDS", math.inf)
    for share in (0, math.inf):  # never faster, always faster
        monkeypatch.setattr(measured, "FASTER", share)
        records = loop.train(three_jobs, folders(three_jobs), lambda *_: None, options=LoopOptions(stacking="measured"))
        for job, record in zip(three_jobs, records):
            assert ("group" in record.details) == (share > 0)
            assert_same_numbers(record, alone(job))
        for work in folders(three_jobs):
            (work / NAME).unlink(missing_ok=True)
