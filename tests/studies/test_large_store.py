"""studies/large_store.py: runs are written as by the store, with scores from a model of labels."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections import Counter

import pytest

import large_store as bench
from madbench.store.runs import Store


@pytest.mark.slow
def test_the_written_store_has_the_synthetic_runs(tmp_path):
    assert bench.write_store(tmp_path, 60) == 60
    store = Store.open(tmp_path)
    assert {run.job.id: run.record for run in store.runs()} == {
        job.id: bench.synthetic_record(job) for job in bench.synthetic_jobs(60)
    }
    assert store.problems == []


@pytest.mark.slow
def test_writing_a_large_store_again_adds_only_missing_runs(tmp_path):
    bench.write_store(tmp_path, 50)
    first = {path: path.stat().st_ino for path in tmp_path.glob("runs/*/*")}
    assert bench.write_store(tmp_path, 55) == 55
    assert first.items() <= {path: path.stat().st_ino for path in tmp_path.glob("runs/*/*")}.items()


@pytest.mark.slow
def test_synthetic_jobs_are_distinct_and_ordered_by_seed(monkeypatch):
    monkeypatch.setattr(bench, "LABELS", ("S", "R", "R-c"))
    jobs = list(bench.synthetic_jobs(1500))
    assert len({job.id for job in jobs}) == 1500
    assert Counter(job.suite for job in jobs) == {"language": 27, "mad": 1473}  # all of 9 seeds
    assert Counter((job.seed, job.label) for job in jobs if job.suite == "mad") == {
        (0, "S"): 396, (0, "R"): 396, (0, "R-c"): 396, (1, "S"): 285,
    }  # fmt: skip
    assert [job.suite for job in bench.synthetic_jobs(100)].count("language") == 2


def test_a_label_is_better_by_the_effects_of_its_letters(monkeypatch):
    monkeypatch.setattr(bench, "LABELS", ("R-12!", "R-12o!"))
    jobs = [job for job in bench.synthetic_jobs(2 * 396 + 15) if job.task == "compression"]

    def mean(label):
        records = [bench.synthetic_record(job) for job in jobs if job.label == label][:40]
        return statistics.mean(record.metrics["accuracy"] for record in records)

    expected = bench.effect_of("R-12!") - bench.effect_of("R-12o!")
    assert mean("R-12!") - mean("R-12o!") == pytest.approx(expected, abs=4 * bench.SEED_NOISE)


@pytest.mark.slow
def test_a_process_is_timed_and_one_that_fails_is_an_error(tmp_path):
    bench.write_store(tmp_path / "store", 20)
    (tmp_path / "empty").mkdir()
    command = bench.commands(tmp_path / "store", tmp_path / "empty")["missing of 10,000"]
    assert bench.time_command(command)[1] > 0
    with pytest.raises(subprocess.CalledProcessError):
        bench.time_command([sys.executable, "-c", "import sys; sys.exit(3)"])
