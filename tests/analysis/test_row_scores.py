"""Scores of rows without results, and of labels without runs."""

from __future__ import annotations

from unittest.mock import patch

import pandas as pd
import pytest

from madbench import jobs
from madbench.analysis.scores import scores_of_rows
from madbench.analysis.selection import Selection
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD, MadProfile
from madbench.suites.outcomes import JobOutcome
from madbench.suites.scoring import scoring_of

LABELS = ["R", "S-p", "G", "S", "R-c", "G-c"]


def record(accuracy: float) -> Record:
    return Record("finished", {"accuracy": accuracy, "selection_accuracy": accuracy, "ceiling": 1.0}, [], {})


@pytest.fixture(autouse=True)
def quick_heuristic(monkeypatch):
    """A cheap heuristic with another number for each task."""
    monkeypatch.setattr(type(scoring_of(MAD)), "heuristic", lambda self, job: float(len(job.task)))


def test_rows_without_results_are_scored_like_the_whole_frame():
    planned = MAD.jobs(LABELS, MAD.Profile.load("quick", ["learning_rates=[0.001,0.002]"]), seeds=(0, 1))
    short = MAD.jobs(["R-p", "G-p"], MAD.Profile.load("quick"), tasks=["compression"])
    lacking = {"G": 5, "S": 0}  # jobs without a result, of the labels that have some
    outcomes = []
    for i, job in enumerate([*planned, *short]):
        has_result = i % 24 >= lacking.get(job.label, 24)
        outcomes.append(JobOutcome(job.label, job, record(i % 7 / 7) if has_result else None))
    scoring = scoring_of(MAD)
    whole = scoring.frame(outcomes)
    pd.testing.assert_frame_equal(scores_of_rows(scoring, outcomes, ()), whole)


def test_labels_without_runs_are_not_hashed_or_scored_one_by_one(tmp_path):
    store = Store.open(tmp_path / "results")
    for job in MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"]):
        store.finish(job, record(0.5))

    def calls(labels: list[str]) -> list[int]:
        chance = patch.object(type(scoring_of(MAD)), "chance", return_value=6.25)
        with patch.object(jobs, "text_id", wraps=jobs.text_id) as hashes, chance as scores:
            with patch.object(MadProfile, "settings", autospec=True, side_effect=MadProfile.settings) as settings:
                table = Selection(labels=labels, results=store.root, profile="quick").table()
        assert [*table.rows] == labels
        return [hashes.call_count, scores.call_count, settings.call_count]

    few = ["R-c", "S", "G-c", "G"]
    calls(few)  # fills the caches of the process
    assert calls([*few, "R", "R-p", "G-p"]) == calls(few)
