"""The base class of trials whose examples are in memory and are shuffled anew for every epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from madbench.jobs import Job, ModelSettings
from madbench.suites.training import EpochTraining, Schedule
from madbench.suites.trial import LogWindow, Trial

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer
    from madbench.models.blocks import Backbone

E = TypeVar("E", bound=Job[ModelSettings, EpochTraining])
Examples = tuple[Tensor, Tensor]
"""The inputs and targets of a split, each of shape (N, ...), on the device."""


class EpochTrial(Trial[E]):
    """A trial on examples in memory that are shuffled anew for every epoch. Each epoch adds one row to the curve.

    The last epoch may be partial, and also adds a row. The model must have an attribute ``backbone`` with the mixers.
    The method :meth:`open` of a subclass has to call :meth:`take`.
    """

    streams = ("init", "data", "order")
    clip = None
    is_kept = False
    data: Mapping[str, Examples]

    def take(self, data: Mapping[str, Examples], length: int, schedule: Schedule) -> None:
        """Set up training on ``data["train"]``. Inputs have ``length`` tokens.

        Sets ``data``, ``schedule``, ``steps``, ``steps_per_epoch`` and ``batch_shape``.
        """
        config, examples = self.job.training, len(data["train"][0])
        self.data, self.schedule, self.steps = data, schedule, schedule.steps
        self.steps_per_epoch = config.steps_per_epoch(examples)
        self.batch_shape = (min(config.batch_size, examples, self.micro_batch or examples), length)
        self._epoch, self._order = -1, torch.empty(0)

    @property
    def mixers(self) -> list[Mixer]:
        return cast("Backbone", self.model.backbone).mixers

    def micro_batches(self, step: int) -> Iterator[tuple[Examples, float | Tensor]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        examples, size = len(self.data["train"][0]), self.job.training.batch_size
        if epoch != self._epoch:
            self._epoch, self._order = epoch, torch.from_numpy(epoch_order(self.job, epoch, examples)).to(self.device)
        places = np.arange(within * size, min((within + 1) * size, examples))
        for part, share in self.shares(places, self.batch_shape[0], self.terms):
            yield self._examples(part), share

    def terms(self, places: np.ndarray) -> int | Tensor:
        """The number of terms of the mean loss that belong to the examples at ``places``. By default one per example.

        ``places`` (N,) are the examples' consecutive positions in the order of the epoch.
        """
        return len(places)

    def has_row(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0 or step == self.steps

    def progress_columns(self, interval: LogWindow) -> dict[str, float]:
        """The columns with which a row of the curve begins: ``epoch``, ``step`` and ``train_loss``.

        The epoch is counted from 1. The loss is the mean of the training steps since the last row.
        """
        epoch = -(-interval.step // self.steps_per_epoch)
        return {"epoch": epoch, "step": interval.step, "train_loss": interval.mean_loss}

    def _examples(self, places: np.ndarray) -> Examples:
        """The inputs and targets of the examples at ``places`` (N,), consecutive positions in the epoch's order."""
        index, (inputs, targets) = self._index(places), self.data["train"]
        return inputs[index], targets[index]

    def _index(self, places: np.ndarray) -> Tensor:
        """The indices (N,) of the training examples at ``places`` (N,), consecutive positions in the epoch's order."""
        return self._order[places[0] : places[-1] + 1]


def epoch_order(job: Job, epoch: int, count: int) -> np.ndarray:
    """The order of the ``count`` training examples in an epoch: a permutation of their indices.

    It depends only on the job's seed, the epoch and ``count``.
    """
    return np.random.default_rng([job.derived_seed("order"), epoch]).permutation(count)
