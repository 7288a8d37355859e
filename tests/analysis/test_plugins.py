"""Labels and tasks of installed packages in scores, selections and tables."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.analysis.comparison import comparison_table
from madbench.analysis.inference import Sample, difference
from madbench.analysis.samples import samples_of
from madbench.analysis.selection import Selection
from madbench.analysis.tables import TableOptions, result_table
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.addressing import parse_overrides
from madbench.suites.language.suite import LANGUAGE, TASK
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from sample_jobs import language_job

TASKS = (*MAD_TASKS, "prefix_sum")


@pytest.fixture
def store(tmp_path, install_example, language_run) -> Store:
    """Runs of S, of the example's labels and of its task, and language models."""
    install_example("plugin")
    install_example("task")
    store = Store.open(tmp_path / "results")
    for job in MAD.jobs(["lin:relu-g", "lin:elu", "S"], MAD.Profile.load("evening"), seeds=(0, 1), tasks=TASKS):
        value = 1.0 if job.task == "prefix_sum" else 0.5 + job.seed / 10
        metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
    for label in ("lin:elu", "S"):
        store.finish(language_job(label), language_run(label).record)
    return store


@pytest.mark.slow
def test_labels_of_other_families_are_rows_after_those_of_the_grammar(store):
    results = Selection(tasks=["compression", TASK], results=store.root).select()
    assert results.labels == ["S", "lin:elu", "lin:relu-g"] and [run.row for run in results.runs(LANGUAGE)] == [
        "S",
        "lin:elu",
    ]
    rows = result_table(results).text_rows()[1]
    assert [row[0] for row in rows if row[0] != "  published"] == results.labels
    assert all(row[1].startswith("55.0 ±") for row in rows if row[0] != "  published")


@pytest.mark.slow
def test_tasks_of_packages_have_columns_and_are_not_in_the_average(store):
    headings, rows = result_table(Selection(tasks=TASKS, results=store.root).select()).text_rows()
    assert headings[7] == "MAD avg" and len(headings) == 1 + 7 + 1 + 2
    assert rows[0][7].startswith("55.0 ±") and rows[0][8] == "100.0 ±9.8"
    usual, _ = result_table(Selection(tasks=MAD_TASKS, results=store.root).select()).text_rows()
    assert usual[1:8] == headings[1:8]


@pytest.mark.slow
def test_an_override_for_one_family_leaves_out_unaffected_labels_unless_named(store):
    overrides = parse_overrides(["model.mix_rank=4"])
    (job,) = MAD.jobs(["R-12!"], MAD.Profile.load("evening", overrides), tasks=["compression"])
    store.finish(job, Record("finished", {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}))
    warnings: list[str] = []
    selection = Selection(overrides=overrides, tasks=["compression"], results=store.root, warn=warnings.append)
    assert selection.select().labels == ["R-12!"] and warnings == []
    named = Selection(["S", "R-12!"], overrides, tasks=["compression"], results=store.root).select()
    assert named.labels == ["S", "R-12!"], "the runs of S are the same with and without it"


@pytest.mark.slow
def test_a_grid_compares_the_mean_over_its_tasks_and_the_mad_average_separately(install_example, grid_results):
    install_example("task")

    def accuracy(job):
        gain = 0.0 if job.label == "S" else 0.45 if job.task == "prefix_sum" else 0.1
        return 0.4 + gain + 0.02 * (job.seed * len(job.task) % 3)

    results = grid_results(("S", "R"), accuracy, tasks=[*TASKS])
    table = result_table(results, TableOptions(has_baseline=True))
    (row,) = [one for one in comparison_table("S", ["R"], results.scores).rows if one.quantity == MAD_AVERAGE]
    (record,) = [one for one in table.json_rows() if (one["label"], one["task"]) == ("R", MAD_AVERAGE)]
    numbers = [record[f"difference{end}"] for end in ("", "_low", "_high", "_p")]
    assert numbers == [row.difference.estimate, row.difference.low, row.difference.high, row.difference.p]
    assert row.difference.estimate == pytest.approx(10.0)
    of_task = samples_of(results.scores)
    parts = {label: tuple(of_task[task][label] for task in TASKS) for label in "SR"}
    means = {label: np.mean([part.values for part in own], axis=0) for label, own in parts.items()}
    whole = {label: Sample(means[label], parts[label][0].scale, None, parts[label]) for label in "SR"}
    expected = difference(whole["R"], whole["S"])
    assert expected.estimate == pytest.approx(15.0)
    assert table.text_rows()[1][1][-1] == f"+15.0 ±{expected.high - expected.estimate:.1f}"
