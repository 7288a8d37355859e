"""The kinds of figures by name. A kind has a function that makes a data frame, and one that draws the frame."""

from __future__ import annotations

import functools
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from madbench.analysis.attribution import attribute
from madbench.analysis.baselines import BASELINES, HEURISTIC, baseline_values
from madbench.analysis.cost_table import counted_costs
from madbench.analysis.figures import accuracy, budget, curves, effects, suites_of_figure
from madbench.analysis.figures.files import NothingToDrawError, read_frame
from madbench.analysis.scores import Results
from madbench.jobs import Job, Record
from madbench.suites import Suite, suites
from madbench.suites.outcomes import JobOutcome
from madbench.suites.profile import Profile
from madbench.suites.published import published_numbers
from madbench.suites.scoring import CURVES, scoring_of
from madbench.suites.tokens import TokenProfile
from madbench.tasks import load_task


@dataclass(frozen=True)
class Drawing:
    """A kind of figure, such as the learning curves.

    ``frame`` makes its data, and ``draw`` draws them. ``draw(read(path))`` draws a figure again from the CSV file of
    its data.
    """

    frame: Callable[[Results, Suite], pd.DataFrame]
    """Makes the frame from results and a suite. A figure of all suites ignores the suite."""
    draw: Callable[..., Figure]
    """Draws a frame. Arguments after the frame are optional."""
    columns: Mapping[str, type]
    """The type of each column of the frame, by its name."""
    file: str
    """The name of the figure's files, without suffix."""
    caption: str = ""
    """The caption in a report."""

    def read(self, path: Path) -> pd.DataFrame:
        """Read the frame from a CSV file. Raises ``ConfigError`` if the file has no frame of this figure."""
        return read_frame(path, self.columns, self.file.replace("_", " "))


def drawing_of(name: str) -> Drawing:
    """The kind of figure with the name ``name``. Raises ``KeyError`` if no suite has such a figure."""
    of_suites = {figure: path for suite in suites().values() for figure, path in suite.figures.items()}
    return OF_ANY_SUITE[name] if name in OF_ANY_SUITE else pkgutil.resolve_name(of_suites[name])


def figure_frame(name: str, results: Results, missing: Mapping[str, str] = {}) -> pd.DataFrame:
    """The data frame of the figure ``name``, made from stored runs.

    ``missing`` has the reason why a suite has no runs, by the name of the suite. The reason becomes the error message.
    Raises ``NothingToDrawError`` if there is nothing to draw.
    """
    owners, stored_suites = suites_of_figure(name), results.suites
    usable = [suite for suite in stored_suites if suite in owners]
    if owners and not usable:
        reasons = (missing[suite.name] for suite in owners if suite.name in missing)
        raise NothingToDrawError(next(reasons, f"there are no runs: {owners[0].title}"))
    if not stored_suites:
        raise NothingToDrawError(next(iter(missing.values()), "there are no runs"))
    return drawing_of(name).frame(results, next(iter(usable), next(iter(results.suites_with_result), stored_suites[0])))


def _scores(results: Results, suite: Suite) -> pd.DataFrame:
    protocol, outcomes = results.protocol(suite), results.outcomes(suite)
    jobs = [outcome.job for outcome in outcomes]
    baselines = BASELINES if scoring_of(suite).shows_chance else [HEURISTIC]
    references = {baseline.name: baseline_values(baseline, jobs) for baseline in baselines}
    scores = results.scores[results.scores.suite == suite.name]
    names = {column.name for column in suite.columns(protocol.tasks)}
    sentences = _about(results, suite)
    published = {}
    if protocol.profile.comparable_with_paper:
        published = {label: published_numbers(protocol, label) for label in scores.label.unique()}
        if len(suite.fidelities) > 1 and (protocol.fidelity, protocol.budget) != ("published", "paper"):
            sentences += " The published numbers are of the published fidelity and the paper budget."
    frame = accuracy.score_frame(scores[scores.column.isin(names)], sentences, references, published)
    if frame.empty:
        raise NothingToDrawError("no run is finished")
    return frame


def _learning(results: Results, suite: Suite) -> pd.DataFrame:
    job_frame, sentences = results.job_frame(suite), _shared(results, suite)
    if job_frame.groupby("column").setting.nunique().max() > 1:
        sentences.append("The baseline setting of every task.")
    if job_frame.duplicated(["label", "column", "setting", "seed"]).any():
        sentences.append("Runs with the learning rate and weight decay that were chosen.")
    with_curve = functools.partial(_record, results)
    firsts: dict[str, Job] = {}
    for outcome in results.outcomes(suite):
        firsts.setdefault(outcome.job.task, outcome.job)
    heuristics = baseline_values(HEURISTIC, [*firsts.values()], averages=False)
    frame = curves.learning_frame(scoring_of(suite), job_frame, with_curve, " ".join(sentences), heuristics)
    if frame.empty:
        raise NothingToDrawError("no run of a baseline setting is finished")
    return frame


def _record(results: Results, run_id: str) -> Record:
    """The record, with its curve, of the stored run with the id ``run_id``."""
    return results.store.read(run_id).record


