"""Curves with few points: those of the stored file."""

from __future__ import annotations

import pytest

from madbench.report.curves import MOST_POINTS, thin_curve


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


def test_rows_that_are_no_evaluation_and_values_that_are_no_number_do_not_mislead(thin):
    found = thin("step,train_loss,validation_token_accuracy\n1,2.0,\n2,nan,0.300049\n3,1.0,inf\n")
    assert found == {"step": [2, 3], "train_loss": [None, 1.0], "validation_token_accuracy": [0.3, None]}


@pytest.mark.parametrize(
    "content",
    ["", "\n", "step,train_loss\n", "step,other\n1,2\n", "step,train_loss\n1\n", "step,train_loss\n1,x\n", "\udcff"],
)
def test_a_curve_without_what_is_drawn_is_empty(thin, content):
    assert thin(content) == {}


def test_a_run_without_a_file_has_no_curve(tmp_path):
    assert thin_curve(tmp_path / "curve.csv") == {}
