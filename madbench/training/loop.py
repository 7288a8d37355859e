"""The training loop, top to bottom: rate, micro-batches, loss, backward, clip, optimiser, a row, a checkpoint.

Inside a step nothing waits for the device: the loss is summed there and read for the rows of the curve. Under torchrun
all processes run this together, each on its share of a step's sequences; the first one writes the files.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from madbench.errors import TrainingError
from madbench.files import explain_os_errors
from madbench.jobs import KEEP, Job, Record, StopTraining
from madbench.suites import suite_of
from madbench.suites.trial import Interval, Trial
from madbench.text.corpus import Corpus
from madbench.training import distributed as world
from madbench.training.checkpoints import load_checkpoint, save_checkpoint
from madbench.training.devices import peak_flops
from madbench.training.optimizer import make_adamw, set_learning_rate
from madbench.training.provenance import device_name, provenance
from madbench.training.state import Stopwatch, TrainingState, memory_bytes
from madbench.training.weights import save_weights

CHECKPOINT_SECONDS = 15.0
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into writing checkpoints
REPORT_SECONDS = 0.25

Report = Callable[[dict[str, Any]], None]
T = TypeVar("T")


def train(
    jobs: Sequence[Job],
    works: Sequence[Path],
    report: Callable[[Job, dict[str, Any]], None],
    *,
    device: str = "cpu",
    corpora: Mapping[str, Corpus] | None = None,
    micro_batch: int | None = None,
    compile: bool = False,
) -> list[Record]:
    """Trains a group of jobs and evaluates them; each resumes from the checkpoint in its work folder, if any.

    Args:
        jobs: what to train.
        works: a folder a job, for its checkpoint, and for ``keep/weights.safetensors`` once a run that keeps its
            weights is finished; this process's alone while it runs.
        report: called a few times a second with a job and its progress; when it raises ``StopTraining`` the state is
            saved first.
        device: a torch device name.
        corpora: those that language jobs name, by digest.
        micro_batch: sequences that go through the model at once; gradients of the rest are accumulated.
        compile: train through ``torch.compile``. Evaluations are not compiled: they are few.

    Returns:
        A record a job, ``finished`` or ``diverged``. On the CPU an interrupted and resumed run returns the same
        numbers, bit for bit, as an uninterrupted one in as many threads; threads, micro-batches and processes change
        them by rounding only. Seconds are those of training: evaluations and checkpoints are left out.

    Raises:
        ConfigError: what the suite cannot train so.
        TrainingError: a checkpoint that cannot be used, or another corpus than the job's.
    """
    how = {"device": device, "corpora": corpora, "micro_batch": micro_batch, "compile": compile}
    return [train_job(job, work, functools.partial(report, job), **how) for job, work in zip(jobs, works, strict=True)]


def train_job(
    job: Job,
    work: Path,
    report: Report,
    *,
    device: str = "cpu",
    corpora: Mapping[str, Corpus] | None = None,
    micro_batch: int | None = None,
    compile: bool = False,
) -> Record:
    """Trains one job; see :func:`train`."""
    suite = suite_of(job)
    trial = suite.Trial(job, device, world, corpora=corpora, micro_batch=micro_batch)
    optimizer = make_adamw(trial.model, job.training)
    state = TrainingState(device)
    load_checkpoint(work, job, trial, optimizer, state, device)
    if world.agree(state.step != world.from_first(state.step)):
        raise TrainingError(f"{work}: not every process found the same checkpoint here; all must share this folder")
    network = _network(trial.loss, device, compile)
    flops_per_token = 3 * suite.size(job).flops_per_token
    peak = peak_flops(device_name(device), job.training.precision)

    watch = Stopwatch(device)
    last_save = last_report = time.monotonic()
    save_every = CHECKPOINT_SECONDS
    while state.step < trial.steps and not state.diverged and not (state.curve and trial.is_done(state.curve[-1])):
        rate = trial.learning_rate(state.step)
        set_learning_rate(optimizer, rate)
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
                report({"step": state.step, "total_steps": trial.steps} | shown)
            except StopTraining:
                is_stopped = True
        if world.agree(is_stopped):
            if world.is_first():
                save_checkpoint(work, job, trial, optimizer, state, seconds=watch.lap())
            raise StopTraining
    state.seconds += watch.lap()

    details = provenance(job, trial, device) | {
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
    if world.is_first() and trial.is_kept:
        with explain_os_errors(work / KEEP):
            (work / KEEP).mkdir(exist_ok=True)
        save_weights(work / KEEP / "weights.safetensors", trial.model, job)
    return Record("finished", metrics, state.curve, details)


def backward(network: nn.Module, trial: Trial, step: int, device: str) -> Tensor:
    """Accumulates the gradient of the mean loss of one step and gives that loss, both over all processes."""
    loss = torch.zeros((), device=device)
    for (batch, share), is_last in _with_last(trial.micro_batches(step)):
        waits = not is_last and isinstance(network, DistributedDataParallel)
        with network.no_sync() if waits else nullcontext():
            with trial.autocast:
                part = network(*batch) * share
            part.backward()
        loss += part.detach()
    return world.total(loss) / world.size()


def _with_last(items: Iterable[T]) -> Iterator[tuple[T, bool]]:
    """Each item and whether it is the last one."""
    end = object()
    for item, following in itertools.pairwise(itertools.chain(items, [end])):
        yield item, following is end


def _interval(state: TrainingState, watch: Stopwatch, rate: float, norm: Tensor | None, device: str) -> Interval:
    """The steps since the last row; begins a new interval."""
    before, state.row_seconds = state.row_seconds, state.seconds + watch.lap()
    state.seconds = state.row_seconds
    steps = state.step - (state.curve[-1]["step"] if state.curve else 0)
    mean_loss = float(state.loss_sum) / steps
    state.loss_sum.zero_()
    return Interval(
        step=state.step,
        steps=steps,
        seconds=state.seconds,
        interval_seconds=state.seconds - before,
        mean_loss=mean_loss,
        learning_rate=rate,
        grad_norm=None if norm is None else float(norm),
        memory_bytes=memory_bytes(device),
    )


def _network(loss: nn.Module, device: str, compile: bool) -> nn.Module:
    if compile:
        loss.compile()
    if world.size() == 1:
        return loss
    gpu = [torch.device(device)] if torch.device(device).type == "cuda" else None
    return DistributedDataParallel(loss, device_ids=gpu, gradient_as_bucket_view=True)
