"""One run, top to bottom: data on the device, AdamW, an evaluation an epoch, a checkpoint now and then, a record.

Inside a step nothing waits for the device: the loss is summed there and read once an epoch.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.jobs import Job, Record, StopTraining, TrainingConfig
from madbench.mixers.build import build
from madbench.models.autoencoder import Autoencoder
from madbench.models.mad import LanguageModel
from madbench.tasks import IGNORE, SPLITS, TaskSetting, ceiling, generate, make_setting
from madbench.training.checkpoints import load_checkpoint, save_checkpoint
from madbench.training.metrics import Scores, evaluate
from madbench.training.optimizer import make_adamw, set_learning_rate
from madbench.training.provenance import provenance

CHECKPOINT_SECONDS = 15.0
REPORT_SECONDS = 0.25

Report = Callable[[dict[str, Any]], None]


def train_job(job: Job, work: Path, report: Report, *, device: str = "cpu") -> Record:
    """Trains ``job`` and evaluates it; resumes from ``work/checkpoint.pt`` when there is one.

    Args:
        job: what to train.
        work: folder for the checkpoint, this process's alone while it runs.
        report: called a few times a second with the progress; when it raises ``StopTraining`` the state is saved first.
        device: a torch device name.

    Returns:
        A record with status ``finished`` or ``diverged``. On the CPU an interrupted and resumed run returns the same
        numbers, bit for bit, as an uninterrupted one.
    """
    config = job.training
    data = load_data(job, device)
    model = build_model(job).to(device)
    optimizer = make_optimizer(model, config)
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=config.precision == "bfloat16")
    steps_per_epoch = math.ceil(len(data["train"][0]) / config.batch_size)
    total_steps = config.epochs * steps_per_epoch
    judge = "validation" if job.fidelity == "corrected" else "test"

    state = TrainingState(device)
    load_checkpoint(work, job, model, optimizer, state, device)
    last_save = last_report = started = time.monotonic()
    first_step = state.step

    while state.step < total_steps and not state.stopped:
        epoch, within = divmod(state.step, steps_per_epoch)
        if within == 0 or state.step == first_step:
            order = shuffled(job, epoch, len(data["train"][0]), device)
        batch = order[within * config.batch_size : (within + 1) * config.batch_size]
        set_learning_rate(optimizer, scheduled_rate(config, job.fidelity, state.step, total_steps))
        with autocast:
            logits = model(data["train"][0][batch])
        loss = F.cross_entropy(logits.float().flatten(0, 1), data["train"][1][batch].flatten(), ignore_index=IGNORE)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        state.loss_sum += loss.detach()
        state.step += 1

        if within == steps_per_epoch - 1:
            train_loss = float(state.loss_sum) / steps_per_epoch
            scores = evaluate(model, *data[judge], autocast)
            state.end_epoch(epoch + 1, train_loss, scores, judge, headline(job, scores), model, job)
            if state.diverged:
                break
        now = time.monotonic()
        if now - last_save > CHECKPOINT_SECONDS:
            save_checkpoint(work, job, model, optimizer, state, seconds=now - started)
            last_save = started = time.monotonic()
        if now - last_report > REPORT_SECONDS:
            last_report = now
            try:
                report({"step": state.step, "total_steps": total_steps, "accuracy": state.last_accuracy})
            except StopTraining:
                save_checkpoint(work, job, model, optimizer, state, seconds=time.monotonic() - started)
                raise
    seconds = state.seconds + time.monotonic() - started

    examples, length = data["train"][0].shape
    batch_shape = (min(config.batch_size, examples), length)
    details = provenance(job, ("init", "data", "order"), model, model.backbone.layers[0], device, batch_shape)
    details |= {"steps": state.step, "seconds": seconds, "steps_per_second": state.step / max(seconds, 1e-9)}
    if state.diverged:
        last = state.curve[-1]
        error = f"loss was not finite in epoch {last['epoch']} (step {state.step})"
        return Record("diverged", {}, state.curve, details, error)
    return Record("finished", final_metrics(job, model, data, state, autocast), state.curve, details)


class TrainingState:
    """What a resumed run needs beside the weights and the optimiser."""

    def __init__(self, device: str):
        self.step = 0
        self.seconds = 0.0
        self.loss_sum = torch.zeros((), device=device)
        self.curve: list[dict[str, float]] = []
        self.stopped = False
        self.diverged = False
        self.last_accuracy: float | None = None
        self.best_loss = math.inf
        self.best_weights: dict[str, Tensor] | None = None

    def end_epoch(
        self, epoch: int, train_loss: float, scores: Scores, judge: str, accuracy: float, model: nn.Module, job: Job
    ) -> None:
        """Adds a row to the curve and decides whether the run is over."""
        row = {"epoch": epoch, "step": self.step, "train_loss": train_loss}
        self.curve.append(row | {f"{judge}_{name}": value for name, value in asdict(scores).items()})
        self.loss_sum.zero_()
        self.last_accuracy = accuracy
        self.diverged = not (math.isfinite(train_loss) and math.isfinite(scores.loss))
        self.stopped = accuracy >= job.training.stop_accuracy
        if job.fidelity == "published" and scores.loss < self.best_loss:
            self.best_loss = scores.loss
            self.best_weights = copy.deepcopy(model.state_dict())


def setting_of(job: Job) -> TaskSetting:
    return make_setting(job.task, job.setting, f"setting of {job.task}")


def load_data(job: Job, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and targets (N, T) of the three splits, on the device."""
    setting = setting_of(job)
    data = {}
    for split in SPLITS:
        examples = generate(job.task, setting, split, job.derived_seed("data"))
        data[split] = tuple(torch.from_numpy(array).to(device) for array in (examples.inputs, examples.targets))
    return data


