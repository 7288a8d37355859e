"""Scores of a suite's runs, as a frame with the same columns for every suite.

A frame of scores has one row per label, seed and column of a table. Its columns are:

- ``suite``, ``label`` (or the name of a grid's row), ``seed``, ``column``: a task, an average or another quantity;
- ``value``: accuracy in percent, loss in nats per token, steps, ...; NaN if there is none;
- ``expected``, ``done``, ``diverged``: the number of jobs, of jobs with a result, and of diverged jobs;
- ``budget_ratio``: the quantity of a mixer that its budget limits, such as its number of parameters, divided by the
  budget; averaged over the jobs;
- ``chance``, ``ceiling``: the value of a guess, and the best possible value; NaN if there is no such value;
- ``heuristic``: the value of the best answer that ignores the context; NaN if it is not known;
- ``solved_threshold``: the value from which on the task counts as solved; NaN if there is no such value;
- ``is_diverged``: True if every run of a setting diverged; ``value`` then equals ``chance``. In columns that count
  steps to an event: True if a run did not reach the event; ``value`` is then the run's last step.
"""

from __future__ import annotations

import functools
import math
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from madbench.errors import no_effect
from madbench.jobs import Job, Record, mapping_text
from madbench.suites.base import Suite
from madbench.suites.columns import Column
from madbench.suites.outcomes import JobOutcome, lacking_sentences, outcome_sentences
from madbench.suites.protocol import Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable

COLUMNS = {"suite": str, "label": str, "seed": int, "column": str, "value": float}
COLUMNS |= {"done": int, "expected": int, "diverged": int, "budget_ratio": float}
COLUMNS |= {"ceiling": float, "chance": float, "solved_threshold": float, "is_diverged": bool, "heuristic": float}
"""The columns of a frame of scores, with their types."""
CURVE_RUN = {"protocol": str, "id": str, "label": str, "seed": int, "status": str}
"""The columns of a frame of loss curves whose values are equal in all rows of a run, with their types."""
CURVE_STEP = {"step": int, "tokens": int, "seconds": float, "evaluation": float, "train_loss": float}
CURVE_STEP |= {"validation_loss": float, "validation_bits_per_byte": float, "step_loss": float}
"""The columns of a frame of loss curves whose values differ between the logged steps of a run, with their types."""
CURVES: dict[str, type] = {**CURVE_RUN, **CURVE_STEP}
"""The columns of a frame of loss curves, which the figure ``loss`` of any suite draws, with their types."""
SCALE = ("ceiling", "chance", "solved_threshold", "heuristic")
"""The columns with reference values of a task, which the module's docstring describes."""
_METRICS = ("value", "selection", "ceiling")
"""The columns of the result of :meth:`Scoring.collect` whose numbers are metrics of a run's record."""
SETTING = ["suite", "label", "column", "setting", "seed"]
"""The columns that together identify one task setting and seed of a label. Its runs differ in rates only."""
_OF_SEEDS = SETTING[:-1]
"""The columns that together identify one task setting of a label, over all seeds."""
PUBLISHED_FIDELITY = "published"
"""The fidelity in which every seed chooses its own rate, as in the published code."""
_DETAILS = ("budget_ratio", "mixer_parameters", "device")
"""The details of a record that are columns of the result of :meth:`Scoring.collect`."""
COUNTS = ("done", "expected", "diverged")
"""The columns that count jobs: those with a result, all planned jobs, and diverged jobs."""
_SUMS = {name: (name, "sum") for name in COUNTS}
"""The arguments of ``agg`` that sum :data:`COUNTS` when rows are aggregated."""


