"""One language-model run, top to bottom: the nanoGPT recipe, evaluations, checkpoints, a record.

Inside a step nothing waits for the device: the loss is summed there and read for the rows of the curve. Under torchrun
all processes run this together, each on its share of a step's windows; the first one writes the files.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from madbench.errors import ConfigError, TrainingError
from madbench.files import explain_os_errors
from madbench.jobs import Record, StopTraining
from madbench.language_jobs import LanguageJob, LanguageTraining
from madbench.store.runs import KEEP
from madbench.text.batches import training_starts
from madbench.text.corpus import Corpus, open_corpus
from madbench.training.checkpoints import load_checkpoint, save_checkpoint
from madbench.training.devices import peak_flops
from madbench.training.distributed import agree, from_first, is_first, own_share, total, world_size
from madbench.training.language_batches import Batches
from madbench.training.language_cost import forward_flops_per_token
from madbench.training.language_evaluation import Evaluation
from madbench.training.language_model import build_gpt, make_optimizer, parameter_groups
from madbench.training.language_state import Stopwatch, TrainingState, final_metrics, memory_bytes
from madbench.training.optimizer import set_learning_rate
from madbench.training.provenance import device_name, provenance
from madbench.training.weights import save_weights

CHECKPOINT_SECONDS = 15.0
CHECKPOINT_SHARE = 0.05  # of the time, at most, goes into writing checkpoints
REPORT_SECONDS = 0.25
ROWS_PER_EVALUATION = 20

Report = Callable[[dict[str, Any]], None]


def train_language_job(
    job: LanguageJob,
    work: Path,
    report: Report,
    *,
    corpus: Corpus | Path,
    device: str = "cpu",
    micro_batch: int | None = None,
    compile: bool = False,
) -> Record:
    """Trains ``job`` and evaluates it; resumes from ``work/checkpoint.pt`` when there is one.

    Args:
        job: what to train.
        work: folder for the checkpoint, and for ``keep/weights.safetensors`` once the run is finished.
        report: called a few times a second with the progress; when it raises ``StopTraining`` the state is saved first.
        corpus: the corpus of the job, or its folder.
        device: a torch device name.
        micro_batch: windows that go through the model at once; by default as many as hold 12,288 tokens.
        compile: train through ``torch.compile``. Evaluations are not compiled: they are few.

    Returns:
        A record with status ``finished`` or ``diverged``. On the CPU an interrupted and resumed run returns the same
        numbers, bit for bit, as an uninterrupted one in as many threads; threads, micro-batches and processes change
        them by rounding only.
        Seconds, in the curve too, are those of training: evaluations and checkpoints are left out.

    Raises:
        ConfigError: a number of processes that does not divide the windows of a step, or a split without a window.
        TrainingError: another corpus than the job's, or a checkpoint that cannot be used.
    """
    config = job.training
    opened = _check(job, corpus if isinstance(corpus, Corpus) else open_corpus(corpus), micro_batch)
    batches = Batches(opened, job.model.seq_len, device, micro_batch)
    autocast = torch.autocast(torch.device(device).type, torch.bfloat16, enabled=config.precision == "bfloat16")
    evaluation = Evaluation(batches, config, autocast)
    model = build_gpt(job).to(device)
    optimizer = make_optimizer(model, config)
    state = TrainingState(device)
    load_checkpoint(work, job, model, optimizer, state, device)
    if agree(state.step != from_first(state.step)):
        raise TrainingError(f"{work}: not every process found the same checkpoint here; all must share this folder")
    network = _network(model, device, compile)
    flops_per_token = 3 * forward_flops_per_token(model, job.model.seq_len)
    peak = peak_flops(device_name(device), config.precision)
    row_every = max(1, config.eval_every // ROWS_PER_EVALUATION)

    watch = Stopwatch(device)
    last_save = last_report = time.monotonic()
    save_every = CHECKPOINT_SECONDS
    while state.step < config.steps and not state.diverged:
        rate = scheduled_rate(config, state.step)
        set_learning_rate(optimizer, rate)
        optimizer.zero_grad(set_to_none=True)
        state.loss_sum += backward(network, batches, step_starts(job, batches, state.step), autocast)
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip or math.inf)
        optimizer.step()
        state.step += 1

        is_evaluation = state.step % config.eval_every == 0
        if is_evaluation or state.step % row_every == 0:
            state.seconds += watch.lap()
            row = state.row(config)
            row |= {"learning_rate": rate, "grad_norm": float(grad_norm), "memory_bytes": memory_bytes(device)}
            if peak is not None:
                row["mfu"] = flops_per_token * row["tokens_per_second"] / (peak * world_size())
            if is_evaluation and math.isfinite(row["step_loss"]):
                row |= evaluation.losses(model, state.step // config.eval_every)
                watch.lap()
            state.add(row)
        now = time.monotonic()
        if is_first() and now - last_save > save_every:
            save_checkpoint(work, job, model, optimizer, state, seconds=watch.lap())
            save_every = max(CHECKPOINT_SECONDS, watch.lap() / CHECKPOINT_SHARE)
            last_save = time.monotonic()
        is_stopped = False
        if now - last_report > REPORT_SECONDS:
            last_report = now
            try:
                report(state.progress(config))
            except StopTraining:
                is_stopped = True
        if agree(is_stopped):
            if is_first():
                save_checkpoint(work, job, model, optimizer, state, seconds=watch.lap())
            raise StopTraining

    windows = min(batches.micro_batch, job.sequences_per_step // world_size())
    details = provenance(job, ("init", "order"), model, model.blocks[0].mixer, device, (windows, job.model.seq_len))
    details |= {
        "corpus": opened.description(),
        "parameter_groups": parameter_groups(model),
        "flops_per_token": flops_per_token,
        "steps": state.step,
        "tokens_per_second": float(np.median([row["tokens_per_second"] for row in state.curve])),
        "seconds": state.seconds,
        "evaluation": evaluation.description(),
        "world_size": world_size(),
        "micro_batch": windows,
        "compiled": compile,
    }
    if state.diverged:
        return Record("diverged", {}, state.curve, details, f"loss was not finite at step {state.step}")
    if is_first():
        with explain_os_errors(work / KEEP):
            (work / KEEP).mkdir(exist_ok=True)
        save_weights(work / KEEP / "weights.safetensors", model, job)
    return Record("finished", final_metrics(state.curve), state.curve, details)


class Loss(nn.Module):
    """A model's loss as a ``forward``, which is what ``torch.compile`` and data parallelism wrap."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Ids and targets (B, T) -> mean nats per token."""
        return self.model.loss(inputs, targets)


