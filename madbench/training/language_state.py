"""How far a language-model run is: its step, its curve and its training time."""

from __future__ import annotations

import math
import resource
import time
from typing import Any

import torch

from madbench.language_jobs import LanguageTraining, loss_l5


class TrainingState:
    """What a resumed run needs beside the weights and the optimiser; the same in every process but for timings."""

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0
        self.loss_sum = torch.zeros((), device=device)
        self.curve: list[dict[str, float]] = []
        self.diverged = False

    def row(self, config: LanguageTraining) -> dict[str, float]:
        """The curve's next row; reads the losses summed since the last one and begins a new sum.

        ``step_loss`` is their mean in nats per token.
        """
        last = self.curve[-1] if self.curve else {"step": 0, "seconds": 0.0}
        steps = self.step - last["step"]
        row = {
            "step": self.step,
            "tokens": self.step * config.tokens_per_step,
            "seconds": self.seconds,
            "step_loss": float(self.loss_sum) / steps,
            "tokens_per_second": steps * config.tokens_per_step / max(self.seconds - last["seconds"], 1e-9),
        }
        self.loss_sum.zero_()
        return row

    def add(self, row: dict[str, float]) -> None:
        """Appends the row; a loss in it that is not finite ends the run."""
        self.curve.append(row)
        losses = (value for name, value in row.items() if name.endswith("_loss"))
        self.diverged = not all(map(math.isfinite, losses))

    def progress(self, config: LanguageTraining) -> dict[str, Any]:
        """How far the run is, with the loss and the speed of the last row."""
        last = self.curve[-1] if self.curve else {}
        known = {"loss": last.get("step_loss"), "tokens_per_second": last.get("tokens_per_second")}
        return {"step": self.step, "total_steps": config.steps} | known


class Stopwatch:
    """Seconds between one look and the next, the device's queued work included."""

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.last = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last lap."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.monotonic()
        seconds, self.last = now - self.last, now
        return seconds


def memory_bytes(device: str) -> int:
    """Most memory used so far: allocated on the GPU, or resident of this process."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def final_metrics(curve: list[dict[str, float]]) -> dict[str, float]:
    """``loss_l5`` is the paper's number: the mean of the last five evaluations on training batches."""
    rows = [row for row in curve if "evaluation" in row]
    metrics = {name: rows[-1][name] for name in ("train_loss", "validation_loss")}
    if "validation_bits_per_byte" in rows[-1]:
        metrics["validation_bits_per_byte"] = rows[-1]["validation_bits_per_byte"]
    best = min(row["validation_loss"] for row in rows)
    l5 = loss_l5([row["train_loss"] for row in rows])
    return {"loss_l5": l5, **metrics, "best_validation_loss": best}