class Scoring:
    """The computation of a suite's scores from the records of its runs. Suites may subclass it.

    By default, the score of a task is one metric, at the best of several rates, averaged over the settings of the task.
    Rates are pairs of learning rate and weight decay.

    Of several runs that differ only in their rates, one counts. The first seed of a label chooses the rates for the
    other seeds, separately per task setting, and is not reported. It chooses the rates at which it has the best
    ``selection``. If each seed chose for itself, its score would be the best of several draws. That favors labels with
    a large spread, even if ``selection`` uses data that are not reported. If a label has only one seed, the seed
    chooses for itself. In the published fidelity, every seed does so.
    """

    has_curves = False
    """True if scores are computed from curves. Records are then read with their curves, which takes longer."""
    metric = "accuracy"
    """The name of the reported metric in a record."""
    selection = "accuracy"
    """The name of the metric in a record by which rates are chosen."""
    ceiling = "ceiling"
    """The name of the metric in a record that bounds ``metric`` from above. Empty if there is no bound."""
    factor = 100.0
    """The factor by which ``metric`` is multiplied to give the value in a column."""
    is_lower_better = False
    shows_chance = False
    """True if figures show the chance level."""
    limit = 100.0
    """The best possible value in a column, for settings whose records have no ceiling. NaN if there is no bound."""

    def __init__(self, suite: Suite):
        self.suite = suite

    def value(self, job: Job, record: Record) -> float:
        """The reported number of a run, in the units of its column. NaN if its record has no such number."""
        value = record.metrics.get(self.metric)
        return math.nan if value is None else self.factor * value

    def selection_value(self, record: Record) -> float | None:
        """The number of a finished run by which rates are chosen. None if the record has no metric ``selection``."""
        return record.metrics.get(self.selection)

    def chance(self, job: Job) -> float:
        """The expected :meth:`value` of a model that guesses, in the job's task setting. NaN if it is not known."""
        return math.nan

    def heuristic(self, job: Job) -> float:
        """The :meth:`value` of the best answer that ignores the context, in the task setting of ``job``.

        NaN if it is not known.
        """
        return math.nan

    def solved_share(self, task: str) -> float:
        """The threshold above which a seed has solved the task. NaN if there is none.

        It is a position on the scale from the chance level, 0, to the ceiling, 1.
        """
        return math.nan

    def groups(self, protocols: Sequence[Protocol]) -> list[Hashable]:
        """One key per protocol, in order. Rows are compared only if the keys of their protocols are equal.

        By default all keys are equal.
        """
        return [None] * len(protocols)

    def collect(self, outcomes: Iterable[JobOutcome]) -> pd.DataFrame:
        """A frame with one row per outcome, in order: the job's settings, its status and its numbers.

        The columns are:

        - id, suite, label (the name of the table's row), column (the job's task), setting (JSON), seed;
        - rate: a pair of learning rate and decay;
        - is_held: False in the published fidelity, in which every seed chooses its own rate. Otherwise True, and the
          first seed of a label may choose the rates of its other seeds (:meth:`choosing_rows`);
        - chance, heuristic, solved_share: results of the methods with these names;
        - status: ``missing`` if there is no record;
        - value: the reported number;
        - selection: the number by which rates are chosen;
        - ceiling: the upper bound of the metric in the record;
        - budget_ratio, mixer_parameters, device: details of the record.
        """
        outcomes = list(outcomes)
        share_of = functools.cache(self.solved_share)
        jobs = [outcome.job for outcome in outcomes]
        columns: dict[str, list[Any]] = {
            "id": [job.id for job in jobs],
            "suite": [job.suite for job in jobs],
            "label": [outcome.row for outcome in outcomes],
            "column": [job.task for job in jobs],
            "setting": [mapping_text(job.setting) for job in jobs],
            "rate": [job.rates for job in jobs],
            "is_held": [job.fidelity != PUBLISHED_FIDELITY for job in jobs],
            "chance": [each.untrained.chance if each.untrained else self.chance(each.job) for each in outcomes],
            "heuristic": [
                each.untrained.heuristic if each.untrained else self.heuristic(each.job) for each in outcomes
            ],
            "solved_share": [
                each.untrained.solved_share if each.untrained else share_of(each.job.task) for each in outcomes
            ],
            "seed": [job.seed for job in jobs],
            "status": [outcome.status for outcome in outcomes],
        }
        finished = [outcome.record if outcome.status == "finished" else None for outcome in outcomes]
        columns["value"] = [
            finite_or_nan(self.value(job, each)) if each else math.nan for job, each in zip(jobs, finished)
        ]
        columns["selection"] = [self.selection_value(record) if record else None for record in finished]
        columns["ceiling"] = [record.metrics.get(self.ceiling) if record else None for record in finished]
        columns |= {name: [outcome.details.get(name) for outcome in outcomes] for name in _DETAILS}
        return pd.DataFrame(columns)

    def setting_scores(self, job_frame: pd.DataFrame) -> pd.DataFrame:
        """A frame of scores with one row per label, task setting and seed, and an additional column ``setting``.

        ``job_frame`` is the result of :meth:`collect`. Rows of choosing seeds (:meth:`choosing_rows`) are left out.
        """
        jobs = job_frame.astype(dict.fromkeys((*_METRICS, "budget_ratio"), float))
        jobs["diverged"] = jobs.status == "diverged"
        jobs["done"] = jobs.diverged | (jobs.status == "finished")
        jobs["budget_ratio"] = jobs.budget_ratio.where(jobs.done)
        best = self.chosen_rows(jobs)
        best = best[[*SETTING, "value", "ceiling"]].assign(ceiling=self.factor * best.ceiling)
        choosing = self.choosing_rows(jobs)
        undecided = jobs[choosing & (jobs.status == "missing")][_OF_SEEDS].drop_duplicates().assign(is_undecided=True)
        jobs = jobs[~choosing]
        by_setting = jobs.assign(expected=1).groupby(SETTING, sort=False, as_index=False)
        counts = by_setting.agg(**_SUMS, **{name: (name, "mean") for name in ("budget_ratio", "chance", "heuristic")})
        scores = counts.merge(best, on=SETTING, how="left")
        is_decided = scores.merge(undecided, on=_OF_SEEDS, how="left").is_undecided.isna()
        scores["is_diverged"] = (scores.done == scores.expected) & scores.value.isna() & is_decided
        scores["value"] = scores.value.where(~scores.is_diverged, scores.chance)
        usual = scores.groupby(["column", "setting"]).ceiling.transform("mean").fillna(self.limit)
        scores["ceiling"] = scores.ceiling.fillna(usual)
        share = scores.column.map(self._solved_shares(job_frame))
        scores["solved_threshold"] = scores.chance + share.astype(float) * (scores.ceiling - scores.chance)
        return scores

    def _solved_shares(self, job_frame: pd.DataFrame) -> Mapping[str, float]:
        """The :meth:`solved_share` of each task in ``job_frame``, from its column ``solved_share`` if it has one."""
        if "solved_share" in job_frame:
            return dict(zip(job_frame.column, job_frame.solved_share))
        return {task: self.solved_share(task) for task in job_frame.column.unique()}

    def choosing_rows(self, job_frame: pd.DataFrame) -> pd.Series:
        """A boolean mask of the rows of ``job_frame`` whose seed chooses the rates of other seeds of its label.

        This is the first seed of a label, in task settings with several rates and several seeds. All False if the frame
        has no rates.
        """
        if not {"rate", "is_held"} <= set(job_frame):
            return pd.Series(False, job_frame.index)
        by_setting = job_frame.groupby(_OF_SEEDS, sort=False)
        first = job_frame.groupby(["suite", "label"], sort=False).seed.transform("min")
        several = by_setting.rate.transform("nunique") > 1
        return job_frame.is_held & several & (by_setting.seed.transform("nunique") > 1) & (job_frame.seed == first)

    def choosing_seeds(self, outcomes: Sequence[JobOutcome]) -> int:
        """The smallest number of seeds of a label, over the labels whose first seed chooses rates for the other seeds.

        0 if there is no such label. See :meth:`choosing_rows`.
        """
        rates = {outcome.job.rates for outcome in outcomes}
        if len(rates) < 2:
            return 0
        job_frame = self.collect(outcomes)
        choosing = job_frame[self.choosing_rows(job_frame)]
        seeds = job_frame.groupby("label", sort=False).seed.nunique()
        return int(seeds[seeds.index.isin(choosing.label)].min()) if len(choosing) else 0

    def chosen_rows(self, job_frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of ``job_frame`` whose runs count: at most one per label, task, setting and seed.

        Rows of choosing seeds (:meth:`choosing_rows`) do not count. If a seed chooses for others, their rows count only
        after all runs of the choosing seed are stored. If all these runs diverged, the rates that were planned first
        count.
        """
        choosing = self.choosing_rows(job_frame)
        finished = job_frame[(job_frame.status == "finished") & ~choosing].astype({"selection": float})
        best_first = finished.sort_values("selection", ascending=self.is_lower_better, kind="stable")
        if choosing.any():
            runs = job_frame[choosing].astype({"selection": float})
            runs = runs[(runs.status != "missing").groupby([runs[name] for name in _OF_SEEDS]).transform("all")]
            runs = runs.sort_values("selection", ascending=self.is_lower_better, kind="stable")  # diverged runs last
            rates = runs.drop_duplicates(_OF_SEEDS).set_index(_OF_SEEDS).rate.to_dict()
            choosing_jobs = set(map(tuple, job_frame[choosing][_OF_SEEDS].itertuples(index=False)))
            keys = best_first[_OF_SEEDS].itertuples(index=False, name=None)
            counts = [key not in choosing_jobs or rates.get(key) == rate for key, rate in zip(keys, best_first.rate)]
            best_first = best_first[np.array(counts, dtype=bool)]
        return best_first.drop_duplicates(SETTING)

    def frame(self, outcomes: Sequence[JobOutcome], thresholds: Sequence[float] = ()) -> pd.DataFrame:
        """The frame of scores of the outcomes of one protocol, with rows for the averages over tasks.

        An average has a row only for seeds that have all of its tasks. ``thresholds`` are used only by suites with
        columns that count the steps to a threshold.
        """
        return self.scores_of(self.collect(outcomes))

    def scores_of(self, job_frame: pd.DataFrame) -> pd.DataFrame:
        """The result of :meth:`frame`, computed from ``job_frame``, the result of :meth:`collect`."""
        settings = self.setting_scores(job_frame)
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
        self, protocol: Protocol, outcomes: Sequence[JobOutcome], scores: pd.DataFrame, thresholds: Sequence[float]
    ) -> list[Column]:
        """The columns of a table of these outcomes and their scores. By default the columns of the protocol's tasks.

        ``thresholds`` are the requested thresholds for columns that count steps.
        """
        return self.suite.columns(protocol.tasks)

    def thresholds(self, groups: Sequence[Sequence[JobOutcome]], protocols: Sequence[Protocol]) -> Sequence[float]:
        """The default thresholds of columns that count the steps to a loss. Empty if the suite has no such columns.

        ``groups`` has the outcomes of each of ``protocols``, in the same order.
        """
        return ()

    def claimed_thresholds(self, protocols: Sequence[Protocol]) -> Sequence[float]:
        """The thresholds that claims use, whether or not a table shows them. Empty if there are none."""
        return ()

    def counted_jobs(self, outcomes: Sequence[JobOutcome]) -> set[str]:
        """The ids of the jobs whose runs affect a number of a table.

        They include the runs of a seed that chooses the rates of other seeds.
        """
        job_frame = self.collect(outcomes)
        return {*self.chosen_rows(job_frame).id, *job_frame[self.choosing_rows(job_frame)].id}

    def costs(self, outcomes: Sequence[JobOutcome]) -> pd.DataFrame:
        """A frame with columns suite, label, column, budget_ratio and mixer_parameters, and one row per outcome.

        Unknown numbers are NaN.
        """
        return self.collect(outcomes)[["suite", "label", "column", "budget_ratio", "mixer_parameters"]]

    def timing_differences(self, outcomes: Sequence[JobOutcome]) -> list[str]:
        """The names of details whose values differ between the records, so that training times cannot be compared.

        Empty if training times can be compared. By default always empty.
        """
        return []

    def curves(self, outcomes: Sequence[JobOutcome]) -> pd.DataFrame:
        """A frame with one row per logged step of each run: id, label, seed, status, and the columns of the curve."""
        return pd.DataFrame(
            {"id": outcome.job.id, "label": outcome.row, "seed": outcome.job.seed, "status": outcome.status} | dict(row)
            for outcome in outcomes
            if outcome.record
            for row in outcome.record.curve
        )

    def meaning(self, protocol: Protocol) -> str:
        """A clause for captions that says what the numbers of a table are, such as ``accuracy in percent``."""
        return self.suite.measure

    def sentences(self, protocol: Protocol) -> list[str]:
        """Sentences for the caption of a table on profile, overrides, sizes, fidelity, budget and choice of rates."""
        fidelity = f"Fidelity {protocol.fidelity}; budget" if len(self.suite.fidelities) > 1 else "Budget"
        sizes = sizes_text(protocol.profile.loaded.model_config())
        return [
            f"{profile_sentence(protocol)}: {sizes}, {protocol.precision}.",
            f"{fidelity} {protocol.budget}.",
            *([RATES_NOTE[protocol.fidelity == PUBLISHED_FIDELITY]] if self._tries_rates(protocol) else []),
        ]

    def _tries_rates(self, protocol: Protocol) -> bool:
        """True if the protocol trains at least one task setting at several learning rates or decays."""
        trainings = getattr(protocol.profile.loaded, "trainings", None)
        return trainings is not None and any(len(trainings(task, "float32")) > 1 for task in protocol.tasks)

    def about(
        self, protocol: Protocol, outcomes: Sequence[JobOutcome], columns: Sequence[Column], first: str = ""
    ) -> str:
        """The caption of a table: sentences on its numbers and on jobs without a result.

        ``columns`` are those that the table shows. If its rows have different settings, ``first`` names the row whose
        settings the sentences describe; otherwise it is empty.
        """
        meaning = self.meaning(protocol)
        where, *diverged = outcome_sentences(outcomes)
        notes = [f"{meaning[:1].upper()}{meaning[1:]}; mean over n seeds.", *self.sentences(protocol), where]
        return " ".join([*notes, *diverged, *lacking_sentences(outcomes)])


def finite_or_nan(value: float) -> float:
    """The value, or NaN if it is infinite. Another program may have stored an infinite value, which has no mean."""
    return value if math.isfinite(value) else math.nan


RATES_NOTE = (
    (
        "Rates and decays: of each label and setting, the best by validation in the label's first seed, which is not"
        " reported; a label of a single seed has its own best, which favors labels whose seeds differ more."
    ),
    (
        "Rates and decays: the best of each seed by the number that is reported, which favors labels whose seeds differ"
        " more."
    ),
)
"""Two notes on the choice of rates: for the corrected fidelity, and for the published fidelity."""


@functools.cache
def scoring_of(suite: Suite) -> Scoring:
    """The :class:`Scoring` object of a suite. Its module is imported on first use."""
    scoring: Scoring = pkgutil.resolve_name(suite.scoring)(suite)
    if hasattr(scoring, "choice"):
        raise no_effect(f"{suite.scoring}: its 'choice'", because="scorings have 'selection_value' instead")
    return scoring


def sizes_text(model: Any) -> str:
    """The sizes of a model as text, such as ``d_model 64, 2 blocks, 2 heads``.

    Sizes that ``model`` does not have are left out.
    """
    names = {"d_model": "d_model {}", "n_layer": "{} blocks", "n_head": "{} heads"}
    return ", ".join(text.format(getattr(model, name)) for name, text in names.items() if hasattr(model, name))


def profile_text(protocol: Protocol) -> str:
    """The profile of a protocol and the changes to it, such as ``profile evening with training.epochs=20``."""
    changes = f" with {', '.join(map(str, protocol.overrides))}" if protocol.overrides else ""
    return f"{protocol.profile.noun} {protocol.profile_name}{changes}"


def profile_sentence(protocol: Protocol) -> str:
    """:func:`profile_text` with a capital letter and without a full stop, as the beginning of a sentence."""
    text = profile_text(protocol)
    return text[:1].upper() + text[1:]


def mean_over(scores: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """The scores of an average, in a column called ``name``: the mean of ``columns`` per label and seed.

    A label and seed is left out if a column or the result of a job is missing. ``scores`` and the result are frames of
    scores.
    """
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
    """A frame of scores without rows."""
    return pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS)
