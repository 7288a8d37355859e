"""From the records of a suite's jobs to scores, one long frame for every suite.

A frame of scores has a row a label, seed and column:

- ``suite``, ``label`` (or the name of a grid's row), ``seed``, ``column``: a task, an average or another quantity;
- ``value``: accuracy in percent, loss in nats per token, steps, ...; NaN if there is none;
- ``done`` and ``expected`` jobs, and how many of them ``diverged``;
- ``budget_ratio``: mean over the jobs;
- ``chance``, ``ceiling``, and the value from which on a task is ``solved``; NaN if there is no such value;
- ``is_diverged``: whether every run of a setting diverged. Such a setting has the value of chance. Of steps to an
  event: whether the run did not get there; the value is its last step.
"""

from __future__ import annotations

import functools
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from madbench.jobs import LEAST_MATCHED, Job, Record, mapping_text
from madbench.suites.base import Suite
from madbench.suites.columns import Column
from madbench.suites.protocol import Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

COLUMNS = {"suite": str, "label": str, "seed": int, "column": str, "value": float}
COLUMNS |= {"done": int, "expected": int, "diverged": int, "budget_ratio": float}
COLUMNS |= {"ceiling": float, "chance": float, "solved": float, "is_diverged": bool}
"""Of a frame of scores."""
CURVES = dict.fromkeys(("protocol", "id", "label"), str) | {"seed": int, "status": str, "step": int, "tokens": int}
CURVES |= dict.fromkeys(("seconds", "evaluation", "train_loss", "validation_loss"), float)
CURVES |= dict.fromkeys(("validation_bits_per_byte", "step_loss"), float)
"""Of a frame of curves of language models; those from ``step`` on are a curve's."""
SCALE = ("ceiling", "chance", "solved")
_METRICS = ("value", "selection", "ceiling")
SETTING = ["suite", "label", "column", "setting", "seed"]
_OF_SEEDS = SETTING[:-1]
_RATES = ("learning_rate", "weight_decay")
PUBLISHED_FIDELITY = "published"
_DETAILS = ("budget_ratio", "mixer_parameters", "device")
COUNTS = ("done", "expected", "diverged")
_SUMS = {name: (name, "sum") for name in COUNTS}
"""Of jobs, where rows are aggregated."""


@dataclass(frozen=True)
class Outcome:
    """A job of a row of a table, and what is stored of it."""

    row: str  # name of the row: a label, or a row of a grid
    job: Job
    record: Record | None  # None where nothing is stored, and where the run failed

    @property
    def status(self) -> str:
        return self.record.status if self.record else "missing"

    @property
    def details(self) -> Mapping[str, Any]:
        return self.record.details if self.record else {}


