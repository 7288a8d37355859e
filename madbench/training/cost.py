"""What a job will cost before it runs: parameters, FLOPs, and seconds from a short calibration on the device."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.labels import Variant, parse
from madbench.mixers.build import build as build_mixer
from madbench.mixers.srg.budget import solve
from madbench.models.blocks import swiglu_width
from madbench.tasks import TaskSetting
from madbench.training.loop import build_model, setting_of

CALIBRATION_STEPS = 3
CALIBRATION_FLOPS = 1e9
"""Of one calibration step on the CPU at most, a tenth of a second; it takes a part of the batch for that."""


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
    if job.id not in _OF_JOB:
        config = job.training
        key = (job.label, job.task, *job.setting.items(), job.model, job.fidelity, job.counting)
        key += (config.epochs, config.batch_size)
        if key not in _OF_SIZES:
            _OF_SIZES[key] = _cost(job)
        _OF_JOB[job.id] = _OF_SIZES[key]
    return _OF_JOB[job.id]


_OF_JOB: dict[str, Cost] = {}
_OF_SIZES: dict[tuple, Cost] = {}


def _cost(job: Job) -> Cost:
    setting = setting_of(job)
    parameters = model_parameters(job, setting)
    if 4 * parameters >= 2**63:  # bytes are counted in 64 bits
        raise _too_large(job)
    config = job.training
    examples = setting.num_train_examples
    steps = config.epochs * math.ceil(examples / config.batch_size)
    forward = forward_flops_per_token(job, setting) * setting.input_len
    judged = setting.count("validation" if job.fidelity == "corrected" else "test")
    evaluated = config.epochs * judged + setting.num_test_examples
    flops = forward * (3 * config.epochs * examples + evaluated)
    return Cost(parameters, steps, flops)


def _too_large(job: Job) -> TrainingError:
    return TrainingError(f"{job.label} {job.task} at d_model {job.model.d_model}: too large to build")


def model_parameters(job: Job, setting: TaskSetting) -> int:
    """Parameters of the model that :func:`madbench.training.loop.build_model` builds."""
    d_model, n_layer = job.model.d_model, job.model.n_layer
    block = mixer_cost(job, setting)[0] + 3 * d_model * swiglu_width(d_model) + 2 * d_model
    readout = d_model + (d_model + 1) * setting.vocab_size
    decoder = 2 * (d_model + (d_model + 1) * d_model) if setting.model == "autoencoder" else 0
    return setting.vocab_size * d_model + n_layer * block + decoder + readout


def forward_flops_per_token(job: Job, setting: TaskSetting) -> float:
    """Mixers by their own formula (two a parameter where they have none), SwiGLU and readout as matrix products."""
    d_model, n_layer = job.model.d_model, job.model.n_layer
    mixing = n_layer * mixer_cost(job, setting)[1]
    swiglu = n_layer * 6 * d_model * swiglu_width(d_model)
    decoder = 4 * d_model * d_model if setting.model == "autoencoder" else 0
    return mixing + swiglu + decoder + 2 * d_model * setting.vocab_size


def mixer_cost(job: Job, setting: TaskSetting) -> tuple[int, float]:
    """Parameters of one mixer and its forward FLOPs per token; of another family's it is built without memory."""
    variant, model = parse(job.label), job.model
    if isinstance(variant, Variant):
        size = (model.d_model, model.n_head, setting.seq_len, job.counting, model.mix_rank, model.rank_multiple)
        allocation = solve(variant, *size)
        return allocation.total, allocation.flops_per_token(setting.input_len)
    try:
        with torch.device("meta"):
            mixer = build_mixer(variant, model.d_model, setting.seq_len, n_head=model.n_head)
    except RuntimeError as error:  # a tensor with more elements than 64 bits count
        raise _too_large(job) from error
    parameters = sum(p.numel() for p in mixer.parameters())
    return parameters, 2 * parameters


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
    """Best of a few passes forward and backward on random tokens, after one to warm up.

    The optimiser is left out: it takes a few hundredths of a step, and to import it as long as all the rest.
    """
    setting = setting_of(job)
    model = build_model(job).to(device)
    batch = whole = min(job.training.batch_size, setting.num_train_examples)
    if torch.device(device).type == "cpu":  # there a step takes as long as its batch is large
        batch = min(
            whole, math.ceil(CALIBRATION_FLOPS / (3 * forward_flops_per_token(job, setting) * setting.input_len))
        )
    tokens = torch.randint(setting.vocab_size, (batch, setting.input_len), device=device)
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=job.training.precision == "bfloat16")
    best = math.inf
    for _ in range(1 + CALIBRATION_STEPS):
        started = time.perf_counter()
        with autocast:
            logits = model(tokens)
        F.cross_entropy(logits.float().flatten(0, 1), tokens.flatten()).backward()
        model.zero_grad(set_to_none=True)
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best * whole / batch