def scheduled_rate(config: LanguageTraining, step: int) -> float:
    """Linear over the warm-up, then a cosine to the minimum; ``step`` counts the steps already taken."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / (config.warmup_steps + 1)
    progress = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * cosine


def step_starts(job: LanguageJob, batches: Batches, step: int) -> np.ndarray:
    """Where the windows of one step begin that are this process's to train on."""
    seed, n_tokens = job.derived_seed("order"), len(batches.tokens["train"])
    return own_share(training_starts(seed, step, job.sequences_per_step, n_tokens, job.model.seq_len))


def backward(network: nn.Module, batches: Batches, starts: np.ndarray, autocast: torch.autocast) -> Tensor:
    """Accumulates the gradient of the mean loss of one step and gives that loss, both over all processes."""
    loss = torch.zeros((), device=batches.device)
    count = batches.count(len(starts))
    for index, (inputs, targets) in enumerate(batches.micro_batches("train", starts), start=1):
        waits = index < count and isinstance(network, DistributedDataParallel)
        with network.no_sync() if waits else nullcontext():
            with autocast:
                part = network(inputs, targets) * (len(inputs) / len(starts))
            part.backward()
        loss += part.detach()
    return total(loss) / world_size()


def _check(job: LanguageJob, corpus: Corpus, micro_batch: int | None) -> Corpus:
    if corpus.digest != job.corpus:
        raise TrainingError(f"{corpus.folder}: corpus {corpus.digest}, but the job is for corpus {job.corpus}")
    if corpus.vocab_size > job.vocab_size:
        raise TrainingError(
            f"{corpus.folder}: {corpus.vocab_size} token ids, but the job's model has {job.vocab_size}; "
            f"its vocab_size must be {corpus.padded_vocab_size}"
        )
    if micro_batch is not None and micro_batch < 1:
        raise ConfigError(f"micro_batch must be at least 1, got {micro_batch}")
    if job.sequences_per_step % world_size():
        raise ConfigError(
            f"{world_size()} processes cannot share the {job.sequences_per_step} windows of a step evenly; start a "
            "number of them that divides it, or change training.tokens_per_step"
        )
    return corpus


def _network(model: nn.Module, device: str, compile: bool) -> nn.Module:
    network = Loss(model)
    if compile:
        network.compile()
    if world_size() == 1:
        return network
    gpu = [torch.device(device)] if torch.device(device).type == "cuda" else None
    return DistributedDataParallel(network, device_ids=gpu, gradient_as_bucket_view=True)