class Scoring:
    """How the records of one suite are read. Here: a metric a task, the best of several rates, the mean over settings.

    Of runs that differ in learning rate and decay alone one counts. The first seed of a label chooses for its others:
    the rate with the best ``selection`` in it, of each setting by itself, and it is not reported. A seed that chose for
    itself would be the best of several draws, which favours labels that scatter, even where ``selection`` is on data
    that are not reported: runs scatter on both alike. Where a label has a single seed, and in the published fidelity,
    which does so, each seed chooses for itself.
    """

    has_curves = False
    """True if scores are read off curves, which take longer to read."""
    metric = "accuracy"
    """Of a record, the number that is reported."""
    selection = "accuracy"
    """Of a record, the number by which rates are chosen."""
    ceiling = "ceiling"
    """Of a record, the best that its data allow; empty if there is no such bound."""
    factor = 100.0
    """From the metric to the column."""
    is_lower_better = False
    shows_chance = False
    """True if figures show what a guess would give."""
    limit = 100.0
    """The ceiling of a setting whose records name none; NaN for none."""

    def __init__(self, suite: Suite):
        self.suite = suite

    def value(self, job: Job, record: Record) -> float:
        """The number that a run is reported by, in the units of its column; NaN for none."""
        value = record.metrics.get(self.metric)
        return math.nan if value is None else self.factor * value

    def chance(self, job: Job) -> float:
        """The value of a model that has learned nothing of the job's setting; NaN if it is not known."""
        return math.nan

    def heuristic(self, job: Job) -> float:
        """The value of a heuristic that needs no learning of the job's setting; NaN where none is known."""
        return math.nan

    def solved_share(self, task: str) -> float:
        """The share of the way from chance to the ceiling from which on a seed has solved the task; NaN for none."""
        return math.nan

    def sources(self, tasks: Sequence[str]) -> list[str]:
        """The modules in which the numbers of tasks are made from records."""
        return list(dict.fromkeys((type(self.suite).__module__, type(self).__module__)))

    def groups(self, protocols: Sequence[Protocol]) -> list[Hashable]:
        """By protocol of a row, what it has to share with others to be compared with them; by default nothing."""
        return [None] * len(protocols)

    def collect(self, outcomes: Iterable[Outcome]) -> pd.DataFrame:
        """One row an outcome, in their order: what decided it, its ``status`` (or ``missing``) and what it gave.

        Columns: id, suite, label (the name of its row), column (its task), setting (JSON), rate (and decay), is_held
        (whether a first seed may choose for others), chance, seed, status, value, selection, ceiling, budget_ratio,
        mixer_parameters, device.
        """
        outcomes = list(outcomes)
        jobs = [outcome.job for outcome in outcomes]
        columns: dict[str, list[Any]] = {
            "id": [job.id for job in jobs],
            "suite": [job.suite for job in jobs],
            "label": [outcome.row for outcome in outcomes],
            "column": [job.task for job in jobs],
            "setting": [mapping_text(job.setting) for job in jobs],
            "rate": [tuple(getattr(job.training, name, 0.0) for name in _RATES) for job in jobs],
            "is_held": [job.fidelity != PUBLISHED_FIDELITY for job in jobs],
            "chance": [self.chance(job) for job in jobs],
            "seed": [job.seed for job in jobs],
            "status": [outcome.status for outcome in outcomes],
        }
        finished = [outcome.record if outcome.status == "finished" else None for outcome in outcomes]
        columns["value"] = [
            finite_or_nan(self.value(job, each)) if each else math.nan for job, each in zip(jobs, finished)
        ]
        for name, metric in (("selection", self.selection), ("ceiling", self.ceiling)):
            columns[name] = [record.metrics.get(metric) if record else None for record in finished]
        columns |= {name: [outcome.details.get(name) for outcome in outcomes] for name in _DETAILS}
        return pd.DataFrame(columns)

    def setting_scores(self, collected: pd.DataFrame) -> pd.DataFrame:
        """A frame of scores with a row a setting: those of the runs that were chosen. It has the column ``setting``."""
        jobs = collected.astype(dict.fromkeys((*_METRICS, "budget_ratio"), float))
        jobs["diverged"] = jobs.status == "diverged"
        jobs["done"] = jobs.diverged | (jobs.status == "finished")
        jobs["budget_ratio"] = jobs.budget_ratio.where(jobs.done)
        best = self.chosen(jobs)
        best = best[[*SETTING, "value", "ceiling"]].assign(ceiling=self.factor * best.ceiling)
        choosing = self.choosing(jobs)
        undecided = jobs[choosing & (jobs.status == "missing")][_OF_SEEDS].drop_duplicates().assign(is_undecided=True)
        jobs = jobs[~choosing]
        by_setting = jobs.assign(expected=1).groupby(SETTING, sort=False, as_index=False)
        counts = by_setting.agg(**_SUMS, **{name: (name, "mean") for name in ("budget_ratio", "chance")})
        scores = counts.merge(best, on=SETTING, how="left")
        is_decided = scores.merge(undecided, on=_OF_SEEDS, how="left").is_undecided.isna()
        scores["is_diverged"] = (scores.done == scores.expected) & scores.value.isna() & is_decided
        scores["value"] = scores.value.where(~scores.is_diverged, scores.chance)
        usual = scores.groupby(["column", "setting"]).ceiling.transform("mean").fillna(self.limit)
        scores["ceiling"] = scores.ceiling.fillna(usual)
        share = scores.column.map({task: self.solved_share(task) for task in scores.column.unique()})
        scores["solved"] = scores.chance + share.astype(float) * (scores.ceiling - scores.chance)
        return scores

    def choosing(self, collected: pd.DataFrame) -> pd.Series:
        """Which rows are of a first seed that chooses among several rates for the other seeds of its label.

        None of a frame that does not say at which rates its rows were trained.
        """
        if not {"rate", "is_held"} <= set(collected):
            return pd.Series(False, collected.index)
        by_setting = collected.groupby(_OF_SEEDS, sort=False)
        first = collected.groupby(["suite", "label"], sort=False).seed.transform("min")
        several = by_setting.rate.transform("nunique") > 1
        return collected.is_held & several & (by_setting.seed.transform("nunique") > 1) & (collected.seed == first)

    def choosing_seeds(self, outcomes: Sequence[Outcome]) -> int:
        """Seeds of the label that has the fewest, among labels whose first seed chooses; 0 if there is no such label.

        See :meth:`choosing`.
        """
        tried = {(outcome.job.training.learning_rate, outcome.job.training.weight_decay) for outcome in outcomes}
        if len(tried) < 2:
            return 0
        collected = self.collect(outcomes)
        choosing = collected[self.choosing(collected)]
        seeds = collected.groupby("label", sort=False).seed.nunique()
        return int(seeds[seeds.index.isin(choosing.label)].min()) if len(choosing) else 0

    def chosen(self, collected: pd.DataFrame) -> pd.DataFrame:
        """The rows of the runs that count, at most one a label, task, setting and seed, and none of a choosing seed.

        None of the other seeds counts before the choosing seed has all its runs. Where all of these diverged, the first
        rate that was planned counts.
        """
        choosing = self.choosing(collected)
        finished = collected[(collected.status == "finished") & ~choosing].astype({"selection": float})
        ordered = finished.sort_values("selection", ascending=self.is_lower_better, kind="stable")
        if choosing.any():
            runs = collected[choosing].astype({"selection": float})
            runs = runs[(runs.status != "missing").groupby([runs[name] for name in _OF_SEEDS]).transform("all")]
            runs = runs.sort_values("selection", ascending=self.is_lower_better, kind="stable")  # diverged ones last
            rates = runs.drop_duplicates(_OF_SEEDS).set_index(_OF_SEEDS).rate.to_dict()
            held = set(map(tuple, collected[choosing][_OF_SEEDS].itertuples(index=False)))
            keys = ordered[_OF_SEEDS].itertuples(index=False, name=None)
            counts = [key not in held or rates.get(key) == rate for key, rate in zip(keys, ordered.rate)]
            ordered = ordered[np.array(counts, dtype=bool)]
        return ordered.drop_duplicates(SETTING)

    def frame(self, outcomes: Sequence[Outcome], thresholds: Sequence[float] = ()) -> pd.DataFrame:
        """The scores of outcomes of one protocol, with the averages of the seeds that have all of their tasks.

        ``thresholds`` are for a suite whose columns count steps to a value.
        """
        return self.scores_of(self.collect(outcomes))

    def scores_of(self, collected: pd.DataFrame) -> pd.DataFrame:
        """:meth:`frame`, of what :meth:`collect` gave."""
        settings = self.setting_scores(collected)
        settings["lacks"] = (settings.done > 0) & settings.value.isna()
        scores = settings.groupby(["suite", "label", "column", "seed"], sort=False, as_index=False).agg(
            **{name: (name, "mean") for name in ("value", "budget_ratio", *SCALE)},
            **_SUMS,
            **{name: (name, "any") for name in ("is_diverged", "lacks")},
        )
        scores["value"] = scores.value.mask(scores.lacks)
        scores = scores[list(COLUMNS)]
        means = [mean_over(scores, average.tasks, name) for name, average in self.suite.averages.items()]
        return pd.concat([scores, *filter(len, means)], ignore_index=True) if any(map(len, means)) else scores

    def columns(
        self, protocol: Protocol, outcomes: Sequence[Outcome], scores: pd.DataFrame, thresholds: Sequence[float]
    ) -> list[Column]:
        """The columns of a table of these outcomes and their scores, those that say something."""
        return self.suite.columns(protocol.tasks)

    def thresholds(self, groups: Sequence[Sequence[Outcome]], protocols: Sequence[Protocol]) -> Sequence[float]:
        """The values to which steps are counted where a user names none, of outcomes that stand in one table."""
        return ()

    def claimed_thresholds(self, protocols: Sequence[Protocol]) -> Sequence[float]:
        """The values to which steps are scores of their own, whatever a table shows: those that were published."""
        return ()

    def counting(self, outcomes: Sequence[Outcome]) -> set[str]:
        """Ids of the jobs on which a number of a table rests."""
        collected = self.collect(outcomes)
        return {*self.chosen(collected).id, *collected[self.choosing(collected)].id}

    def costs(self, outcomes: Sequence[Outcome]) -> pd.DataFrame:
        """suite, label, column, budget_ratio and mixer_parameters of every job; NaN if they are not known."""
        return self.collect(outcomes)[["suite", "label", "column", "budget_ratio", "mixer_parameters"]]

    def timing_differences(self, outcomes: Sequence[Outcome]) -> list[str]:
        """The details in which runs differ and that keep their times from being compared."""
        return []

    def curves(self, outcomes: Sequence[Outcome]) -> pd.DataFrame:
        """The curves of runs in long form: id, label, seed, status and what each logged step has."""
        return pd.DataFrame(
            {"id": outcome.job.id, "label": outcome.row, "seed": outcome.job.seed, "status": outcome.status} | dict(row)
            for outcome in outcomes
            if outcome.record
            for row in outcome.record.curve
        )

    def meaning(self, protocol: Protocol) -> str:
        """What the numbers are and how they were chosen, in a clause."""
        return self.suite.measure

    def sentences(self, protocol: Protocol) -> list[str]:
        """Profile, sizes, fidelity, budget and how rates were chosen, for the notes of a table."""
        changes = f" with {', '.join(protocol.overrides)}" if protocol.overrides else ""
        noun, name = protocol.profile.noun.capitalize(), protocol.profile_name
        fidelity = f"Fidelity {protocol.fidelity}; budget" if len(self.suite.fidelities) > 1 else "Budget"
        return [
            f"{noun} {name}{changes}: {sizes_text(protocol.profile.model_config())}, {protocol.precision}.",
            f"{fidelity} {protocol.budget}.",
            *([RATES_NOTE[protocol.fidelity == PUBLISHED_FIDELITY]] if self._tries_rates(protocol) else []),
        ]

    def _tries_rates(self, protocol: Protocol) -> bool:
        """True if some setting is trained at several rates or decays."""
        trainings = getattr(protocol.profile, "trainings", None)
        return trainings is not None and any(len(trainings(task, "float32")) > 1 for task in protocol.tasks)

    def about(self, protocol: Protocol, outcomes: Sequence[Outcome], columns: Sequence[Column], first: str = "") -> str:
        """What the numbers of a table are of, and what it lacks; ``first`` names the row with these settings."""
        meaning = self.meaning(protocol)
        where, *diverged = outcome_sentences(outcomes)
        notes = [f"{meaning[:1].upper()}{meaning[1:]}; mean over n seeds.", *self.sentences(protocol), where]
        return " ".join([*notes, *diverged, *lacking_sentences(outcomes)])


