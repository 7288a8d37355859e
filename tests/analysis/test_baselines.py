"""Tables of a grid: differences from the baseline, names of rows, captions and published numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from madbench.analysis.quantities import difference_text
from madbench.analysis.samples import differences_from
from madbench.analysis.scores import Results
from madbench.analysis.tables import TableOptions, result_table, result_tables
from madbench.errors import ConfigError
from madbench.rows import Grid, Row, SuiteRow
from madbench.store.runs import Store
from madbench.suites.addressing import parse_overrides
from protocols import language_protocol
from references import interval_of, loss_terms, terms
from score_frames import frame_of_scores

HEADINGS = ["Label", "In-ctx recall", "Budget", "n", "vs baseline"]


@pytest.fixture
def sweep_tables(grid_results):
    """``sweep_tables(labels, ...)``: the tables of a grid, with the differences from its baseline."""
    return lambda *labels, **keys: result_tables(grid_results(*labels, **keys), has_baseline=True)


def test_differences_from_the_baseline_are_of_means_with_their_interval():
    values = {"a": [10.0, 14.0, 18.0], "b": [12.0, 15.0, 20.0, None, 22.0]}
    found = differences_from(frame_of_scores(values, ["compression"]), "a")
    difference = found.pop(("b", "compression"))
    sides = terms([12, 15, 20, 22]), terms([10, 14, 18])
    assert found == {}
    assert (difference.estimate, difference.n) == (pytest.approx(17.25 - 14), 3)
    assert (difference.low, difference.high) == pytest.approx(interval_of(3.25, sides))
    assert difference_text(difference, "compression").startswith("+3.2 ±")


def test_a_single_seed_has_no_interval_and_a_missing_one_no_difference():
    found = differences_from(frame_of_scores({"a": [10.0], "b": [9.5], "c": [None, 3.0], "d": [None]}), "a")
    assert set(found) == {("b", "compression"), ("c", "compression")}
    assert difference_text(found["b", "compression"], "compression") == "(−0.5)"
    assert differences_from(frame_of_scores({"b": [9.5]}), "a") == {}


def test_sweep_rows_are_named_by_their_changes_and_the_first_is_the_baseline(sweep_tables):
    gain = {9: 0.0, 12: 0.1}
    made = sweep_tables(
        vary={"training.epochs": [9, 12]},
        accuracy=lambda job: 0.5 + gain[job.training.epochs] + job.seed / 100,
    )
    (table,) = made
    headings, rows = table.text_rows()
    assert headings == HEADINGS
    assert [row[0] for row in rows] == [f"{label}  training.epochs={n}" for label in "SR" for n in (9, 12)]
    _, half = interval_of(0, 2 * [terms([50.0, 51.0, 52.0])])
    assert [rows[i][-1] for i in (0, 1, 3)] == ["baseline", f"+10.0 ±{half:.1f}", f"+10.0 ±{half:.1f}"]
    record = table.json_rows()[1]
    assert (record["row"], record["label"], record["changes"]) == (rows[1][0], "S", "training.epochs=12")
    assert record["difference"] == pytest.approx(10) and record["difference_n"] == 3
    assert "Baseline: S  training.epochs=9, the first row." in table.notes
    assert "few seeds can hide a larger spread" in table.notes
    assert "minus that of the baseline, with a 95% interval over seeds" in table.notes
    assert "vs baseline: difference to S  training.epochs=9" in table.caption
    assert table.marks()[rows[1][0], 1] == "best"


def test_settings_shared_by_all_unnamed_rows_are_in_the_notes(sweep_tables):
    made = sweep_tables(vary={"model.n_layer": [1, 2]}, mode="one_at_a_time", set={"training.epochs": 3})
    (table,) = made
    assert [row[0] for row in table.text_rows()[1]] == ["S", "R", "S  model.n_layer=2"]
    assert "Profile quick with training.epochs=3: d_model 64" in table.notes
    assert "Settings that a row does not name: model.n_layer=1. The sizes given are the baseline's." in table.notes


def test_with_several_tasks_the_difference_is_of_their_mean(sweep_tables):
    accuracies = {
        ("S", "compression"): 0.1,
        ("S", "memorization"): 0.5,
        ("R", "compression"): 0.3,
        ("R", "memorization"): 0.5,
    }
    made = sweep_tables(
        tasks=["compression", "memorization"], seeds=[0], accuracy=lambda job: accuracies[job.label, job.task]
    )
    (table,) = made
    assert [row[-1] for row in table.text_rows()[1]] == ["baseline", "(+10.0)"]


@pytest.mark.slow
def test_a_diverged_seed_counts_at_chance_and_an_unfinished_one_not_at_all(sweep_tables):
    given = {"S": 0.5, "R": math.nan, "G": None}
    (table,) = sweep_tables("SRG", lambda job: given[job.label] if job.seed else 0.5)
    baseline, diverged, unfinished = (row[-1] for row in table.text_rows()[1])
    chance = 100 / 8
    assert (baseline, unfinished) == ("baseline", "(+0.0)")
    assert diverged.startswith(f"−{50 - (50 + 2 * chance) / 3:.1f} ±")
    assert sweep_tables(["S-c"], accuracy=lambda job: None) == []


@pytest.mark.slow
def test_published_numbers_are_only_below_unchanged_labels_of_a_comparable_profile(sweep_tables, tmp_path):
    rows = [{"label": "S"}, {"label": "S", "training.epochs": 3}]
    profile = tmp_path / "whole.yaml"
    profile.write_text(
        "{description: As the paper, comparable_with_paper: true, difficulty: baseline, learning_rates: [1.0e-3],"
        " weight_decays: [0.0]}"
    )
    choices = {"profile": str(profile), "seeds": [0], "mode": "list", "rows": rows}
    (table,) = sweep_tables((), **choices)
    assert [row[0] for row in table.text_rows()[1]] == ["S", "  published", "S  training.epochs=3"]
    assert [record["published"] for record in table.json_rows()] == [83.68, None]
    (quick,) = sweep_tables("SR")
    assert [row[0] for row in quick.text_rows()[1]] == ["S", "R"]


def test_language_models_of_several_protocols_share_a_table(tmp_path, language_run):
    store, rows = Store.open(tmp_path), []
    (change,) = parse_overrides(["language_model.training.steps=120"])
    longer = replace(language_run().job.training, steps=120)
    losses = {Row("S"): [(3.0, 2.5), (3.1, 2.6)], Row("S", (change,), (change,)): [(2.9, 2.0), (3.0, 2.2)]}
    for row, of_row in losses.items():
        training = {"training": longer} if row.changes else {}
        runs = [language_run(train=train, seed=seed, **training) for seed, train in enumerate(of_row)]
        for run in runs:
            store.finish(run.job, run.record)
        rows.append(SuiteRow(row, language_protocol(runs[0]), [run.job for run in runs]))
    results = Results(Grid(tuple(losses)), rows, store)
    table = result_table(results, TableOptions(has_baseline=True))
    headings, lines = table.text_rows()
    assert headings[:2] == ["Label", "L5"] and headings[-2:] == ["n", "vs baseline"]
    assert [line[0] for line in lines] == ["S", f"S  {change}"]
    _, high = interval_of(-0.275, [loss_terms([2.45, 2.6]), loss_terms([2.75, 2.85])])
    assert lines[1][-1] == f"−0.275 ±{high + 0.275:.3f}"
    assert "At the settings of S: Nats per token" in table.notes
    assert not any(table.marks().values()) and "bold" not in table.caption
    with pytest.raises(ConfigError, match="2 protocols"):
        result_table(results)
