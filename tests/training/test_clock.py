"""Reports, checkpoints and recorded seconds, which the training loop decides by the clock."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch.optim.optimizer import register_optimizer_step_pre_hook

from madbench.suites import token_trial
from madbench.training import loop, member
from madbench.training.options import LoopOptions


@pytest.fixture
def clock(monkeypatch):
    """The clock of training. It moves by ``clock.step`` seconds per step of an optimizer, and in evaluations."""
    clock = SimpleNamespace(now=1000.0, step=0.0, row=0.0, saving=0.0, rows=[], saved=[])
    row, save = token_trial.TokenTrial.row, member.save_checkpoint

    def take(seconds):
        clock.now += seconds

    def slow_row(self, interval):
        take(clock.row)
        clock.rows.append((interval.step, interval.seconds, interval.interval_seconds))
        return row(self, interval)

    def slow_save(work, job, trial, optimizer, state, seconds):
        save(work, job, trial, optimizer, state, seconds)
        take(clock.saving)
        clock.saved.append((state.step, state.seconds))

    monkeypatch.setattr(token_trial.TokenTrial, "row", slow_row)
    monkeypatch.setattr(member, "save_checkpoint", slow_save)
    for module in (loop, member):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    hook = register_optimizer_step_pre_hook(lambda *_: take(clock.step))
    yield clock
    hook.remove()


def test_progress_is_reported_once_more_than_a_quarter_of_a_second_has_passed(clock, make_job, train):
    clock.step, steps = 0.125, []
    train(make_job(), lambda progress: steps.append(progress["step"]))
    assert steps == [3, 6, 9, 12]


@pytest.mark.slow
def test_checkpoints_begin_after_15_seconds_and_take_a_twentieth_of_the_time(clock, make_job, train):
    """Steps take 4 s and checkpoints 2 s, so 40 s pass between checkpoints."""
    clock.step, clock.saving = 4.0, 2.0
    record = train(make_job(epochs=7))
    assert clock.saved == [(4, 16.0), (15, 60.0), (26, 104.0)]
    assert record.details["steps"] == 28 and record.details["seconds"] == 112.0


def test_seconds_of_training_leave_out_evaluations_and_checkpoints(clock, make_job, train):
    clock.step, clock.row, clock.saving = 4.0, 3.0, 2.0
    record = train(make_job())
    assert clock.rows == [(4, 16.0, 16.0), (8, 32.0, 16.0), (12, 48.0, 16.0)]
    assert record.details["seconds"] == 48.0 and clock.saved[0] == (4, 16.0)


@pytest.mark.slow
def test_members_of_a_group_share_the_seconds_of_their_steps(clock, make_job, tmp_path):
    clock.step, clock.row = 4.0, 3.0
    jobs = [make_job(label="S-q-1", seed=seed) for seed in range(2)]
    works = [tmp_path / job.id for job in jobs]
    for work in works:
        work.mkdir()
    records = loop.train(jobs, works, lambda *_: None, options=LoopOptions(stacking="always"))
    assert sorted(clock.rows) == [(step, 2.0 * step, 8.0) for step in (4, 4, 8, 8, 12, 12)]
    assert [(record.details["group"], record.details["seconds"]) for record in records] == [(2, 24.0), (2, 24.0)]
