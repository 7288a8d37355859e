"""Damaged runs: messages name the remedy, and a command says that it trains them again."""

from __future__ import annotations

import pytest

from madbench import plan
from madbench.execute.base import Policy
from madbench.execute.options import RunOptions
from madbench.jobs import Record

RUN = ("S", "-t", "compression")


@pytest.fixture
def damaged(fill, store) -> str:
    """The folder of a damaged run of S, the only one in the store."""
    fill("S", tasks=("compression",))
    (job_id,) = store.job_ids()
    (store.root / "runs" / job_id / "curve.csv").write_text("x\n")
    return f"results/runs/{job_id}"


def test_a_table_names_the_remedy_of_a_damaged_run_and_no_empty_folder(main, damaged, tiny):
    ended = main("table", "-p", tiny, "-t", "compression")
    warning, error = ended.stderr.splitlines()
    remedy = f"repeat the command that trained it, or delete {damaged}"
    assert warning == f"warning: {damaged}: the files do not match their checksum; {remedy}"
    found = "no runs of MAD tasks that can be read, and 1 of any suite that cannot; madbench validate --store says why"
    assert error.startswith(f"results: {found}; madbench run G-cg-q-12o")


def test_run_says_that_a_damaged_run_is_trained_again(main, damaged, executor, tiny):
    ended = main("run", *RUN, "-p", tiny)
    assert ended.code == 7 and len(executor.jobs) == 1
    note = f"1 stored run is damaged and trained again: {damaged}: the files do not match their checksum"
    assert note in ended.stderr


@pytest.mark.slow
def test_paper_says_that_a_damaged_run_is_trained_again(main, store, executor):
    words = ("paper", "interactions", "worlds", "-t", "colliding", "--device", "cpu")
    assert main(*words, "--yes").code == 7
    job = executor.jobs[0]
    store.finish(job, Record("failed", error="out of memory"))
    assert "damaged" not in main(*words, "--dry-run").stderr
    (store.root / "runs" / job.id / "curve.csv").write_text("x\n")
    note = f"1 stored run is damaged and trained again: results/runs/{job.id}: the files do not match their checksum"
    assert note in main(*words, "--dry-run").stderr


def test_only_damaged_runs_have_a_note(damaged, fill, tiny):
    notes = plan("S", tasks="compression", profile=tiny).notes_on_training(RunOptions(), Policy())
    assert [note.partition(":")[0] for note in notes] == ["1 stored run is damaged and trained again"]
    fill("S", tasks=("compression",))  # replaces it
    assert plan("S", tasks="compression", profile=tiny).notes_on_training(RunOptions(), Policy()) == []
