"""The loss curves of language-model runs, and numbers that are computed from them, such as the steps to a loss.

Losses are nats per token. A training loss comes from an evaluation on windows sampled from the training split, not from
the training batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from madbench.jobs import Job, Record
from madbench.suites.columns import loss_l5
from madbench.suites.language.columns import LOSS, LOSSES, PERPLEXITIES, PERPLEXITY, SPEED, steps_name
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.protocol import by_protocol, recognize_protocol
from madbench.suites.scoring import CURVE_STEP, CURVES

PAPER_THRESHOLDS = (3.3, 3.2, 3.1, 3.0)
MOST_THRESHOLD = 1e6
"""The loss in nats per token from which on :func:`thresholds_above` gives no thresholds."""

TIMING = ("device", "threads", "world_size", "micro_batch", "compiled", "group", "cuda_graph")
"""The details that must be equal in the records of runs whose training times are compared."""


class RecordedRun(Protocol):
    """A run with a record: a stored run, or the outcome of a job with a record."""

    @property
    def job(self) -> Job: ...

    @property
    def record(self) -> Record | None: ...


def _record(run: RecordedRun) -> Record:
    assert run.record is not None
    return run.record


def describe(runs: Sequence[RecordedRun]) -> str:
    """The protocol of language-model runs in one line: corpus, profile, overrides, precision and budget.

    ``runs`` follow one protocol and have records.
    """
    protocol = recognize_protocol(LANGUAGE, [(run.job, _record(run).details) for run in runs])
    corpus = f"corpus {protocol.corpus.name} ({protocol.corpus.digest[:8]}), " if protocol.corpus else ""
    return f"{corpus}profile {protocol.name}, {protocol.precision}, budget {protocol.budget}"


def loss_curves(runs: Sequence[RecordedRun]) -> pd.DataFrame:
    """A frame of the curves of ``runs``, with one row per logged step. Missing values are NaN.

    Columns: protocol (in words), id, label, seed, status, step, tokens, seconds (of training), evaluation (1, 2, ...),
    train_loss, validation_loss, validation_bits_per_byte, step_loss (mean over the steps since the last row).
    """
    names: dict[str, str] = {}
    for of_protocol in by_protocol(LANGUAGE, runs, lambda run: run.job).values():
        names = dict.fromkeys((run.job.id for run in of_protocol), describe(of_protocol)) | names
    rows = [
        {"protocol": names[run.job.id], "id": run.job.id}
        | {"label": run.job.label, "seed": run.job.seed, "status": _record(run).status}
        | {name: row.get(name) for name in CURVE_STEP}
        for run in runs
        for row in _record(run).curve
    ]
    return pd.DataFrame(rows, columns=list(CURVES)).astype(CURVES)


def steps_to(evaluation_rows: Sequence[Mapping[str, float]], threshold: float) -> float:
    """The step of the first evaluation with a training loss below ``threshold``. NaN if there is none.

    ``evaluation_rows`` is the result of :func:`evaluations`.
    """
    return next((row["step"] for row in evaluation_rows if row["train_loss"] < threshold), math.nan)


def thresholds_above(lowest: float) -> tuple[float, ...]:
    """Four consecutive multiples of 0.1 in descending order. The last is the smallest that is above ``lowest``.

    ``lowest`` is the lowest training loss of all runs. Empty if it is not finite, or not below ``MOST_THRESHOLD``.

    >>> thresholds_above(2.9865)
    (3.3, 3.2, 3.1, 3.0)
    """
    if not -math.inf < lowest < MOST_THRESHOLD:
        return ()
    tenths = next(tenths for tenths in itertools.count(math.floor(10 * max(lowest, 0.1))) if lowest < tenths / 10)
    return tuple((tenths + tenth) / 10 for tenth in (3, 2, 1, 0))


_OF_EVALUATION = {"evaluation", "step", "seconds", "train_loss", "validation_loss"}


def evaluations(run: RecordedRun) -> list[dict[str, float]]:
    """The rows of a run's curve that have the losses of an evaluation. Rows between evaluations are left out."""
    return [row for row in _record(run).curve if row.keys() >= _OF_EVALUATION]


def common_seconds(runs: Iterable[RecordedRun]) -> float:
    """The training time in seconds up to which every finished run has evaluations.

    Each finished run has a time of its last evaluation, and the result is the smallest of these times. NaN if no
    finished run has an evaluation.
    """
    evaluations_of_runs = [evaluations(run) for run in runs if _record(run).status == "finished"]
    return min((rows[-1]["seconds"] for rows in evaluations_of_runs if rows), default=math.nan)


def timing_differences(runs: Iterable[RecordedRun]) -> list[str]:
    """The details in ``TIMING`` that differ between the records of ``runs``. Empty if their times can be compared."""
    runs = list(runs)
    return [name for name in TIMING if len({str(_record(run).details.get(name)) for run in runs}) > 1]


def run_losses(runs: Sequence[RecordedRun], thresholds: Sequence[float]) -> list[dict[str, float]]:
    """The numbers that tables show of each run, in order: name of the column to number.

    The keys are:

    - ``loss_l5``;
    - ``validation_loss`` and ``validation_bits_per_byte``, from the last evaluation;
    - ``equal_time_validation_loss``, from the last evaluation at or before :func:`common_seconds`;
    - the name (:func:`steps_name`) of the column of each of ``thresholds``;
    - ``tokens_per_second`` of the whole training;
    - :data:`madbench.suites.language.columns.PERPLEXITIES`.

    Missing numbers are NaN, and so are the losses and perplexities of a diverged run.
    """
    common = common_seconds(runs)
    losses = []
    for run in runs:
        evaluation_rows = evaluations(run)
        numbers = dict.fromkeys(LOSSES, math.nan)
        numbers |= {steps_name(threshold): steps_to(evaluation_rows, threshold) for threshold in thresholds}
        numbers |= dict.fromkeys((SPEED, *PERPLEXITIES), math.nan)
        record = _record(run)
        if record.status == "finished" and evaluation_rows:
            validation = [row["validation_loss"] for row in evaluation_rows]
            in_time = [row["validation_loss"] for row in evaluation_rows if row["seconds"] <= common]
            numbers[LOSS] = loss_l5([row["train_loss"] for row in evaluation_rows])
            numbers["validation_loss"] = validation[-1]
            numbers["validation_bits_per_byte"] = evaluation_rows[-1].get("validation_bits_per_byte", math.nan)
            numbers["equal_time_validation_loss"] = in_time[-1] if in_time else math.nan
            with np.errstate(over="ignore"):  # a loss above 709 overflows
                numbers[PERPLEXITY], numbers["perplexity_l5"] = np.exp([validation[-1], loss_l5(validation)])
        if record.curve and (last := record.curve[-1]).get("seconds", 0) > 0:
            numbers[SPEED] = last.get("tokens", math.nan) / last["seconds"]
        losses.append(numbers)
    return losses
