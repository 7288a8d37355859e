"""Files of a run: the checkpoint of an unfinished run, and the weights of a finished run with their job.

A file is read only if it is unchanged to the bit. A checkpoint ends with the SHA-256 of its content; the metadata of
weights hold a SHA-256 of the job and the tensors.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from madbench.errors import MadbenchError, TrainingError, UntrustedCodeError
from madbench.files import explain_os_errors, parse_json, write_atomically
from madbench.jobs import Job
from madbench.labels.trust import allow_typed
from madbench.suites import job_from_dict, suite_of
from madbench.suites.trial import Trial
from madbench.training.optimizer import state_shapes

NAME = "checkpoint.pt"
METADATA_KEY, DIGEST_KEY = "madbench_job", "madbench_sha256"
_DIGEST_BYTES = 32
_CHUNK = 1 << 20  # bytes per hash update


class TrainingState:
    """The state of a run besides weights and optimizer. It is equal in every process except for timings."""

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0  # seconds of training so far
        self.row_seconds = 0.0  # seconds of training up to the curve's last row
        self.loss_sum = torch.zeros((), device=device)  # losses of the steps since the curve's last row
        self.curve: list[dict[str, float]] = []
        self.diverged = False
        self.threads = torch.get_num_threads()  # rounding depends on this number
        self.places: list[dict[str, Any]] = []  # torch's version, device and first step of each part of the run
        self.groups: list[dict[str, Any]] = []  # ids of the jobs that share steps, and the first of these steps

    def restore(self, saved: Any, steps: int) -> None:
        """Restore the saved values of a run of ``steps`` steps. Raises ``ValueError`` for impossible values."""
        names, absent_from_old = vars(self).keys(), {"groups", "places", "threads"}
        if not isinstance(saved, dict) or not names - absent_from_old <= saved.keys() <= names:
            raise ValueError("its state has other names")
        for name, value in saved.items():
            own = getattr(self, name)
            if type(value) is not type(own) or getattr(value, "shape", ()) != getattr(own, "shape", ()):
                raise ValueError(f"{name}: expected {_kind(own)}, got {_kind(value)}")
        step, curve, places = (saved.get(name, getattr(self, name)) for name in ("step", "curve", "places"))
        if not 0 <= step <= steps or saved.get("threads", 1) < 1:
            raise ValueError(f"step {step} of {steps}")
        if not all(isinstance(row, dict) and {int, float} >= set(map(type, row.values())) for row in curve):
            raise ValueError("its curve has rows with values that are no numbers")
        if curve and not 0 < curve[-1]["step"] <= step:
            raise ValueError("its curve has a later step")
        if not all(isinstance(place, dict) and {"torch", "device"} <= place.keys() for place in places):
            raise ValueError("its list of places is malformed")
        if not all(
            isinstance(group, dict) and {"ids", "from_step"} <= group.keys() for group in saved.get("groups", [])
        ):
            raise ValueError("its list of groups is malformed")
        vars(self).update(saved)

    def add(self, row: dict[str, float]) -> None:
        """Append a row to the curve. A loss that is not finite ends the run."""
        self.curve.append(row)
        self.diverged = not all(math.isfinite(value) for name, value in row.items() if name.endswith("_loss"))


def save_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, seconds: float
) -> None:
    """Save weights, optimizer, state and the trial's own state. Add ``seconds`` to the run's training time.

    The file contains the job, so the model can be rebuilt from the file alone. Raises ``StoreError`` if the file cannot
    be written; an earlier checkpoint is then kept.
    """
    state.seconds += seconds
    content = {"job": job.id, "config": json.dumps(job.to_dict()), "state": vars(state), "trial": trial.state}
    content |= {"model": trial.model.state_dict(), "optimizer": optimizer.state_dict()}
    content = tree_map_only(Tensor, _own_storage, content)

    def write(file: BinaryIO) -> None:
        try:
            torch.save(content, file)
        except RuntimeError as error:  # after a failed write, torch reports only that its archive cannot be closed
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        file.seek(0)
        file.write(hashlib.file_digest(file, "sha256").digest())

    write_atomically(work / NAME, write)


def load_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, device: str
) -> str:
    """Restore a checkpoint of :func:`save_checkpoint`. Change nothing if it is missing or damaged.

    Returns the reason why a checkpoint was not used, in a sentence; empty if it was used or missing. Raises
    ``TrainingError`` if it belongs to another job, or to another version of torch or madbench.
    """
    path = work / NAME
    if not path.exists():
        return ""
    try:
        with explain_os_errors(path):
            content = _read_checkpoint(path, device)
    except _DamagedError as error:
        return f"{path}: {error}; the run starts from the beginning"
    except (MadbenchError, MemoryError):
        raise
    except Exception as error:  # torch raises many kinds of errors
        raise TrainingError(f"{path}: cannot be read ({_short(error)}); delete it to start afresh") from error
    if (saved_by := content.get("job")) != job.id:
        raise TrainingError(f"{path}: the checkpoint belongs to job {saved_by}, not to {job.id}; delete it")
    try:
        trial.model.load_state_dict(content["model"])
        _restore_optimizer(optimizer, content["optimizer"])
        state.restore(content["state"], trial.steps)
        trial.state = _trial_state(trial, content["trial"])
        if state.curve:
            trial.is_done(state.curve[-1])
            trial.progress(state.curve[-1])
    except Exception as error:  # torch raises many kinds of errors
        problem = f"the checkpoint does not fit ({_short(error)}); delete it to start afresh"
        raise TrainingError(f"{path}: {problem}") from error
    return ""


def _restore_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Restore the saved moments but not rates and decays. Raises ``ValueError`` if tensors do not match."""
    own = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in saved["param_groups"]] != [group["params"] for group in own]:
        raise ValueError("the optimizer has other parameters")
    parameters = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    for number, moments in saved["state"].items():
        shapes = {name: tensor.shape for name, tensor in moments.items()}
        if shapes != state_shapes(optimizer, parameters[number]):
            raise ValueError("the optimizer has other tensors")
    optimizer.load_state_dict({"state": saved["state"], "param_groups": own})


