"""Results of runs and grids, stored without training."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.experiment import ExperimentOptions, prepare
from madbench.grid import load_grid
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.language.suite import TASK


@pytest.fixture
def language_results(tmp_path) -> Callable[..., Results]:
    """``language_results(runs, labels)``: results of runs of one protocol, as a verb selects them."""
    count = 0

    def call(runs, labels=()) -> Results:
        nonlocal count
        count += 1
        store = Store.open(tmp_path / f"language {count}")
        for run in runs:
            store.finish(run.job, run.record)
        return Selection(labels=labels, tasks=[TASK], budget=None, results=store.root).select()

    return call


@pytest.fixture
def grid_results(tmp_path) -> Callable[..., Results]:
    """The results of a grid. ``accuracy`` gives the accuracy of each job, or None for a job without a run."""
    return functools.partial(fill_grid, tmp_path / "results")


@pytest.fixture(scope="module")
def shared_grid_results(tmp_path_factory) -> Callable[..., Results]:
    """:func:`grid_results` of a folder that all tests of a module share."""
    return functools.partial(fill_grid, tmp_path_factory.mktemp("grid") / "results")


def fill_grid(
    folder: Path, labels=("S", "R"), accuracy=lambda job: 0.5, budget_ratio=lambda job: 1.0, **keys
) -> Results:
    keys = {"profile": "quick", "tasks": ["in_context_recall"], "seeds": [0, 1, 2]} | keys
    made = prepare(load_grid(list(labels), keys), ExperimentOptions(device="cpu", results=folder))
    store = Store.open(folder)
    for job in made.jobs:
        value = accuracy(job)
        if value is not None and not store.has(job):
            metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
            status = "diverged" if math.isnan(value) else "finished"
            details = {"budget_ratio": budget_ratio(job), "seconds": 10.0}
            store.finish(job, Record(status, {} if status == "diverged" else metrics, details=details))
    return Results.from_rows(made, store)
