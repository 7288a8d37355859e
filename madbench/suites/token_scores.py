"""Scores of token tasks: accuracy at the best rates, averaged over the settings of a task.

Rates are learning rate and weight decay. They are chosen by ``selection_accuracy``, the validation accuracy of a seed
that is not reported. In the published fidelity, each seed chooses by its own reported accuracy.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from madbench.jobs import Job, mapping_text
from madbench.suites.columns import Column
from madbench.suites.outcomes import JobOutcome, budget_sentences, lacking_sentences, outcome_sentences
from madbench.suites.protocol import Protocol
from madbench.suites.scoring import Scoring
from madbench.tasks import heuristic, make_setting, settings_class


@functools.cache
def chance_of(task: str, setting: str) -> float:
    """The accuracy of a guess on a task, between 0 and 1. ``setting`` is the task setting as JSON."""
    return 1 / make_setting(task, json.loads(setting), task).num_answers


@functools.cache
def heuristic_of(task: str, setting: str) -> float:
    """The accuracy on a task, between 0 and 1, of the best answer that ignores the context.

    ``setting`` is the task setting as JSON.
    """
    return heuristic(task, make_setting(task, json.loads(setting), task))


class TokenScoring(Scoring):
    """The computation of scores of token tasks. Scores are accuracies in percent."""

    selection = "selection_accuracy"
    shows_chance = True

    def chance(self, job: Job) -> float:
        return 100 * chance_of(job.task, mapping_text(job.setting))

    def heuristic(self, job: Job) -> float:
        return 100 * heuristic_of(job.task, mapping_text(job.setting))

    def solved_share(self, task: str) -> float:
        return settings_class(task).solved_share

    def meaning(self, protocol: Protocol) -> str:
        if protocol.fidelity == "published":
            return "the reference implementation's accuracy (macro within each test batch), chosen on the test set"
        return "token accuracy over all test targets"

    def about(
        self, protocol: Protocol, outcomes: Sequence[JobOutcome], columns: Sequence[Column], first: str = ""
    ) -> str:
        job_frame = self.collect(outcomes)
        limits = job_frame.dropna(subset=["ceiling"]).groupby("column", sort=False).ceiling.mean()
        tasks_below = [f"{task} {100 * limit:.1f}" for task, limit in limits.items() if limit < 0.9995]
        is_comparable = protocol.profile.comparable_with_paper
        is_theirs = (protocol.fidelity, protocol.budget) == ("published", "paper")
        notes = {
            f"Percent, {self.meaning(protocol)}; mean over n seeds.": True,
            **dict.fromkeys(self.sentences(protocol), True),
            **dict.fromkeys(outcome_sentences(outcomes), True),
            **dict.fromkeys(budget_sentences(outcomes), True),
            **dict.fromkeys(lacking_sentences(outcomes), True),
            f"Token accuracy without guessing is at most: {', '.join(tasks_below)}.": tasks_below,
            "This profile is not comparable with the published rows, which are full size.": not is_comparable,
            "The published rows used the published fidelity and the paper budget.": is_comparable and not is_theirs,
        }
        return " ".join(text for text, is_shown in notes.items() if is_shown)
