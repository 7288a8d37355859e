"""Numbers that are read from a loss curve: final loss, steps to a threshold, and loss at equal time."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawings import FIGURES
from madbench.analysis.figures.files import write_frame
from madbench.config import PAPERS
from madbench.errors import ConfigError, StoreError
from madbench.jobs import Record
from madbench.suites.columns import loss_l5
from madbench.suites.language.curves import common_seconds, loss_curves, run_losses, steps_to, thresholds_above
from madbench.suites.scoring import CURVES

NAN = float("nan")


def test_l5_is_the_mean_of_the_last_five_evaluations():
    assert loss_l5([9.0, 5.0, 4.0, 3.0, 2.0, 1.0]) == 3.0


def test_l5_of_fewer_evaluations_is_the_mean_of_all():
    assert loss_l5([4.0, 2.0]) == 3.0 and math.isnan(loss_l5([]))


def test_steps_to_a_loss_are_those_of_the_first_evaluation_strictly_below_it():
    evaluated = [{"step": 500 * i, "train_loss": loss} for i, loss in enumerate([3.5, 3.0, 2.9, 3.1, 2.8], 1)]
    assert [steps_to(evaluated, x) for x in (3.6, 3.0, 2.9)] == [500, 1500, 2500]
    assert math.isnan(steps_to(evaluated, 2.8))


def test_the_thresholds_of_the_papers_losses_are_3_3_to_3_0():
    with open(PAPERS / "hypermlp" / "table1.csv", newline="") as file:
        best = min(float(row["nanogpt_loss_l5"]) for row in csv.DictReader(file))
    assert thresholds_above(best) == (3.3, 3.2, 3.1, 3.0)


@given(st.floats(0.0, 20.0))
def test_the_last_threshold_is_the_next_tenth_above_the_lowest_loss(lowest):
    thresholds = thresholds_above(lowest)
    tenths = [round(10 * x) for x in thresholds]
    assert list(thresholds) == [n / 10 for n in tenths]
    assert tenths == [tenths[3] + above for above in (3, 2, 1, 0)]
    assert (tenths[3] - 1) / 10 <= lowest < tenths[3] / 10


@pytest.mark.parametrize("lowest", [NAN, math.inf, -math.inf, 1e17, 1e300, 1.7e308])
def test_an_absurd_lowest_loss_has_no_thresholds(lowest):
    assert thresholds_above(lowest) == ()


def test_the_numbers_of_a_run_come_from_its_curve_and_not_from_its_metrics(language_run):
    run = language_run("S-p", [4.0, 3.0, 2.0, 2.0, 2.0, 1.0], seconds=10.0, seed=3)
    run = replace(run, record=replace(run.record, metrics={"loss_l5": 9.0, "validation_loss": 9.0}))
    (row,) = run_losses([run], [2.5, 0.5])
    assert row == {
        "loss_l5": 2.0, "validation_loss": 1.1, "validation_bits_per_byte": 2.2, "equal_time_validation_loss": 1.1,
        "steps_to_2.5": 30.0, "steps_to_0.5": pytest.approx(NAN, nan_ok=True), "tokens_per_second": 64.0,
        "perplexity": pytest.approx(math.exp(1.1)), "perplexity_l5": pytest.approx(math.exp(2.1)),
    }  # fmt: skip


def equal_time(runs) -> list[float]:
    return [row["equal_time_validation_loss"] for row in run_losses(runs, [])]


def test_equal_time_is_the_shortest_time_of_finished_runs(language_run):
    fast = language_run("S", [3.0, 2.0, 1.0], seconds=1.0)
    slow = language_run("R", [3.0, 2.0, 1.0], seconds=1.6)
    stopped = language_run("G", [3.0], seconds=0.1, status="diverged")
    assert common_seconds([fast, slow, stopped]) == 3.0
    losses = equal_time([fast, slow, stopped])
    assert losses[:2] == [1.1, 3.1]
    assert math.isnan(losses[2]) and math.isnan(common_seconds([stopped]))


def test_an_evaluation_at_the_very_end_of_equal_time_counts(language_run):
    runs = [language_run("S", [3.0, 2.0], seconds=2.0), language_run("R", [3.0, 2.5, 2.0, 1.5], seconds=1.0)]
    assert equal_time(runs) == [2.1, 1.6]


def test_a_run_not_evaluated_within_equal_time_has_no_loss_at_equal_time(language_run):
    runs = [language_run("S", [3.0, 2.0], seconds=1.0), language_run("R", [3.0, 2.0], seconds=9.0)]
    assert math.isnan(equal_time(runs)[1])


def test_a_diverged_run_has_steps_but_no_losses(language_run):
    (row,) = run_losses([language_run("S", [3.0, 2.0], status="diverged")], [2.5])
    assert row.pop("steps_to_2.5") == 20 and row.pop("tokens_per_second") == 320
    assert all(map(math.isnan, row.values()))


def test_a_run_that_diverged_before_its_first_row_is_a_row_without_numbers(language_run):
    runs = [language_run("S"), language_run("R", [], status="diverged")]
    assert all(map(math.isnan, run_losses(runs, [2.5])[1].values()))


def test_the_long_form_has_every_row_of_every_curve(language_run):
    runs = [language_run("S", [3.0, 2.0]), language_run("R", [2.5], seed=1, status="diverged")]
    frame = loss_curves(runs)
    assert list(frame.columns) == list(CURVES)
    assert frame.label.tolist() == ["S"] * 4 + ["R"] * 2 and frame.id.iloc[0] == runs[0].job.id
    assert frame.step.tolist() == [5, 10, 15, 20, 5, 10]
    assert frame.evaluation.fillna(0).tolist() == [0, 1, 0, 2, 0, 1]
    assert frame.step_loss.tolist() == [3.0, 3.0, 2.0, 2.0, 2.5, 2.5]
    assert frame.status.iloc[-1] == "diverged" and frame.seed.iloc[-1] == 1
    (protocol,) = frame.protocol.unique()
    assert protocol.startswith("corpus shelf (c0ffee01), profile gpt2 model.d_model=16 model.n_layer=1")


def test_curves_survive_the_csv_bit_for_bit(language_run, tmp_path):
    losses = [10 / 3, math.pi, 1e-17 + 0.1, NAN, math.inf]
    frame = loss_curves([language_run("R-12o!", losses, seconds=1 / 3), language_run("S", [])])
    write_frame(frame, tmp_path / "new" / "curves.csv")
    pd.testing.assert_frame_equal(FIGURES["loss"].read(tmp_path / "new" / "curves.csv"), frame, check_exact=True)


def test_loss_curves_of_no_runs_are_an_empty_frame():
    assert loss_curves([]).empty


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no loss curves: No columns to parse"),
        (b"label,step\nS,1\n", "no loss curves: without column 'protocol'"),
        (b"\xff\xfe\x00", "no loss curves: 'utf-8' codec can't decode"),
        ((",".join(CURVES) + "\n" + ",".join("a" * len(CURVES)) + "\n").encode(), "no loss curves: .*'a'"),
    ],
)
def test_a_file_without_curves_is_named(tmp_path, content, problem):
    (tmp_path / "curves.csv").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"curves\.csv: {problem}"):
        FIGURES["loss"].read(tmp_path / "curves.csv")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.csv: cannot be read: No such file"):
        FIGURES["loss"].read(tmp_path / "none.csv")


def test_a_file_where_a_folder_should_be_is_a_store_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="a file is where a folder should be"):
        write_frame(loss_curves([]), tmp_path / "taken" / "curves.csv")


def test_a_stored_run_returns_its_loss_curve_exactly(language_run, tmp_path):
    from madbench.store.runs import Store

    run = language_run("S", [10 / 3, math.pi])
    store = Store.open(tmp_path)
    store.finish(run.job, run.record)
    failed = language_run("R", [1.0])
    store.finish(failed.job, Record("failed", {}, failed.record.curve, {}, "out of memory"))
    (found,) = [run for run in store.runs(with_curves=False) if run.record.status == "finished"]
    assert found.job == run.job
    pd.testing.assert_frame_equal(loss_curves([store.read(found.job.id)]), loss_curves([run]), check_exact=True)
