"""Outcomes of jobs: each is a job in a row of a table, with its record. Also sentences on outcomes for captions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from madbench.details import Details
from madbench.jobs import Job, Record, mapping_text
from madbench.labels.budgets import BUDGETS, LEAST_MATCHED
from madbench.labels.names import row_display_name


@dataclass(frozen=True)
class UntrainedScores:
    """Scores of a job's task setting that need no training, in the units of the task's column.

    A score that is not known is NaN.
    """

    chance: float
    """The expected value of a model that guesses."""
    heuristic: float
    """The value of the best answer that ignores the context."""
    solved_share: float
    """The threshold above which a seed has solved the task: 0 is the chance level and 1 the ceiling."""


SettingKey = tuple[str, str, str]
"""The suite, the task and the task setting (as JSON) of a job. Jobs with equal keys have equal untrained scores."""


def setting_key(job: Job) -> SettingKey:
    """The key under which the untrained scores of a job are stored: suite, task, and task setting as JSON."""
    return job.suite, job.task, mapping_text(job.setting)


@dataclass(frozen=True)
class JobOutcome:
    """A job in a row of a table, with its record if there is one."""

    row: str
    """Name of the row: a label, or a row of a grid."""
    job: Job
    record: Record | None
    """None if nothing is stored or the run failed."""
    untrained: UntrainedScores | None = None
    """The stored scores that need no training. If None, they are not stored and have to be computed."""

    @property
    def status(self) -> str:
        return self.record.status if self.record else "missing"

    @property
    def details(self) -> Details:
        return self.record.details if self.record else {}

    @property
    def curve(self) -> Sequence[Mapping[str, float]]:
        """The rows of the curve of the job's run. Empty without a record."""
        return self.record.curve if self.record else ()


def lacking_sentences(outcomes: Sequence[JobOutcome]) -> list[str]:
    """One sentence with the number of jobs that have no record. Empty if every job has one."""
    lacking = sum(outcome.record is None for outcome in outcomes)
    return [f"{lacking:,} of {len(outcomes):,} jobs have no result yet."] if lacking else []


def outcome_sentences(outcomes: Iterable[JobOutcome]) -> list[str]:
    """Sentences on how the runs of a table were trained. The first names the devices.

    Further sentences count the diverged runs, the runs trained by Muon, and, if only some runs shared their training
    steps with other runs, these runs. Outcomes without a record are ignored.
    """
    stored_outcomes = [outcome for outcome in outcomes if outcome.record]
    devices = sorted({str(device) for outcome in stored_outcomes if (device := outcome.details.get("device"))})
    count = sum(outcome.status == "diverged" for outcome in stored_outcomes)
    where = f"Trained on {', '.join(devices) or ('an unnamed device' if stored_outcomes else 'no device yet')}."
    texts = [where, f"{count} of {len(stored_outcomes)} runs diverged."] if count else [where]
    grouped_count = sum(outcome.details.get("group", 1) > 1 for outcome in stored_outcomes)
    if 0 < grouped_count < len(stored_outcomes):
        texts.append(
            f"{grouped_count} of {len(stored_outcomes)} runs shared training steps (--group), which changes last"
            " digits."
        )
    muon_count = sum(outcome.job.training.optimizer == "muon" for outcome in stored_outcomes)
    if muon_count:
        texts.append(
            f"{muon_count} of {len(stored_outcomes)} runs were trained by Muon, which never shares a step (--group)."
        )
    return texts


def budget_sentences(outcomes: Iterable[JobOutcome]) -> list[str]:
    """Sentences that explain the column Budget and name the rows whose budget ratio is below ``LEAST_MATCHED``."""
    outcomes = list(outcomes)
    ratios = {outcome.row: ratio for outcome in outcomes if (ratio := outcome.details.get("budget_ratio"))}
    rows_below = [f"{row_display_name(row)} {ratio:.2f}" for row, ratio in ratios.items() if ratio < LEAST_MATCHED]
    rules = dict.fromkeys(BUDGETS[outcome.job.budget] for outcome in outcomes)
    sentences = []
    for rule in rules:
        is_parameters = rule.quantity == "parameters"
        how = "both with the conv taps of the label" if is_parameters else "at the longest input of each run"
        sentences.append(
            f"Budget: {rule.name} of the mixer divided by those of softmax attention, {how}; mean over tasks."
        )
    if any(rule.chooses_steps for rule in rules):
        sentences.append("Each label trains as many steps as have the training FLOPs of softmax attention.")
    if rows_below:
        sentences.append(f"Smaller than softmax attention, not matched: {', '.join(rows_below)}.")
    return sentences
