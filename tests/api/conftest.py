"""A stand-in for the executor of this machine, a corpus, and stored runs."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from api_calls import CHOSEN, fill
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.language.suite import LANGUAGE


@pytest.fixture
def fake_executor(monkeypatch, language_run):
    """Replace the local executor: stores the records in ``records`` by label at once, and remembers the jobs."""
    curve = language_run("S", [3.0, 2.0]).record.curve
    metrics = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}

    class Executor:
        jobs: list = []
        records: dict = {}

        def __call__(self, groups, store, train, *, on_event, policy, **how):
            jobs = [job for group in groups for job in group]
            self.jobs = [job for job in jobs if not policy.reason_to_skip(store.status(job))]
            self.train, self.policy = train.keywords | vars(train.keywords["options"]), policy
            summary = Summary()
            for job in self.jobs:
                usual = Record("finished", metrics, curve if job.suite == LANGUAGE.name else [], {"budget_ratio": 1.0})
                record = self.records.get(job.label, usual)
                store.finish(job, record, replace=policy.redo)
                setattr(summary, record.status, getattr(summary, record.status) + 1)
                kind = "failed" if record.status == "failed" else "finished"
                on_event({"event": kind, "job": job, "record": record})
            return summary

    executor = Executor()
    monkeypatch.setattr(local, "run_jobs", executor)
    return executor


@pytest.fixture
def corpus(tmp_path):
    """A folder with nanoGPT's two files."""
    for name, count in (("train.bin", 4000), ("val.bin", 500)):
        (np.arange(count, dtype="<u2") % 64).tofile(tmp_path / name)
    return tmp_path


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A results folder with three seeds of three labels on compression."""
    store = Store.open(tmp_path_factory.mktemp("shelf"))
    fill(store, CHOSEN["profile"])
    return store.root


@pytest.fixture
def stored_arguments(shelf, tmp_path):
    """The arguments with which functions read a copy of the results folder."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    return CHOSEN | {"results": tmp_path}
