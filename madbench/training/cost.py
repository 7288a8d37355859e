"""What a job will cost before it runs: parameters, FLOPs, and seconds from a short calibration on the device."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.models.blocks import swiglu_width
from madbench.tasks import TaskSetting
from madbench.training.loop import build_model, make_optimizer, setting_of

CALIBRATION_STEPS = 3


@dataclass(frozen=True)
class Cost:
    """Estimate for one job, early stopping not counted."""

    model_parameters: int
    """Trainable parameters of the whole model."""
    steps: int
    """Optimiser steps."""
    flops: float
    """Floating-point operations of all steps and evaluations; a backward pass counts as two forward passes, and what
    ``chunked`` computes twice counts once."""


def job_cost(job: Job) -> Cost:
    """Parameters, steps and FLOPs of one job."""
    anonymous = replace(job, seed=0, training=replace(job.training, learning_rate=0.0, weight_decay=0.0))
    if anonymous.id not in _COSTS:
        _COSTS[anonymous.id] = _cost(anonymous)
    return _COSTS[anonymous.id]


_COSTS: dict[str, Cost] = {}


def _cost(job: Job) -> Cost:
    setting = setting_of(job)
    try:
        with torch.device("meta"):
            model = build_model(job)
    except RuntimeError as error:  # a tensor with more elements than 64 bits count
        raise TrainingError(f"{job.label} {job.task} at d_model {job.model.d_model}: too large to build") from error
    config = job.training
    examples = setting.num_train_examples
    steps = config.epochs * math.ceil(examples / config.batch_size)
    forward = forward_flops_per_token(model, job, setting) * setting.input_len
    judged = setting.count("validation" if job.fidelity == "corrected" else "test")
    evaluated = config.epochs * judged + setting.num_test_examples
    flops = forward * (3 * config.epochs * examples + evaluated)
    return Cost(sum(p.numel() for p in model.parameters()), steps, flops)


def forward_flops_per_token(model: torch.nn.Module, job: Job, setting: TaskSetting) -> float:
    """Mixers by their own formula (two a parameter where they have none), SwiGLU and readout as matrix products."""
    d_model, n_layer = job.model.d_model, job.model.n_layer
    mixing = 0.0
    for mixer in model.backbone.layers[::2]:
        allocation = getattr(mixer, "allocation", None)
        per_parameter = 2 * sum(p.numel() for p in mixer.parameters())
        mixing += allocation.flops_per_token(setting.input_len) if allocation else per_parameter
    swiglu = n_layer * 6 * d_model * swiglu_width(d_model)
    decoder = 4 * d_model * d_model if setting.model == "autoencoder" else 0
    return mixing + swiglu + decoder + 2 * d_model * setting.vocab_size


def estimate_seconds(jobs: Sequence[Job], device: str) -> float:
    """Training time of all jobs one after the other, by :func:`seconds_per_flop`."""
    per_flop = seconds_per_flop(jobs, device)
    return sum(per_flop[job.task] * job_cost(job).flops for job in jobs)


def seconds_per_flop(jobs: Sequence[Job], device: str) -> dict[str, float]:
    """By task, from a few real steps of the smallest job of each on ``device``.

    The steps run in one thread, as those of a worker do.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _seconds_per_flop(jobs, device)
    finally:
        torch.set_num_threads(threads)


def _seconds_per_flop(jobs: Sequence[Job], device: str) -> dict[str, float]:
    found = {}
    for task in sorted({job.task for job in jobs}):
        of_task = [(job, job_cost(job)) for job in jobs if job.task == task]
        sample, cost = min(of_task, key=lambda pair: pair[1].flops / pair[1].steps)
        found[task] = seconds_per_step(sample, device) * cost.steps / cost.flops
    return found


def seconds_per_step(job: Job, device: str) -> float:
    """Best of a few optimiser steps on random tokens after one to warm up."""
    setting = setting_of(job)
    model = build_model(job).to(device)
    optimizer = make_optimizer(model, job.training)
    batch = min(job.training.batch_size, setting.num_train_examples)
    tokens = torch.randint(setting.vocab_size, (batch, setting.input_len), device=device)
    autocast = torch.autocast(
        torch.device(device).type, torch.bfloat16, enabled=job.training.precision == "bfloat16"
    )
    best = math.inf
    for _ in range(1 + CALIBRATION_STEPS):
        started = time.perf_counter()
        with autocast:
            logits = model(tokens)
        F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best
