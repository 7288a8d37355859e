"""A suite of an installed package takes part in every verb: a column that is no accuracy, an average of its own."""

from __future__ import annotations

import csv
import json
import math
import re

import pytest

from madbench.cli.attribute import attribute
from madbench.cli.compare import compare
from madbench.cli.findings import findings
from madbench.cli.plot import plot
from madbench.cli.report import report
from madbench.cli.run import run
from madbench.cli.table import table
from madbench.jobs import Record
from madbench.store.runs import Store

LABELS = ("S-p", "R-p", "R-cg-q-12o")
TASKS = ("-t", "parity,majority")


@pytest.fixture(scope="module")
def built_in():
    """The names of the built-in suites, in the order of tables."""
    from madbench.suites import suites

    return [*suites()]


@pytest.fixture
def suite(install_example):
    """The installed suite."""
    install_example("suite")
    from madbench.suites import find_suite

    return find_suite("counting")


@pytest.fixture
def stored(suite, invoke, tmp_path, monkeypatch):
    """A folder with three seeds of three labels on both tasks."""
    monkeypatch.chdir(tmp_path)
    small = ("training.epochs=1", "tasks.parity.setting.num_train_examples=64", "model.d_model=16")
    trained = invoke(run, *LABELS, *small, *TASKS, "--seeds", "0-2", "-f", "json", "--slots", 1, "--group", 1)
    assert trained.exit_code == 0, trained.output
    return tmp_path, small, json.loads(trained.stdout)


@pytest.mark.slow
def test_the_example_suite_has_its_tasks_columns_and_average(built_in, suite):
    from madbench.suites import suite_of_task, suites

    assert set(suites()) == {*built_in, "counting"}
    assert [*suites()][:4] == ["mad", "language", "interactions", "signals"]
    assert suite_of_task("parity") is suite and suite_of_task("memorization").name == "mad"
    assert [one.name for one in suite.columns(suite.tasks())] == ["majority", "parity", "counting_average"]


@pytest.mark.slow
def test_a_task_of_another_suite_is_no_part_of_the_mad_average(suite):
    from madbench.suites import find_suite

    mad = find_suite("mad")
    assert "parity" not in mad.tasks()
    assert "parity" not in mad.averages["mad_average"].tasks


@pytest.mark.slow
def test_learning_rates_of_the_example_suite_are_chosen_by_validation_loss(suite, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rates = "learning_rates=[0.001,0.002]"
    profile, store = suite.Profile.load("small", [rates]), Store.open(tmp_path / "results")
    losses = {0.001: (0.5, 0.4), 0.002: (0.6, 0.3)}  # test and validation
    for job in suite.jobs(["S-p"], profile, tasks=["parity"], seeds=range(3)):
        test, validation = losses[job.training.learning_rate]
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": validation}]
        store.finish(job, Record("finished", {"test_loss": test, "accuracy": 0.5}, curve, {}))
    (cell,) = json.loads(invoke(table, "-t", "parity", rates, "-f", "json").stdout)["cells"]
    assert (cell["mean"], cell["n"]) == (pytest.approx(0.6), 2)


@pytest.mark.slow
def test_every_verb_shows_runs_of_the_example_suite(stored, invoke):
    folder, small, trained = stored
    cells = {(cell["label"], cell["task"]): cell for cell in trained["cells"]}
    assert {task for _, task in cells} == {"majority", "parity", "counting_average"}
    for label in LABELS:
        parts = [cells[label, task]["mean"] for task in ("majority", "parity")]
        assert math.isclose(cells[label, "counting_average"]["mean"], sum(parts) / 2)
        assert all(0 < part < 1.5 for part in parts)  # nats per answer
    shown = json.loads(invoke(table, *small, *TASKS, "-f", "json").stdout)
    assert shown["cells"] == trained["cells"]
    assert "Counting" in invoke(table, *small).stdout  # the only suite that is stored needs no name
    rows = json.loads(invoke(compare, "S-p", "R-p", *small, *TASKS, "-f", "json").stdout)["cells"]
    assert {row["unit"] for row in rows} == {"nats_per_answer"}
    assert invoke(attribute, *small, *TASKS).exit_code == 0
    drawn = invoke(plot, *small, *TASKS)
    assert drawn.exit_code == 0, drawn.output
    assert {"scores.png", "learning.png", "budget.png"} <= {path.name for path in (folder / "results/plots").iterdir()}
    with open(folder / "results/plots/scores.csv", encoding="utf-8") as file:
        assert {row["task"] for row in csv.DictReader(file)} == {"majority", "parity", "counting_average"}
    assert invoke(findings, *small, *TASKS).exit_code == 0

    assert invoke(report, *small, *TASKS).exit_code == 0
    page = (folder / "results/report.html").read_text(encoding="utf-8")
    assert "Counting tasks" in page and "counting_average" in page


@pytest.mark.slow
def test_a_broken_suite_leaves_the_built_in_suites_usable(built_in, install_example, invoke):
    site = install_example("suite")
    (site / "madbench_counting" / "__init__.py").write_text("raise ValueError('no such thing')\n")
    from madbench.suites import broken_suites, suites

    assert [*suites()] == built_in
    assert "no such thing" in broken_suites()["counting"]


@pytest.mark.slow
def test_messages_on_missing_data_use_the_names_of_the_example_suite(suite, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("madbench.analysis.figures.files.save_figure", lambda figure, stem: [])
    store = Store.open(tmp_path / "results")
    profile = suite.Profile.load("small")
    for job in suite.jobs(["S-p", "R-p"], profile, tasks=suite.tasks(), seeds=[0], precision="float32"):
        store.finish(job, Record("finished", {"test_loss": 0.5, "accuracy": 0.7}, [], {"budget_ratio": 1.0}))
    drawn = invoke(plot)
    assert "difficulty: every task is stored with only one setting; " in drawn.stderr
    assert "in_context_recall" not in drawn.stderr and "full" not in drawn.stderr
    (change,) = re.findall(r"tasks\.\S+", drawn.stderr)
    assert suite.Profile.load("small", [change]).changes  # which is one of this suite
    judged = invoke(findings)
    assert judged.exit_code == 0 and "not enough data" in judged.stdout  # claims about suites that are not stored
