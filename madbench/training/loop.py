"""The training loop, top to bottom: rate, micro-batches, loss, backward, clip, optimiser, a row, a checkpoint.

Inside a step nothing waits for the device: the loss is summed there and read for the rows of the curve. Under torchrun
all processes run this together, each on its share of a step's sequences; the first one writes the files.
"""

from __future__ import annotations

import functools
import itertools
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from madbench.errors import TrainingError
from madbench.files import explain_os_errors
from madbench.jobs import KEEP, WEIGHTS, Job, Record, StopTraining
from madbench.suites import suite_of
from madbench.suites.trial import Interval, Trial
from madbench.text.corpus import Corpus
from madbench.training import distributed as world
from madbench.training.checkpoints import TrainingState, load_checkpoint, save_checkpoint, save_weights
from madbench.training.devices import device_name, git_state, peak_flops, versions
from madbench.training.optimizer import make_adamw

CHECKPOINT_SECONDS = 15.0
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into writing checkpoints
REPORT_SECONDS = 0.25


def train(
    jobs: Sequence[Job], works: Sequence[Path], report: Callable[[Job, dict[str, Any]], None], **how: Any
) -> list[Record]:
    """Trains a group of jobs, each in its work folder: :func:`train_job`, which takes the other arguments."""
    return [train_job(job, work, functools.partial(report, job), **how) for job, work in zip(jobs, works)]


def train_job(
    job: Job,
    work: Path,
    report: Callable[[dict[str, Any]], None],
    *,
    device: str = "cpu",
    corpora: Mapping[str, Corpus] | None = None,
    micro_batch: int | None = None,
    compile: bool = False,
    keep_weights: bool = False,
) -> Record:
    """Trains and evaluates a job, from the checkpoint in its work folder on, if there is a sound one.

    Args:
        job: what to train.
        work: a folder for its checkpoint, and for ``keep/weights.safetensors`` once a run that keeps its weights is
            finished; this process's alone while it runs.
        report: called a few times a second with its progress; when it raises ``StopTraining`` the state is saved first.
        device: a torch device name.
        corpora: those that language jobs name, by digest.
        micro_batch: sequences that go through the model at once; gradients of the rest are accumulated.
        compile: train through ``torch.compile``. Evaluations are not compiled: they are few.
        keep_weights: keep the weights of a suite that otherwise keeps none; they decide no number of the job.

    Returns:
        A record, ``finished`` or ``diverged``. On the CPU an interrupted and resumed run returns the same numbers, bit
        for bit, as an uninterrupted one in as many threads; threads, micro-batches and processes change them by
        rounding only. Seconds are those of training: evaluations and checkpoints are left out.

    Raises:
        ConfigError: what the suite cannot train so.
        TrainingError: another job's or version's checkpoint, or another corpus than the job's.
    """
    suite = suite_of(job)
    trial = suite.Trial(job, device, world, corpora=corpora, micro_batch=micro_batch)
    optimizer = make_adamw(trial.model, job.training, job.fidelity)
    state = TrainingState(device)
    not_resumed = load_checkpoint(work, job, trial, optimizer, state, device)
    if world.agree(state.step != world.from_first(state.step)):
        raise TrainingError(f"{work}: not every process found the same checkpoint here; all must share this folder")
    network = _network(trial.loss, device, compile)
    flops_per_token = 3 * suite.size(job).flops_per_token
    peak = peak_flops(device_name(device), job.training.precision)

    watch = _Stopwatch(device)
    last_save = time.monotonic()
    last_report = -math.inf if not_resumed else last_save
    save_every = CHECKPOINT_SECONDS
    while state.step < trial.steps and not state.diverged and not (state.curve and trial.is_done(state.curve[-1])):
        rate = trial.learning_rate(state.step)
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        state.loss_sum += backward(network, trial, state.step, device)
        norm = None if trial.clip is None else nn.utils.clip_grad_norm_(trial.model.parameters(), trial.clip)
        optimizer.step()
        state.step += 1

        if trial.has_row(state.step):
            row = trial.row(_interval(state, watch, rate, norm, device))
            watch.lap()
            if peak is not None and "tokens_per_second" in row:
                row["mfu"] = flops_per_token * row["tokens_per_second"] / (peak * world.size())
            state.add(row)
        now = time.monotonic()
        if world.is_first() and now - last_save > save_every:
            save_checkpoint(work, job, trial, optimizer, state, seconds=watch.lap())
            save_every = max(CHECKPOINT_SECONDS, watch.lap() / CHECKPOINT_SHARE)
            last_save = time.monotonic()
        is_stopped = False
        if now - last_report > REPORT_SECONDS:
            last_report = now
            try:
                shown = trial.progress(state.curve[-1]) if state.curve else {}
                warning = {"warning": not_resumed} if not_resumed else {}
                report({"step": state.step, "total_steps": trial.steps} | shown | warning)
            except StopTraining:
                is_stopped = True
        if world.agree(is_stopped):
            if world.is_first():
                save_checkpoint(work, job, trial, optimizer, state, seconds=watch.lap())
            raise StopTraining
    state.seconds += watch.lap()

    details = _provenance(job, trial, device) | {
        "flops_per_token": flops_per_token,
        "steps": state.step,
        "seconds": state.seconds,
        "steps_per_second": state.step / max(state.seconds, 1e-9),
        "world_size": world.size(),
        "micro_batch": trial.batch_shape[0],
        "compiled": compile,
    }
    details |= trial.details(state.curve)
    if state.diverged:
        return Record("diverged", {}, state.curve, details, f"loss was not finite at step {state.step}")
    metrics = trial.finish(state.curve)
    if world.is_first() and (trial.is_kept or keep_weights):
        with explain_os_errors(work / KEEP):
            (work / KEEP).mkdir(exist_ok=True)
        save_weights(work / KEEP / WEIGHTS, trial.model, job)
    return Record("finished", metrics, state.curve, details)


