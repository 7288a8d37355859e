"""The computation of language models' scores from their loss curves, and the captions of their tables."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from madbench.errors import ConfigError
from madbench.jobs import Job, Record
from madbench.labels.budgets import BUDGETS
from madbench.suites.columns import LAST_EVALUATIONS, Column
from madbench.suites.language.columns import LOSS, LOSSES, PERPLEXITIES, PERPLEXITY, SPEED, STEPS, steps_name
from madbench.suites.language.curves import (
    PAPER_THRESHOLDS,
    common_seconds,
    evaluations,
    loss_curves,
    run_losses,
    thresholds_above,
    timing_differences,
)
from madbench.suites.language.suite import LanguageProfile
from madbench.suites.outcomes import JobOutcome, budget_sentences, outcome_sentences
from madbench.suites.protocol import Protocol
from madbench.suites.published import profile_scores
from madbench.suites.scoring import COLUMNS, Scoring, finite_or_nan, profile_sentence, sizes_text


class LanguageScoring(Scoring):
    """The computation of losses, perplexities, steps to losses and speed, for every run with a record."""

    has_curves = True

    def groups(self, protocols: Sequence[Protocol]) -> list[Hashable]:
        return [(protocol.profile_name, protocol.overrides, protocol.precision) for protocol in protocols]

    def frame(self, outcomes: Sequence[JobOutcome], thresholds: Sequence[float] = ()) -> pd.DataFrame:
        runs = [outcome for outcome in outcomes if outcome.record]
        losses = run_losses(runs, thresholds)
        bits_a_nat = _bits_a_nat(losses)
        rows = []
        for column, (run, numbers) in itertools.product(losses[0] if losses else (), list(zip(runs, losses))):
            value, is_loss, is_steps = numbers[column], column in (*LOSSES, *PERPLEXITIES), column.startswith(STEPS)
            uniform = math.log(run.job.setting["vocab_size"])
            if column in PERPLEXITIES:
                uniform = math.exp(uniform)
            elif column == "validation_bits_per_byte":
                uniform *= bits_a_nat
            last_step = run.curve[-1].get("step", math.nan) if run.curve else math.nan
            chance = uniform if is_loss else last_step if is_steps else math.nan
            diverged = is_loss and run.status == "diverged"
            is_diverged = diverged or (is_steps and math.isnan(value))
            value = finite_or_nan(chance if is_diverged else value)
            known = {
                "suite": self.suite.name,
                "label": run.row,
                "seed": run.job.seed,
                "column": column,
                "value": value,
                "done": not math.isnan(value),
                "expected": 1,
                "diverged": diverged,
                "budget_ratio": run.details.get("budget_ratio", math.nan),
                "chance": chance,
                "is_diverged": is_diverged,
            }
            rows.append(dict.fromkeys(COLUMNS, math.nan) | known)
        return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)

    def claimed_thresholds(self, protocols: Sequence[Protocol]) -> Sequence[float]:
        return PAPER_THRESHOLDS if all(protocol.profile.comparable_with_paper for protocol in protocols) else ()

    def thresholds(self, groups: Sequence[Sequence[JobOutcome]], protocols: Sequence[Protocol]) -> Sequence[float]:
        """The losses for which tables count the steps to reach them, if the user names no losses.

        If all profiles are comparable with the paper, these are the paper's losses. Otherwise they are four values
        above the lowest training loss of all runs (:func:`thresholds_above`).
        """
        if all(protocol.profile.comparable_with_paper for protocol in protocols):
            return PAPER_THRESHOLDS
        runs = [run for group in groups for run in group if run.record]
        return thresholds_above(min((row["train_loss"] for run in runs for row in evaluations(run)), default=math.nan))

    def columns(
        self, protocol: Protocol, outcomes: Sequence[JobOutcome], scores: pd.DataFrame, thresholds: Sequence[float]
    ) -> list[Column]:
        """The columns of a table of language models.

        Bits per byte are left out if all of them are NaN. Steps and perplexities are left out if ``scores`` lacks their
        columns, and perplexities also if none are published for the profile. The speed and the loss at equal time are
        left out if the runs' times cannot be compared. The loss at equal time also needs at least two labels, and a
        finished run with an evaluation.

        Raises ``ConfigError`` for a threshold that is not finite or not above 0.
        """
        for threshold in thresholds:
            if not 0 < threshold < math.inf:
                raise ConfigError(f"threshold {threshold:g}: expected a loss above 0, in nats per token")
        runs = [outcome for outcome in outcomes if outcome.record]

        def column(name: str) -> Column:
            found = self.suite.column(name)
            assert found is not None
            return found

        first_columns = [replace(column(LOSS), heading="L5"), replace(column("validation_loss"), heading="Val")]
        if scores[scores.column == "validation_bits_per_byte"].value.notna().any():
            first_columns.append(column("validation_bits_per_byte"))
        published = profile_scores(protocol.profile_name, protocol.overrides)
        perplexities = PERPLEXITIES if any(PERPLEXITY in numbers for numbers in published.values()) else ()
        first_columns += [
            column(name) for name in (*perplexities, *map(steps_name, thresholds)) if name in set(scores.column)
        ]
        if not timing_differences(runs):
            common = common_seconds(runs)
            if scores.label.nunique() > 1 and math.isfinite(common):
                first_columns.append(replace(column("equal_time_validation_loss"), heading=equal_time_heading(common)))
            first_columns.append(column(SPEED))
        return first_columns

    def counted_jobs(self, outcomes: Sequence[JobOutcome]) -> set[str]:
        return {outcome.job.id for outcome in outcomes if outcome.status == "finished"}

    def value(self, job: Job, record: Record) -> float:
        return record.metrics.get(LOSS, math.nan)

    def costs(self, outcomes: Sequence[JobOutcome]) -> pd.DataFrame:
        return super().costs([outcome for outcome in outcomes if outcome.record]).assign(column=LOSS)

    def timing_differences(self, outcomes: Sequence[JobOutcome]) -> list[str]:
        return timing_differences([outcome for outcome in outcomes if outcome.record])

    def curves(self, outcomes: Sequence[JobOutcome]) -> pd.DataFrame:
        return loss_curves([outcome for outcome in outcomes if outcome.record])

    def sentences(self, protocol: Protocol) -> list[str]:
        profile = _profile_of(protocol)
        # the precision does not affect lengths
        model, training = profile.model_config(), profile.training_config("float32")
        positions = "learned" if model.positions == "learned" else "no"
        return [
            _corpus_text(protocol.corpus),
            (
                f"{profile_sentence(protocol)}: {sizes_text(model)}, context {model.seq_len}, {positions} positions, "
                f"{protocol.precision}; {training.steps:,} steps of {training.tokens_per_step:,} tokens"
                f"{' for softmax attention' if BUDGETS[protocol.budget].chooses_steps else ''}."
            ),
            f"Budget {protocol.budget}.",
        ]

    def about(
        self, protocol: Protocol, outcomes: Sequence[JobOutcome], columns: Sequence[Column], first: str = ""
    ) -> str:
        """The caption of a table, as :meth:`madbench.suites.scoring.Scoring.about` describes it.

        It names the corpus, the model and the training settings. Losses, perplexities, steps and times are explained if
        the table shows them.
        """
        runs = [outcome for outcome in outcomes if outcome.record]
        training = _profile_of(protocol).training_config("float32")
        names = {column.name: column.heading for column in columns}
        has_validation, has_perplexity = "validation_loss" in names, PERPLEXITY in names
        where, *diverged = outcome_sentences(runs)
        notes = ["Nats per token, mean over n seeds.", *self.sentences(protocol)]
        if first:
            notes.insert(0, f"At the settings of {first}:")
        if BUDGETS[protocol.budget].chooses_steps:
            last, equal = str(LAST_EVALUATIONS), "labels after the same training FLOPs"
        else:
            count = training.steps // training.eval_every
            last, equal = f"{min(LAST_EVALUATIONS, count)} of {count}", "all labels after the same tokens"
        val = "; Val: the last loss on validation text" if has_validation else ""
        notes.append(f"L5: mean of the last {last} evaluations on windows of the training text{val}, {equal}.")
        notes += _evaluation(runs[0].details.get("evaluation", {}))
        if has_perplexity:
            notes.append("PPL: exponential of the last loss on validation text; of 5: of the mean of the last five.")
        if any(name.startswith(STEPS) for name in names):
            notes.append(
                "To x: steps to the first evaluation with training loss below x, one every "
                f"{training.eval_every:,} steps of {training.tokens_per_step:,} tokens. "
                "[k/n]: k of n seeds get there; the mean is theirs."
            )
        notes.append(where)
        if SPEED in names:
            notes.append("Times are wall-clock times of the training steps only.")
        if has_validation and (differing := timing_differences(runs)):
            details = ", ".join(differing).replace("_", " ")
            notes.append(f"No speed and no loss at equal time: the runs differ in {details}.")
        if equal_time := names.get("equal_time_validation_loss"):
            notes.append(f"{equal_time}: after the longest training time that all runs reached.")
        notes += [*diverged, *budget_sentences(runs)]
        if protocol.profile.comparable_with_paper:
            notes.append("The published rows are of OpenWebText2 with the paper budget.")
        elif not has_perplexity:
            notes.append("Not comparable with the paper's losses, which are of another size, schedule or vocabulary.")
        return " ".join(notes)


def _profile_of(protocol: Protocol) -> LanguageProfile:
    assert isinstance(protocol.profile, LanguageProfile)
    return protocol.profile


def _bits_a_nat(losses: Sequence[Mapping[str, float]]) -> float:
    """The factor from nats per token to bits per byte: its mean over the runs that have the loss in both units.

    ``losses`` is the result of :func:`run_losses`. NaN if no run has both losses.
    """
    ratios = [x["validation_bits_per_byte"] / x["validation_loss"] for x in losses if x["validation_loss"]]
    return float(pd.Series(ratios, dtype=float).mean())


def equal_time_heading(seconds: float) -> str:
    """The heading of the column with validation losses after ``seconds`` of training, such as ``Val, 60 s``."""
    if seconds >= 7200:
        return f"Val, {seconds / 3600:,.1f} h"
    return f"Val, {seconds:.0f} s" if seconds >= 10 else f"Val, {seconds:.2g} s"


def _evaluation(evaluation: Mapping[str, Any]) -> list[str]:
    if not (evaluation.get("windows") and evaluation.get("seq_len")):
        return []
    windows = "; ".join(f"{name}: {evaluation[name]}" for name in ("train", "val") if name in evaluation)
    return [f"An evaluation is {evaluation['windows']:,} windows of {evaluation['seq_len']:,} tokens ({windows})."]


def _corpus_text(corpus: Any) -> str:
    parts = [f"Corpus {corpus.name} ({corpus.digest[:8]})"]
    if "tokenizer" in corpus.description:
        parts.append(f"tokens: {corpus.description['tokenizer']}")
    for split, name in (("train", "training"), ("val", "validation")):
        counts = (corpus.description.get("splits") or {}).get(split) or {}
        if counts.get("tokens"):
            size = f" of {counts['bytes']:,} bytes" if counts.get("bytes") else ""
            parts.append(f"{counts['tokens']:,} {name} tokens{size}")
    return ", ".join(parts) + "."
