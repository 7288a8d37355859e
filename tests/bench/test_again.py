"""Training stored runs again: the sample of runs and differences of metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from madbench.bench import again
from madbench.bench.again import RepeatableRuns, RepeatedRun, rows_by_task
from madbench.execute.products import DETAIL
from madbench.jobs import Record
from madbench.mixers.ops import products
from madbench.store.reading import Run
from madbench.store.runs import Store
from sample_jobs import mad_job
from stored_samples import RECORD

FIRST, LAST = {"step": 1, "loss": 2.0, "seconds": 3.0}, {"step": 2, "loss": math.nan}


def make_job(seed=0):
    return mad_job(seed=seed)


def test_the_seed_decides_which_share_of_runs_is_drawn(tmp_path):
    store = Store.open(tmp_path / "results")
    for seed in range(20):
        store.finish(make_job(seed), RECORD)
    store.finish(make_job(20), Record("failed", error="out of memory"))
    repeatable = RepeatableRuns.from_store(store)
    drawn = [[run.job.id for (run,) in repeatable.draw(0.25, seed)] for seed in (0, 0, 1)]
    assert [len(ids) for ids in drawn] == [5, 5, 5]
    assert drawn[0] == drawn[1] != drawn[2]
    assert repeatable.left_out == {"failed": 1}
    assert make_job(20).id not in {run.job.id for (run,) in repeatable.draw(1, 0)}


def test_seeds_that_shared_a_step_are_drawn_as_whole_groups(tmp_path):
    store = Store.open(tmp_path / "results")
    for seed in range(6):
        store.finish(make_job(seed), replace(RECORD, details=RECORD.details | {"group": 3}))
    store.finish(make_job(6), RECORD)
    groups = RepeatableRuns.from_store(store).groups
    assert sorted([run.job.seed for run in group] for group in groups) == [[0, 1, 2], [3, 4, 5], [6]]
    assert [[run.job.seed for run in group] for group in RepeatableRuns.from_store(store, alone=True).groups] == [[6]]
    store.finish(make_job(7), replace(RECORD, details=RECORD.details | {"group": 3}))
    repeatable = RepeatableRuns.from_store(store)
    assert repeatable.count == 1 and repeatable.left_out.total() == 7


def test_a_run_is_trained_again_in_the_group_that_its_record_lists(tmp_path):
    store, jobs = Store.open(tmp_path / "results"), [make_job(seed) for seed in range(5)]
    ids = [jobs[seed].id for seed in (3, 0, 1)]
    whole, parted = {"from_step": 0, "ids": ids}, {"from_step": 0, "ids": [jobs[2].id, jobs[4].id]}
    later, alone = {"from_step": 5, "ids": ids[1:]}, {"from_step": 5, "ids": [jobs[2].id]}
    for job, steps, history in [
        (jobs[3], 5, [whole]),
        (jobs[0], 9, [whole, later]),
        (jobs[1], 9, [whole, later]),
        (jobs[2], 9, [parted, alone]),  # the other one was not over
        (jobs[4], 9, [parted]),
    ]:
        details = {"group": len(history[0]["ids"]), "group_jobs": history, "steps": steps}
        store.finish(job, replace(RECORD, details=RECORD.details | details))
    repeatable = RepeatableRuns.from_store(store)
    assert [[run.job.seed for run in group] for group in repeatable.groups] == [[3, 0, 1]]
    assert repeatable.left_out.total() == 2


@pytest.mark.parametrize(
    ("again", "difference"),
    [
        (Record("finished", {"loss": 1.5, "nothing": math.nan}), 0.5),
        (Record("finished", {"loss": 1.0, "nothing": math.nan}), 0),
        (Record("finished", {"loss": 1.0}), math.inf),
        (Record("finished", {"loss": 1.5, "nothing": 0.0}), math.inf),
        (Record("finished", {"loss": math.nan, "nothing": math.nan}), math.inf),
        (Record("diverged", {"loss": 1.0, "nothing": math.nan}), math.inf),
    ],
)
def test_the_difference_of_a_repeated_run_is_the_largest_over_its_metrics(again, difference, tmp_path):
    run = Run(make_job(), Record("finished", {"loss": 1.0, "nothing": math.nan}), tmp_path)
    assert RepeatedRun(run, again).difference == difference


@pytest.mark.parametrize(
    ("again", "change"),
    [
        ([FIRST | {"seconds": 9.0}, LAST], ""),
        ([FIRST | {"loss": 2.5}, LAST], "row 1 of the curve: loss 2.0, again 2.5"),
        ([FIRST, LAST | {"score": 1.0}], "row 2 of the curve: score None, again 1.0"),
        ([FIRST], "a curve of 2 rows, again 1"),
    ],
)
def test_curves_of_repeated_runs_are_compared_without_times(again, change, tmp_path):
    run = Run(make_job(), Record("finished", {"loss": 1.0}, [FIRST, LAST]), tmp_path)
    repeat = RepeatedRun(run, Record("finished", {"loss": 1.0}, again))
    assert repeat.change == change and repeat.difference == 0
    assert rows_by_task([repeat])[0]["equal"] == (not change)


def test_runs_whose_records_name_no_library_are_trained_with_mkl(tmp_path, monkeypatch):
    stored, new, libraries = Store.open(tmp_path / "stored"), Store.open(tmp_path / "new"), {}
    stored.finish(make_job(0), RECORD)
    stored.finish(make_job(1), replace(RECORD, details=RECORD.details | {DETAIL: "oneDNN for large products"}))
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(again, "ONEDNN_IS_FASTER", products.onednn_is_faster)

    def run_here(groups, store, training, *_, **__):
        for (job,) in groups:
            training([job])
            store.finish(job, RECORD)

    def train(jobs, **_):
        libraries[jobs[0].seed] = products.onednn_is_faster()

    monkeypatch.setattr(again, "run_jobs", run_here)
    monkeypatch.setattr(again, "train", train)
    again.repeat(RepeatableRuns.from_store(stored).groups, new, slots=1)
    assert libraries == {0: False, 1: True}
