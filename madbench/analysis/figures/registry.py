"""The figures by name: what each draws, as a frame, of the runs of one protocol a suite, and what draws that."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from madbench.analysis import loss_curves
from madbench.analysis.attribution import attribute
from madbench.analysis.captions import accuracy_meaning
from madbench.analysis.figures import accuracy, budget, curves, effects
from madbench.analysis.figures.files import NothingToDrawError, read_frame
from madbench.analysis.quantities import LOSS
from madbench.analysis.scores import Results, collect
from madbench.jobs import Job
from madbench.suites import LANGUAGE, MAD
from madbench.tasks import make_setting


@dataclass(frozen=True)
class Drawing:
    """A figure: ``draw(read(path))`` is the very one that was drawn from the frame in the CSV file."""

    frame: Callable[[Results], pd.DataFrame]
    """What is drawn of results; the suite is there that it is about, or one of them."""
    draw: Callable[..., Figure]
    """``draw(frame)``, and choices of its own."""
    columns: Mapping[str, type]
    """Of its frame."""
    file: str
    """Name of its files, without ending."""
    suites: tuple[str, ...]
    """Names of the suites it is about."""

    def read(self, path: Path) -> pd.DataFrame:
        """The frame in a CSV file. Raises ``ConfigError`` where the file holds none of this figure."""
        return read_frame(path, self.columns, self.file.replace("_", " "))


def figure_frame(name: str, results: Results, missing: str = "there are no runs of MAD tasks") -> pd.DataFrame:
    """What the figure of this name draws of stored runs; ``missing`` is why there are none of MAD, where that is so.

    Raises ``NothingToDrawError`` where there is nothing.
    """
    drawing = FIGURES[name]
    if drawing.suites == (MAD.name,) and not results.has(MAD):
        raise NothingToDrawError(missing)
    if drawing.suites == (LANGUAGE.name,) and not results.has(LANGUAGE):
        raise NothingToDrawError("there are no language-model runs of one protocol")
    return drawing.frame(results)


def _mad(results: Results) -> pd.DataFrame:
    protocol = results.rows(MAD)[0].protocol
    settings = results.collected[["column", "setting"]].drop_duplicates()
    guesses = [100 / make_setting(task, json.loads(text), task).num_answers for task, text in settings.to_numpy()]
    chances = settings.assign(chance=guesses).groupby("column").chance.mean().to_dict()
    is_comparable = protocol.profile.comparable_with_paper
    sentences = _about_accuracy(results)
    if is_comparable and (protocol.fidelity, protocol.budget) != ("published", "paper"):
        sentences += " The published numbers are of the published fidelity and the paper budget."
    frame = accuracy.mad_frame(results.scores, sentences, chances, is_comparable)
    if frame.empty:
        raise NothingToDrawError("no run is finished")
    return frame


def _learning(results: Results) -> pd.DataFrame:
    collected, sentences = results.collected, results.sentences(MAD)
    if collected.groupby("column").setting.nunique().max() > 1:
        sentences.append("The baseline setting of every task.")
    if collected.duplicated(["label", "column", "setting", "seed"]).any():
        sentences.append("Runs with the learning rate and weight decay that were chosen.")
    frame = curves.learning_frame(collected, lambda name: results.store.read(name).record, " ".join(sentences))
    if frame.empty:
        raise NothingToDrawError("no run of a baseline setting is finished")
    return frame


def _effects(results: Results) -> pd.DataFrame:
    found = attribute(results.scores)
    if not found:
        raise NothingToDrawError("no two labels with a finished task in common differ in exactly one factor")
    return effects.effects_frame(found, " ".join(results.sentences()))


def _budget(results: Results) -> pd.DataFrame:
    details = [run.record.details for run in results.language_runs]
    names = [name for name, runs in results.runs.items() for _ in runs]
    of_runs = {cost: [one.get(cost, math.nan) for one in details] for cost in budget.COSTS}
    costs = pd.DataFrame({"label": names, "column": LOSS, **of_runs})
    if results.has(MAD):
        costs = pd.concat([results.collected[list(costs)], costs])
    frame = budget.budget_frame(results.scores, costs, " ".join(results.sentences()))
    if frame["mean"].isna().all():
        raise NothingToDrawError("no label has all of its runs finished")
    return frame


def _difficulty(results: Results) -> pd.DataFrame:
    collected = results.collected
    if results.rows(MAD)[0].protocol.profile.difficulty != "all":
        jobs = {job.id: job for row in results.rows(MAD) for job in row.jobs}
        planned = {_all_but_setting_and_seed(job) for job in jobs.values()}
        stored = [job for job in results.store.jobs().values() if job.suite == MAD.name and job.id not in jobs]
        alike = [job for job in stored if _all_but_setting_and_seed(job) in planned]
        collected = collect([*jobs.values(), *alike], results.store)
    frame = accuracy.difficulty_frame(collected, _about_accuracy(results))
    if frame.empty:
        raise NothingToDrawError(
            "every task is stored at one setting alone; --profile full varies them, or a run with e.g. "
            "tasks.in_context_recall.setting.seq_len=32"
        )
    return frame


def _all_but_setting_and_seed(job: Job) -> tuple[Any, ...]:
    return job.label, job.task, job.model, str(job.mixer), str(job.family), job.training, job.fidelity, job.budget


def _about_accuracy(results: Results) -> str:
    """What the accuracy of the MAD runs is, and what they share."""
    meaning = accuracy_meaning(results.rows(MAD)[0].protocol.fidelity)
    return " ".join([f"{meaning[:1].upper()}{meaning[1:]}.", *results.sentences(MAD)])


def _loss(results: Results) -> pd.DataFrame:
    return loss_curves.loss_curves(results.language_runs)


FIGURES = {
    "mad": Drawing(_mad, accuracy.mad_figure, accuracy.MAD_COLUMNS, "mad", ("mad",)),
    "learning": Drawing(_learning, curves.learning_figure, curves.LEARNING_COLUMNS, "learning", ("mad",)),
    "loss": Drawing(_loss, curves.loss_figure, loss_curves.COLUMNS, "loss_curves", ("language",)),
    "effects": Drawing(_effects, effects.effects_figure, effects.COLUMNS, "effects", ("mad", "language")),
    "budget": Drawing(_budget, budget.budget_figure, budget.COLUMNS, "budget", ("mad", "language")),
    "difficulty": Drawing(_difficulty, accuracy.difficulty_figure, accuracy.DIFFICULTY_COLUMNS, "difficulty", ("mad",)),
}
"""By name, in the order in which they are drawn."""
