"""Files with the weights of a run: the checkpoint of an unfinished run, and the weights of a finished run.

Both kinds of file contain the job. A file is used only if its SHA-256 digest is right. In a checkpoint, this is the
digest of the content before it, at the end of the file. In a file of weights, it is a digest of the job and the
tensors, in the metadata.
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
from typing import Any, BinaryIO, TypedDict, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from madbench.details import TrainingGroup, TrainingPlace
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


class Checkpoint(TypedDict):
    """The content of a checkpoint."""

    job: str
    """The id of the job."""
    config: str
    """The job as JSON."""
    state: dict[str, Any]
    """The attributes of the :class:`TrainingState`. A checkpoint of an old version has fewer of them."""
    trial: dict[str, Any]
    """The state of the trial, ``trial.state``."""
    model: dict[str, Tensor]
    """The state dict of the model."""
    optimizer: dict[str, Any]
    """The state dict of the optimizer."""


class TrainingState:
    """The state of a run in training, without weights and optimizer. A checkpoint contains it.

    It has the step, the curve and the seconds of training, and says on which devices, with how many threads and in
    which groups the run was trained. Under torchrun the state is equal in all processes, except for the timings.
    """

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0  # seconds of training so far
        self.row_seconds = 0.0  # seconds of training up to the curve's last row
        self.loss_sum = torch.zeros((), device=device)  # sum of the losses since the curve's last row
        self.curve: list[dict[str, float]] = []
        self.diverged = False
        self.threads = torch.get_num_threads()  # number of CPU threads, on which rounding depends
        self.places: list[TrainingPlace] = []  # parts of the run with another torch or device, in order
        self.groups: list[TrainingGroup] = []  # groups in which the run was trained, in order

    def restore(self, saved: object, steps: int) -> None:
        """Set the attributes of this state to ``saved``, the state in the checkpoint of a run of ``steps`` steps.

        Raises ``ValueError`` for unknown or missing names, for values of another type or shape, and for values that are
        impossible, such as a step above ``steps``.
        """
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
        """Append a row to the curve. Set ``diverged`` to True if a loss in the row is not finite, and else to False."""
        self.curve.append(row)
        self.diverged = not all(math.isfinite(value) for name, value in row.items() if name.endswith("_loss"))


def save_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, seconds: float
) -> None:
    """Write the checkpoint of a run to its ``work`` folder: weights, optimizer, ``state`` and ``trial.state``.

    First, ``seconds`` are added to the training time in ``state``. The file contains the job, so the model can be
    rebuilt from the file alone. Raises ``StoreError`` if the file cannot be written; an earlier checkpoint is then
    kept.
    """
    state.seconds += seconds
    content: Checkpoint = {
        "job": job.id,
        "config": json.dumps(job.to_dict()),
        "state": vars(state),
        "trial": trial.state,
        "model": trial.model.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    stored = tree_map_only(Tensor, _own_storage, content)

    def write(file: BinaryIO) -> None:
        try:
            torch.save(stored, file)
        except RuntimeError as error:  # after a failed write, torch reports only that its archive cannot be closed
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        file.seek(0)
        file.write(hashlib.file_digest(cast(Any, file), "sha256").digest())

    write_atomically(work / NAME, write)


def load_checkpoint(
    work: Path, job: Job, trial: Trial, optimizer: torch.optim.Optimizer, state: TrainingState, device: str
) -> str:
    """Restore the run's checkpoint from its ``work`` folder into ``trial``, ``optimizer`` and ``state``.

    If the file is missing or damaged, nothing is changed. Return a sentence that says why a damaged checkpoint was not
    used, and else an empty text. Raises ``TrainingError`` if the checkpoint belongs to another job, cannot be read by
    this version of torch, or does not fit the model, the optimizer or the trial.
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
    """Restore the moments of an optimizer from a saved state dict. Learning rates and weight decays are not restored.

    Raises ``ValueError`` if the saved parameters or the shapes of the saved moments differ from the optimizer's own.
    """
    own = optimizer.state_dict()["param_groups"]
    if [group["params"] for group in saved["param_groups"]] != [group["params"] for group in own]:
        raise ValueError("the optimizer has other parameters")
    parameters = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
    for number, moments in saved["state"].items():
        shapes = {name: tensor.shape for name, tensor in moments.items()}
        if shapes != state_shapes(optimizer, parameters[number]):
            raise ValueError("the optimizer has other tensors")
    optimizer.load_state_dict({"state": saved["state"], "param_groups": own})


