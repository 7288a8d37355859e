"""A member of a group that ends, fails or is interrupted does not change the others."""

from __future__ import annotations

import math

import pytest

from group_numbers import LOSS, assert_same_numbers
from madbench.errors import StoreError
from madbench.jobs import StopTraining, TrainingCallbacks
from madbench.suites import token_trial
from madbench.training import loop, measured
from madbench.training.checkpoints import NAME
from madbench.training.member import GroupMember
from madbench.training.options import LoopOptions


@pytest.mark.slow
def test_a_member_that_stops_early_leaves_the_others_unchanged(three_jobs, together, alone, monkeypatch):
    expected, is_done = [alone(job) for job in three_jobs], token_trial.TokenTrial.is_done
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))
    records = together(three_jobs)
    assert [len(record.curve) for record in records] == [2, 1, 2]
    assert records[1].curve[0] == pytest.approx(expected[1].curve[0], **LOSS)
    for record, wanted in zip(records[::2], expected[::2]):
        assert_same_numbers(record, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("stacking", ["always", "never"])
def test_a_record_is_reported_when_its_job_ends_and_not_when_the_group_ends(
    stacking, three_jobs, together, monkeypatch
):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    is_done = token_trial.TokenTrial.is_done
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))
    told = []
    report = TrainingCallbacks(
        lambda job, progress: told.append((job.seed, progress["step"])),
        lambda job, record: told.append((job.seed, record)),
    )
    records = together(three_jobs, report, stacking=stacking)
    ends = [(seed, what) for seed, what in told if not isinstance(what, int)]
    order = [1, 0, 2] if stacking == "always" else [0, 1, 2]
    assert ends == [(seed, records[seed]) for seed in order]
    assert told.index(ends[0]) < len(told) - 4


def test_a_single_job_returns_its_record_and_calls_no_callback(make_job, together):
    assert together([make_job()], TrainingCallbacks(lambda *_: None, lambda *_: pytest.fail("told early")))


@pytest.mark.slow
def test_a_member_that_ended_before_a_failure_is_not_trained_again(three_jobs, together, folders, monkeypatch):
    is_done, finish = token_trial.TokenTrial.is_done, token_trial.TokenTrial.finish
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))

    def broken(self, curve):
        if self.job.seed == 0:
            raise ValueError("no such data")
        return finish(self, curve)

    monkeypatch.setattr(token_trial.TokenTrial, "finish", broken)
    records, steps = [], []
    with pytest.raises(ValueError, match="no such data"):
        together(three_jobs, TrainingCallbacks(lambda *_: None, lambda job, record: records.append(record)))
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    again = together(three_jobs[1:], lambda job, progress: steps.append(progress["step"]))
    assert steps == [] and [(one.metrics, one.curve) for one in again] == [(one.metrics, one.curve) for one in records]


@pytest.mark.slow
def test_a_failed_member_of_a_group_of_two_leaves_the_other_its_record(make_job, together, monkeypatch):
    finish, records = token_trial.TokenTrial.finish, []

    def broken(self, curve):
        if self.job.seed == 0:
            raise ValueError("no such data")
        return finish(self, curve)

    monkeypatch.setattr(token_trial.TokenTrial, "finish", broken)
    with pytest.raises(ValueError, match="no such data"):
        jobs = [make_job(label="S-q-1", seed=seed, epochs=1) for seed in range(2)]
        together(
            jobs, TrainingCallbacks(lambda *_: None, lambda job, record: records.append((job.seed, record.status)))
        )
    assert records == [(1, "finished")]


def test_a_member_that_ends_on_a_disk_without_room_for_its_checkpoint_has_its_record(three_jobs, together, monkeypatch):
    is_done, records = token_trial.TokenTrial.is_done, []
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", lambda self, row: self.job.seed == 1 or is_done(self, row))

    def full(*arguments, **how):
        raise StoreError("no space left")

    monkeypatch.setattr("madbench.training.member.save_checkpoint", full)
    with pytest.raises(StoreError, match="no space left"):
        together(
            three_jobs,
            TrainingCallbacks(lambda *_: None, lambda job, record: records.append((job.seed, record.status))),
        )
    assert records == [(1, "finished")]