def _trial_state(trial: Trial, saved: Any) -> dict[str, Any]:
    """The saved state of a trial. Raises ``ValueError`` if its types or shapes do not fit the trial.

    A value may be model weights where the new trial has None.
    """
    if not isinstance(saved, dict) or not saved.keys() >= trial.state.keys():
        raise ValueError("its trial has another state")
    shapes = {name: tensor.shape for name, tensor in trial.model.state_dict().items()}
    for name, own in trial.state.items():
        value = saved[name]
        if type(value) is not type(own) and {key: tensor.shape for key, tensor in value.items()} != shapes:
            raise ValueError(f"{name}: expected {_kind(own)}, got {_kind(value)}")
    return saved


def _kind(value: Any) -> str:
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    return f"{type(value).__name__}{shape}"


def save_weights(path: Path, model: nn.Module, job: Job) -> None:
    """Write the state dict as safetensors, with the job as JSON metadata. Raises ``StoreError`` if that fails."""
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    text = json.dumps(job.to_dict())
    write_atomically(path, save(tensors, {METADATA_KEY: text, DIGEST_KEY: tensors_digest(text, tensors)}))


def load_model(path: Path, trust: Any = ()) -> tuple[nn.Module, Job]:
    """Load the model in a ``weights.safetensors`` or a ``checkpoint.pt``, on the CPU in eval mode, and its job.

    The label of a user's module names the code that builds the model. ``trust`` is the label, or the labels, whose code
    may be imported.

    Raises ``TrainingError`` if the file is missing, damaged or not from madbench, and for a label whose code is not
    trusted.
    """
    path = Path(path)
    allow_typed(trust)
    try:
        return _load_model(path)
    except UntrustedCodeError as error:
        label = error.label
        raise TrainingError(
            f"{path}: a model of {label}, whose code a file names and is therefore not imported; if you trust it, say "
            f"--trust {shlex.quote(label)}, or trust={label!r} in Python"
        ) from None


