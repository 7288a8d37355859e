"""The threshold for "learned" follows the score of the best answer without context, for every profile."""

from __future__ import annotations

import math

import pytest

from madbench.analysis.baselines import BASELINES, CHANCE, HEURISTIC, baseline_values
from madbench.analysis.inference import NEITHER_LEARNED, difference
from madbench.analysis.samples import samples_of
from madbench.jobs import Job, Record
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.outcomes import JobOutcome
from madbench.suites.scoring import scoring_of
from sample_jobs import language_job


def jobs_of(*overrides: str, tasks=MAD_TASKS, labels=("S", "R"), profile="quick") -> list[Job]:
    how = {"tasks": list(tasks), "fidelity": "corrected", "budget": "strict", "precision": "float32"}
    return MAD.plan(labels, MAD.Profile.load(profile, overrides), seeds=[0, 1, 2], **how).jobs


def scores_of(jobs: list[Job], accuracy) -> object:
    """A frame of scores of finished jobs. ``accuracy(job)`` is the accuracy of a job."""
    outcomes = []
    for job in jobs:
        metrics = {"accuracy": accuracy(job), "selection_accuracy": 0.5, "ceiling": 1.0}
        outcomes.append(JobOutcome(job.label, job, Record("finished", metrics, [], {"budget_ratio": 1.0})))
    return scoring_of(MAD).frame(outcomes)


def test_a_suite_that_names_no_reference_values_has_none():
    scoring, job = scoring_of(LANGUAGE), language_job()
    assert all(map(math.isnan, (scoring.chance(job), scoring.heuristic(job), scoring.solved_share(job.task))))


CHANGED_PROFILES = [("quick", ["training.epochs=3"]), ("evening", ["tasks.in_context_recall.training.epochs=9"])]
"""Profiles with overrides."""


@pytest.mark.parametrize("profile, overrides", CHANGED_PROFILES)
def test_a_label_at_the_heuristic_has_not_learned_the_task(profile, overrides):
    jobs = jobs_of(*overrides, tasks=["in_context_recall"], profile=profile)
    line = baseline_values(HEURISTIC, jobs)["in_context_recall"]
    scores = scores_of(jobs, lambda job: line / 100 + 0.004 + 0.001 * job.seed)
    first, second = samples_of(scores)["in_context_recall"].values()
    assert not first.has_learned and difference(first, second).reason == NEITHER_LEARNED
    assert first.scale.chance < 0.8 * first.mean  # above chance by far


def test_in_context_recall_is_learned_at_40_percent_but_not_at_33():
    jobs = jobs_of(tasks=["in_context_recall"])
    for accuracy, has_learned in ((0.331, False), (0.40, True)):
        sample = samples_of(scores_of(jobs, lambda job, value=accuracy: value))["in_context_recall"]["S"]
        assert sample.has_learned is has_learned


def test_an_average_is_learned_if_one_of_its_tasks_is():
    jobs = jobs_of()
    values = baseline_values(HEURISTIC, jobs)
    assert values[MAD_AVERAGE] == pytest.approx(sum(values[task] for task in MAD_TASKS) / 6)
    scores = scores_of(
        jobs, lambda job: values[job.task] / 100 + 0.3 * (job.task == "compression" and job.label == "R")
    )
    samples = samples_of(scores)[MAD_AVERAGE]
    assert samples["S"].scale.heuristic == pytest.approx(values[MAD_AVERAGE])
    assert (samples["S"].has_learned, samples["R"].has_learned) == (False, True)


def test_several_settings_have_the_mean_of_their_heuristics():
    jobs = jobs_of(tasks=["compression"], labels=["S"], profile="full")
    settings = {str(job.setting): scoring_of(MAD).heuristic(job) for job in jobs}
    assert len(settings) > 3
    assert baseline_values(HEURISTIC, jobs) == {"compression": pytest.approx(sum(settings.values()) / len(settings))}


def test_chance_never_exceeds_the_heuristic():
    chance, heuristic = (baseline_values(one, jobs_of()) for one in BASELINES)
    assert BASELINES == (CHANCE, HEURISTIC) and all(heuristic[name] >= chance[name] - 0.01 for name in chance)


def test_a_column_without_a_heuristic_uses_chance_as_its_threshold(scored_loss):
    sample = samples_of(scored_loss)["loss_l5"]["S"]
    assert math.isnan(sample.scale.heuristic) and sample.has_learned


@pytest.fixture
def scored_loss():
    from score_frames import OF_LOSS, frame_of_scores

    return frame_of_scores({"S": [2.0, 2.1, 2.2]}, tasks=("loss_l5",), **OF_LOSS)
