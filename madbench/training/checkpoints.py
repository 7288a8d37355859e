"""The state of an unfinished run: one file, written atomically, refused by any other job."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.runs import write_atomically

if TYPE_CHECKING:
    from madbench.training.loop import TrainingState

NAME = "checkpoint.pt"


def save_checkpoint(
    work: Path, job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState, seconds: float
) -> None:
    """Saves weights, optimiser and ``state``; adds ``seconds`` to the run's training time."""
    state.seconds += seconds
    content = {
        "job": job.id,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "state": vars(state),
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_atomically(work / NAME, buffer.getvalue())


def load_checkpoint(
    work: Path, job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState, device: str
) -> None:
    """Restores what :func:`save_checkpoint` saved; without a checkpoint everything stays as it is.

    Raises ``TrainingError`` when the file is another job's or cannot be read.
    """
    path = work / NAME
    if not path.exists():
        return
    try:
        content = torch.load(path, map_location=device, weights_only=True)
        saved_by = content["job"]
        if saved_by == job.id:
            model.load_state_dict(content["model"])
            optimizer.load_state_dict(content["optimizer"])
            vars(state).update(content["state"])
    except Exception as error:  # torch raises half a dozen kinds for a damaged file or another version's
        raise TrainingError(f"{path}: the checkpoint cannot be used ({error}); delete it to start afresh") from error
    if saved_by != job.id:
        raise TrainingError(f"{path}: the checkpoint belongs to job {saved_by}, not to {job.id}; delete it")
