from __future__ import annotations

import math

import pandas as pd
import pytest
from scipy import stats

from madbench.analysis.language_runs import LanguageProtocol
from madbench.analysis.sweep_table import paired_differences
from madbench.grid import Row, load_grid
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.sweep_experiment import prepare_sweep

HEADINGS = ["Label", "In-ctx recall", "Budget", "n", "vs baseline"]


def swept(tmp_path, labels=("S", "R"), accuracy=lambda job: 0.5, **keys):
    """A sweep whose jobs are stored with the accuracies that ``accuracy`` gives; None for no run."""
    keys = {"tasks": ["in_context_recall"], "seeds": [0, 1, 2]} | keys
    made = prepare_sweep(load_grid(list(labels), keys), device="cpu", results=tmp_path / "results")
    store = Store.open(tmp_path / "results")
    for job in made.jobs:
        value = accuracy(job)
        if value is not None and not store.has(job):
            metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
            status = "diverged" if math.isnan(value) else "finished"
            store.finish(job, Record(status, {} if status == "diverged" else metrics, details={"budget_ratio": 1.0}))
    return made


def values(**by_label) -> pd.DataFrame:
    rows = [(label, seed, "q", value) for label, of_it in by_label.items() for seed, value in of_it.items()]
    return pd.DataFrame(rows, columns=["label", "seed", "quantity", "value"])


def test_differences_are_paired_by_seed_with_students_interval():
    found = paired_differences(values(a={0: 10.0, 1: 20.0, 2: 30.0}, b={0: 12.0, 1: 21.0, 2: 36.0, 9: 99.0}), "a")
    difference = found.pop(("b", "q"))
    expected = stats.ttest_rel([12, 21, 36], [10, 20, 30]).confidence_interval(0.95)
    assert found == {}
    assert (difference.mean, difference.n) == (pytest.approx(3.0), 3)
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert difference.text(1) == f"+3.0 [{expected.low:+.1f},{expected.high:+.1f}]"


def test_one_seed_has_no_interval_and_none_no_difference():
    found = paired_differences(values(a={0: 10.0}, b={0: 9.5}, c={1: 3.0}, d={0: math.nan}), "a")
    assert set(found) == {("b", "q")} and found["b", "q"].text(2) == "-0.50"
    assert paired_differences(values(b={0: 9.5}), "a") == {}


def test_rows_are_named_by_what_changes_and_the_first_is_the_baseline(tmp_path):
    gain = {8: 0.0, 12: 0.1}
    made = swept(
        tmp_path,
        vary={"training.epochs": [8, 12]},
        accuracy=lambda job: 0.5 + gain[job.training.epochs] + job.seed / 100,
    )
    (table,) = made.tabulate()
    headings, rows = table.text_rows()
    assert headings == HEADINGS
    assert [row[0] for row in rows] == [f"{label}  training.epochs={n}" for label in "SR" for n in (8, 12)]
    assert [rows[i][-1] for i in (0, 1, 3)] == ["baseline", "+10.0 [+10.0,+10.0]", "+10.0 [+10.0,+10.0]"]
    record = table.records()[1]
    assert (record["row"], record["label"], record["changes"]) == (rows[1][0], "S", "training.epochs=12")
    assert record["difference"] == pytest.approx(10) and record["difference_n"] == 3
    assert "Baseline: S  training.epochs=8, the first row." in table.caption
    assert "minus the baseline's, paired by seed" in table.caption
    assert table.marks()[rows[1][0], 1] == "best"


def test_what_rows_do_not_name_is_in_the_caption(tmp_path):
    made = swept(tmp_path, vary={"model.n_layer": [1, 2]}, mode="one_at_a_time", set={"training.epochs": 3})
    (table,) = made.tabulate()
    assert [row[0] for row in table.text_rows()[1]] == ["S", "R", "S  model.n_layer=2"]
    assert "Profile quick with training.epochs=3: d_model 64" in table.caption
    assert "Where a row names nothing else: model.n_layer=1. The sizes given are the baseline's." in table.caption