def finite_or_nan(value: float) -> float:
    """A score, or NaN for one that is not finite, as another program may have stored it: it has no mean."""
    return value if math.isfinite(value) else math.nan


RATES_NOTE = (
    "Rates and decays: of each label and setting, the best by validation in the label's first seed, which is not"
    " reported; a label of a single seed has its own best, which favours labels that scatter.",
    "Rates and decays: the best of each seed by the number that is reported, which favours labels that scatter.",
)
"""How rates are chosen; and in the published fidelity."""


@functools.cache
def scoring_of(suite: Suite) -> Scoring:
    """What reads the records of a suite."""
    return pkgutil.resolve_name(suite.scoring)(suite)


def sizes_text(model: Any) -> str:
    """``d_model 64, 2 blocks, 2 heads`` of a model's configuration, as far as it has these."""
    names = {"d_model": "d_model {}", "n_layer": "{} blocks", "n_head": "{} heads"}
    return ", ".join(text.format(getattr(model, name)) for name, text in names.items() if hasattr(model, name))


def lacking_sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """How many jobs have no result, where some have none."""
    lacking = sum(outcome.record is None for outcome in outcomes)
    return [f"{lacking:,} of {len(outcomes):,} jobs have no result yet."] if lacking else []


def outcome_sentences(outcomes: Iterable[Outcome]) -> list[str]:
    """Where jobs were trained, how many diverged, if any, and how many shared their steps, if only some did."""
    stored = [outcome for outcome in outcomes if outcome.record]
    devices = sorted({str(device) for outcome in stored if (device := outcome.details.get("device"))})
    count = sum(outcome.status == "diverged" for outcome in stored)
    where = f"Trained on {', '.join(devices) or ('an unnamed device' if stored else 'no device yet')}."
    texts = [where, f"{count} of {len(stored)} runs diverged."] if count else [where]
    grouped = sum(outcome.details.get("group", 1) > 1 for outcome in stored)
    if 0 < grouped < len(stored):
        texts.append(f"{grouped} of {len(stored)} runs shared training steps (--group), which changes last digits.")
    return texts