def _load_model(path: Path) -> tuple[nn.Module, Job]:
    if not os.path.exists(path):
        raise TrainingError(f"{path}: there is no such file")
    try:
        text, tensors = _read(path)
    except UntrustedCodeError:
        raise
    except Exception as error:  # torch and safetensors raise many kinds of errors for a damaged file
        raise TrainingError(f"{path}: cannot be read: {_short(error)}") from error
    try:
        job = job_from_dict(parse_json(text))
    except (AttributeError, KeyError, MadbenchError, TypeError, ValueError) as error:
        raise TrainingError(f"{path}: its job is not one of this madbench ({_short(error)})") from error
    try:
        model = suite_of(job).Trial.build(job)
    except UntrustedCodeError:
        raise
    except (MadbenchError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise TrainingError(f"{path}: its job has no model ({_short(error)})") from error
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise TrainingError(f"{path}: the weights do not fit the job in the same file: {_short(error)}") from error
    return model.eval(), job


def _own_storage(tensor: Tensor) -> Tensor:
    """The tensor in its own storage. A shared storage would be saved with other jobs' weights and step counts."""
    return tensor.clone() if tensor.ndim == 0 or tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


class _DamagedError(Exception):
    """A file that differs from the one that madbench wrote."""


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Read the job as JSON and the state dict of a file. Raises ``_DamagedError`` and torch's own errors."""
    from safetensors import safe_open
    from safetensors.torch import load_file

    if path.suffix == ".pt":
        content = _read_checkpoint(path, "cpu")
        _check_size(content["config"], [tensor.shape for tensor in content["model"].values()])
        return content["config"], content["model"]
    if not path.is_file():
        raise _DamagedError("not a file")
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]
    text = metadata.get(METADATA_KEY, "")
    _check_size(text, shapes)
    tensors = load_file(path)
    if metadata.get(DIGEST_KEY) != tensors_digest(text, tensors):
        raise _DamagedError("damaged, or not weights that this madbench saved")
    return text, tensors


def _check_size(text: str, shapes: Iterable[Sequence[int]]) -> None:
    """Raise ``_DamagedError`` if the model of a job, given as JSON, has more parameters than tensors of ``shapes``.

    Nothing is allocated, so a job of absurd size takes no memory. A job that cannot be read passes.
    """
    try:
        job = job_from_dict(parse_json(text))
    except Exception:  # reported once the file is known to be intact
        return
    try:
        count, least = sum(map(math.prod, shapes)), suite_of(job).size(job).parameters
    except UntrustedCodeError:
        raise
    except (MadbenchError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _DamagedError(f"its job has no model: {_short(error)}") from error
    if not 0 < least <= count:
        problem = f"they are {count:,} numbers, its model has {least:,} parameters"
        raise _DamagedError(f"the weights do not fit the job in the same file: {problem}")


def _read_checkpoint(path: Path, device: str) -> dict[str, Any]:
    """The content of a checkpoint. Torch reads only intact files. Raises ``OSError`` and ``_DamagedError``."""
    with _sound_checkpoint(path) as file:
        content = torch.load(file, map_location=device, weights_only=True)  # ignores the digest at the end
    if not isinstance(content, dict):
        raise _DamagedError("not a checkpoint")
    return content


def check_checkpoint(path: Path) -> None:
    """Raise ``TrainingError`` if a checkpoint differs from the file that was written."""
    try:
        with explain_os_errors(path), _sound_checkpoint(path):
            pass
    except _DamagedError as error:
        raise TrainingError(f"{path}: {error}; delete it: the run starts from the beginning") from None


@contextmanager
def _sound_checkpoint(path: Path) -> Iterator[BinaryIO]:
    """Open a checkpoint, verify its digest, and yield the file at its beginning. Raises ``_DamagedError``."""
    if not path.is_file():
        raise _DamagedError("not a file")
    with open(path, "rb") as file:
        digest, size = hashlib.sha256(), os.fstat(file.fileno()).st_size - _DIGEST_BYTES
        while chunk := file.read(min(_CHUNK, max(0, size - file.tell()))):
            digest.update(chunk)
        if file.read(_DIGEST_BYTES) != digest.digest():
            raise _DamagedError("damaged, or not a checkpoint that this madbench saved")
        file.seek(0)
        yield file


def tensors_digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a text and of names, shapes, types and bytes of the tensors."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _short(error: BaseException) -> str:
    """The error on one line."""
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
