"""The base class of trials. A trial is one job ready to train. The training loop knows a suite only by its trial."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import torch
from torch import Tensor, nn

from madbench.errors import ConfigError
from madbench.jobs import BlocksSettings, J, Job, Stream
from madbench.labels import parse
from madbench.mixers.sequence import build_blocks
from madbench.models.blocks import autocast
from madbench.models.token_loss import TokenLoss
from madbench.suites.training import Schedule
from madbench.text.corpus import Corpus

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer


@dataclass(frozen=True)
class LogWindow:
    """Measurements of the training steps since the last row of a curve was logged."""

    step: int
    """Steps taken so far."""
    steps: int
    """Steps since the last row."""
    seconds: float
    """Training time so far, without evaluations and checkpoints."""
    interval_seconds: float
    """Training time since the last row."""
    mean_loss: float
    """Mean loss of the steps since the last row."""
    learning_rate: float
    """Learning rate of the last step."""
    grad_norm: float | None
    """Norm of the gradient in the last step, before clipping; None if not measured."""
    memory_bytes: int
    """Peak memory so far."""


class Trial(abc.ABC, Generic[J]):
    """A job that is ready to train: model, data and schedule. Each suite has its own subclass.

    The training loop knows a suite only by this interface. ``world`` is the module
    :mod:`madbench.training.distributed`, which knows the processes that train the run together. ``corpora`` has corpora
    by digest, for suites that read text. ``micro_batch`` is the largest number of examples that go through the model at
    once; None for the suite's default.
    """

    model: nn.Module
    """The model that is trained and that checkpoints contain, on its device."""
    loss: nn.Module
    """``loss(*batch)`` is the mean loss of a micro-batch, a scalar. Its parameters are those of ``model``."""
    autocast: torch.autocast
    """The autocast of the forward pass."""
    steps: int
    """The largest number of optimizer steps."""
    schedule: Schedule
    """The schedule of the learning rate. A subclass that overrides :meth:`learning_rate` needs none."""
    clip: float | None
    """The norm to which gradients are clipped. ``inf``: the norm is only measured. None: neither."""
    batch_shape: tuple[int, int]
    """(B, T) of a micro-batch."""
    Loss: type[nn.Module] = TokenLoss
    """The class of ``loss``, which is made as ``Loss(model)``."""
    streams: Sequence[Stream]
    """The names of the run's random streams. Each has a seed of its own (:meth:`madbench.jobs.Job.derived_seed`)."""
    state: dict[str, Any]
    """Further state that a resumed run needs. Every checkpoint contains it."""
    is_kept: bool
    """True if a finished run keeps its weights by default."""

    def __init__(
        self,
        job: J,
        device: str,
        world: ModuleType,
        corpora: Mapping[str, Corpus] | None = None,
        micro_batch: int | None = None,
    ):
        if micro_batch is not None and micro_batch < 1:
            raise ConfigError(f"micro_batch must be at least 1, got {micro_batch}")
        self.job, self.device, self.world, self.micro_batch, self.state = job, device, world, micro_batch, {}
        self.autocast = autocast(device, job.training.precision)
        self.open(corpora or {})
        self.model = self.build(job).to(device)
        self.loss = self.Loss(self.model)

    @staticmethod
    def random_batch(job: J, size: int, length: int, device: str) -> tuple[Tensor, ...]:
        """A random batch for measuring the time of a step.

        By default it consists of token ids (size, length), once as inputs and once as targets. The members of the tuple
        are the arguments of ``loss``.
        """
        tokens = torch.randint(job.setting["vocab_size"], (size, length), device=device)
        return tokens, tokens

    @abc.abstractmethod
    def open(self, corpora: Mapping[str, Corpus]) -> None:
        """Check the job and load its data. Set ``steps``, ``clip``, ``batch_shape`` and, if used, ``schedule``."""

    @property
    @abc.abstractmethod
    def mixers(self) -> list[Mixer]:
        """The mixers of the model's blocks, in order."""

    @staticmethod
    @abc.abstractmethod
    def build(job: J, path: str = "auto") -> nn.Module:
        """Build the model of a job with its initial weights, on the CPU or on the device of a ``torch.device`` context.

        The global random state is not changed. ``path`` names the computation path of the mixers.
        """

    @staticmethod
    def examples(job: J, count: int, corpora: Mapping[str, Corpus]) -> Tensor:
        """The first ``count`` inputs (count, T) on which a trained model is evaluated, as a tensor on the CPU.

        If there are fewer inputs, all of them. ``corpora`` has corpora by digest. Raises ``ConfigError`` if the suite
        does not define this method.
        """
        raise ConfigError(f"the inputs of {job.task} are not shown: the suite {job.suite} gives no examples of them")

    @abc.abstractmethod
    def micro_batches(self, step: int) -> Iterator[tuple[tuple[Tensor, ...], float | Tensor]]:
        """The micro-batches of one step on this process, each with its weight in the step's loss (:meth:`shares`)."""

    def shares(
        self, examples: np.ndarray, at_once: int, weight: Callable[[np.ndarray], int | Tensor] = len
    ) -> Iterator[tuple[np.ndarray, float | Tensor]]:
        """Split the examples of a step into micro-batches. Yield those of this process, with their weights in the loss.

        A micro-batch is given by the indices (M,) of its examples. The loss of a step is a mean over its loss terms,
        such as the targets of all examples. Each term counts the same, even if processes have unequal numbers of
        examples. Gradients are averaged over processes, so the weights of all processes sum to the number of processes.

        Args:
            examples: indices (N,) of the examples of the step, over all processes.
            at_once: the largest number of examples of a micro-batch.
            weight: function from indices (M,) to the number of loss terms of these examples; by default M.
        """
        mine = self.world.share(examples)
        parts = np.array_split(mine, math.ceil(len(mine) / at_once))
        if self.world.size() == 1 and len(parts) == 1:
            yield mine, 1.0
            return
        total = weight(examples)
        for part in parts:
            yield part, self.world.size() * weight(part) / total

    def learning_rate(self, step: int) -> float:
        """The learning rate of the step that is taken after ``step`` steps, so ``step`` is 0 for the first."""
        return self.schedule.rate(step)

    @abc.abstractmethod
    def has_row(self, step: int) -> bool:
        """True if the curve has a row after ``step`` steps."""

    @abc.abstractmethod
    def row(self, interval: LogWindow) -> dict[str, float]:
        """The next row of the curve, with the results of evaluations.

        ``interval`` has the measurements of the steps since the last row. A value that is not finite ends the run if
        its name ends in ``_loss``.
        """

    def is_done(self, row: Mapping[str, float]) -> bool:
        """True if training ends early, after ``row``, the last row of the curve."""
        return False

    @abc.abstractmethod
    def progress(self, row: Mapping[str, float]) -> dict[str, float]:
        """The values of ``row``, the last row of the curve, that are shown on the screen: name to value."""

    @abc.abstractmethod
    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The metrics of the trained model for its record. ``curve`` has all rows of the run."""

    def details(self, curve: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
        """Further details for the record of the run. ``curve`` has all rows of the run."""
        return {}


def mixer_maker(job: Job[BlocksSettings], max_len: int, path: str, causal: bool = True) -> Callable[[], nn.Module]:
    """Return a function that makes the mixers of a job's model: each call makes the mixer of the next block.

    ``max_len`` is the largest input length in tokens. ``path`` names the computation path of the mixers. If ``causal``
    is False, a mixer may see all tokens.
    """
    options = {"causal": causal, "n_head": job.model.n_head, "budget": job.budget, "path": path}
    size = job.model.n_layer, job.model.d_model, max_len
    return build_blocks(parse(job.label), *size, options, job.mixer).__next__
