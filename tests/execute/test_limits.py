"""Time limits, hangs, failures and devices of the local executor."""

from __future__ import annotations

import functools
import importlib
import os
import time

import pytest

from madbench.errors import ConfigError
from madbench.execute import driver, local
from madbench.execute.base import Policy, Summary, failure_text, reason
from madbench.execute.torchrun import train_distributed
from madbench.jobs import Record
from madbench.store.runs import Store


def run_jobs(jobs, store, train, **how) -> Summary:
    return local.run_jobs([[job] for job in jobs], store, train, **how)


@pytest.mark.slow
def test_a_job_over_its_time_limit_fails_keeps_its_checkpoint_and_finishes_when_tried_again(fake, store):
    slow = fake.make_job(0, steps=40, pause=0.03)
    others = [fake.make_job(seed) for seed in (1, 2)]
    events = []
    limit = Policy(time_limit=0.5)
    summary = run_jobs([slow, *others], store, fake.train, on_event=events.append, policy=limit)
    assert summary == Summary(finished=2, failed=1)
    failed = store.read(slow.id).record
    assert (failed.status, failed.error) == ("failed", "stopped after the time limit of 0.5 s")
    reached = int((store.root / "work" / slow.id / "checkpoint").read_text().split()[0])
    assert 1 <= reached < 40
    pids = [event["progress"]["pid"] for event in events if "pid" in event.get("progress", {})]
    assert pids[0] != pids[1] == pids[2]

    events.clear()
    assert run_jobs([slow, *others], store, fake.train, on_event=events.append) == Summary(finished=1, skipped=2)
    assert next(event for event in events if event["event"] == "progress")["progress"]["step"] == reached
    assert store.read(slow.id).record == fake.expected(slow)


@pytest.mark.slow
def test_an_unresponsive_job_is_killed_after_the_grace_period_and_holds_up_no_other(fake, store, monkeypatch):
    monkeypatch.setattr(driver, "GRACE", 0.3)
    stuck = fake.make_job(0, trouble="unresponsive")
    good = [fake.make_job(seed, steps=3) for seed in (1, 2, 3)]
    began = time.monotonic()
    summary = run_jobs([stuck, *good], store, fake.train, slots=2, policy=Policy(time_limit=1.0))
    assert summary == Summary(finished=3, failed=1)
    assert time.monotonic() - began < 55  # of the 60 s for which it is stuck
    assert store.read(stuck.id).record.error == "stopped after the time limit of 1 s"
    for job in good:
        assert store.read(job.id).record == fake.expected(job)


@pytest.mark.slow
def test_a_process_that_dies_before_it_trains_is_replaced(fake, store, monkeypatch, tmp_path):
    (tmp_path / "dying.py").write_text(
        "import os, pathlib\n"
        "marker = pathlib.Path(__file__).with_name('marker')\n"
        f"if os.getpid() != {os.getpid()} and not marker.exists():\n"
        "    marker.touch()\n"
        "    os._exit(5)\n"
        "def train(jobs, works, report, inner): return inner(jobs, works, report)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    train = functools.partial(importlib.import_module("dying").train, inner=fake.train)
    job = fake.make_job(0)
    assert run_jobs([job], store, train) == Summary(finished=1)
    assert (tmp_path / "marker").exists()


def test_stored_failures_are_left_alone_unless_they_are_to_be_tried_again(fake, store):
    jobs = [fake.make_job(0), fake.make_job(1)]
    store.finish(jobs[0], fake.expected(jobs[0]))
    store.finish(jobs[1], Record("failed", error="once"))
    events = []
    policy = Policy(retry=False)
    assert run_jobs(jobs, store, fake.train, on_event=events.append, policy=policy) == Summary(skipped=2)
    assert [(event["job"], event["reason"]) for event in events] == [(jobs[0], "stored"), (jobs[1], "failed")]
    assert run_jobs(jobs, store, fake.train) == Summary(finished=1, skipped=1)


@pytest.mark.parametrize("status", [None, "failed", "finished", "diverged"])
def test_the_reason_to_skip_a_job_follows_from_its_status_and_the_policy(status):
    is_result = status in ("finished", "diverged")
    assert Policy(redo=True, retry=False).reason_to_skip(status) is None
    assert Policy().reason_to_skip(status) == ("stored" if is_result else None)
    assert Policy(retry=False).reason_to_skip(status) == ("stored" if is_result else status)


class OutOfMemoryError(RuntimeError):
    """Named as torch's own."""


@pytest.mark.parametrize(
    ("error", "last_line"),
    [
        (ValueError("the loss has no gradient"), "ValueError: the loss has no gradient"),
        (MemoryError(), "MemoryError"),
        (
            OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1.5 "
                "GiB is free. Process 7 has 77.60 GiB memory in use. See documentation for Memory Management  (https://x)"
            ),
            (
                "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB; fewer jobs at a time (--slots) or "
                "a smaller model need less"
            ),
        ),
        (
            RuntimeError(
                "CUDA error: device-side assert triggered\nCUDA kernel errors might be\n\nCompile with `X`.\n"
            ),
            "RuntimeError: CUDA error: device-side assert triggered",
        ),
        (RuntimeError("x" * 3000), "RuntimeError: " + "x" * 183 + "..."),
    ],
)
def test_the_last_line_of_a_failure_summarizes_the_error(error, last_line):
    try:
        raise error
    except Exception as caught:
        text = failure_text(caught)
    assert text.startswith("Traceback") and "raise error" in text
    assert text.splitlines()[-1].endswith(last_line) and len(text.splitlines()[-1]) <= 200
    assert reason(Record("failed", error=text)).endswith(last_line)


def test_a_failure_without_an_error_has_no_reason_given():
    assert reason(Record("failed")) == "no reason given"


def test_a_time_limit_under_torchrun_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a time limit has no effect under torchrun"):
        train_distributed([], Store(tmp_path), train=None, policy=Policy(time_limit=60))