@pytest.mark.slow
def test_a_member_that_diverges_leaves_the_others_unchanged(make_job, together, alone):
    jobs = [
        make_job(label="S-12o!", seed=seed, learning_rate=rate, epochs=2)
        for seed, rate in ((0, 1e-3), (1, 1e30), (2, 1e-3))
    ]
    records = together(jobs)
    assert [record.status for record in records] == ["finished", "diverged", "finished"]
    assert len(records[1].curve) == 1 and records[1].metrics == {}
    for job, record in zip(jobs, records):
        if record.status == "finished":
            assert_same_numbers(record, alone(job))


@pytest.mark.slow
@pytest.mark.parametrize("resume", ["together", "apart"])
def test_interrupted_members_resume_together_and_alone(resume, three_jobs, together, alone, folders, monkeypatch):
    """All members are saved when one report asks to stop.

    A checkpoint is that of a single job, however it was trained.
    """
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    expected = {job.id: alone(job) for job in three_jobs}

    def stop(job, progress):
        if job is three_jobs[1] and progress["step"] == 5:
            raise StopTraining

    with pytest.raises(StopTraining):
        together(three_jobs, stop)
    first, count = {}, 3 if resume == "together" else 1

    def note(job, progress):
        first.setdefault(job.id, progress["step"])

    records = together(three_jobs[:count], note)
    records += together(three_jobs[count:], note, stacking="never")
    assert set(first.values()) == {6}
    for job, record in zip(three_jobs, records):
        assert_same_numbers(record, expected[job.id])


