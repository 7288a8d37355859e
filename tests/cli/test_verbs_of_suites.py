"""Verbs that read runs, on shipped runs of each suite: they end with an exit code, never with another exception."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import madbench
from drawings import FIGURES
from madbench.errors import MadbenchError
from madbench.papers import load_paper
from madbench.plugins.paper_folders import built_in
from madbench.store.archive import unpack
from madbench.store.runs import Store
from madbench.suites import suite_of_task, task_suites
from madbench.tasks import loaded_tasks

MEASURED = Path(__file__).parents[2] / "results" / "measured"


class Shipped(NamedTuple):
    """The name of an archive with runs of a suite, and two labels of these runs."""

    archive: str
    labels: tuple[str, str]


SHIPPED = {
    "mad": Shipped("papers/proposition2.6_trained", ("R-cg-q", "R-c")),
    "language": Shipped("language/tiny", ("R-cg-q", "S-p")),
    "interactions": Shipped("papers/interactions", ("hfa:C3", "hfa:C1")),
    "signals": Shipped("papers/talk", ("R-cg-q", "S-p")),
}
TASKS = {"mad": "mad", "language_model": "language", "interactions": "interactions", "signals": "signals"}
TASKS |= {"hunters": "interactions"}
"""The suite by the words of ``-t``: a suite or a task. Labels ``A`` and ``B`` share the task ``hunters``."""
COMMANDS = [
    "table",
    "table A B",
    "table --notes --ranks",
    "table --baselines --spread sd",
    "table --costs --notes --full-square",
    *(f"table --costs -f {form}" for form in ("json", "csv", "markdown", "latex", "html")),
    "compare A B",
    "compare A B --within 2",
    "compare A B --costs -f json",
    *(f"plot {name}" for name in FIGURES),
    "plot budget A B --cost state",
    "report",
    "findings",
    "findings --notes -f json",
    "findings --power",
    "attribute",
    "attribute -f json",
    "audit",
    "audit --against full",
    "inspect A",
    "inspect A B",
    "archive --output some.tar.xz",
    "archive A --output one.tar.xz",
]
"""Commands that choose runs by ``-t``. ``A`` and ``B`` stand for the labels of a suite."""
FUNCTIONS = {"table": {"costs": True}, "compare": {"costs": True}, "findings": {}, "attribute": {}, "audit": {}}
"""Arguments of functions of ``madbench`` with the names of verbs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Callable[[str], Path]:
    """``folder(suite)``: a results folder with the shipped runs of the suite."""
    root = tmp_path_factory.mktemp("shipped")

    def call(suite: str) -> Path:
        if not (root / suite).exists():
            unpack(MEASURED / f"{SHIPPED[suite].archive}.tar.xz", Store.open(root / suite))
        return root / suite

    return call


def test_every_suite_with_measured_runs_is_among_the_shipped_runs():
    items = [item for paper in map(load_paper, built_in()) for item in paper.items if item.runs]
    measured = {suite_of_task(task).name for item in items for task in item.tasks}
    assert set(SHIPPED) == set(TASKS.values()) == measured


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("tasks", TASKS)
def test_a_verb_shows_the_runs_of_a_suite_or_refuses(main, folder, tasks, command):
    labels = dict(zip("AB", SHIPPED[TASKS[tasks]].labels))
    words = [labels.get(word, word) for word in command.split()]
    ended = main(*words, "-t", tasks, "--results", folder(TASKS[tasks]))
    assert ended.code in (0, 1, 2), ended
    assert ended.stdout if ended.code == 0 else ended.stderr
    if words[0] in ("table", "report", "findings", "archive") or command == "plot scores":
        assert ended.code == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("tasks", TASKS)
def test_a_function_returns_the_runs_of_a_suite_or_refuses(folder, tasks, function):
    labels = [SHIPPED[TASKS[tasks]].labels] if function == "compare" else []
    try:
        frame = getattr(madbench, function)(*labels, tasks=tasks, results=folder(TASKS[tasks]), **FUNCTIONS[function])
    except MadbenchError as error:
        assert function == "attribute" and "differ in exactly one factor" in str(error)
    else:
        assert repr(frame)


@pytest.mark.slow
@pytest.mark.parametrize("suite", SHIPPED)
@pytest.mark.parametrize("command", ["ls runs", "ls runs -f json", "ls sweeps"])
def test_runs_of_every_suite_are_listed(main, folder, suite, command):
    ended = main(*command.split(), "--results", folder(suite))
    assert ended.code == 0 and ended.stdout, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("task", task_suites())
def test_data_shows_a_task_or_refuses(main, task):
    ended = main("data", task)
    assert (ended.code, bool(ended.stdout)) == ((0, True) if task in loaded_tasks() else (2, False))


@pytest.mark.slow
def test_run_prints_the_costs_of_stored_runs(main, folder):
    ended = main("run", "hfa:C3", "-t", "hunters", "--seeds", "0-2", "--costs", "--results", folder("interactions"))
    assert ended.code == 0 and "3 of 3 jobs already in the store" in ended.stderr and "State bytes" in ended.stdout
