"""The stored runs behind figures, and the frame that each figure draws: all that figures know of store and experiment."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pandas as pd

from madbench.analysis.attribution_table import AttributionTable, attribution_table
from madbench.analysis.figures.budget import budget_frame, language_values, mad_values
from madbench.analysis.figures.difficulty import difficulty_frame
from madbench.analysis.figures.effects import effects_frame
from madbench.analysis.figures.highlights import alternate, best_first
from madbench.analysis.figures.learning import learning_frame
from madbench.analysis.figures.mad import mad_frame
from madbench.analysis.figures.style import COLORS, LabelStyle, label_styles
from madbench.analysis.frames import NothingToDrawError
from madbench.analysis.loss_curves import loss_curves, run_losses
from madbench.analysis.scores import collect, scores
from madbench.experiment import Experiment, accuracy_meaning, protocol_sentences
from madbench.jobs import Job
from madbench.store.runs import Run, Store
from madbench.tasks import make_setting


@dataclass(frozen=True)
class FigureData:
    """Runs of one protocol of either suite, or of both."""

    store: Store
    experiment: Experiment | None = None
    """The MAD runs."""
    language_runs: list[Run] = field(default_factory=list)
    """The language models, with their curves."""
    language_sentences: list[str] = field(default_factory=list)
    """What those share."""
    why_no_mad: str = "there are no runs of MAD tasks"

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of their styles."""
        jobs = [*(self.experiment.jobs if self.experiment else ()), *(run.job for run in self.language_runs)]
        return list(dict.fromkeys(job.label for job in jobs))

    @functools.cached_property
    def styles(self) -> dict[str, LabelStyle]:
        """One style a label, the same in every figure; the best labels have those that differ most."""
        if len(self.labels) <= len(COLORS):
            return label_styles(self.labels)
        rankings = []
        if self.experiment:
            rankings.append(best_first(self.cells.groupby("label").accuracy.agg(list).to_dict()))
        if self.language_runs:
            losses = self.language_losses.groupby("label").loss_l5.agg(list).to_dict()
            rankings.append(best_first(losses, is_lower_better=True))
        return label_styles(alternate(rankings))

    @functools.cached_property
    def language_losses(self) -> pd.DataFrame:
        """:func:`madbench.analysis.loss_curves.run_losses` of the language models."""
        return run_losses(self.language_runs, ())

    @functools.cached_property
    def attribution(self) -> AttributionTable:
        """The effects of the factors in either suite."""
        cells = self.cells if self.experiment else None
        losses = self.language_losses if self.language_runs else None
        return attribution_table(cells, losses, [self.both_sentences])

    @functools.cached_property
    def collected(self) -> pd.DataFrame:
        return collect(self.mad.jobs, self.store)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        return scores(self.collected)

    @property
    def mad(self) -> Experiment:
        """The MAD runs; raises ``NothingToDrawError`` without any."""
        if self.experiment is None:
            raise NothingToDrawError(self.why_no_mad)
        return self.experiment

    @property
    def mad_sentences(self) -> list[str]:
        if self.experiment is None:
            return []
        meaning = accuracy_meaning(self.experiment.fidelity)
        return [f"{meaning[:1].upper()}{meaning[1:]}.", *protocol_sentences(self.experiment, self.collected)]

    @property
    def both_sentences(self) -> str:
        return " ".join([*self.mad_sentences, *self.language_sentences])


def figure_frame(name: str, data: FigureData) -> pd.DataFrame:
    """What the figure of this name (of the registry) draws; raises ``NothingToDrawError`` where there is nothing."""
    return _FRAMES[name](data)


def _mad(data: FigureData) -> pd.DataFrame:
    made, sentences = data.mad, data.mad_sentences
    settings = data.collected[["task", "setting"]].drop_duplicates()
    guesses = [100 / make_setting(task, json.loads(text), task).num_answers for task, text in settings.to_numpy()]
    chances = settings.assign(chance=guesses).groupby("task").chance.mean().to_dict()
    is_comparable = made.profile.comparable_with_paper
    if is_comparable and (made.fidelity, made.counting) != ("published", "published"):
        sentences.append("The published numbers are of the published fidelity and the paper's budget.")
    return mad_frame(data.cells, " ".join(sentences), chances, is_comparable)


def _learning(data: FigureData) -> pd.DataFrame:
    sentences = protocol_sentences(data.mad, data.collected)
    if data.collected.groupby("task").setting.nunique().max() > 1:
        sentences.append("The baseline setting of every task.")
    if data.collected.duplicated(["label", "task", "setting", "seed"]).any():
        sentences.append("Runs with the learning rate and weight decay that were chosen.")
    frame = learning_frame(data.collected, lambda run_id: data.store.read(run_id).record, " ".join(sentences))
    if frame.empty:
        raise NothingToDrawError("no run of a baseline setting is finished")
    return frame


def _loss(data: FigureData) -> pd.DataFrame:
    if not data.language_runs:
        raise NothingToDrawError("there are no language-model runs of one protocol")
    places = {label: i for i, label in enumerate(data.labels)}
    return loss_curves(sorted(data.language_runs, key=lambda run: (places[run.job.label], run.job.seed)))


def _effects(data: FigureData) -> pd.DataFrame:
    if not data.attribution.effects:
        raise NothingToDrawError("no two labels with a finished task and seed in common differ in exactly one factor")
    return effects_frame(data.attribution, data.both_sentences)


def _budget(data: FigureData) -> pd.DataFrame:
    parts = []
    if data.experiment:
        first = data.collected[data.collected.status == "finished"].drop_duplicates(["label", "task"])
        details = {run_id: record.details for run_id, record in data.store.records(first.id).items()}
        counts = [details.get(run_id, {}).get("mixer_parameters", float("nan")) for run_id in first.id]
        parts.append(mad_values(data.cells, dict(zip(zip(first.label, first.task), counts))))
    if data.language_runs:
        parts.append(language_values(data.language_losses, [run.record.details for run in data.language_runs]))
    frame = budget_frame(pd.concat(parts, ignore_index=True), data.both_sentences)
    if frame["mean"].isna().all():
        raise NothingToDrawError("no label has all of its runs finished")
    return frame


def _difficulty(data: FigureData) -> pd.DataFrame:
    jobs = difficulty_jobs(data.mad, data.store)
    collected = data.collected if len(jobs) == len(data.mad.jobs) else collect(jobs, data.store)
    frame = difficulty_frame(collected, " ".join(data.mad_sentences))
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
    jobs = {job.id: job for job in experiment.jobs}
    first = {job.task: job for job in reversed(experiment.jobs)}
    like: dict[str, list[Job]] = {}
    for job in experiment.jobs:
        if all(getattr(job, name) == getattr(first[job.task], name) for name in ("label", "seed", "setting")):
            like.setdefault(job.task, []).append(job)
    labels = {job.label for job in experiment.jobs}
    for run in store.runs(with_curves=False):
        job = run.job
        if isinstance(job, Job) and job.label in labels and job.id not in jobs:
            varied = [
                replace(one, label=job.label, seed=job.seed, setting=job.setting) for one in like.get(job.task, ())
            ]
            if any(one.id == job.id for one in varied):
                jobs |= {one.id: one for one in varied}
    return list(jobs.values())


_FRAMES: dict[str, Callable[[FigureData], pd.DataFrame]] = {
    "mad": _mad,
    "learning": _learning,
    "loss": _loss,
    "effects": _effects,
    "budget": _budget,
    "difficulty": _difficulty,
}