def budget_sentences(outcomes: Iterable[Outcome]) -> list[str]:
    """What the column of budgets counts, and which rows are no match of softmax attention."""
    stored = {outcome.row: ratio for outcome in outcomes if (ratio := outcome.details.get("budget_ratio"))}
    below = [f"{row} {ratio:.2f}" for row, ratio in stored.items() if ratio < LEAST_MATCHED]
    counted = "Budget is mixer parameters over softmax attention's, both with the conv taps of the label."
    return [counted, *([f"Not matched to it, and smaller: {', '.join(below)}."] if below else [])]


def mean_over(scores: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Scores of a column ``name``: the mean of ``columns`` for every label and seed with all jobs of all of them."""
    rows = scores[scores.column.isin(columns)]
    seeds = rows.assign(is_whole=rows.done == rows.expected).groupby(["suite", "label", "seed"], sort=False)
    numbers = seeds[["value", "budget_ratio", *SCALE]]
    means = numbers.mean().where(numbers.count().eq(seeds.size(), axis=0))  # pandas 2 has no skipna=False here
    means[list(COUNTS)] = seeds[list(COUNTS)].sum()
    means["is_diverged"] = seeds.is_diverged.any()
    means = means[seeds.is_whole.all() & (seeds.column.nunique() == len(set(columns)))]
    return means.reset_index().assign(column=name)[list(COLUMNS)]


@functools.cache
def no_scores() -> pd.DataFrame:
    """A frame of scores without a row."""
    return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
