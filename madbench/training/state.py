"""How far a run is: its step, its curve and its training time."""

from __future__ import annotations

import math
import resource
import time

import torch


class TrainingState:
    """What a resumed run needs beside weights and optimiser; the same in every process but for timings."""

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0
        """Of training so far."""
        self.row_seconds = 0.0
        """Of training until the curve's last row."""
        self.loss_sum = torch.zeros((), device=device)
        """Losses of the steps since the curve's last row."""
        self.curve: list[dict[str, float]] = []
        self.diverged = False

    def add(self, row: dict[str, float]) -> None:
        """Appends a row to the curve; a loss in it that is not finite ends the run."""
        self.curve.append(row)
        losses = (value for name, value in row.items() if name.endswith("_loss"))
        self.diverged = not all(map(math.isfinite, losses))


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
