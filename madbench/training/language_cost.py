"""What a language-model run will cost before it runs: parameters, FLOPs, memory, and seconds on a device.

Two conventions of FLOPs per token of a sequence of T tokens stand side by side:

- the formula counts what causality needs: (T + 1) / 2 pairs a token, and the elementwise work of conv and I + Diag(p)
- torch's counter sees what the dense path does: all T pairs a token, T + 1 in the lag layout, whose products have one
  column of zeros more, and matrix products only

:func:`all_pairs_flops_per_token` is the formula in the counter's convention; the two agree exactly.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode  # no public module has it
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import TrainingError
from madbench.language_jobs import LanguageJob
from madbench.mixers.srg.allocation import Allocation
from madbench.models.gpt import GPT
from madbench.training.language_batches import MICRO_BATCH_TOKENS
from madbench.training.language_model import build_gpt, make_optimizer, parameter_groups
from madbench.training.peak_memory import PeakMemory

CALIBRATION_PASSES = 4
CALIBRATION_SECONDS = 5.0
BACKWARD = 2  # times the forward FLOPs: a product for each of its two gradients


@dataclass(frozen=True)
class Cost:
    """Estimate for one job."""

    parameter_groups: list[dict[str, Any]]
    """See :func:`madbench.training.language_model.parameter_groups`."""
    flops_per_token: float
    """Of training, forward and backward, by the formula: causal pairs."""
    counted_flops_per_token: float
    """Of training, by torch's counter: all pairs, matrix products only."""
    all_pairs_flops_per_token: float | None
    """Of training, by the formula in the counter's convention; None for a family without a formula."""
    flops: float
    """Of all steps and evaluations, by the formula."""
    micro_batch: int
    """Windows that go through the model at once."""
    memory_bytes: int
    """Peak of parameters, gradients, AdamW's two moments and activations of one process, without ``torch.compile``;
    an allocator's reserve and the workspace inside an operation come on top."""

    @property
    def parameters(self) -> int:
        """Of the whole model; the embedding, which the output shares, counts once."""
        return sum(row["parameters"] for row in self.parameter_groups)


def language_cost(job: LanguageJob, micro_batch: int | None = None) -> Cost:
    """Parameters, FLOPs and memory of ``job``, without running it; a second or two at the size of GPT-2.

    Raises ``TrainingError`` for a model too large to describe.
    """
    model = _meta_model(job)
    seq_len, config = job.model.seq_len, job.training
    counted = counted_flops_per_token(job)
    all_pairs = all_pairs_flops_per_token(model, seq_len)
    forward = counted / (1 + BACKWARD) if all_pairs is None else forward_flops_per_token(model, seq_len)
    trained = config.steps * config.tokens_per_step
    evaluated = config.steps // config.eval_every * 2 * config.eval_sequences * seq_len
    windows = _windows(job, micro_batch)
    return Cost(
        parameter_groups=parameter_groups(model),
        flops_per_token=(1 + BACKWARD) * forward,
        counted_flops_per_token=counted,
        all_pairs_flops_per_token=None if all_pairs is None else (1 + BACKWARD) * all_pairs,
        flops=forward * ((1 + BACKWARD) * trained + evaluated),
        micro_batch=windows,
        memory_bytes=peak_memory_bytes(job, windows),
    )


def forward_flops_per_token(model: GPT, seq_len: int) -> float:
    """Forward FLOPs per token of a sequence of ``seq_len`` tokens, two for each multiply-add.

    ``n_layer`` (mixer + 16 d^2) + 2 d ``vocab_size``, the mixers by :meth:`Allocation.flops_per_token`. A family's mixer,
    which has no such formula, is run once under torch's counter, which does not see inside a custom kernel.
    """
    mixers = sum(_mixer_flops(block.mixer, model, seq_len) for block in model.blocks)
    return mixers + _dense_flops(model)


def all_pairs_flops_per_token(model: GPT, seq_len: int) -> float | None:
    """As :func:`forward_flops_per_token`, in the counter's convention; None for a family without a formula."""
    allocations = [getattr(block.mixer, "allocation", None) for block in model.blocks]
    if any(allocation is None for allocation in allocations):
        return None
    return sum(_all_pairs_mixer_flops(allocation, seq_len) for allocation in allocations) + _dense_flops(model)


def counted_flops_per_token(job: LanguageJob) -> float:
    """FLOPs per token of forward and backward by ``torch.utils.flop_counter``, on the dense path, computing nothing."""
    model, length = _meta_model(job), job.model.seq_len
    tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
    with FlopCounterMode(display=False) as counter:
        model.loss(tokens, tokens).backward()
    return counter.get_total_flops() / length


