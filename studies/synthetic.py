"""Synthetic records with the shape of real records, by suite, for the store of ``large_store.py``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from madbench.details import Details
from madbench.jobs import Record
from madbench.suites.columns import loss_l5
from madbench.suites.language.suite import LanguageJob
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.tokens import TokenJob

BASE = dict(zip(MAD_TASKS, (0.30, 0.20, 0.45, 0.60, 0.45, 0.40), strict=True))
"""Accuracy of the plain label R, by task."""
LOSS_PER_ACCURACY = -1.5
"""Nats per token for an effect on accuracy of 1."""


def accuracy_of(job: TokenJob) -> float:
    """The accuracy of the plain label R, reduced for difficult settings and bad learning rates."""
    difficulty: float = 0.0002 * job.setting["seq_len"]
    badness: float = abs(np.log10(job.training.learning_rate / 5e-4)) + job.training.weight_decay
    return BASE[job.task] - difficulty - 0.05 * badness


def mad_record(job: TokenJob, effect: float, details: Details, rng: np.random.Generator) -> Record:
    """A finished run of a label that adds ``effect`` to the accuracy; ``details`` are common to all suites."""
    accuracy = accuracy_of(job) + effect
    epochs = int(rng.integers(min(20, job.training.epochs), job.training.epochs + 1))
    steps_per_epoch = -(-job.setting["num_train_examples"] // job.training.batch_size)
    curve = [
        {"epoch": epoch, "step": epoch * steps_per_epoch, "train_loss": float(3 - 2 * epoch / epochs)}
        | {"validation_loss": float(loss), "validation_token_accuracy": accuracy * epoch / epochs}
        | {"validation_macro_accuracy": accuracy - 0.01, "validation_batch_macro_accuracy": accuracy - 0.01}
        for epoch, loss in enumerate(rng.uniform(1, 3, epochs), 1)
    ]
    metrics = {
        "test_loss": float(rng.uniform(0.2, 3)),
        "test_token_accuracy": accuracy,
        "test_macro_accuracy": accuracy - 0.01,
        "test_batch_macro_accuracy": accuracy - 0.01,
        "accuracy": accuracy,
        "selection_accuracy": accuracy + float(rng.normal(0, 0.001)),
        "best_validation_accuracy": accuracy + 0.01,
        "ceiling": 1.0,
    }
    seconds = float(rng.uniform(10, 100))
    steps = curve[-1]["step"]
    details |= {"steps": steps, "seconds": seconds, "steps_per_second": steps / seconds}
    return Record("finished", metrics, curve, details)


def language_record(job: LanguageJob, effect: float, details: Details, rng: np.random.Generator) -> Record:
    """A finished run of a label that adds ``effect`` to the accuracy on tasks; ``details`` are common to all suites."""
    loss = 3.0 + LOSS_PER_ACCURACY * effect
    training = job.training
    curve = []
    for i, step in enumerate(range(training.eval_every, training.steps + 1, training.eval_every), 1):
        now = loss + 3 * np.exp(-i / 2) + float(rng.normal(0, 0.01))
        curve.append({"step": step, "tokens": step * training.tokens_per_step, "seconds": step / 10, "step_loss": now})
        curve[-1] |= {"evaluation": i, "train_loss": now, "validation_loss": now + 0.01}
        curve[-1]["validation_bits_per_byte"] = (now + 0.01) / float(np.log(2))
    details["corpus"] = {
        "name": "synthetic",
        "digest": job.setting["corpus"],
        "tokenizer": "bytes",
        "splits": {"train": {"tokens": 9000, "bytes": 9000}, "val": {"tokens": 1000, "bytes": 1000}},
    }
    details["evaluation"] = {"windows": 4, "seq_len": 16, "train": "drawn anew", "val": "evenly spread"}
    details |= {"steps": training.steps, "seconds": curve[-1]["seconds"], "steps_per_second": 10.0}
    losses = [row["train_loss"] for row in curve]
    metrics = {"loss_l5": loss_l5(losses), "validation_loss": curve[-1]["validation_loss"]}
    return Record("finished", metrics, curve, details)


RecordMaker = Callable[[Any, float, Details, np.random.Generator], Record]
RECORDS: dict[str, RecordMaker] = {"mad": mad_record, "language": language_record}
"""The function that makes a record, by suite. Its first argument is a job of this suite."""
