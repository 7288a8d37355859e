"""Runs stored in the page by column are read back unchanged."""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.jobs import Record
from madbench.report.runs import MOST_POINTS, ReportedRun, data_column, run_columns, thin_curve
from sample_jobs import language_job, mad_job


def value_at(data_column, i):
    if isinstance(data_column, list):
        return data_column[i]
    return data_column["values"][data_column["index"][i] if "index" in data_column else 0]


def reported_run(seed: int, **details) -> ReportedRun:
    record = Record("finished", {"accuracy": seed / 3, "flag": float(seed % 2)}, [], details)
    return ReportedRun(mad_job(seed=seed), record, True, ["run", "-t", "compression"], "baseline")


def test_data_columns_keep_every_value_of_the_runs():
    runs = [reported_run(seed, **({"odd": {"is": True}} if seed % 2 else {}), same="x") for seed in range(9)]
    runs.append(ReportedRun(mad_job("S-c"), None, False, [], ""))
    columns = run_columns(runs)
    assert columns["fidelity"] == {"values": ["corrected"]}
    assert isinstance(columns["id"], list) and "index" in columns["details.odd"] and "index" in columns["label"]
    for i, run in enumerate(runs):
        assert value_at(columns["id"], i) == run.job.id
        assert value_at(columns["status"], i) == ("missing" if run.record is None else "finished")
        accuracy = run.record and run.record.metrics["accuracy"]
        assert value_at(columns["metrics.accuracy"], i) == (accuracy and pytest.approx(accuracy, rel=1e-5))
        assert value_at(columns["details.odd"], i) == ({"is": True} if i % 2 and run.record else None)


def test_runs_of_both_suites_stand_beside_each_other():
    model = ReportedRun(language_job(), Record("finished", {"loss_l5": 2.34567}), True, ["lm"], "")
    columns = run_columns([reported_run(0), model])
    assert columns["result"] == ["0.0%", "2.346"]
    assert value_at(columns["training"], 1)["tokens_per_step"] == 64
    assert value_at(columns["metrics.accuracy"], 1) is None


def test_data_columns_keep_the_types_of_one_true_and_nan():
    values = [1, True, 1.0, "1", math.nan, math.inf, None, "nan"]
    found = [value_at(data_column(values), i) for i in range(len(values))]
    assert found == [1, True, 1.0, "1", "nan", "inf", None, "nan"]
    assert [type(value) for value in found[:3]] == [int, bool, float]


def test_large_integers_reach_a_script_with_all_their_digits():
    assert data_column([{"seeds": {"init": 2**62 + 1, "order": 3}}]) == {
        "values": [{"seeds": {"init": str(2**62 + 1), "order": 3}}]
    }


@pytest.mark.slow
@given(st.lists(st.floats(width=64) | st.none(), min_size=1))
def test_numbers_of_a_column_have_six_digits(values):
    for i, value in enumerate(values):
        short = value_at(data_column(values), i)
        if value is None or not math.isfinite(value):
            assert short == (value if value is None else str(value))
        else:
            assert short == pytest.approx(value, rel=1e-5)


@pytest.fixture
def thin(tmp_path):
    def call(content: str):
        path = tmp_path / "curve.csv"
        path.write_bytes(content.encode(errors="surrogateescape"))
        return thin_curve(path)

    return call


@pytest.mark.parametrize("count", [1, 2, MOST_POINTS, MOST_POINTS + 1, 1000])
def test_a_thin_curve_has_the_first_and_the_last_row(thin, count):
    lines = ["epoch,step,train_loss", *(f"{i},{10 * i},{1 / (i + 1)!r}" for i in range(count))]
    found = thin("\n".join(lines))
    assert len(found["step"]) == min(count, MOST_POINTS)
    assert (found["step"][0], found["step"][-1]) == (0, 10 * (count - 1))
    assert found["train_loss"][-1] == pytest.approx(1 / count, rel=1e-3)


def test_a_row_that_was_cut_short_does_not_shift_the_others(thin):
    found = thin("step,train_loss,x\n1,3.0,1\n2,2.0\n3,1.0,1,9\n4,0.5,1\n")
    assert found == {"step": [1, 4], "train_loss": [3.0, 0.5]}


def test_thinned_curves_leave_out_rows_without_evaluation_and_values_that_are_not_finite(thin):
    found = thin("step,train_loss,validation_token_accuracy\n1,2.0,\n2,nan,0.300049\n3,1.0,inf\n")
    assert found == {"step": [2, 3], "train_loss": [None, 1.0], "validation_token_accuracy": [0.3, None]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\n",
        "step,train_loss\n",
        "step,other\n1,2\n",
        "step,train_loss\n1\n",
        "step,train_loss\n1,x\n",
        "\udcff",
        "step," + "x" * 2**18,
    ],
)
def test_an_unreadable_curve_is_empty(thin, content):
    assert thin(content) == {}


def test_a_run_without_a_regular_file_has_no_curve(tmp_path):
    assert thin_curve(tmp_path / "curve.csv") == {}
    os.mkfifo(tmp_path / "curve.csv")  # reading would wait for ever
    assert thin_curve(tmp_path / "curve.csv") == {}
