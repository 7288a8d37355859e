"""The counts, the remaining time and the lines of a running sweep, from its events."""

from __future__ import annotations

import math

import pytest

from madbench.execute.sweep_state import SweepState, event_line
from madbench.jobs import Job, Record
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job


def progress(job: str, slot: int, step: int, total: int = 100, **more) -> dict:
    return {"event": "progress", "job": job, "slot": slot, "step": step, "total_steps": total, **more}


def started(job: str, slot: int) -> dict:
    return {"event": "started", "job": job, "slot": slot}


def finished(job: str, slot: int) -> dict:
    return {"event": "finished", "job": job, "slot": slot, "status": "finished"}


def skipped(job: str, why: str = "stored") -> dict:
    return {"event": "skipped", "job": job, "reason": why}


def sweep(*epochs: int) -> tuple[SweepState, list[str]]:
    """The state of a sweep with one job per number of epochs, and the ids of the jobs."""
    jobs = [mad_job(seed=seed, training=TrainingConfig(epochs=count)) for seed, count in enumerate(epochs)]
    return SweepState(jobs), [job.id for job in jobs]


def test_sweep_state_counts_events_and_measures_speed():
    state, (a, b, c, d, e, f) = sweep(*[1] * 6)
    assert (state.done, state.seconds_left(), state.jobs_per_minute()) == (0, None, None)
    for job, why in zip((a, b, c), ("stored", "failed", "busy"), strict=True):
        state.apply(skipped(job, why), 0.0)
    state.apply(started(d, 0), 1.0)
    state.apply(finished(d, 0), 3.0)
    state.apply(started(e, 0), 3.0)
    state.apply({"event": "failed", "job": e, "slot": 0, "status": "failed", "error": "no memory"}, 4.0)
    state.apply(started(f, 1), 4.0)
    state.apply({"event": "finished", "job": f, "slot": 1, "status": "diverged", "error": "NaN"}, 5.0)
    assert state.counts == {"stored": 1, "failed before": 1, "busy": 1, "finished": 1, "failed": 1, "diverged": 1}
    assert (state.done, state.running, state.seconds_left()) == (6, {}, 0.0)
    assert state.failures == [(e, "no memory")]
    assert state.jobs_per_minute() == pytest.approx(60 * 3 / 4)
    assert state.fraction == 1.0


def test_the_time_left_is_estimated_from_tokens_not_from_jobs():
    """A job of 9 epochs after a job of one epoch, which took 10 s: 90 s are left."""
    state, (small, _) = sweep(1, 9)
    state.apply(started(small, 0), 5.0)
    state.apply(finished(small, 0), 15.0)
    assert state.seconds_left() == pytest.approx(90)


def test_the_time_left_after_a_resume_uses_only_the_speed_of_this_sweep():
    """98 of 100 jobs are stored and one has a checkpoint at 80%. What remains is 0.2 + 1 of 100 jobs."""
    state, ids = sweep(*[1] * 100)
    for job in ids[:98]:
        state.apply(skipped(job), 0.0)
    state.apply(started(ids[98], 0), 0.0)
    state.apply(progress(ids[98], 0, 80), 0.0)
    assert state.seconds_left() is None
    state.apply(progress(ids[98], 0, 90), 10.0)
    assert state.seconds_left() == pytest.approx(110.0)
    state.apply(finished(ids[98], 0), 20.0)
    assert state.seconds_left() == pytest.approx(100.0)
    assert state.jobs_per_minute() == pytest.approx(3.0)


def test_the_time_left_of_the_last_job_uses_its_own_speed():
    """Ten slots have done a lot together; what is left runs in one of them."""
    state, ids = sweep(*[1] * 10)
    for i, job in enumerate(ids):
        state.apply(started(job, i), 0.0)
    state.apply(progress(ids[9], 9, 1), 1.0)
    for i, job in enumerate(ids[:9]):
        state.apply(finished(job, i), 10.0)
    state.apply(progress(ids[9], 9, 11), 11.0)
    assert state.seconds_left() == pytest.approx(89.0)