def test_with_several_tasks_the_difference_is_of_their_mean(tmp_path):
    accuracies = {
        ("S", "compression"): 0.1,
        ("S", "memorization"): 0.5,
        ("R", "compression"): 0.3,
        ("R", "memorization"): 0.5,
    }
    made = swept(
        tmp_path, tasks=["compression", "memorization"], seeds=[0], accuracy=lambda job: accuracies[job.label, job.task]
    )
    (table,) = made.tabulate()
    assert [row[-1] for row in table.text_rows()[1]] == ["baseline", "+10.0"]


def test_a_diverged_or_unfinished_row_has_no_difference(tmp_path):
    given = {"S": 0.5, "R": math.nan, "G": None}
    (table,) = swept(tmp_path, "SRG", lambda job: given[job.label] if job.seed else 0.5).tabulate()
    assert [row[-1] for row in table.text_rows()[1]] == ["baseline", "-", "+0.0"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert swept(empty, accuracy=lambda job: None).tabulate() == []


def test_published_numbers_stand_below_unchanged_labels_of_a_comparable_profile_alone(tmp_path):
    rows = [{"label": "S"}, {"label": "S", "training.epochs": 3}]
    profile = tmp_path / "whole.yaml"
    profile.write_text(
        "{description: As the paper, comparable_with_paper: true, difficulty: baseline, learning_rates: [1.0e-3],"
        " weight_decays: [0.0]}"
    )
    choices = {"profile": str(profile), "seeds": [0], "mode": "list", "rows": rows}
    (table,) = swept(tmp_path, (), **choices).tabulate()
    assert [row[0] for row in table.text_rows()[1]] == ["S", "  published", "S  training.epochs=3"]
    assert [record["published"] for record in table.records()] == [83.68, None]
    (quick,) = swept(tmp_path, "SR").tabulate()
    assert [row[0] for row in quick.text_rows()[1]] == ["S", "R"]


def test_language_models_of_several_protocols_share_a_table(tmp_path, language_run, monkeypatch):
    from dataclasses import replace
    from types import SimpleNamespace

    from madbench.analysis import sweep_table

    first = language_run(train=(3.0, 2.5), seed=0)
    longer = replace(first.job.training, steps=120)
    runs = [first, language_run(train=(3.1, 2.6), seed=1), language_run(train=(2.9, 2.0), seed=0, training=longer)]
    runs.append(language_run(train=(3.0, 2.2), seed=1, training=longer))
    names = ["S", "S", "S  language_model.training.steps=120", "S  language_model.training.steps=120"]
    renamed = [replace(run, job=replace(run.job, label=name)) for run, name in zip(runs, names)]
    assert len({LanguageProtocol.of(run.job) for run in renamed}) == 2
    monkeypatch.setattr(sweep_table, "_stored", lambda sweep: renamed)
    preset = SimpleNamespace(preset=SimpleNamespace(comparable_with_paper=False))
    rows = [SimpleNamespace(row=Row("S"), experiment=preset)]
    rows.append(SimpleNamespace(row=Row("S", *[("language_model.training.steps=120",)] * 2), experiment=preset))
    table = sweep_table.language_sweep_table(SimpleNamespace(language=rows))
    headings, lines = table.text_rows()
    assert headings[:2] == ["Label", "L5"] and headings[-2:] == ["n", "vs baseline"]
    assert [line[0] for line in lines] == names[1:3]
    expected = stats.ttest_rel([2.45, 2.6], [2.75, 2.85]).confidence_interval(0.95)
    assert lines[1][-1] == f"-0.275 [{expected.low:+.3f},{expected.high:+.3f}]"
    assert "At the settings of S: Nats per token" in table.caption
    assert table.marks() == {} and "Bold" not in table.caption
