"""The kinds of figures: what each draws of a store, and which of them a store has data for."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from madbench.analysis.figures.budget import budget_figure, budget_frame, language_values, mad_values
from madbench.analysis.figures.difficulty import difficulty_figure, difficulty_frame
from madbench.analysis.figures.effects import effects_figure, effects_frame
from madbench.analysis.figures.learning import learning_figure, learning_frame
from madbench.analysis.figures.loss_curves import loss_curve_figure
from madbench.analysis.figures.mad import mad_figure, mad_frame
from madbench.analysis.figures.material import Material
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.loss_curves import loss_curves
from madbench.analysis.scores import collect
from madbench.experiment import Experiment, protocol_sentences
from madbench.jobs import Job
from madbench.store.runs import Store
from madbench.tasks import make_setting


@dataclass(frozen=True)
class Kind:
    """One kind of figure."""

    frame: Callable[[Material], pd.DataFrame]
    """What is drawn; raises ``NothingToDrawError`` where there is nothing."""
    draw: Callable[..., Figure]
    """``draw(frame, styles=...)``: the figure of such a frame."""
    file: str
    """Name of its files, without ending."""
    halves: tuple[str, ...]
    """What it is about: ``mad``, ``language``."""


def _mad(material: Material) -> pd.DataFrame:
    made = material.mad
    settings = material.collected[["task", "setting"]].drop_duplicates()
    chances: dict[str, list[float]] = {}
    for task, setting in sorted(zip(settings.task, settings.setting)):
        num_answers = make_setting(task, json.loads(setting), f"setting of {task}").num_answers
        chances.setdefault(task, []).append(100 / num_answers)
    means = {task: sum(of_task) / len(of_task) for task, of_task in chances.items()}
    is_comparable = made.profile.comparable_with_paper
    sentences = material.mad_sentences
    if is_comparable and (made.fidelity, made.counting) != ("published", "published"):
        sentences.append("The published numbers used the published fidelity and counting.")
    return mad_frame(material.cells, " ".join(sentences), means, is_comparable)


def _learning(material: Material) -> pd.DataFrame:
    sentences = protocol_sentences(material.mad, material.collected)
    if material.collected.groupby("task").setting.nunique().max() > 1:
        sentences.append("The baseline setting of every task.")
    if (material.collected.groupby(["label", "task", "setting", "seed"]).size() > 1).any():
        sentences.append("Runs with the learning rate and weight decay that were chosen.")
    frame = learning_frame(material.collected, material.store.read, " ".join(sentences))
    if frame.empty:
        raise NothingToDrawError("no run of a baseline setting is finished")
    return frame


def _loss(material: Material) -> pd.DataFrame:
    order = material.labels
    if not material.language_runs:
        raise NothingToDrawError("there are no language-model runs of one protocol")
    return loss_curves(sorted(material.language_runs, key=lambda run: (order.index(run.job.label), run.job.seed)))


def _effects(material: Material) -> pd.DataFrame:
    if not material.attribution.effects:
        raise NothingToDrawError("no two labels with a finished task and seed in common differ in exactly one factor")
    return effects_frame(material.attribution, material.both_sentences)


def _budget(material: Material) -> pd.DataFrame:
    parts = []
    if material.experiment:
        first = material.collected[material.collected.status == "finished"].drop_duplicates(["label", "task"])
        details = {run_id: record.details for run_id, record in material.store.records(first.id).items()}
        counts = [details.get(run_id, {}).get("mixer_parameters", float("nan")) for run_id in first.id]
        parts.append(mad_values(material.cells, dict(zip(zip(first.label, first.task), counts))))
    if material.language_runs:
        parts.append(language_values(material.language_runs))
    frame = budget_frame(pd.concat(parts, ignore_index=True), material.both_sentences)
    if frame["mean"].isna().all():
        raise NothingToDrawError("no label has all of its runs finished")
    return frame


def _difficulty(material: Material) -> pd.DataFrame:
    jobs = difficulty_jobs(material.mad, material.store)
    collected = material.collected if len(jobs) == len(material.mad.jobs) else collect(jobs, material.store)
    frame = difficulty_frame(collected, " ".join(material.mad_sentences))
    if frame.empty:
        raise NothingToDrawError(
            "every task is stored at one setting alone; --profile full varies them, or a run with e.g. "
            "tasks.in_context_recall.setting.seq_len=32"
        )
    return frame


def difficulty_jobs(experiment: Experiment, store: Store) -> list[Job]:
    """The experiment's jobs, and those that are like them but for the setting of which a run is stored."""
    if experiment.profile.difficulty == "all":
        return experiment.jobs
    first: dict[str, Job] = {}
    for job in experiment.jobs:
        first.setdefault(job.task, job)
    like = {task: [one for one in experiment.jobs if _key(one) == _key(job)] for task, job in first.items()}
    labels = {job.label for job in experiment.jobs}
    jobs = {job.id: job for job in experiment.jobs}
    for run in store.runs(with_curves=False):
        job = run.job
        if not isinstance(job, Job) or job.label not in labels or job.id in jobs:
            continue
        changed = {"label": job.label, "seed": job.seed, "setting": job.setting}
        of_setting = [replace(one, **changed) for one in like.get(job.task, ())]
        if any(one.id == job.id for one in of_setting):
            jobs |= {one.id: one for one in of_setting}
    return list(jobs.values())


def _key(job: Job) -> tuple[Any, ...]:
    return job.label, job.task, job.seed, json.dumps(job.setting, sort_keys=True)


KINDS = {
    "mad": Kind(_mad, mad_figure, "mad", ("mad",)),
    "learning": Kind(_learning, learning_figure, "learning", ("mad",)),
    "loss": Kind(_loss, functools.partial(loss_curve_figure, x="tokens"), "loss_curves", ("language",)),
    "effects": Kind(_effects, lambda frame, styles=None: effects_figure(frame), "effects", ("mad", "language")),
    "budget": Kind(_budget, budget_figure, "budget", ("mad", "language")),
    "difficulty": Kind(_difficulty, difficulty_figure, "difficulty", ("mad",)),
}
"""By name, in the order in which they are drawn."""
