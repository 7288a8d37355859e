from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from madbench.execute.base import Summary
from madbench.store.runs import Store

collect_ignore = [
    "fake_slurm.py",
    "torchrun_pairs.py",
]  # scripts of their own: Slurm's programs, and what torchrun starts


@pytest.fixture
def fake(monkeypatch):
    """The module of the fake training run, importable by worker processes too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("fake_sweep")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "results")


@pytest.fixture
def check_pairs(fake, store):
    """Trains groups of two with an executor, while another process holds one member, and checks how each job ended."""

    def check(executor) -> None:
        groups, events = fake.pairs(), []
        jobs = [job for group in groups for job in group]
        with Store(store.root).claim(jobs[5]):
            summary = executor(groups, store, fake.train, on_event=events.append)
        assert summary == Summary(finished=4, diverged=1, failed=2, busy=1)
        stored = {run.job.seed: run.record for run in store.runs()}
        for job in [*jobs[:5], jobs[6]]:
            assert stored[job.seed] == fake.expected(job)
        assert set(stored) == {0, 1, 2, 3, 4, 6, 7}
        assert stored[7].error.endswith("ValueError: the loss has no gradient")
        for job in jobs:
            mine = [event for event in events if event["job"] == job]
            steps = [event["progress"]["step"] for event in mine if event["event"] == "progress"]
            kinds = [event["event"] for event in mine if event["event"] != "progress"]
            ending = "failed" if job.seed in (2, 7) else "finished"
            assert kinds == (["skipped"] if job.seed == 5 else ["started", ending]) and steps == sorted(steps)
        assert executor(groups, store, fake.train) == Summary(finished=1, failed=2, skipped=5)

    return check
