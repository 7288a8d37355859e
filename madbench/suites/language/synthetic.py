"""Synthetic records of language models with the shape of real records, for the benchmark of large stores."""

from __future__ import annotations

from typing import Any

import numpy as np

from madbench.jobs import Job, Record
from madbench.suites.columns import loss_l5

LOSS_PER_ACCURACY = -1.5
"""Nats per token for an effect on accuracy of 1."""


def record_of(job: Job, effect: float, details: dict[str, Any], rng: np.random.Generator) -> Record:
    """A finished run of a label that adds ``effect`` to the accuracy on tasks; ``details`` are the details common to
    all suites.
    """
    loss = 3.0 + LOSS_PER_ACCURACY * effect
    training = job.training
    curve = []
    for i, step in enumerate(range(training.eval_every, training.steps + 1, training.eval_every), 1):
        now = loss + 3 * np.exp(-i / 2) + float(rng.normal(0, 0.01))
        curve.append({"step": step, "tokens": step * training.tokens_per_step, "seconds": step / 10, "step_loss": now})
        curve[-1] |= {"evaluation": i, "train_loss": now, "validation_loss": now + 0.01}
        curve[-1]["validation_bits_per_byte"] = (now + 0.01) / float(np.log(2))
    details["corpus"] = {"name": "synthetic", "digest": job.setting["corpus"], "tokenizer": "bytes"}
    details["corpus"]["splits"] = {"train": {"tokens": 9000, "bytes": 9000}, "val": {"tokens": 1000, "bytes": 1000}}
    details["evaluation"] = {"windows": 4, "seq_len": 16, "train": "drawn anew", "val": "evenly spread"}
    details |= {"steps": training.steps, "seconds": curve[-1]["seconds"], "steps_per_second": 10.0}
    losses = [row["train_loss"] for row in curve]
    metrics = {"loss_l5": loss_l5(losses), "validation_loss": curve[-1]["validation_loss"]}
    return Record("finished", metrics, curve, details)
