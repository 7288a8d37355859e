"""Weights of a model on disk, with the job that says what they are weights of."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import MadbenchError, TrainingError
from madbench.files import write_atomically
from madbench.jobs import Job
from madbench.suites import job_from_dict, suite_of

METADATA_KEY = "madbench_job"


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
        text, tensors = _read_checkpoint(path) if path.suffix == ".pt" else _read_weights(path)
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


def _read_weights(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    from safetensors import safe_open
    from safetensors.torch import load_file

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    return metadata.get(METADATA_KEY), load_file(path)


def _read_checkpoint(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    content: Any = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        return None, {}
    return content.get("config"), content.get("model", {})


def _short(error: BaseException) -> str:
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