def test_a_job_restarted_in_another_slot_is_counted_once():
    state, (a,) = sweep(1)
    state.apply(started(a, 0), 0.0)
    state.apply(progress(a, 0, 60), 1.0)
    state.apply(started(a, 7), 2.0)
    state.apply(progress(a, 7, 10), 3.0)
    assert [running.slot for running in state.running.values()] == [7] and state.running[a].fraction == 0.1
    state.apply(finished(a, 7), 4.0)
    state.apply(finished(a, 7), 5.0)
    assert state.counts == {"finished": 1} and state.running == {}


def test_progress_of_unstarted_and_unknown_jobs_is_accepted():
    state, (a,) = sweep(1)
    state.apply(progress(a, 42, 50), 1.0)
    state.apply(progress("of another plan", 3, 50), 1.0)
    assert {running.slot for running in state.running.values()} == {42, 3} and state.seconds_left() is None
    state.apply(finished("of another plan", 3), 2.0)
    assert state.done == 0


def test_the_clock_of_a_sweep_never_runs_backwards():
    state, (a, _) = sweep(1, 1)
    state.apply(started(a, 0), 10.0)
    state.apply(finished(a, 0), 4.0)
    assert state.seconds == 10.0 and state.seconds_left() is None and state.jobs_per_minute() is None


def test_an_empty_sweep_is_complete():
    state = SweepState([])
    assert (state.done, state.fraction, state.seconds_left()) == (0, 1.0, 0.0)


MAD_JOBS = MAD.jobs(["S", "R-c"], MAD.Profile.load("quick"), tasks=["compression"], seeds=range(2))
LANGUAGE_JOB = Job(
    "language",
    "language_model",
    "S",
    "1",
    {"corpus": "c0ffee", "vocab_size": 320},
    LANGUAGE.Profile.Model(d_model=16, n_head=2, n_layer=1, seq_len=16),
    {"mix_rank": 4, "rank_multiple": 1, "rope": "rotation"},
    LANGUAGE.Profile.Training(steps=7, eval_every=7, warmup_steps=1, tokens_per_step=1024),
)


def test_the_weight_of_a_job_is_its_number_of_training_tokens():
    found = SweepState([*MAD_JOBS, LANGUAGE_JOB]).tokens_by_job
    assert found == dict.fromkeys([job.id for job in MAD_JOBS], 3 * 4000 * 16) | {LANGUAGE_JOB.id: 7 * 1024}


def test_jobs_that_train_together_share_a_slot_and_are_counted_one_by_one():
    state, (a, b, _) = sweep(1, 1, 1)
    for job in (a, b):
        state.apply(started(job, 0), 0.0)
        state.apply(progress(job, 0, 0), 0.0)
        state.apply(progress(job, 0, 50), 10.0)
    assert set(state.running) == {a, b} and state.fraction == pytest.approx(1 / 3)
    state.apply(finished(a, 0), 20.0)
    assert set(state.running) == {b} and state.done == 1


def test_events_become_flat_json_lines_without_nan_and_none():
    event = {"event": "progress", "job": MAD_JOBS[0], "slot": 0}
    event["progress"] = {"step": 3, "total_steps": 9, "accuracy": None, "loss": math.nan}
    assert event_line(event) == {"event": "progress", "slot": 0, "job": MAD_JOBS[0].id, "step": 3, "total_steps": 9}
    ended = {"event": "finished", "job": LANGUAGE_JOB, "slot": 1, "record": Record("finished", {"loss_l5": 2.5})}
    assert event_line(ended) == {
        "event": "finished",
        "slot": 1,
        "job": LANGUAGE_JOB.id,
        "status": "finished",
        "loss_l5": 2.5,
    }
    failed = {
        "event": "failed",
        "job": MAD_JOBS[0],
        "slot": 1,
        "record": Record("failed", error="Traceback\nValueError: no"),
    }
    assert event_line(failed)["error"] == "ValueError: no"
    assert event_line({"event": "skipped", "job": MAD_JOBS[0], "reason": "busy"}) == {
        "event": "skipped",
        "job": MAD_JOBS[0].id,
        "reason": "busy",
    }
