"""``madbench archive`` and ``madbench import`` of runs as an archive or as Parquet tables."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from madbench.jobs import Record
from madbench.store.runs import Store


@pytest.fixture
def main_with_runs(main, fill, store):
    fill(["S", "R-cg-q"], seeds=(0, 1))
    return main


@pytest.mark.slow
def test_archive_and_import_restore_the_whole_store(main_with_runs, store):
    packed = main_with_runs("archive")
    assert packed.code == 0
    assert packed.stdout.splitlines()[0].startswith("results.tar.xz: 8 runs, ")
    assert packed.stdout.splitlines()[1] == "read it with: madbench import results.tar.xz"
    added = main_with_runs("import", "results.tar.xz", "--results", "theirs")
    assert (added.code, added.stdout) == (0, "theirs: 8 runs of results.tar.xz added\n")
    assert Store("theirs").jobs() == store.jobs()
    again = main_with_runs("import", "results.tar.xz", "--results", "theirs")
    assert again.stdout == "theirs: 0 runs of results.tar.xz added\n8 stored before with the same numbers\n"


@pytest.mark.slow
def test_labels_and_options_choose_the_archived_runs_as_in_table(main_with_runs, tiny):
    main_with_runs("archive", "S", "-p", tiny, "-t", "compression", "--output", "s.tar.xz")
    main_with_runs("import", "s.tar.xz", "--results", "theirs")
    assert {(job.label, job.task) for job in Store("theirs").jobs().values()} == {("S", "compression")}
    table, theirs = (
        main_with_runs("table", "S", "-p", tiny, "-t", "compression", "--results", r) for r in ("results", "theirs")
    )
    assert table.stdout.replace("results", "") == theirs.stdout.replace("theirs", "")


@pytest.mark.slow
def test_a_failed_run_stays_out_and_a_store_without_results_is_named(main, fill, store):
    fill("S")
    for job in store.jobs().values():
        store.finish(replace(job, seed=7), Record("failed", error="out of memory"))
    assert main("archive").stdout.startswith("results.tar.xz: 2 runs, ")
    failed = Store.open("failed")
    failed.finish(job, Record("failed", error="out of memory"))
    assert "no run has a result" in main("archive", "--results", "failed").stderr


def test_import_keeps_stored_runs_with_other_numbers_and_counts_them(main_with_runs, store):
    main_with_runs("archive")
    for job in list(store.jobs().values())[:3]:
        record = store.read(job.id).record
        store.finish(job, replace(record, metrics=record.metrics | {"accuracy": 0.75}), replace=True)
    out = main_with_runs("import", "results.tar.xz").stdout.splitlines()
    assert out[1:3] == [
        "5 stored before with the same numbers",
        "3 stored before with other numbers, which stay as they are",
    ]
    assert "--results FOLDER" in out[3]


def test_the_default_budget_chooses_runs_if_it_is_given(main, fill):
    for budget in ("strict", "paper"):
        fill("S", profile="evening", budget=budget)
    for folder, words, budgets in [("all", (), {"strict", "paper"}), ("some", ("--budget", "strict"), {"strict"})]:
        packed = main("archive", *words, "--output", f"{folder}.tar.xz")
        assert packed.code == 0, packed.stderr
        main("import", f"{folder}.tar.xz", "--results", folder)
        assert {job.budget for job in Store(folder).jobs().values()} == budgets


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["archive", "--output", "runs.zip"], "runs.zip: expected a name that ends in .tar.xz"),
        (["archive", "--import", "results.tar.xz"], "--import is now madbench import FILE"),
        (["import", "absent.tar.xz"], "absent.tar.xz: no such file or directory"),
        (["archive", "--results", "absent"], "absent: there is no such results folder"),
    ],
)
def test_archive_refuses_missing_runs_and_options_without_effect(main_with_runs, words, message):
    main_with_runs("archive")
    ended = main_with_runs(*words)
    assert ended.code == 2
    assert message in ended.stderr


def test_archive_replaces_an_existing_file_only_with_force(main_with_runs):
    main_with_runs("archive")
    assert "already exists" in main_with_runs("archive").stderr
    assert main_with_runs("archive", "--force").code == 0


def test_a_damaged_run_is_named_and_changes_the_exit_code_of_archive(main_with_runs, store):
    main_with_runs("archive", "--output", "all.tar.xz")
    damaged = store.root / "runs" / store.job_ids()[0] / "curve.csv"
    damaged.write_text("epoch\n1\n")
    ended = main_with_runs("archive", "--output", "rest.tar.xz")
    assert (ended.code, ended.stdout.splitlines()[0].split(",")[0]) == (0, "rest.tar.xz: 7 runs")
    assert "do not match their checksum" in ended.stderr


def test_archive_in_parquet_format_writes_tables_of_the_chosen_runs(main_with_runs, tiny):
    parquet = pytest.importorskip("pyarrow.parquet")
    words = ("archive", "S", "-p", tiny, "-t", "compression", "--format", "parquet", "--output", "tables")
    assert main_with_runs(*words).stdout == "tables: runs, curves and measurements of 2 runs\n"
    rows = parquet.read_table("tables/runs.parquet").to_pylist()
    assert {(row["label"], row["task"], row["seed"]) for row in rows} == {("S", "compression", s) for s in (0, 1)}
    assert "tables: already exists" in main_with_runs(*words).stderr
    assert "--weights has no effect with --format parquet" in main_with_runs(*words, "--weights").stderr


def test_an_archive_that_cannot_be_used_leaves_no_results_folder(main_with_runs, tmp_path):
    main_with_runs("archive", "--output", "all.tar.xz")
    content = Path("all.tar.xz").read_bytes()
    Path("short.tar.xz").write_bytes(content[: len(content) // 2])
    Path("empty.tar.xz").touch()
    for name in ("absent", "short", "empty"):
        assert main_with_runs("import", f"{name}.tar.xz", "--results", "a/new").code == 2
        assert not Path("a").exists()
    Path("there").mkdir()
    assert main_with_runs("import", "short.tar.xz", "--results", "there").code == 2 and Path("there").exists()
    assert main_with_runs("import", "all.tar.xz", "--results", "a/new").code == 0 and len(os.listdir("a/new/runs")) == 8
