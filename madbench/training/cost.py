"""Predictions of the cost of training: FLOPs, peak memory, and seconds per FLOP on a device.

FLOPs of a sequence of T tokens are counted in two ways:

- A suite's formula (:class:`madbench.suites.base.JobSize`) counts causal pairs of tokens only, (T + 1) / 2 per token.
  It includes the elementwise work of conv and I + Diag(p).
- Torch's counter (:func:`counted_flops_per_token`) counts matrix products only. It counts the dense path, which
  computes T pairs per token, or T + 1 in the lag layout, whose matrices have one extra column of zeros.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode  # there is no public module for it
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import TrainingError
from madbench.jobs import Job
from madbench.labels import family_of
from madbench.labels.patterns import part_texts
from madbench.mixers.ops.threads import torch_threads
from madbench.mixers.sequence import block_period
from madbench.models.blocks import autocast
from madbench.suites import block_count, size_of, suite_of
from madbench.suites.training import MICRO_BATCH_TOKENS
from madbench.training.devices import memory_bytes
from madbench.training.optimizer import muon_parameters

CALIBRATION_PASSES = 4
CALIBRATION_FLOPS = 1e9
"""The most FLOPs of one timed pass on the CPU, about 0.1 seconds. The batch is made smaller until the pass fits."""
LONG_PASS = 0.5
"""If a timed pass takes more than this many seconds, it is not repeated: noise is then a small part of its time."""
LARGE_FLOPS = 2e11
"""If one sequence takes more than this many FLOPs (some seconds on a CPU), the model is not timed as a whole. Instead,
one block is timed on sequences of at most ``LARGE_TOKENS`` tokens.
"""
LARGE_TOKENS = 256
"""The most tokens of a sequence with which a single block is timed."""


def counted_flops_per_token(job: Job) -> float:
    """FLOPs per token of a forward and backward pass of a job's model, as ``torch.utils.flop_counter`` counts them.

    The pass runs on the dense path, with meta tensors, so nothing is computed.
    """
    size = size_of(job)
    with torch.device("meta"):
        network = _network(job, "dense").to("meta")
        batch = suite_of(job).Trial.random_batch(job, 1, size.seq_len, "meta")
    counter = FlopCounterMode(display=False)
    with counter:
        network(*batch).backward()
    return counter.get_total_flops() / size.seq_len


def peak_memory_bytes(job: Job, micro_batch: int) -> int:
    """Peak bytes of live tensors in a training step of ``micro_batch`` sequences.

    The step runs with fake tensors, without data. Counted are parameters, gradients, the optimizer's moments (two for
    AdamW, one for Muon) and activations, for one process without ``torch.compile``. Not counted are the process itself,
    freed memory that the allocator keeps, and workspace inside an operation; :mod:`madbench.execute.slots` estimates
    these for a CPU.

    A model of more than five blocks is not run itself. Models of two and three blocks are run, and their difference is
    added for each further block. For a hybrid, a repetition of its pattern takes the place of a block. Results are
    cached for jobs that differ only in seed, learning rate and weight decay.
    """
    period, depth = block_period(job.label), block_count(job)
    job = replace(job, training=replace(job.training, learning_rate=0.0, weight_decay=0.0), seed=0)
    if depth <= 5 * period:  # running two smaller models would take as long
        return whole_peak_memory_bytes(job, micro_batch)
    depths = 2 * period, 3 * period
    two, three = (
        whole_peak_memory_bytes(replace(job, model=replace(job.model, n_layer=n)), micro_batch) for n in depths
    )
    return two + (depth - 2 * period) * (three - two) // period


def whole_peak_memory_bytes(job: Job, micro_batch: int) -> int:
    """The result of :func:`peak_memory_bytes`, but always found by running the model with all of its blocks."""
    key = f"{micro_batch} {job!r}"
    if key not in _PEAKS:
        _PEAKS[key] = _run_without_data(job, micro_batch)
    return _PEAKS[key]


_PEAKS: dict[str, int] = {}


def _run_without_data(job: Job, micro_batch: int) -> int:
    size = size_of(job)
    with FakeTensorMode():
        network = _network(job)
        batch = suite_of(job).Trial.random_batch(job, micro_batch, size.seq_len, "cpu")
        memory = PeakMemory()
        with memory:
            if size.sequences_per_step > micro_batch:  # the gradients of the previous pass are then in memory
                for parameter in network.parameters():
                    parameter.grad = torch.zeros_like(parameter)
            with autocast("cpu", job.training.precision):
                loss = network(*batch)
            loss.backward()
    sizes = {name: p.numel() * p.element_size() for name, p in network.named_parameters()}
    of_muon = muon_parameters(network) if job.training.optimizer == "muon" else set()
    return sum((2 if name in of_muon else 3) * size for name, size in sizes.items()) + memory.peak


def sequences_at_once(job: Job, micro_batch: int | None = None) -> int:
    """The number of sequences in a micro-batch of a job: ``micro_batch``, or the default for the suite of the job.

    It is at most the number of sequences per step.
    """
    size = size_of(job)
    usual = max(1, MICRO_BATCH_TOKENS // size.seq_len) if suite_of(job).uses_all_cores else size.sequences_per_step
    return min(micro_batch or usual, size.sequences_per_step)


def seconds_per_flop(jobs: Sequence[Job], device: str, threads: int) -> dict[str, float]:
    """Measured seconds per FLOP of a forward and backward pass on ``device``, by name of the task.

    For each task, only the job with the fewest FLOPs per step is timed, with ``threads`` CPU threads. Raises
    ``TrainingError`` if this job cannot be timed.
    """
    samples: dict[str, Job] = {}
    for job in sorted(jobs, key=lambda job: (job.task, size_of(job).flops / size_of(job).steps)):
        samples.setdefault(job.task, job)
    return {task: _seconds_per_flop(job, device, threads) for task, job in samples.items()}


def why_untimed(job: Job, device: str) -> str:
    """The reason why a job cannot be timed on ``device``: too little memory, or a missing package. Empty if it can."""
    job = _shorten(job) if torch.device(device).type == "cpu" else job
    memory, parameters = memory_bytes(), size_of(job).parameters
    if 8 * parameters > memory:  # weights and gradients in float32
        return (
            f"{job.label} {job.task}: {parameters:,} parameters and their gradients take "
            f"{8 * parameters / 1e9:,.0f} GB; this machine has {memory / 1e9:,.0f} GB"
        )
    if not any(family_of(part).needs for part in part_texts(job.label)):
        return ""
    one = job
    if hasattr(job.model, "n_layer"):
        one = replace(job, model=replace(job.model, n_layer=block_period(job.label)))
    try:
        with torch.device("meta"):
            suite_of(job).Trial.build(one)
    except TrainingError as error:
        return str(error)
    return ""


def _seconds_per_flop(job: Job, device: str, threads: int) -> float:
    """Measured seconds per FLOP of a forward and backward pass of a job on a random batch.

    The shortest of a few passes after a warm-up counts. The optimizer is left out: it takes a few percent of a step,
    and importing it takes as long as the whole measurement. Raises ``TrainingError`` if the job cannot be timed.
    """
    if reason := why_untimed(job, device):
        raise TrainingError(reason)
    is_cpu = torch.device(device).type == "cpu"
    job = _shorten(job) if is_cpu else job
    size = size_of(job)
    flops = 3 * size.flops_per_token * size.seq_len
    batch = sequences_at_once(job)
    if is_cpu:  # on a CPU the time of a step is proportional to its batch
        batch = min(batch, math.ceil(CALIBRATION_FLOPS / flops))
    try:
        with torch_threads(threads):
            network = _network(job).to(device)
            inputs = suite_of(job).Trial.random_batch(job, batch, size.seq_len, device)
            best = math.inf
            for number in range(1 + CALIBRATION_PASSES):
                if number > 1 and best > LONG_PASS:
                    break
                started = time.perf_counter()
                with autocast(device, job.training.precision):
                    loss = network(*inputs)
                loss.backward()
                network.zero_grad(set_to_none=True)
                if not is_cpu:
                    torch.cuda.synchronize(device)
                best = min(best, time.perf_counter() - started)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise TrainingError(f"{job.label} {job.task}: {device} has too little memory for one pass") from error
    return best / (batch * flops)


def _shorten(job: Job) -> Job:
    """The job to time on a CPU in place of ``job``. It takes about the same seconds per FLOP.

    If one sequence of ``job`` takes more than ``LARGE_FLOPS``, the result has one block and sequences of at most
    ``LARGE_TOKENS`` tokens. Otherwise it is ``job`` itself.
    """
    size = size_of(job)
    is_large = 3 * size.flops_per_token * size.seq_len > LARGE_FLOPS
    if not is_large or not hasattr(job.model, "n_layer") or not hasattr(job.model, "seq_len"):
        return job
    model = replace(job.model, n_layer=block_period(job.label), seq_len=min(job.model.seq_len, LARGE_TOKENS))
    return replace(job, model=model)


def _network(job: Job, path: str = "auto") -> nn.Module:
    trial = suite_of(job).Trial
    return trial.Loss(trial.build(job, path))


class PeakMemory(TorchDispatchMode):
    """A context manager that counts the bytes of the tensors that torch operations return while it is active.

    ``live`` is the number of bytes now, and ``peak`` the largest number so far. A storage counts once, from the
    operation that first returns it until it is freed. Tensors that existed before, such as parameters, do not count.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._track((args, kwargs), ours=False)
        result = function(*args, **kwargs)
        self._track(result, ours=True)
        return result

    def _track(self, tree: object, ours: bool) -> None:
        for tensor in tree_leaves(tree):
            if not isinstance(tensor, Tensor) or id(storage := tensor.untyped_storage()) in self._known:
                continue
            size = storage.nbytes() if ours else 0
            self._known.add(id(storage))
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._free, id(storage), size).atexit = False

    def _free(self, key: int, size: int) -> None:
        self._known.remove(key)
        self.live -= size
