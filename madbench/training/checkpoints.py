"""The state of an unfinished run: one file, written atomically, refused by any other job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

import torch

from madbench.errors import TrainingError
from madbench.files import write_atomically
from madbench.jobs import Job
from madbench.suites.trial import Trial
from madbench.training.state import TrainingState

NAME = "checkpoint.pt"


def save_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, seconds: float
) -> None:
    """Saves weights, optimiser, state and the trial's own state; adds ``seconds`` to the run's training time.

    The job itself is in the file, so that the model can be built again from it alone. Raises ``StoreError`` where the
    file cannot be written; an earlier checkpoint is then still there.
    """
    state.seconds += seconds
    content = {
        "job": job.id,
        "config": json.dumps(job.to_dict()),
        "model": trial.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "state": vars(state),
        "trial": trial.state,
    }
    write_atomically(work / NAME, lambda file: _write(content, file))


def load_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, device: str
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
            trial.model.load_state_dict(content["model"])
            optimizer.load_state_dict(content["optimizer"])
            vars(state).update(content["state"])
            trial.state = content["trial"]
    except Exception as error:  # torch raises half a dozen kinds for a damaged file or another version's
        raise TrainingError(f"{path}: the checkpoint cannot be used ({error}); delete it to start afresh") from error
    if saved_by != job.id:
        raise TrainingError(f"{path}: the checkpoint belongs to job {saved_by}, not to {job.id}; delete it")


def _write(content: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(content, file)
    except RuntimeError as error:  # after a failed write torch's archive cannot be closed either, and says only that
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise
