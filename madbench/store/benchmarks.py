"""Measurements of stored language models on text tasks.

Each measurement with the name ``benchmark`` is about one task. Its values are the task's metrics, such as ``acc``,
``acc_norm`` and ``exact_match`` (0 to 1), and their standard errors, whose names end in ``_stderr``. Its settings are
``task`` and ``shots``, the number of examples before a question. Tasks of lm-evaluation-harness and madbench's own
tasks (:mod:`madbench.training.multiple_choice`) are stored in this way. Madbench's own tasks have two more settings:
``seq_len``, the number of tokens per question, and ``questions``, their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from madbench.jobs import Job
from madbench.models.blocks import autocast
from madbench.models.shapes import GPTConfig
from madbench.store.format import Measurement
from madbench.text.corpus import Corpus
from madbench.training.devices import device_name, git_state, versions
from madbench.training.multiple_choice import CHOICES, MEASUREMENT, QUESTIONS, questions, score


def answer(
    task: str,
    job: Job[GPTConfig],
    model: nn.Module,
    corpus: Corpus,
    device: str,
    seq_len: int | None = None,
    count: int = 0,
) -> Measurement:
    """Measure a trained language model on one of madbench's own text tasks. Return the measurement without storing it.

    ``model`` is moved to ``device`` and stays there. A question has ``seq_len`` tokens, by default as many as a
    training sequence. There are ``count`` questions, by default ``QUESTIONS``.
    """
    length, count = seq_len or job.model.seq_len, count or QUESTIONS
    examples = questions(task, corpus, length, count)
    autocast_context = autocast(device, job.training.precision)
    values = score(model.to(device), examples, corpus.token_bytes(), device, autocast_context)
    settings = own_settings(task, length, count)
    details: dict[str, object] = {"device": device_name(device), "versions": versions(), "git": git_state()}
    details |= {"corpus": corpus.digest, "choices": CHOICES, "precision": job.training.precision}
    return Measurement(MEASUREMENT, values, details, settings)


def own_settings(task: str, seq_len: int, count: int = QUESTIONS) -> dict[str, str | int]:
    """The settings of a measurement on ``count`` questions of ``seq_len`` tokens from one of madbench's own tasks."""
    return {"task": task, "shots": 0, "seq_len": seq_len, "questions": count}


def value_of(measurements: Iterable[Measurement], settings: Mapping[str, object], metric: str) -> float | None:
    """The value of ``metric`` in the measurement with exactly these settings. None if there is no such value."""
    matching = [
        measurement
        for measurement in measurements
        if measurement.name == MEASUREMENT and measurement.settings == settings
    ]
    return matching[-1].values.get(metric) if matching else None


def main_metric(measurement: Measurement) -> tuple[str, int]:
    """The name of the metric to show for a measurement on a text task, and 1 if more is better, or -1 if less is.

    The metric is the first of ``acc_norm``, ``acc`` and ``exact_match`` that was measured, or else the first one.
    """
    names = [name for name in measurement.values if not name.endswith("_stderr")]
    name = next((name for name in ("acc_norm", "acc", "exact_match") if name in names), names[0])
    is_more_better = measurement.details.get("higher_is_better", {}).get(name.partition(" (")[0], True)
    return name, -1 if is_more_better is False else 1
