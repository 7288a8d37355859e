"""The number of threads decides the last digits of a run, so a resumed run keeps that of its start."""

from __future__ import annotations

import hashlib

import pytest
import torch

from madbench.jobs import StopTraining
from madbench.training import loop
from madbench.training.checkpoints import NAME
from madbench.training.member import GroupMember
from madbench.training.options import LoopOptions


@pytest.fixture(autouse=True)
def report_every_step(monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)


@pytest.fixture
def in_threads():
    """``in_threads(n)``: make this process compute with n threads, as in a worker started for it."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def stop(progress):
    if progress["step"] == 5:
        raise StopTraining


@pytest.fixture
def interrupted_job(make_job, train, in_threads):
    """``interrupted_job(n)``: a job that stopped after five steps with n threads."""

    def make(threads):
        in_threads(threads)
        with pytest.raises(StopTraining):
            train(make_job(epochs=2), stop)
        return make_job(epochs=2)

    return make


def warnings_of(train, job, **how):
    seen = []
    record = train(job, lambda progress: seen.append(progress.get("warning")), **how)
    return record, set(seen)


@pytest.mark.slow
def test_a_run_resumes_in_the_threads_it_began_in_bit_for_bit(interrupted_job, make_job, train, in_threads, tmp_path):
    job = interrupted_job(1)
    in_threads(2)
    record, [warning] = warnings_of(train, job)
    assert "began in 1 thread" not in (warning or "") and record.details["threads"] == 1
    assert torch.get_num_threads() == 2
    in_threads(1)
    (tmp_path / "checkpoint.pt").unlink()
    expected = train(job)
    assert (record.metrics, record.curve[-1]["train_loss"]) == (expected.metrics, expected.curve[-1]["train_loss"])


@pytest.mark.slow
@pytest.mark.parametrize("how", [{}, {"threads": 1}])
def test_a_run_resumed_with_fewer_threads_warns_of_changed_digits(interrupted_job, train, in_threads, how):
    job = interrupted_job(2)
    in_threads(2 if how else 1)
    record, [warning] = warnings_of(train, job, **how)
    assert "began in 2 threads and resumes in 1, which changes the last digits" in warning
    assert "--threads 2 does not" in warning and record.details["threads"] == 1


@pytest.mark.slow
def test_an_interrupted_run_resumes_with_the_larger_number_of_threads_of_the_option(interrupted_job, train, in_threads):
    job = interrupted_job(1)
    record, [warning] = warnings_of(train, job, threads=2)
    assert "began in 1 thread and resumes in 2" in warning and record.details["threads"] == 2


@pytest.mark.slow
def test_a_fresh_run_has_the_given_threads_and_restores_those_of_the_process(make_job, train, in_threads):
    in_threads(1)
    record, warnings = warnings_of(train, make_job(epochs=1), threads=2)
    assert record.details["threads"] == 2 and warnings == {None} and torch.get_num_threads() == 1


@pytest.mark.slow
def test_jobs_that_began_in_different_threads_share_no_step(make_job, in_threads, tmp_path):
    jobs = [make_job(seed=seed, epochs=2) for seed in range(2)]
    works = [tmp_path / job.id for job in jobs]
    for job, work, threads in zip(jobs, works, (1, 2)):
        work.mkdir()
        in_threads(threads)
        with pytest.raises(StopTraining):
            loop.train([job], [work], lambda job, progress: stop(progress))
    records = loop.train(jobs, works, lambda *_: None, options=LoopOptions(stacking="always"))
    assert [record.details["threads"] for record in records] == [1, 2]
    assert all("group" not in record.details for record in records)


@pytest.mark.slow
def test_a_checkpoint_without_threads_resumes_with_the_present_ones(interrupted_job, train, in_threads, tmp_path):
    job = interrupted_job(2)
    content = torch.load(tmp_path / NAME, weights_only=True)
    del content["state"]["threads"]
    torch.save(content, tmp_path / NAME)
    saved = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(saved + hashlib.sha256(saved).digest())
    in_threads(1)
    record, warnings = warnings_of(train, job)
    assert record.details["threads"] == 1 and warnings == {None}


def test_the_threads_of_an_ended_run_do_not_matter(make_job, in_threads, tmp_path):
    in_threads(2)
    member = GroupMember(make_job(), tmp_path, print)
    member.state.step = member.trial.steps
    member.save(seconds=0)
    in_threads(1)
    assert GroupMember(make_job(), tmp_path, print).warning == ""
