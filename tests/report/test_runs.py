"""Runs in columns: what is read back is what was stored."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.jobs import Job, Record
from madbench.report.runs import MOST_POINTS, ReportedRun, explanations, run_columns, thinned, thinned_curves


def field(columns, name, i):
    column = columns[name]
    if "all" in column:
        return column["all"]
    if "each" in column:
        return column["each"][i]
    index = column.get("index") or [place for place, length in column["lengths"] for _ in range(length)]
    return column["values"][index[i]]


def reported(seed: int, **details) -> ReportedRun:
    record = Record("finished", {"accuracy": seed / 3, "flag": float(seed % 2)}, [], details)
    job = Job("S", "compression", {"seq_len": 16}, seed=seed)
    return ReportedRun(job.id, job, record, ["-t", "compression"])


def test_a_column_keeps_every_value_in_its_place():
    runs = [reported(seed, **({"odd": {"is": True}} if seed % 2 else {}), same="x") for seed in range(9)]
    other = Job("S-c", "compression", {"seq_len": 16})
    runs.append(ReportedRun(other.id, other, None, []))
    columns = run_columns(runs)
    assert columns["fidelity"] == {"all": "corrected"}
    assert "each" in columns["id"] and "index" in columns["details.odd"] and "lengths" in columns["label"]
    for i, run in enumerate(runs):
        assert field(columns, "id", i) == run.id
        assert field(columns, "status", i) == ("missing" if run.record is None else "finished")
        accuracy = run.record and run.record.metrics["accuracy"]
        assert field(columns, "metrics.accuracy", i) == (accuracy and pytest.approx(accuracy, rel=1e-5))
        assert field(columns, "details.odd", i) == ({"is": True} if i % 2 and run.record else None)


def test_values_stay_with_their_runs_however_many_are_read_at_a_time(monkeypatch):
    some = [reported(i, steps=i // 3, text=f"{i // 2}", **({"late": i / 7} if i > 5 else {})) for i in range(12)]
    runs = [*some, ReportedRun("0", some[0].job, None, []), some[0]._replace(id="1")]
    whole = run_columns(runs)
    monkeypatch.setattr("madbench.report.runs._AT_A_TIME", 5)
    assert run_columns(runs) == whole
    assert [field(whole, "details.steps", i) for i in range(14)] == [*(i // 3 for i in range(12)), None, 0]
    assert [field(whole, "details.late", i) for i in range(5, 8)] == [None, pytest.approx(6 / 7), 1.0]


def test_a_row_that_was_cut_short_does_not_shift_the_others():
    content = "step,train_loss,x\n1,3.0,1\n2,2.0\n3,1.0,1,9\n4,0.5,1\n"
    assert thinned(content.encode(), ["train_loss"]) == {"step": [1, 4], "train_loss": [3.0, 0.5]}


def test_one_and_true_and_numbers_that_are_none_stay_apart():
    values = [1, True, 1.0, "1", math.nan, math.inf, None, "nan"]
    columns = run_columns([reported(i, x=value) for i, value in enumerate(values)])
    found = [field(columns, "details.x", i) for i in range(len(values))]
    assert found == [1, True, 1.0, "1", "nan", "inf", None, "nan"]
    assert [type(value) for value in found[:3]] == [int, bool, float]


@pytest.mark.parametrize("count", [1, 2, MOST_POINTS, MOST_POINTS + 1, 1000])
def test_a_thinned_curve_has_the_first_and_the_last_row(count):
    lines = ["epoch,step,train_loss", *(f"{i},{10 * i},{1 / (i + 1)!r}" for i in range(count))]
    thin = thinned("\n".join(lines).encode(), ["train_loss"])
    assert len(thin["step"]) == min(count, MOST_POINTS)
    assert (thin["step"][0], thin["step"][-1]) == (0, 10 * (count - 1))
    assert thin["train_loss"][-1] == pytest.approx(1 / count, rel=1e-3)


@pytest.mark.parametrize(
    "content",
    ["", "\n", "step,train_loss\n", "step,other\n1,2\n", "step,train_loss\n1\n", "step,train_loss\n1,x\n", "\udcff"],
)
def test_a_curve_without_what_is_drawn_is_empty(content):
    assert thinned(content.encode(errors="surrogateescape"), ["train_loss"]) == {}


def test_rows_that_are_no_evaluation_and_values_that_are_no_number_do_not_mislead(tmp_path):
    jobs = [Job("S", "compression", {}, seed=seed) for seed in range(3)]
    (tmp_path / jobs[1].id).mkdir()
    curve = "step,train_loss,validation_token_accuracy\n1,2.0,\n2,nan,0.300049\n3,1.0,inf\n"
    (tmp_path / jobs[1].id / "curve.csv").write_text(curve)
    found = thinned_curves(dict(enumerate(jobs)), tmp_path)
    assert found == {1: {"step": [2, 3], "train_loss": [None, 1.0], "validation_token_accuracy": [0.3, None]}}


def test_labels_are_explained_letter_by_letter():
    rows = explanations(["G-cg-q-12o"])["G-cg-q-12o"]
    assert [row[0] for row in rows] == ["G", "c", "g", "q", "1", "2", "o"]


def test_a_label_of_another_family_has_no_letters(monkeypatch):
    monkeypatch.setattr("madbench.report.runs.parse", lambda label: Path(label))
    assert explanations(["num:7"]) == {"num:7": []}


@given(st.lists(st.floats(width=64) | st.none(), min_size=3, unique=True))
def test_numbers_of_a_column_have_six_digits(values):
    found = run_columns([reported(i, x=value) for i, value in enumerate(values)])
    for i, value in enumerate(values):
        short = field(found, "details.x", i)
        if value is None or not math.isfinite(value):
            assert short == (value if value is None else str(value))
        else:
            assert short == pytest.approx(value, rel=1e-5)
