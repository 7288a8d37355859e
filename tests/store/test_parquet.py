"""Parquet tables hold what the store holds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from madbench.jobs import Record
from madbench.store.parquet import to_one_type, write_parquet
from madbench.store.runs import Store
from stored_samples import RECORD, make_job

parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def tables(tmp_path) -> dict[str, list[dict]]:
    store = Store.open(tmp_path / "results")
    corpus = {"name": "mine", "folder": "/home/somebody/mine"}
    store.finish(make_job(0), replace(RECORD, details={"corpus": corpus, "ranks": {"qk": 8}}))
    store.finish(make_job(1, "S"), Record("diverged", {"test_loss": math.nan}, error="loss was not finite"))
    store.measure(make_job(0).id, "evaluation", {"loss": 1.5, "bits": 2}, settings={"seq_len": 32})
    write_parquet(store, store.job_ids(), tmp_path / "out")
    return {path.stem: parquet.read_table(path).to_pylist() for path in (tmp_path / "out").iterdir()}


def test_a_run_is_a_row_of_its_job_metrics_and_provenance(tables):
    rows = {row["id"]: row for row in tables["runs"]}
    first, second = rows[make_job(0).id], rows[make_job(1, "S").id]
    assert (first["label"], first["seed"]) == ("G-cg-q-12o", 0)
    assert (first["setting.seq_len"], first["mixer.mix_rank"]) == (32, 8)
    assert (first["metrics.test_accuracy"], first["details.ranks.qk"], first["error"]) == (0.75, 8, None)
    assert (second["status"], second["error"], second["details.ranks.qk"]) == ("diverged", "loss was not finite", None)
    assert math.isnan(second["metrics.test_loss"]) and second["metrics.test_accuracy"] is None
    assert first["details.corpus.name"] == "mine" and "somebody" not in repr(tables)


def test_curves_and_measurements_join_by_id(tables):
    name = make_job(0).id
    assert tables["curves"] == [
        {"id": name, "epoch": 1, "train_loss": 2.5, "validation_loss": None},
        {"id": name, "epoch": 2, "train_loss": 1.25, "validation_loss": 3.0},
    ]
    measured = {(row["id"], row["measurement"], row["name"]): row["value"] for row in tables["measurements"]}
    assert measured == {(name, "evaluation", "loss"): 1.5, (name, "evaluation", "bits"): 2.0}
    assert {row["settings"] for row in tables["measurements"]} == {'{"seq_len": 32}'}


def test_values_of_a_parquet_column_are_converted_to_one_type():
    assert to_one_type([1, None, 2.5]) == [1.0, None, 2.5] and to_one_type([True, None]) == [True, None]
    assert to_one_type([2**62, 1]) == [2**62, 1] and to_one_type([2**64, 1]) == [float(2**64), 1.0]
    assert to_one_type([1, "auto", [1, 2]]) == ["1", "auto", "[1, 2]"]


def test_a_failed_export_leaves_nothing(tmp_path):
    store = Store.open(tmp_path / "results")
    store.finish(make_job(0), RECORD)
    (tmp_path / "out" / "mine").mkdir(parents=True)
    with pytest.raises(Exception, match="out"):
        write_parquet(store, store.job_ids(), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "results"]
