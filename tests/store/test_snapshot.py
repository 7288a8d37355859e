"""A snapshot of a store keeps the state of its first read."""

from __future__ import annotations

import shutil

import pytest

from madbench.jobs import Record
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from stored_samples import make_job

JOBS = [make_job(seed) for seed in range(3)]


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store.open(tmp_path / "results")
    for job in JOBS:
        store.finish(job, Record("finished", {"accuracy": 0.5}, [{"step": 1}]))
    return store


def test_a_snapshot_returns_the_runs_jobs_records_and_problems_of_the_store(store):
    (store.root / "runs" / JOBS[0].id / "record.json").write_text("{")
    snapshot = Snapshot.open(store.root)
    ids = [job.id for job in JOBS]
    for one in (snapshot, store):
        assert list(one.runs(with_curves=False, suite="language")) == [] and len(one.problems) == 1
    assert list(snapshot.runs(with_curves=False)) == list(store.runs(with_curves=False))
    assert snapshot.jobs() == store.jobs() and snapshot.records(ids) == store.records(ids)
    assert snapshot.problems == store.problems and snapshot.missing(JOBS) == store.missing(JOBS)
    assert list(snapshot.runs()) == list(store.runs()) and snapshot.read(ids[1]).record.curve == [{"step": 1}]


def test_a_snapshot_reads_the_store_once_and_does_not_change(store):
    snapshot = Snapshot.open(store.root)
    assert len(snapshot.jobs()) == 3
    store.finish(make_job(3), Record("finished"))
    shutil.rmtree(store.root)
    assert len(list(snapshot.runs(with_curves=False))) == len(snapshot.records(job.id for job in JOBS)) == 3
