"""A resumed language-model run ends with the numbers of an uninterrupted one. Other checkpoints are refused."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from madbench import files
from madbench.errors import StoreError, TrainingError
from madbench.jobs import StopTraining
from madbench.suites.language.trial import Evaluation
from madbench.training import loop, member
from madbench.training.checkpoints import NAME, load_model
from madbench.training.step import PlainStep

HERE = Path(__file__).parent


@pytest.fixture
def job(tiny, corpus):
    return tiny.make_job(corpus)


@pytest.fixture
def train(train_language):
    return train_language


@pytest.fixture
def every_step(monkeypatch):
    """Report at every step."""
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a test changes ``clock[0]``, the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_numbers_bit_for_bit(tiny, corpus, train, every_step, stop_at, without_times):
    job = tiny.make_job(corpus, "R-cg-q-12o")
    expected = train(job)
    weights = train.weights()
    assert not (train.work / NAME).exists()
    report = stop_at(1, 5, 7, 8, 20)  # the first step, an evaluation, two in a row, the last step
    record = None
    while record is None:
        try:
            record = train(job, report)
        except StopTraining:
            continue
    assert report.steps == [] and report.seen == list(range(1, 21))
    assert record.metrics == expected.metrics and without_times(record.curve) == without_times(expected.curve)
    torch.testing.assert_close(train.weights(), weights, rtol=0, atol=0)


@pytest.mark.slow
def test_a_run_killed_after_ten_steps_resumes_bit_for_bit(job, train, tmp_path, every_step, stop_at, without_times):
    expected = train(job)
    weights = train.weights()
    command = [sys.executable, str(HERE / "tiny_language.py"), str(tmp_path / "corpus"), str(train.work), "10"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    killed = subprocess.run(command, check=False, env=environment, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    report = stop_at()
    record = train(job, report)
    assert report.seen == list(range(11, 21))
    assert without_times(record.curve) == without_times(expected.curve)
    torch.testing.assert_close(train.weights(), weights, rtol=0, atol=0)


@pytest.mark.slow
def test_seconds_count_training_only_and_add_up_over_interruptions(job, train, monkeypatch, clock, every_step, stop_at):
    losses, save, accumulate = Evaluation.losses, member.save_checkpoint, PlainStep.backward

    def taking(seconds, function):
        def slowly(*arguments, **named):
            clock[0] += seconds
            return function(*arguments, **named)

        return slowly

    monkeypatch.setattr(Evaluation, "losses", taking(1000, losses))
    monkeypatch.setattr(member, "save_checkpoint", taking(70, save))
    monkeypatch.setattr(PlainStep, "backward", taking(2, accumulate))
    with pytest.raises(StopTraining):
        train(job, stop_at(7))
    record = train(job)
    assert [row["seconds"] for row in record.curve] == [2 * row["step"] for row in record.curve]
    assert {row["tokens_per_second"] for row in record.curve} == {64.0}
    assert (record.details["seconds"], record.details["tokens_per_second"]) == (40, 64)


@pytest.mark.slow
def test_writing_checkpoints_takes_a_twentieth_of_the_time_at_most(tiny, corpus, train, monkeypatch, clock):
    saves, accumulate = [], PlainStep.backward

    def slow_save(work, job, trial, optimizer, state, seconds):
        saves.append(state.step)
        clock[0] += 3

    def slow_step(*arguments):
        clock[0] += 4
        return accumulate(*arguments)

    monkeypatch.setattr(member, "save_checkpoint", slow_save)
    monkeypatch.setattr(PlainStep, "backward", slow_step)
    train(tiny.make_job(corpus, steps=40))
    assert saves == [4, 20, 36]  # after more than 15 seconds, then after more than 60 each time


def test_the_checkpoint_of_another_job_is_refused(job, train, every_step, stop_at):
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    other = dataclasses.replace(job, seed=1)
    with pytest.raises(TrainingError, match=f"belongs to job {job.id}, not to {other.id}"):
        train(other)


@pytest.mark.slow
def test_a_run_with_a_damaged_checkpoint_starts_again(job, train, every_step, stop_at):
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    content = (train.work / NAME).read_bytes()
    (train.work / NAME).write_bytes(content[: len(content) // 2])
    report = stop_at()
    train(job, report)
    assert report.seen[0] == 1


def test_a_checkpoint_holds_the_job_beside_the_weights(job, train, every_step, stop_at):
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    assert load_model(train.work / NAME)[1] == job


class FullDisk(io.FileIO):
    def write(self, content):
        if self.tell() + len(content) > 10_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_a_full_disk_keeps_the_earlier_checkpoint_with_a_warning(job, train, every_step, monkeypatch, stop_at):
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    before = (train.work / NAME).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(files, "open", FullDisk, raising=False)
        with pytest.raises(StoreError, match=f"{NAME}: no space left"):
            train(job, stop_at(4))
    assert (train.work / NAME).read_bytes() == before
    assert [path.name for path in train.work.iterdir()] == [NAME]
