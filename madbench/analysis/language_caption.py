"""What a reader must know to trust a table of language models: data, sizes, evaluation, devices, noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from madbench.analysis.language_runs import corpus_of, only_protocol
from madbench.analysis.loss_curves import common_seconds
from madbench.analysis.noise import least_difference, not_told_apart
from madbench.language_jobs import LAST_EVALUATIONS
from madbench.store.runs import Run

_TIMING = ("device", "threads", "world_size", "micro_batch", "compiled")
"""Details in which runs must agree for their times to be compared."""


def timing_differences(runs: Sequence[Run]) -> list[str]:
    """The details that differ between ``runs`` and keep their times from being compared."""
    return [name for name in _TIMING if len({str(run.record.details.get(name)) for run in runs}) > 1]


def caption(
    runs: Sequence[Run],
    losses: pd.DataFrame,
    thresholds: Sequence[float],
    columns: Sequence[str],
    has_published: bool,
) -> str:
    """What the numbers of :func:`madbench.analysis.language_table.language_table` are of; ``columns`` are its names."""
    protocol = only_protocol(runs)
    model, training = protocol.model, protocol.training
    count = training.steps // training.eval_every
    positions = "learned" if model.positions == "learned" else "no"
    sentences = [
        "Nats per token, mean over n seeds.",
        _corpus(runs[0]),
        f"Preset {protocol.preset}: d_model {model.d_model}, {model.n_layer} blocks, {model.n_head} heads, context "
        + f"{model.seq_len}, {positions} positions, {training.precision}; {training.steps:,} steps of "
        + f"{training.tokens_per_step:,} tokens.",
        f"L5: mean of the last {min(LAST_EVALUATIONS, count)} of {count} evaluations on windows of the training text"
        + ("; Val: the last loss on validation text" if "validation_loss" in columns else "")
        + ", all labels after the same tokens.",
        *_evaluation(runs[0].record.details.get("evaluation", {})),
    ]
    if thresholds:
        sentences.append(
            f"To x: the first evaluation with training loss below x; one is {training.eval_every:,} steps,"
            f" {training.eval_every * training.tokens_per_step:,} tokens."
        )
    sentences += _timing(runs, columns)
    sentences.append(
        f"Budget counting {protocol.counting}: mixer parameters over softmax attention's, both with the conv taps of"
        " the label."
    )
    diverged = sum(run.record.status == "diverged" for run in runs)
    if diverged:
        sentences.append(f"{diverged} of {len(runs)} runs diverged.")
    if "validation_loss" in columns:
        sentences += _noise(losses)
    if has_published:
        sentences.append("The published rows are of OpenWebText2 with published counting.")
    else:
        sentences.append("Not comparable with the paper's losses, which are of another size, schedule or vocabulary.")
    return " ".join(sentences)


def _corpus(run: Run) -> str:
    corpus = corpus_of(run)
    parts = [f"Corpus {corpus['name']} ({corpus['digest'][:8]})"]
    if "tokenizer" in corpus:
        parts.append(f"tokens: {corpus['tokenizer']}")
    for split, name in (("train", "training"), ("val", "validation")):
        if counts := corpus.get("splits", {}).get(split):
            size = f" of {counts['bytes']:,} bytes" if counts.get("bytes") else ""
            parts.append(f"{counts['tokens']:,} {name} tokens{size}")
    return ", ".join(parts) + "."


def _evaluation(evaluation: dict[str, Any]) -> list[str]:
    if not evaluation:
        return []
    how = "; ".join(f"{name}: {evaluation[name]}" for name in ("train", "val") if name in evaluation)
    return [f"An evaluation is {evaluation['windows']:,} windows of {evaluation['seq_len']:,} tokens ({how})."]


def _timing(runs: Sequence[Run], columns: Sequence[str]) -> list[str]:
    devices = ", ".join(sorted({str(run.record.details.get("device", "an unnamed device")) for run in runs}))
    if "validation_loss" not in columns:
        return [f"Trained on {devices}."]
    differing = ", ".join(timing_differences(runs)).replace("_", " ")
    if differing:
        return [f"Trained on {devices}.", f"No speed and no loss at equal time: the runs differ in {differing}."]
    sentences = [f"Trained on {devices}; times are wall-clock times of the training steps alone."]
    common = common_seconds(runs)
    if len({run.job.label for run in runs}) > 1 and math.isfinite(common):
        sentences.append(f"{equal_time_heading(common)}: after the longest training time that all runs reached.")
    return sentences


def equal_time_heading(seconds: float) -> str:
    """Heading of the validation loss after ``seconds`` of training."""
    if seconds >= 7200:
        return f"Val, {seconds / 3600:,.1f} h"
    return f"Val, {seconds:.0f} s" if seconds >= 10 else f"Val, {seconds:.2g} s"


def _noise(losses: pd.DataFrame) -> list[str]:
    """Which labels' L5 differ by more than the seeds do."""
    values = {label: of_label.loss_l5.tolist() for label, of_label in losses.groupby("label", sort=False)}
    values = {label: xs for label, xs in values.items() if len(xs) > 1 and not any(map(math.isnan, xs))}
    if len(values) < 2:
        return []
    difference = least_difference(values)
    means = {label: sum(of_label) / len(of_label) for label, of_label in values.items()}
    sets = not_told_apart(means, difference)
    rule = (
        f"Two labels' L5 differ by more than the noise where they are over {difference:.3f} apart"
        " (Student's t at 95% for one pair, standard deviation pooled over the labels)"
    )
    if not sets:
        return [f"{rule}: all do."]
    return [f"{rule}: all do but those within {{{'}, {'.join(', '.join(labels) for labels in sets)}}}."]