def _trial_state(trial: Trial, saved: object) -> dict[str, Any]:
    """Check ``saved``, the state of a trial (``trial.state``) from a checkpoint, and return it.

    ``saved`` must be a dictionary with the names of ``trial.state``. Each value must have the type of the trial's own
    value, or be a state dict with the names and shapes of the model's. Otherwise an error is raised.
    """
    if not isinstance(saved, dict) or not saved.keys() >= trial.state.keys():
        raise ValueError("its trial has another state")
    shapes = {name: tensor.shape for name, tensor in trial.model.state_dict().items()}
    for name, own in trial.state.items():
        value = saved[name]
        if type(value) is not type(own) and {key: tensor.shape for key, tensor in value.items()} != shapes:
            raise ValueError(f"{name}: expected {_kind(own)}, got {_kind(value)}")
    return saved


def _kind(value: object) -> str:
    shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
    return f"{type(value).__name__}{shape}"


def save_weights(path: Path, model: nn.Module, job: Job) -> None:
    """Write the model's state dict to a safetensors file. Its metadata have the job as JSON, and a digest of both.

    Raises ``StoreError`` if the file cannot be written.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    text = json.dumps(job.to_dict())
    write_atomically(path, save(tensors, {METADATA_KEY: text, DIGEST_KEY: tensors_digest(text, tensors)}))


def load_model(path: Path, trust: str | type | Iterable[str | type] = ()) -> tuple[nn.Module, Job[Any, Any]]:
    """Load a model and its job from a file ``weights.safetensors`` or ``checkpoint.pt``.

    The model is on the CPU and in eval mode. If it is a user's module, loading it imports the user's code. This is done
    only for the label, or the labels, in ``trust``.

    Raises ``TrainingError`` if the file is missing, damaged or not from madbench, and for a user's module that is not
    in ``trust``.
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


def _load_model(path: Path) -> tuple[nn.Module, Job[Any, Any]]:
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
    """Return a copy of a tensor if it is a view of a larger storage or has no dimensions, otherwise the tensor itself.

    ``torch.save`` writes whole storages. In a group, a storage holds the weights and step counts of several jobs.
    """
    return tensor.clone() if tensor.ndim == 0 or tensor.untyped_storage().nbytes() > tensor.nbytes else tensor


class _DamagedError(Exception):
    """Raised for a file that is not as madbench wrote it. Its message does not name the file."""


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    """Read the job, as JSON text, and the state dict from a checkpoint (``.pt``) or a file of weights.

    Raises ``_DamagedError`` if the digest is wrong or the tensors do not fit the job, and the errors of torch and
    safetensors.
    """
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
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118  not a dict
    text = metadata.get(METADATA_KEY, "")
    _check_size(text, shapes)
    tensors = load_file(path)
    if metadata.get(DIGEST_KEY) != tensors_digest(text, tensors):
        raise _DamagedError("damaged, or not weights that this madbench saved")
    return text, tensors


def _check_size(text: str, shapes: Iterable[Sequence[int]]) -> None:
    """Raise ``_DamagedError`` if tensors of these ``shapes`` have fewer numbers than the job's model has parameters.

    ``text`` is the job as JSON. The model is not built, so a damaged job of absurd size takes no memory. A job that
    cannot be parsed passes the check.
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


def _read_checkpoint(path: Path, device: str) -> Checkpoint:
    """Verify the digest of a checkpoint, and return its content with tensors on ``device``.

    The digest is verified before torch reads the file. The types of the values are not checked, and a checkpoint that
    madbench did not write can lack some. Raises ``OSError``, ``_DamagedError`` and torch's own errors.
    """
    with _sound_checkpoint(path) as file:
        content = torch.load(file, map_location=device, weights_only=True)  # ignores the digest at the end
    if not isinstance(content, dict):
        raise _DamagedError("not a checkpoint")
    return cast(Checkpoint, content)


def check_checkpoint(path: Path) -> None:
    """Verify the digest of a checkpoint. Raises ``TrainingError`` if the file is damaged or missing."""
    try:
        with explain_os_errors(path), _sound_checkpoint(path):
            pass
    except _DamagedError as error:
        raise TrainingError(f"{path}: {error}; delete it: the run starts from the beginning") from None


@contextmanager
def _sound_checkpoint(path: Path) -> Iterator[BinaryIO]:
    """Verify the digest of a checkpoint, and yield the open file at its beginning.

    Raises ``_DamagedError`` if the digest is wrong or there is no file.
    """
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
    """The SHA-256 digest of ``text`` and of the names, shapes, dtypes and bytes of ``tensors``, as hex digits."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(cast(Any, tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def _short(error: BaseException) -> str:
    """The message of an error on one line of at most 300 characters, or the error's type if it has no message."""
    return textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