@pytest.mark.slow
def test_an_interrupted_group_resumes_as_a_group_even_if_its_step_is_slower(make_job, together, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    for name, value in (("WORTHWHILE_SECONDS", 0), ("OVERHEAD_SECONDS", math.inf), ("FASTER", 0)):
        monkeypatch.setattr(measured, name, value)  # measured now, no step would be fast enough
    jobs = [make_job(label="S-q-1", seed=seed, epochs=1) for seed in range(2)]

    def stop(job, progress):
        if progress["step"] == 2:
            raise StopTraining

    with pytest.raises(StopTraining):
        together(jobs, stop)
    records = together(jobs, stacking="measured")
    for record in records:
        assert record.details["group_jobs"] == [{"from_step": 0, "ids": [job.id for job in jobs]}]


@pytest.mark.slow
def test_ended_jobs_of_a_sequential_group_are_not_trained_again(three_jobs, together, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)

    def stop(job, progress):
        if job is three_jobs[1] and progress["step"] == 5:
            raise StopTraining

    with pytest.raises(StopTraining):
        together(three_jobs, stop, stacking="never")
    steps = []
    together(three_jobs[:2], lambda job, progress: steps.append((job.seed, progress["step"])), stacking="never")
    assert steps == [(1, 6), (1, 7), (1, 8)]


def test_a_checkpoint_of_a_member_is_as_large_as_that_of_a_job_alone(three_jobs, together, folders, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    sizes = []
    for jobs in (three_jobs, three_jobs[:1]):
        with pytest.raises(StopTraining):
            together(jobs, lambda job, progress: (_ for _ in ()).throw(StopTraining()))
        sizes.append((folders(jobs)[0] / NAME).stat().st_size)
        (folders(jobs)[0] / NAME).unlink()
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)


@pytest.mark.slow
def test_members_at_different_steps_resume_and_a_finished_one_is_not_trained_again(
    three_jobs, together, alone, folders, monkeypatch
):
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    expected = [alone(job) for job in three_jobs]

    def stop_at(step):
        def stop(job, progress):
            if progress["step"] == step:
                raise StopTraining

        return stop

    with pytest.raises(StopTraining):
        loop.train(three_jobs[:1], folders(three_jobs[:1]), stop_at(6))
    with pytest.raises(StopTraining):
        loop.train(three_jobs[1:2], folders(three_jobs[1:2]), stop_at(8))
    steps = {job.id: [] for job in three_jobs}
    records = together(three_jobs, lambda job, progress: steps[job.id].append(progress["step"]))
    assert [steps[job.id] for job in three_jobs] == [[7, 8], [], list(range(1, 9))]
    for record, wanted in zip(records, expected):
        assert_same_numbers(record, wanted)


LEAVING_STEPS = {1: 3, 3: 5}
"""The steps after which two of four jobs leave their group, by seed."""


@pytest.fixture
def four_jobs(make_job, monkeypatch):
    """Four jobs of 12 steps with one row per step. The job with seed 1 stops early, that with seed 3 fails."""
    is_done, row = token_trial.TokenTrial.is_done, token_trial.TokenTrial.row

    def failing(self, interval):
        if self.job.seed == 3 and interval.step >= LEAVING_STEPS[3]:
            raise ValueError("no such data")
        return row(self, interval)

    def over(self, curve_row):
        return (self.job.seed == 1 and curve_row["step"] >= LEAVING_STEPS[1]) or is_done(self, curve_row)

    monkeypatch.setattr(token_trial.TokenTrial, "row", failing)
    monkeypatch.setattr(token_trial.TokenTrial, "is_done", over)
    monkeypatch.setattr(token_trial.TokenTrial, "has_row", lambda self, step: True)
    monkeypatch.setattr(loop, "REPORT_SECONDS", -1)
    return [make_job(label="S-q-1", seed=seed) for seed in range(4)]


def bits_of(record):
    rows = [{name: value for name, value in row.items() if "seconds" not in name} for row in record.curve]
    return record.status, record.metrics, rows, record.details["group"], record.details["group_jobs"]


def train_with_interruptions(jobs, folders, saved_at):
    """The results of the jobs of a group, by seed, after interruptions.

    ``saved_at`` has the step of each interruption, and how many members are saved at it. An interruption is like a kill
    during saving: the other members keep their earlier checkpoints.
    """
    records = {}
    for step, count in [*saved_at, (None, None)]:
        left = [job for job in jobs if job.seed not in records]
        of_ended = TrainingCallbacks(
            _interruption(step), lambda job, record: records.setdefault(job.seed, bits_of(record))
        )
        with pytest.MonkeyPatch.context() as patch, pytest.raises((StopTraining, ValueError)) as ended:
            patch.setattr(GroupMember, "save", _killed_save(step, count))
            loop.train(left, folders(left), of_ended, options=LoopOptions(stacking="always"))
        assert ended.type is (ValueError if step is None else StopTraining)
    return records


def _interruption(step):
    def report(job, progress):
        if progress["step"] == step:
            raise StopTraining

    return report


def _killed_save(step, count):
    """``GroupMember.save`` of a process that is killed once ``count`` members are saved at ``step``."""
    saved, save = [], GroupMember.save

    def killed(self, seconds):
        if self.state.step == step:
            if len(saved) == count:
                raise StopTraining
            saved.append(self)
        save(self, seconds)

    return killed


@pytest.mark.slow
@pytest.mark.parametrize(
    "saved_at",
    [
        [(2, 4)],  # all are saved while all train
        [(2, 4), (4, 3), (7, 2)],  # while all train, one is over, one has failed too
        [(2, 1)],  # the process is killed when one is saved
        [(2, 4), (4, 1)],
        [(1, 4), (2, 2), (4, 2), (6, 1), (8, 1)],
    ],
)
def test_an_interrupted_group_ends_bit_for_bit_like_an_uninterrupted_one(saved_at, four_jobs, folders):
    expected = train_with_interruptions(four_jobs, folders, [])
    assert expected.keys() == {0, 1, 2}
    for work in folders(four_jobs):
        (work / NAME).unlink()
    assert train_with_interruptions(four_jobs, folders, saved_at) == expected
    ids = [job.id for job in four_jobs]
    histories = {seed: [(each["from_step"], each["ids"]) for each in bits[-1]] for seed, bits in expected.items()}
    assert histories[1] == [(0, ids)]
    assert histories[0] == histories[2] == [(0, ids), (3, [ids[0], *ids[2:]]), (5, ids[:3:2])]
    assert {bits[-2] for bits in expected.values()} == {4}
