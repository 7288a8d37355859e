"""What a run leaves on disk: the checkpoint of an unfinished one, and the weights of a finished one with their job."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from madbench.errors import MadbenchError, TrainingError
from madbench.files import write_atomically
from madbench.jobs import Job
from madbench.suites import job_from_dict, suite_of
from madbench.suites.trial import Trial

NAME = "checkpoint.pt"
METADATA_KEY = "madbench_job"


class TrainingState:
    """What a resumed run needs beside weights and optimiser; the same in every process but for timings."""

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0  # of training so far
        self.row_seconds = 0.0  # of training until the curve's last row
        self.loss_sum = torch.zeros((), device=device)  # losses of the steps since the curve's last row
        self.curve: list[dict[str, float]] = []
        self.diverged = False

    def add(self, row: dict[str, float]) -> None:
        """Appends a row to the curve; a loss in it that is not finite ends the run."""
        self.curve.append(row)
        self.diverged = not all(math.isfinite(value) for name, value in row.items() if name.endswith("_loss"))


def save_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, seconds: float
) -> None:
    """Saves weights, optimiser, state and the trial's own state; adds ``seconds`` to the run's training time.

    The job itself is in the file, so that the model can be built again from it alone. Raises ``StoreError`` where the
    file cannot be written; an earlier checkpoint is then still there.
    """
    state.seconds += seconds
    content = {"job": job.id, "config": json.dumps(job.to_dict()), "state": vars(state), "trial": trial.state}
    content |= {"model": trial.model.state_dict(), "optimizer": optimizer.state_dict()}

    def write(file: BinaryIO) -> None:
        try:
            torch.save(content, file)
        except (
            RuntimeError
        ) as error:  # after a failed write torch's archive cannot be closed either, and says only that
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None

    write_atomically(work / NAME, write)


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


def save_weights(path: Path, model: nn.Module, job: Job) -> None:
    """Writes the state dict as safetensors, the job as JSON in its metadata. Raises ``StoreError`` on a full disk."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    write_atomically(path, save(tensors, {METADATA_KEY: json.dumps(job.to_dict())}))


def load_model(path: Path) -> tuple[nn.Module, Job]:
    """The model in a ``weights.safetensors`` or a ``checkpoint.pt``, on the CPU in eval mode, and its job.

    Raises ``TrainingError`` where the file is not there, is damaged or holds no model of ours.
    """
    path = Path(path)
    try:
        text, tensors = _read(path)
    except FileNotFoundError:
        raise TrainingError(f"{path}: there is no such file") from None
    except Exception as error:  # torch and safetensors raise half a dozen kinds for a damaged file
        raise TrainingError(f"{path}: not a readable file of weights ({_short(error)})") from error
    if text is None:
        raise TrainingError(f"{path}: holds no job, so these are not weights that madbench saved")
    try:
        job = job_from_dict(json.loads(text))
    except (AttributeError, MadbenchError, ValueError) as error:
        raise TrainingError(f"{path}: its job is not one of this madbench ({_short(error)})") from error
    model = suite_of(job).Trial.build(job)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise TrainingError(f"{path}: the weights do not fit the job in the same file: {_short(error)}") from error
    return model.eval(), job


def _read(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    """The job as JSON and the state dict in a file; no job where it is another program's."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    if path.suffix == ".pt":
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        return (content.get("config"), content.get("model", {})) if isinstance(content, Mapping) else (None, {})
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    return metadata.get(METADATA_KEY), load_file(path)


def _short(error: BaseException) -> str:
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
