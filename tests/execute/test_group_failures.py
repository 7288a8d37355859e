"""Failures in a group: if a job or the process fails, the other jobs of the group still end."""

from __future__ import annotations

import pytest

from madbench.errors import StoreError
from madbench.execute import driver, local
from madbench.execute.base import Policy, Summary
from madbench.jobs import Record
from madbench.store.runs import Store

TROUBLES = {
    "raise": "ValueError: the loss has no gradient",
    "killed": "killed or lost 1 times, at last: the process ended with signal 9; out of memory?",
    "os._exit": "the process ended with exit code 3",
    "lost GPU": "RuntimeError: CUDA error: the launch timed out and was terminated",
}


@pytest.fixture
def group(fake):
    """``group(trouble)``: three jobs: one of one step, one of four steps that fails after two in the given way, and one
    of five."""

    def make(trouble, **how):
        return [
            fake.make_job(0, steps=1),
            fake.make_job(1, steps=4, trouble=trouble, at=2, **how),
            fake.make_job(2, steps=5),
        ]

    return make


@pytest.fixture
def run(fake, store):
    """``run(jobs, **how)``: run one group in one slot. Returns the summary and the events."""

    def call(jobs, train=fake.train, listen=lambda event: None, **how):
        events = []

        def on_event(event):
            events.append(event)
            listen(event)

        return local.run_jobs([jobs], store, train, on_event, **how), events

    return call


def results(store: Store) -> dict[int, Record]:
    records = {run.job.seed: run.record for run in store.runs()}
    assert store.problems == []
    return records


def check_ended_by_themselves(fake, store, jobs, error):
    stored = results(store)
    assert stored.pop(1).error.splitlines()[-1] == error
    assert stored == {job.seed: fake.expected(job) for job in jobs if job.seed != 1}
    assert all(store.read(job.id).record.status == "finished" for job in jobs if job.seed != 1)


@pytest.mark.slow
def test_a_job_is_stored_when_it_ends_and_not_when_its_group_does(fake, store, run):
    short, long = fake.make_job(0, steps=1), fake.make_job(1, steps=30)
    stored_at = []

    def listen(event):
        if event["event"] == "finished" and event["job"] == short:
            assert store.read(short.id).record == fake.expected(short) and not store.has(long)
            with Store(store.root).lock(short):
                pass  # it is free for others
            stored_at.append(event)

    summary, events = run([short, long], listen=listen)
    assert summary == Summary(finished=2) and results(store) == {job.seed: fake.expected(job) for job in (short, long)}
    after = [event["progress"]["step"] for event in events[events.index(*stored_at) :] if event["event"] == "progress"]
    assert len(after) > 20


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_only_the_failing_member_of_a_group_fails(fake, store, run, group, trouble, monkeypatch):
    monkeypatch.setattr(driver, "ATTEMPTS", 1)
    jobs = group(trouble)
    summary, events = run(jobs)
    assert summary == Summary(finished=2, failed=1)
    check_ended_by_themselves(fake, store, jobs, TROUBLES[trouble])
    for job in jobs:
        kinds = [event["event"] for event in events if event["job"] == job and event["event"] != "progress"]
        assert kinds == ["started", "failed" if job.seed == 1 else "finished"]
    steps = [event["progress"]["step"] for event in events if event["job"] == jobs[2] and "progress" in event]
    assert steps.count(0) == 1  # alone it resumes where the group had come to


@pytest.mark.slow
def test_a_hanging_job_fails_alone_at_the_time_limit(fake, store, run, group, monkeypatch):
    monkeypatch.setattr(driver, "GRACE", 0.3)
    jobs = group("unresponsive")
    summary, _ = run(jobs, policy=Policy(time_limit=1.5))
    assert summary == Summary(finished=2, failed=1)
    check_ended_by_themselves(fake, store, jobs, "stopped after the time limit of 1.5 s")


@pytest.mark.slow
def test_members_that_wait_for_a_hanging_one_still_finish(fake, store, run, monkeypatch):
    monkeypatch.setattr(driver, "GRACE", 0.3)
    jobs = [fake.make_job(1, trouble="unresponsive"), *(fake.make_job(seed, steps=2) for seed in (2, 3))]
    summary, _ = run(jobs, fake.train_in_turn, policy=Policy(time_limit=1.5))
    assert summary == Summary(finished=2, failed=1)
    check_ended_by_themselves(fake, store, jobs, "stopped after the time limit of 1.5 s")


@pytest.mark.slow
def test_each_job_of_a_group_over_the_time_limit_gets_the_limit_again_from_its_checkpoint(fake, store, run):
    jobs = [fake.make_job(seed, steps=20, pause=0.05) for seed in (2, 3)]  # 2 s in a group, 1 s alone
    summary, events = run(jobs, policy=Policy(time_limit=1.4))
    assert summary == Summary(finished=2) and results(store) == {job.seed: fake.expected(job) for job in jobs}
    for job in jobs:
        steps = [event["progress"]["step"] for event in events if event["job"] == job and "progress" in event]
        assert steps == sorted(steps) and len({event["slot"] for event in events}) == 1