def build_model(job: Job) -> nn.Module:
    """The model of a job with its initial weights; the global random state is left alone."""
    setting, config = setting_of(job), job.model

    def make_mixer() -> nn.Module:
        return build(
            job.label,
            config.d_model,
            setting.seq_len,
            n_head=config.n_head,
            counting=job.counting,
            mix_rank=config.mix_rank,
            rank_multiple=config.rank_multiple,
            rope=config.rope,
        )

    shape = (setting.vocab_size, config.d_model, config.n_layer, make_mixer)
    with torch.random.fork_rng():
        torch.manual_seed(job.derived_seed("init"))
        if setting.model == "autoencoder":
            return Autoencoder(*shape, max_len=setting.input_len)
        return LanguageModel(*shape)


def make_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW; what decays is :func:`madbench.training.optimizer.decays`'s to say."""
    return make_adamw(model, config.learning_rate, config.weight_decay)


def scheduled_rate(config: TrainingConfig, fidelity: str, step: int, total_steps: int) -> float:
    """Cosine from ``learning_rate`` to ``min_learning_rate``; constant in the published fidelity."""
    if fidelity == "published":
        return config.learning_rate
    cosine = 0.5 * (1 + math.cos(math.pi * step / total_steps))
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * cosine


def shuffled(job: Job, epoch: int, count: int, device: str) -> Tensor:
    """The order of the training examples in one epoch: a function of seed and epoch alone."""
    generator = np.random.default_rng([job.derived_seed("order"), epoch])
    return torch.from_numpy(generator.permutation(count)).to(device)


def headline(job: Job, scores: Scores) -> float:
    """The accuracy that the fidelity judges by."""
    return scores.token_accuracy if job.fidelity == "corrected" else scores.batch_macro_accuracy


def final_metrics(
    job: Job, model: nn.Module, data: dict[str, tuple[Tensor, Tensor]], state: TrainingState, autocast: torch.autocast
) -> dict[str, float]:
    """``accuracy`` is the number of the table, ``selection_accuracy`` the one that chooses learning rate and decay."""
    if state.best_weights is not None:
        model.load_state_dict(state.best_weights)
    test = evaluate(model, *data["test"], autocast)
    metrics = {f"test_{name}": value for name, value in asdict(test).items()}
    metrics["accuracy"] = headline(job, test)
    if job.fidelity == "published":
        metrics["selection_accuracy"] = metrics["accuracy"]
    else:
        metrics["selection_accuracy"] = state.curve[-1]["validation_token_accuracy"]
        metrics["best_validation_accuracy"] = max(row["validation_token_accuracy"] for row in state.curve)
    setting = setting_of(job)
    metrics["ceiling"] = ceiling(job.task, setting, job.derived_seed("data"))
    return metrics
