"""What a suite is: a way to train a label and to judge it. The training loop and the tables know no more than this."""

from __future__ import annotations

import functools
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from madbench import mixers

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor, nn

    from madbench.jobs import Job
    from madbench.suites.profile import Profile

MICRO_BATCH_TOKENS = 12_288
"""Tokens of text that go through a model at once where nothing else is asked for: 12 windows of 1,024, as nanoGPT's."""


@dataclass(frozen=True)
class Column:
    """One quantity of every label, a column of its suite's table."""

    name: str
    heading: str
    digits: int
    """Decimal places."""
    better: Literal["higher", "lower", ""] = ""
    """Which of two numbers is the better one; empty for what is no result, and so has no interval and no best."""
    is_pooled: bool = False
    """Whether all labels have the same noise."""
    resolution: float | None = None
    """Step in which the values are counted; without it, that in which they are printed."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Beyond which no value can be."""
    missing: str = ""
    """What a cell without a number says."""


@dataclass(frozen=True)
class Size:
    """What training a job takes, early stopping not counted; known without building anything."""

    parameters: int
    """Trainable parameters of the whole model."""
    steps: int
    """Optimiser steps."""
    seq_len: int
    """Tokens of an input."""
    sequences_per_step: int
    flops_per_token: float
    """Forward floating-point operations per token, two for each multiply-add."""
    trained_tokens: int
    evaluated_tokens: int

    @property
    def flops(self) -> float:
        """Of all steps and evaluations; a backward pass counts as two forward passes."""
        return self.flops_per_token * (3 * self.trained_tokens + self.evaluated_tokens)


@dataclass(frozen=True)
class Interval:
    """The steps since a curve's last row, as the loop measured them."""

    step: int
    """Steps taken so far."""
    steps: int
    """Steps of the interval."""
    seconds: float
    """Of training so far; evaluations and checkpoints are left out."""
    interval_seconds: float
    mean_loss: float
    """Mean loss of the interval's steps."""
    learning_rate: float
    """Of the last step."""
    grad_norm: float | None
    """Of the last step, before clipping; None where the trial does not clip."""
    memory_bytes: int
    """Most memory used so far."""


class World(Protocol):
    """The processes that train one run together, usually this one alone: :mod:`madbench.training.distributed`."""

    def size(self) -> int:
        """How many there are."""

    def share(self, items: np.ndarray) -> np.ndarray:
        """This process's part of ``items`` (N, ...)."""

    def total(self, values: Tensor) -> Tensor:
        """The sum over all processes of ``values``, in place."""


class Trial(Protocol):
    """One job ready to train: all that the training loop knows of it.

    ``Trial(job, device, world, corpora=..., micro_batch=...)``; ``corpora`` by digest are there for the language suite,
    and ``micro_batch`` is the most sequences that go through the model at once.
    """

    model: nn.Module
    """What is trained and checkpointed, on its device."""
    loss: nn.Module
    """``loss(*batch)``: mean loss of a micro-batch, a scalar; its parameters are those of ``model``."""
    mixer: nn.Module
    """One of the model's mixers, for the record."""
    autocast: torch.autocast
    """Arithmetic of the forward pass."""
    steps: int
    """Optimiser steps at most."""
    clip: float | None
    """Largest norm of the gradient; ``inf`` only measures it, None does neither."""
    batch_shape: tuple[int, int]
    """(B, T) of a micro-batch."""
    streams: Sequence[str]
    """Sources of randomness that it draws from, for :meth:`madbench.jobs.Job.derived_seed`."""
    state: dict[str, Any]
    """What a resumed run needs beside weights, optimiser and curve; saved with every checkpoint."""
    is_kept: bool
    """Whether the weights stay with the finished run."""

    @staticmethod
    def build(job: Job, path: str = "auto") -> nn.Module:
        """The model of a job with its initial weights, on the CPU or under ``torch.device``.

        The global random state is left alone. ``path`` is how mixers are computed.
        """

    def micro_batches(self, step: int) -> Iterator[tuple[tuple[Tensor, ...], float | Tensor]]:
        """The batches of one step, each with its share of the step's loss; the shares sum to one."""

    def learning_rate(self, step: int) -> float:
        """Rate of the step after ``step`` steps."""

    def has_row(self, step: int) -> bool:
        """Whether the curve has a row after ``step`` steps."""

    def row(self, interval: Interval) -> dict[str, float]:
        """The curve's next row, evaluations included; a value named ``..._loss`` that is not finite ends the run."""

    def is_done(self, row: Mapping[str, float]) -> bool:
        """Whether the run ends early, after this row."""

    def progress(self, row: Mapping[str, float]) -> dict[str, Any]:
        """What a screen shows of the last row."""

    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The final metrics, of the model as it is to be judged."""

    def details(self, curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        """What the record says beside the metrics."""


@dataclass(frozen=True)
class Suite:
    """A way to train and judge labels."""

    name: str
    Model: type
    """Configuration of the model around the mixer."""
    Training: type
    """Configuration of an optimiser run."""
    Profile: type[Profile]
    """What a YAML file of the suite holds."""
    tasks: Callable[[], Sequence[str]]
    """Names of its tasks, in the order of its table."""
    jobs: Callable[..., list[Job]]
    """``jobs(labels, profile, seeds=..., budget=..., precision=..., ...)``: checked, none twice."""
    size: Callable[[Job], Size]
    """What training a job takes."""
    trial: str
    """``module:class`` of its :class:`Trial`, which is loaded with torch when it is needed."""
    uses_all_cores: bool
    """Whether a run on the CPU takes all its cores, or one."""

    @property
    def Trial(self) -> type[Trial]:
        """The class that makes a job ready to train."""
        return pkgutil.resolve_name(self.trial)


def mixer_maker(job: Job, max_len: int, path: str) -> Callable[[], nn.Module]:
    """What makes the mixer of each block of the job's model."""
    how = {"n_head": job.model.n_head, "budget": job.budget, "path": path, **job.mixer}
    return functools.partial(mixers.build, job.label, job.model.d_model, max_len, **how)


def unique(jobs: Iterable[Job]) -> list[Job]:
    """The jobs in their order, each id once."""
    return list({job.id: job for job in jobs}.values())
