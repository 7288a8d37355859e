"""Registered runs that are missing, failed, damaged or early are named, and make verdicts provisional."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from madbench.analysis.registered_findings import lacking_runs, registered_findings
from madbench.analysis.registration import load_registration, register
from madbench.files import file_digest
from madbench.jobs import Record
from madbench.store.runs import Store
from registrations import GAINS, LATER, judge, write_grid


@pytest.fixture
def stored(file_with_runs, tmp_path):
    """The store of the registered runs, and one registered job."""
    store = Store(tmp_path / "results")
    (job,) = (
        run.job for run in store.runs() if (run.job.label, run.job.task, run.job.seed) == ("R-12!", "compression", 1)
    )
    return store, job


@pytest.mark.slow
def test_a_run_that_is_deleted_after_the_verdict_makes_it_provisional(stored, judge_copy):
    store, job = stored
    assert judge_copy()[1] == ["supported"]
    for file in (store.root / "runs" / job.id).iterdir():
        file.unlink()
    (store.root / "runs" / job.id).rmdir()
    said, verdicts = judge_copy()
    assert "1 of 72 registered runs are not stored yet. The verdicts are provisional until all runs are stored." in said
    assert "These p-values assume a single look" in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_a_failed_run_is_not_stored(stored, judge_copy):
    store, job = stored
    for file in (store.root / "runs" / job.id).iterdir():
        file.unlink()
    store.finish(job, Record("failed", error="out of memory"))
    assert store.status(job) == "failed"
    said, verdicts = judge_copy()
    assert "1 of 72 registered runs are not stored yet." in said
    assert "1 of these failed (madbench sweep --retry): R-12!; seeds 1." in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["job.json", "record.json", "curve.csv"])
def test_a_damaged_run_is_not_stored(name, stored, judge_copy):
    store, job = stored
    file = store.root / "runs" / job.id / name
    file.write_bytes(file.read_bytes()[:-2])
    said, verdicts = judge_copy()
    assert "1 of 72 registered runs are not stored yet." in said
    assert "1 of these cannot be read (madbench validate --store): R-12!; seeds 1." in said
    assert all(verdict.endswith("(provisional)") for verdict in verdicts)


@pytest.mark.slow
def test_a_diverged_run_is_a_result(stored, judge_copy):
    store, job = stored
    with store.lock(job):
        store.finish(job, Record("diverged", error="at step 4", details=LATER), replace=True)
    assert store.status(job) == "diverged"
    said, verdicts = judge_copy()
    assert "not stored" not in said and all("provisional" not in verdict for verdict in verdicts)


@pytest.mark.slow
def test_a_run_that_was_stopped_is_not_stored(path, tmp_path):
    _, made, file = register(path, tmp_path / "results")
    store = Store.open(tmp_path / "results")
    with store.lock(made.jobs[0]) as work:
        (work / "checkpoint.pt").write_bytes(b"half way")
    found, results = load_registration(file, tmp_path / "results")
    assert set(lacking_runs(results).values()) == {"not stored"} and len(lacking_runs(results)) == 72
    rows = registered_findings(found, results)
    assert [row.verdict_text for row in rows] == ["not enough data (provisional)"]  # it is listed all the same
    assert math.isnan(rows[0].p) and rows[0].missing


@pytest.mark.slow
@pytest.mark.parametrize(("ended", "is_early"), [(-1, True), (0, False), ("", True), ("soon", True)])
def test_a_run_without_an_end_time_counts_as_earlier_than_the_registration(ended, is_early, stored, file_with_runs):
    """The modification times of files are those of the import, so they are not used."""
    store, job = stored
    registered = datetime.strptime(json.loads(file_with_runs.read_text())["registered"], "%Y-%m-%d %H:%M:%S").replace(
        tzinfo=UTC
    )
    text = ended if isinstance(ended, str) else (registered + timedelta(seconds=ended)).isoformat()
    record = store.read(job.id).record
    with store.lock(job):
        store.finish(job, replace(record, details={"ended": text} if text else {}), replace=True)
    said, (verdict,) = judge(file_with_runs)
    assert ("registered before 71 of 72 runs" in verdict) is is_early
    words = "have no end time" if isinstance(ended, str) else "ended before the registration"
    assert (f"1 of 72 runs {words}; verdicts that use them are exploratory: R-12!; seeds 1." in said) is is_early


@pytest.mark.slow
def test_the_verdict_names_a_registration_that_is_newer_than_its_runs(complete_folder, tmp_path):
    shutil.copytree(complete_folder / "results", tmp_path / "results")
    store = Store(tmp_path / "results")
    for run in list(store.runs()):
        with store.lock(run.job):
            record = replace(run.record, details={"ended": "2026-01-01T00:00:00+00:00"})
            store.finish(run.job, record, replace=True)
    _, _, file = register(write_grid(tmp_path), tmp_path / "empty")  # in another folder, before an import
    _, verdicts = judge(file)
    assert verdicts == ["supported (registered before 0 of 72 runs)"]


@pytest.mark.slow
def test_seeds_that_were_not_registered_change_nothing(stored, judge_copy):
    store, job = stored
    before = judge_copy()
    for other in list(store.jobs().values()):
        metrics = {"accuracy": 1 - GAINS[other.label], "selection_accuracy": 0.5, "ceiling": 1.0}
        store.finish(replace(other, seed=other.seed + 3), Record("finished", metrics))
    assert judge_copy() == before


@pytest.mark.slow
def test_reading_a_registration_writes_nothing(stored, judge_copy):
    store, _ = stored
    files = sorted(path for path in (store.root / "runs").rglob("*") if path.is_file())
    before = [(path, file_digest(path), path.stat().st_mtime_ns) for path in files]
    (store.root / "work").rmdir()
    judge_copy()
    assert not (store.root / "work").exists()
    assert [(path, file_digest(path), path.stat().st_mtime_ns) for path in files] == before
