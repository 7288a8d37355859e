"""The comparison of two labels: the test over seeds, notes on budgets, verdicts and equivalence."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from madbench.analysis.comparison import comparison_table
from madbench.analysis.inference import BOTH_SOLVE, NEITHER_LEARNED, holm
from madbench.analysis.quantities import interval_text
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from references import interval_of, p_of, terms
from score_frames import frame_of_losses, frame_of_scores


def by_quantity(table, label="R"):
    return {row.quantity: row for row in table.rows if row.label == label}


def test_a_comparison_has_the_difference_interval_and_p_of_the_test_over_seeds():
    values = {"S": [50.0, 51.0, 53.0], "R": [60.0, 61.0, 60.5, 62.0]}
    (row,) = comparison_table("S", ["R"], frame_of_scores(values)).rows
    sides = terms(values["R"]), terms(values["S"])
    assert row.difference.estimate == pytest.approx(np.mean(values["R"]) - np.mean(values["S"]))
    expected = interval_of(row.difference.estimate, sides)
    assert (row.difference.low, row.difference.high) == pytest.approx(expected)
    assert row.difference.p == row.p_holm == pytest.approx(p_of(row.difference.estimate, sides))
    assert (row.difference.n, row.verdict) == (3, "higher")
    (turned,) = comparison_table("R", ["S"], frame_of_scores(values)).rows
    assert turned.verdict == "lower" and turned.difference.estimate == -row.difference.estimate


def test_notes_explain_lower_is_better_only_if_a_column_needs_it():
    values = {"S": [50.0, 51.0, 52.0], "R": [60.0, 62.0, 61.0]}
    assert "Lower is better" not in comparison_table("S", ["R"], frame_of_scores(values)).notes


def budget_text(**ratios: float) -> str:
    """The sentence of the caption on labels with these budgets. The first one is the baseline."""
    frame = frame_of_scores({label: [50.0, 51.0, 52.0] for label in ratios})
    frame = frame.assign(budget_ratio=frame.label.map(ratios))
    baseline, *others = ratios
    return comparison_table(baseline, others, frame).caption.partition("p: Holm-corrected.")[2]


def test_a_caption_names_labels_with_another_budget_than_the_baseline():
    text = " Budgets differ: R 1.230, S 1.000 times the parameters of softmax attention."
    assert budget_text(S=1.0, R=1.23) == text
    assert budget_text(S=1.0, R=1.23, G=0.99) == text  # the third is matched
    assert budget_text(R=1.23, G=1.24, S=1.0) == text.replace("R 1.230, S 1.000", "S 1.000, R 1.230")
    assert "R 0.800" in budget_text(S=1.0, R=0.8)
    assert budget_text(S=1.0, R=0.91) == budget_text(S=1.23, R=1.238) == ""


def test_a_label_with_another_budget_than_the_baselines_is_marked_in_its_row_and_in_records():
    frame = frame_of_scores({label: [50.0, 51.0, 52.0] for label in ("S", "R", "G")})
    table = comparison_table(
        "S", ["R", "G"], frame.assign(budget_ratio=frame.label.map({"S": 1.0, "R": 1.26, "G": 1.0}))
    )
    assert [line[:2] for line in table.lines if line[0] in ("R", "G")] == [["R", "budget 1.260"], ["G", ""]]
    budgets = {record["label"]: (record["budget_ratio"], record["budgets_differ"]) for record in table.json_rows()}
    assert budgets == {"R": (1.26, True), "G": (1.0, False)}
    assert {record["baseline_budget_ratio"] for record in table.json_rows()} == {1.0}


def test_budgets_of_two_suites_are_not_averaged():
    values = {"S": [5.0, 5.1, 5.2], "R": [5.0, 5.2, 5.3]}
    frame = pd.concat([frame_of_scores(values), frame_of_losses(values)])
    frame["budget_ratio"] = [
        1.0 if x == "S" else 1.23 if suite == "mad" else 1.63 for x, suite in zip(frame.label, frame.suite)
    ]
    caption = comparison_table("S", ["R"], frame).caption
    assert "R 1.230, S 1.000 times" in caption and "R 1.630, S 1.000 times" in caption


@pytest.mark.slow
def test_false_positives_of_equal_labels_stay_at_the_error_level():
    rng = np.random.default_rng(1)
    false_verdicts = 0
    for _ in range(20):
        frames = [
            frame_of_scores({label: rng.normal(50, 3, 5).tolist() for label in "SR"}, [task]) for task in MAD_TASKS[:3]
        ]
        verdicts = {row.verdict for row in comparison_table("S", ["R"], pd.concat(frames)).rows}
        false_verdicts += verdicts != {"not significant"}
    assert false_verdicts <= stats.binom.ppf(0.999, 20, 0.05)


@pytest.mark.parametrize(
    "values, verdict",
    [
        ({"S": [20.0, 21.0, 22.0], "R": [99.0, 99.0, 99.0]}, "higher"),
        ({"S": [99.0, 99.0, 99.0], "R": [20.0, 21.0, 22.0]}, "lower"),
        ({"S": [60.0, 61.0, 62.0], "R": [math.nan] * 3}, "lower"),
        ({"S": [99.0, 20.0, 99.0], "R": [99.0, 99.0, 99.0]}, "not significant"),
        ({"S": [99.0, 99.0, 99.0], "R": [100.0, 100.0, 100.0]}, BOTH_SOLVE),
        ({"S": [4.0, 4.1, 4.2], "R": [4.3, 4.4, 4.5]}, NEITHER_LEARNED),
        ({"S": [50.0, 50.0, 50.0], "R": [80.0, 80.0, 80.0]}, "higher"),
        ({"S": [50.0, 50.1], "R": [60.0, 60.1]}, "two seeds"),
        ({"S": [10.0], "R": [90.0, 91.0, 92.0]}, "single seed"),
    ],
)
def test_a_verdict_is_higher_lower_not_significant_or_a_reason(values, verdict):
    (row,) = comparison_table("S", ["R"], frame_of_scores(values)).rows
    assert row.verdict == verdict
    assert math.isnan(row.p_holm) == (verdict not in ("higher", "lower", "not significant"))


def test_the_row_of_the_average_counts_only_seeds_with_all_tasks():
    frame = frame_of_scores({"S": [50.0, 51.0, 52.0], "R": [60.0, 61.0, 63.0]}, MAD_TASKS)
    rows = by_quantity(comparison_table("S", ["R"], frame))
    assert list(rows) == [*MAD_TASKS, MAD_AVERAGE] and rows[MAD_AVERAGE].difference.n == 3
    without = frame[~((frame.seed == 2) & (frame.column.isin(["memorization", MAD_AVERAGE])))]
    rows = by_quantity(comparison_table("S", ["R"], without))
    assert (rows[MAD_AVERAGE].verdict, rows["memorization"].verdict) == ("two seeds", "two seeds")
    assert rows["compression"].difference.n == 3


def test_an_unfinished_seed_does_not_count_and_a_diverged_one_counts_at_chance():
    frame = frame_of_scores({"S": [50.0, 51.0, 52.0, 50.0], "R": [51.0, 52.0, 53.0, math.nan]})
    frame.loc[(frame.label == "S") & (frame.seed == 0), "expected"] = 2
    (row,) = comparison_table("S", ["R"], frame).rows
    assert (row.sample.n, row.of_baseline.n, row.difference.n) == (4, 3, 3)
    assert row.difference.estimate == pytest.approx((51 + 52 + 53 + 4) / 4 - 51)
    assert row.difference.p > 0.05


def test_a_column_that_one_label_lacks_is_left_out():
    frame = pd.concat([frame_of_scores({"S": [50.0], "R": [51.0]}), frame_of_scores({"S": [50.0]}, ["memorization"])])
    assert list(by_quantity(comparison_table("S", ["R"], frame))) == ["compression"]


def test_a_comparison_of_single_seeds_has_a_difference_and_no_verdict():
    table = comparison_table("S", ["R"], frame_of_scores({"S": [10.0], "R": [90.0]}))
    _, (label, line) = table.text_rows()
    assert label == ["R", "", "", "", "", ""]
    assert line == ["  Compr.", "0/1:0/1", "+80.0", "", "", "single seed"]
    (record,) = table.json_rows()
    assert record["estimate"] == 80.0 and record["low"] is record["p"] is record["p_holm"] is None


def test_comparisons_of_losses_have_the_verdict_lower():
    values = [2.0, 2.03, 2.01, 2.02]
    frames = [
        frame_of_losses({"S": values, "R": [x - 0.1 for x in values], "G": [3.0, math.nan]}, column=name)
        for name in ("loss_l5", "validation_loss")
    ]
    table = comparison_table("S", ["R", "G"], pd.concat(frames))
    rows = by_quantity(table)
    assert list(rows) == ["loss_l5", "validation_loss"]
    assert {row.verdict for row in rows.values()} == {"lower"}
    assert rows["loss_l5"].difference.estimate == pytest.approx(-0.1)
    assert {row.verdict for row in comparison_table("R", ["S"], pd.concat(frames)).rows} == {"higher"}
    assert by_quantity(table, "G")["loss_l5"].sample.mean == (3.0 + 5.0) / 2
    assert "Lower is better" in table.notes
    assert {record["unit"] for record in table.json_rows()} == {"nats_per_token"}


def test_p_values_of_a_comparison_are_adjusted_over_all_tested_rows():
    rng = np.random.default_rng(2)
    labels = ("S", "R-c", "G-c")
    of_tasks = frame_of_scores({label: rng.normal(50 + 5 * len(label), 2, 4).tolist() for label in labels})
    of_text = frame_of_losses({label: rng.normal(2, 0.1, 4).tolist() for label in labels})
    untested = frame_of_scores({label: [100.0] * 4 for label in labels}, ["memorization"])
    table = comparison_table("S", ["R-c", "G-c"], pd.concat([of_tasks, of_text, untested]))
    assert [(row.label, row.quantity) for row in table.rows] == [
        (label, name) for label in ("R-c", "G-c") for name in ("compression", "memorization", "loss_l5")
    ]
    adjusted = holm([row.difference.p for row in table.rows])
    assert [row.p_holm for row in table.rows] == pytest.approx(adjusted, nan_ok=True)
    assert max(row.p_holm / row.difference.p for row in table.rows if row.difference.test) == pytest.approx(4)
    assert "for 4 tests" in table.notes


def test_notes_begin_with_the_protocol_and_say_how_rows_are_tested():
    notes = comparison_table(
        "S", ["R"], frame_of_scores({"S": [50.0, 51.0], "R": [60.0, 61.0]}), ["Profile pico."]
    ).notes
    assert notes.startswith("Profile pico. Each seed is one observation")
    words = ("Student's t", "the same for every profile", "for 0 tests", "at least 3 seeds")
    assert all(each in notes for each in words)


def test_text_and_records_of_a_comparison_have_equal_values():
    frame = pd.concat(
        [
            frame_of_scores({"S": [50.0] * 5, "R": [51.0, 53.0, 55.0, 57.0, 59.0]}),
            frame_of_scores({"S": [20.0] * 5, "R": [99.0] * 5}, ["memorization"]),
            frame_of_losses({"S": [2.0], "R": [2.125]}),
        ]
    )
    table = comparison_table("S", ["R"], frame)
    headings, (_, *lines) = table.text_rows()
    assert headings == ["Label", "Solved", "Difference", "95% interval", "p", "Verdict"]
    assert "Solved: seeds that solve the task, label:baseline" in table.caption
    level, exact, loss = table.json_rows()
    assert lines[0][:3] == ["  Compr.", "0/5:0/5", "+5.0"]
    assert lines[0][3] == interval_text(table.rows[0].difference, "compression") and level["low"] < 5 < level["high"]
    assert lines[1][1:3] == ["5/5:0/5", "+79.0"] and (exact["solved"], exact["baseline_solved"]) == (5, 0)
    assert lines[2] == ["  L5 loss", "n=1", "+0.125", "", "", "single seed"] and loss["solved"] is None
    assert [record["verdict"] for record in table.json_rows()] == [line[-1] for line in lines]
    assert r"\quad Compr. & 0/5:0/5 & +5.0" in table.to_latex()