def backward(network: nn.Module, trial: Trial, step: int, device: str) -> Tensor:
    """Accumulates the gradient of the mean loss of one step and gives that loss, both over all processes."""
    loss = torch.zeros((), device=device)
    batches = itertools.chain(trial.micro_batches(step), [None])
    for (batch, share), following in itertools.pairwise(batches):
        waits = following is not None and isinstance(network, DistributedDataParallel)
        with network.no_sync() if waits else nullcontext():
            with trial.autocast:
                part = network(*batch) * share
            part.backward()
        loss += part.detach()
    return world.total(loss) / world.size()


def _interval(state: TrainingState, watch: _Stopwatch, rate: float, norm: Tensor | None, device: str) -> Interval:
    """The steps since the last row; begins a new interval."""
    before, state.row_seconds = state.row_seconds, state.seconds + watch.lap()
    state.seconds = state.row_seconds
    steps = state.step - (state.curve[-1]["step"] if state.curve else 0)
    mean_loss = float(state.loss_sum) / steps
    state.loss_sum.zero_()
    grad_norm, memory = None if norm is None else float(norm), _memory_bytes(device)
    return Interval(state.step, steps, state.seconds, state.seconds - before, mean_loss, rate, grad_norm, memory)


def _network(loss: nn.Module, device: str, compile: bool) -> nn.Module:
    if compile:
        loss.compile()
    if world.size() == 1:
        return loss
    gpu = [torch.device(device)] if torch.device(device).type == "cuda" else None
    return DistributedDataParallel(loss, device_ids=gpu, gradient_as_bucket_view=True)


class _Stopwatch:
    """Seconds between one look and the next, the device's queued work included."""

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.last = time.monotonic()

    def lap(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.monotonic()
        seconds, self.last = now - self.last, now
        return seconds


def _memory_bytes(device: str) -> int:
    """Most memory used so far: allocated on the GPU, or resident of this process."""
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _provenance(job: Job, trial: Trial, device: str) -> dict[str, Any]:
    """Everything about a run that is not its job and not its result: budget, path, versions, device, code."""
    details: dict[str, Any] = {
        "model_parameters": sum(p.numel() for p in trial.model.parameters()),
        "mixer_parameters": sum(p.numel() for p in trial.mixer.parameters()),
        "seeds": {stream: job.derived_seed(stream) for stream in trial.streams},
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "git": git_state(),
    }
    if allocation := getattr(trial.mixer, "allocation", None):
        details |= {"ranks": dict(allocation.ranks), "budget": allocation.target, "budget_ratio": allocation.ratio}
    if resolve_path := getattr(trial.mixer, "resolve_path", None):
        details["path"] = resolve_path(*trial.batch_shape)
    return details
