"""Stored results of the principles of the coefficients paper, without training."""

import random
from collections.abc import Callable
from pathlib import Path

from madbench.analysis.scores import Results
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Job, Record
from madbench.papers.coefficients import QUICK, Decision, Study
from madbench.papers.coefficients.decisions import decide
from madbench.papers.coefficients.measure import rows_of
from madbench.papers.coefficients.studies import principle
from madbench.rows import Grid
from madbench.store.runs import Store

Accuracy = Callable[[str], float | None]
"""The accuracy of the runs of a label, a share from 0 to 1. None if they diverged."""


def results_of(number: str, tmp_path: Path, accuracy: Accuracy) -> Results:
    """Store runs of the quick study of the principle ``number`` without training, and return their results.

    ``tmp_path`` is the folder of the store, and ``accuracy(label)`` the accuracy of the runs of a label.
    """
    return store_results(principle(number).study(QUICK), tmp_path, accuracy)


def store_results(
    study: Study,
    tmp_path: Path,
    accuracy: Accuracy,
    curve_of: Callable[[Job], list[dict[str, float]]] | None = None,
    metrics_of: Callable[[Job], dict[str, float]] = lambda job: {},
) -> Results:
    """Store runs of a study in the folder ``tmp_path`` without training, and return their results.

    A run has the accuracy ``accuracy(label)``, a share from 0 to 1, with a little noise. If this is None, the run
    diverged. ``metrics_of(job)`` has metrics to add or replace, and ``curve_of(job)`` is the curve of the run.
    """
    grid = Grid(
        rows_of(study), profile=QUICK, tasks=study.tasks, overrides=study.overrides, seeds=(0, 1, 2), budget="paper"
    )
    experiment, store = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path)), Store.open(tmp_path)
    rng = random.Random(0)
    for job in experiment.jobs:
        value = accuracy(job.label)
        curve = [] if curve_of is None else curve_of(job)
        if value is None:
            store.finish(job, Record("diverged", curve=curve))
            continue
        found = value + rng.gauss(0, 0.005)
        metrics = {"accuracy": found, "selection_accuracy": found, "ceiling": 1.0} | metrics_of(job)
        store.finish(job, Record("finished", metrics, curve, {"budget_ratio": 1.0}))
    return Results.from_rows(experiment, store)


def decide_principle(number: str, tmp_path: Path, accuracy: Accuracy) -> Decision:
    one = principle(number)
    return decide(one, one.study(QUICK), results_of(number, tmp_path, accuracy))