def _effects(results: Results, _: Suite) -> pd.DataFrame:
    stored_effects = attribute(results.scores)
    if not stored_effects:
        raise NothingToDrawError("no two labels with a finished task in common differ in exactly one factor")
    return effects.effects_frame(stored_effects, " ".join(_shared(results)))


def _budget(results: Results, _: Suite) -> pd.DataFrame:
    costs = pd.concat([_costs(results, suite) for suite in results.suites])
    jobs = [job for row in results.rows for job in row.jobs]
    heuristics = baseline_values(HEURISTIC, jobs)
    frame = budget.budget_frame(results.scores, costs, " ".join(_shared(results)), heuristics)
    if frame[frame.label != ""]["mean"].isna().all():
        raise NothingToDrawError("no label has all of its runs finished")
    frame.attrs["matched"] = results.matched_quantity
    return frame


def _costs(results: Results, suite: Suite) -> pd.DataFrame:
    """A frame with one row per run of a suite: suite, label, column, and the costs of the label's mixers."""
    row_costs = counted_costs(results, suite)
    costs = scoring_of(suite).costs(results.outcomes(suite))
    for name in ("flops_per_token", "state"):
        costs[name] = [row_costs.get(label, {}).get(name, math.nan) for label in costs.label]
    return costs


def _difficulty(results: Results, suite: Suite) -> pd.DataFrame:
    outcomes = results.outcomes(suite)
    if not _is_of_every_setting(results.protocol(suite).profile.loaded):
        job_ids = {outcome.job.id for outcome in outcomes}
        planned_keys = {_all_but_setting_and_seed(outcome.job) for outcome in outcomes}
        extra_jobs = [job for job in results.store.jobs().values() if job.suite == suite.name and job.id not in job_ids]
        alike = [job for job in extra_jobs if _all_but_setting_and_seed(job) in planned_keys]
        records = results.store.records({job.id for job in alike})
        readable = {name: record for name, record in records.items() if record.status != "failed"}
        outcomes = [*outcomes, *(JobOutcome(job.label, job, readable.get(job.id)) for job in alike)]
    job_frame = scoring_of(suite).collect(outcomes)
    frame = accuracy.difficulty_frame(scoring_of(suite), job_frame, _about(results, suite))
    if frame.empty:
        task = next((outcome.job.task for outcome in outcomes), suite.usual_tasks()[0])
        raise NothingToDrawError(f"every task is stored with only one setting{_hint_on_settings(suite, task)}")
    return frame


def _is_of_every_setting(profile: Profile) -> bool:
    return isinstance(profile, TokenProfile) and profile.difficulty == "all"


def _hint_on_settings(suite: Suite, task: str) -> str:
    """The end of an error message, with ways to train other settings of a task. Empty if the task has only one."""
    profiles = [name for name, profile in suite.shipped().items() if _is_of_every_setting(profile)]
    content = load_task(task)
    baseline = vars(content.baseline)
    values = [pair for setting in content.settings for pair in vars(setting).items() if pair[1] != baseline[pair[0]]]
    ways = [f"--profile {name} varies them" for name in profiles[:1]]
    ways += [f"a run with e.g. tasks.{task}.setting.{name}={value}" for name, value in values[:1]]
    return f"; {', or '.join(ways)}" if ways else ""


def _all_but_setting_and_seed(job: Job) -> tuple[Any, ...]:
    return job.label, job.task, job.model, str(job.mixer), str(job.family), job.training, job.fidelity, job.budget


def _about(results: Results, suite: Suite) -> str:
    """Sentences for the notes on the runs of a suite.

    They give the meaning of the numbers, the protocol, and the runs that used other code than the installed code.
    """
    meaning = scoring_of(suite).meaning(results.protocol(suite))
    return " ".join([f"{meaning[:1].upper()}{meaning[1:]}.", *_shared(results, suite)])


def _shared(results: Results, suite: Suite | None = None) -> list[str]:
    """Sentences on the runs of one suite, by default of all suites.

    They give the protocol, and the runs that used other code than the installed code.
    """
    of_suites = results.suites_with_result if suite is None else [suite]
    return [
        *results.sentences(suite),
        *(text for suite_of_row in of_suites for text in results.code_marks(suite_of_row).sentences),
    ]


def _loss(results: Results, suite: Suite) -> pd.DataFrame:
    return scoring_of(suite).curves(results.runs(suite))


LEARNING = Drawing(
    _learning, curves.learning_figure, curves.LEARNING_COLUMNS, "learning", "Learning curves of the chosen runs"
)
LOSS = Drawing(_loss, curves.loss_figure, CURVES, "loss_curves", "Loss curves of the language models")
DIFFICULTY = Drawing(
    _difficulty,
    accuracy.difficulty_figure,
    accuracy.DIFFICULTY_COLUMNS,
    "difficulty",
    "Accuracy against difficulty",
)
OF_ANY_SUITE = {
    "scores": Drawing(_scores, accuracy.score_figure, accuracy.SCORE_COLUMNS, "scores", "Each task, by label"),
    "effects": Drawing(_effects, effects.effects_figure, effects.COLUMNS, "effects", "What each factor is worth"),
    "budget": Drawing(_budget, budget.budget_figure, budget.COLUMNS, "budget", "Results against the budget"),
}
"""The figures that exist for every suite, by name."""