@pytest.mark.slow
def test_a_job_over_the_time_limit_in_its_group_and_alone_fails(fake, store, run):
    jobs = [fake.make_job(1, steps=1000, pause=0.05), fake.make_job(2, steps=2)]
    assert run(jobs, policy=Policy(time_limit=0.6))[0] == Summary(finished=1, failed=1)
    check_ended_by_themselves(fake, store, jobs, "stopped after the time limit of 0.6 s")
    [left] = (store.root / "work").iterdir()
    assert left.name == jobs[0].id and int((left / "checkpoint").read_text().split()[0]) > 1


@pytest.mark.slow
def test_jobs_that_are_too_large_together_train_alone(fake, store, run):
    jobs = [fake.make_job(seed, steps=2, trouble="too large together") for seed in range(3)]
    assert run(jobs)[0] == Summary(finished=3)
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}


@pytest.mark.slow
def test_ctrl_c_keeps_the_jobs_of_a_group_that_have_ended(fake, store, run, tmp_path):
    marker = tmp_path / "go on"
    held = {"steps": 8, "held_at": 5, "marker": str(marker)}
    jobs = [fake.make_job(0, steps=1), *(fake.make_job(seed, **held) for seed in (1, 2))]

    def interrupt(event):
        if event.get("progress", {}).get("step") == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(jobs, listen=interrupt)
    assert results(store) == {0: fake.expected(jobs[0])}
    marker.touch()
    summary, events = run(jobs)
    assert summary == Summary(finished=2, skipped=1)
    assert min(event["progress"]["step"] for event in events if "progress" in event) >= 4


@pytest.mark.slow
def test_a_full_disk_keeps_the_jobs_of_a_group_that_have_ended(fake, store, run, group):
    with pytest.raises(StoreError, match="no space left"):
        run(group("disk full"))
    assert results(store) == {0: fake.expected(fake.make_job(0, steps=1))}


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["raise", "os._exit"])
def test_redone_jobs_of_a_failed_group_resume_alone_and_replace_results(fake, store, run, group, trouble):
    jobs = group(trouble)
    for job in jobs:
        store.finish(job, Record("finished", {"state": -1.0}))
    summary, events = run(jobs, policy=Policy(redo=True))
    assert summary == Summary(finished=2, failed=1)
    expected = {0: fake.expected(jobs[0]), 1: Record("finished", {"state": -1.0}), 2: fake.expected(jobs[2])}
    assert results(store) == expected
    steps = [event["progress"]["step"] for event in events if event["job"] == jobs[2] and "progress" in event]
    assert steps.count(0) == 1


@pytest.mark.slow
def test_after_max_failures_the_other_jobs_of_a_failed_group_are_left(fake, store, run):
    jobs = [fake.make_job(seed, steps=2, trouble="os._exit") for seed in range(4)]
    assert run(jobs, policy=Policy(max_failures=2))[0] == Summary(failed=2, left=2)
    for job in jobs:
        with Store(store.root).lock(job):
            pass


@pytest.mark.slow
def test_jobs_of_failed_groups_use_only_the_given_slots(fake, store):
    bad = [fake.make_job(seed, steps=3, trouble="os._exit", at=1) for seed in (10, 20)]
    groups = [[job, *(fake.make_job(job.seed + i, steps=3) for i in (1, 2))] for job in bad]
    busy, most = set(), 0

    def listen(event):
        nonlocal most
        (busy.add if event["event"] in ("started", "progress") else busy.discard)(event["job"].seed)
        most = max(most, event["slot"] + 1)

    assert local.run_jobs(groups, store, fake.train, listen, slots=2) == Summary(finished=4, failed=2)
    assert most == 2 and not busy
    assert {seed: record.status for seed, record in results(store).items() if record.status == "failed"} == {
        10: "failed",
        20: "failed",
    }


@pytest.mark.slow
def test_an_interrupt_while_an_early_record_is_stored_keeps_it(fake, store, run, monkeypatch):
    jobs = [fake.make_job(0, steps=1), fake.make_job(1, steps=3, held_at=2, marker="never")]
    finish, calls = store.finish, []

    def interrupted(job, record, replace):
        calls.append(job.seed)
        if len(calls) == 1:
            raise KeyboardInterrupt
        finish(job, record, replace)

    monkeypatch.setattr(store, "finish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(jobs)
    assert calls == [0, 0] and results(store) == {0: fake.expected(jobs[0])}


@pytest.mark.slow
def test_without_a_shared_folder_jobs_of_a_failed_group_start_again(fake, store, run, group, monkeypatch):
    monkeypatch.setattr(local.LocalBackend, "shares_folder", False)
    jobs = group("os._exit")
    summary, _ = run(jobs)
    assert summary == Summary(finished=2, failed=1)
    check_ended_by_themselves(fake, store, jobs, TROUBLES["os._exit"])
