"""An interrupted run ends with the numbers of an uninterrupted one; a foreign or broken checkpoint is refused."""

from __future__ import annotations

import pytest

from madbench.errors import TrainingError
from madbench.jobs import StopTraining
from madbench.training import loop
from madbench.training.checkpoints import NAME


@pytest.fixture(autouse=True)
def report_every_step(monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)


def until_done(job, train, report):
    while True:
        try:
            return train(job, report)
        except StopTraining:
            continue


@pytest.mark.parametrize("fidelity", ["corrected", "published"])
@pytest.mark.parametrize("label, task", [("R-cg-q-12o", "in_context_recall"), ("S", "compression")])
def test_a_resumed_run_ends_with_the_same_numbers_bit_for_bit(
    label, task, fidelity, make_job, train, tmp_path, stop_at
):
    job = make_job(label=label, task=task, fidelity=fidelity, weight_decay=0.1)
    expected = train(job)
    assert not (tmp_path / NAME).exists()
    # the first step, mid-epoch, an epoch's last step and the next, two in a row, the run's last step
    report = stop_at(1, 4, 5, 6, 10, 12)
    record = until_done(job, train, report)
    assert report.steps == [] and report.seen == list(range(1, 13))
    assert record.metrics == expected.metrics and record.curve == expected.curve
    assert record.status == expected.status


def test_a_run_that_was_killed_resumes_from_its_last_checkpoint(make_job, train, monkeypatch, stop_at):
    """Not every step is saved: what came after the last checkpoint is done again."""
    job = make_job()
    expected = train(job)
    saved, save = [], loop.save_checkpoint

    def save_now_and_then(work, job, trial, optimizer, state, seconds):
        if state.step % 5 == 0:
            saved.append(state.step)
            save(work, job, trial, optimizer, state, seconds)

    monkeypatch.setattr(loop, "CHECKPOINT_SECONDS", -1)
    monkeypatch.setattr(loop, "save_checkpoint", save_now_and_then)
    killed, resumed = stop_at(9), stop_at()
    with pytest.raises(StopTraining):
        train(job, killed)
    record = train(job, resumed)
    assert saved == [5, 10] and resumed.seen == list(range(6, 13))
    assert record.metrics == expected.metrics and record.curve == expected.curve


def test_an_early_stop_is_remembered(make_job, train, monkeypatch, stop_at):
    job = make_job(stop_accuracy=0.0)
    expected = train(job)
    report = stop_at(4)
    record = until_done(job, train, report)
    assert report.seen == [1, 2, 3, 4] and len(record.curve) == 1
    assert record.metrics == expected.metrics


def test_the_checkpoint_of_another_job_is_refused(make_job, train, tmp_path, stop_at):
    job, other = make_job(), make_job(seed=1)
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    with pytest.raises(TrainingError, match=f"belongs to job {job.id}, not to {other.id}") as caught:
        train(other)
    assert str(tmp_path / NAME) in str(caught.value)


@pytest.mark.parametrize("kept", [0, 100, 0.5, -1])
def test_a_damaged_checkpoint_is_refused(kept, make_job, train, tmp_path, stop_at):
    job = make_job()
    with pytest.raises(StopTraining):
        train(job, stop_at(2))
    content = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(TrainingError, match="cannot be used.*delete it"):
        train(job)