def peak_memory_bytes(job: LanguageJob, micro_batch: int) -> int:
    """Most bytes of tensors alive at once in a training step, found by running one on tensors without data.

    Models of two and three blocks are run: every further block adds what the third did.
    """
    if job.model.n_layer <= 3:
        return _peak_memory_bytes(job, micro_batch)
    two, three = (_peak_memory_bytes(replace(job, model=replace(job.model, n_layer=n)), micro_batch) for n in (2, 3))
    return two + (job.model.n_layer - 2) * (three - two)


def _peak_memory_bytes(job: LanguageJob, micro_batch: int) -> int:
    with FakeTensorMode():
        model = build_gpt(job)
        tokens = torch.zeros(micro_batch, job.model.seq_len, dtype=torch.long)
        with PeakMemory() as memory:
            if job.sequences_per_step > micro_batch:  # then a pass meets the gradients of the one before
                for parameter in model.parameters():
                    parameter.grad = torch.zeros_like(parameter)
            with torch.autocast("cpu", torch.bfloat16, enabled=job.training.precision == "bfloat16"):
                loss = model.loss(tokens, tokens)
            loss.backward()
    parameters = sum(p.numel() * p.element_size() for p in model.parameters())
    return 3 * parameters + memory.peak  # themselves and AdamW's moments


def estimate_seconds(job: LanguageJob, device: str, micro_batch: int | None = None) -> tuple[float, float]:
    """Seconds of training and seconds of evaluations, from a few real passes on random tokens on ``device``.

    One process, torch's present number of threads, without ``torch.compile``. It takes some ten seconds, longer where
    a pass over a single window does.
    """
    config = job.training
    model = build_gpt(job).to(device)
    optimizer = make_optimizer(model, config)
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=config.precision == "bfloat16")

    def train(count: int) -> None:
        with autocast:
            loss = model.loss(tokens[:count], tokens[:count])
        loss.backward()

    def evaluate(count: int) -> None:
        with torch.inference_mode(), autocast:
            model.loss(tokens[:count], tokens[:count])

    def step() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or math.inf)
        optimizer.step()

    windows = _windows(job, micro_batch)
    tokens = torch.randint(job.vocab_size, (windows, job.model.seq_len), device=device)
    of_one = _best_seconds(lambda: train(1), device)
    count = max(1, min(windows, int(CALIBRATION_SECONDS / CALIBRATION_PASSES / of_one)))
    a_window = _best_seconds(lambda: train(count), device) / count if count > 1 else of_one
    an_evaluated_window = _best_seconds(lambda: evaluate(count), device) / count
    training = config.steps * (job.sequences_per_step * a_window + _best_seconds(step, device))
    return training, config.steps // config.eval_every * 2 * config.eval_sequences * an_evaluated_window


def _windows(job: LanguageJob, micro_batch: int | None) -> int:
    return min(micro_batch or max(1, MICRO_BATCH_TOKENS // job.model.seq_len), job.sequences_per_step)


def _meta_model(job: LanguageJob) -> GPT:
    try:
        with torch.device("meta"):
            return build_gpt(job, path="dense")
    except RuntimeError as error:  # a tensor with more elements than 64 bits count
        raise TrainingError(f"{job.label} at d_model {job.model.d_model}: too large to build") from error


def _dense_flops(model: GPT) -> float:
    vocab_size, d_model = model.embedding.weight.shape
    return len(model.blocks) * 16 * d_model**2 + 2 * d_model * vocab_size


def _mixer_flops(mixer: nn.Module, model: GPT, seq_len: int) -> float:
    allocation = getattr(mixer, "allocation", None)
    if allocation is not None:
        return allocation.flops_per_token(seq_len)
    x = model.embedding.weight.new_zeros(1, seq_len, model.embedding.weight.shape[1])
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        mixer(x)
    return counter.get_total_flops() / seq_len


def _all_pairs_mixer_flops(allocation: Allocation, seq_len: int) -> float:
    variant, ranks, d = allocation.variant, allocation.ranks, allocation.d_model
    widths = ranks.qk + ranks.vo
    mixing_ranks = (allocation.query_heads * variant.mix1 + allocation.n_head * variant.mix2) * ranks.mix
    maps = 4 * d * widths + 2 * d * widths * variant.gates + 2 * d * mixing_ranks
    return maps + 2 * widths * (seq_len + variant.lag) + 4 * mixing_ranks * seq_len


def _best_seconds(run: Callable[[], None], device: str) -> float:
    begun, times = time.perf_counter(), []
    while not times or len(times) < CALIBRATION_PASSES and time.perf_counter() - begun < CALIBRATION_SECONDS:
        started = time.perf_counter()
        run()
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times)
