"""A MAD job ready to train: data on the device, an evaluation an epoch, the end once the task is solved."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from madbench.jobs import Job
from madbench.models.blocks import TokenLoss, autocast
from madbench.models.mad import Autoencoder, MadModel
from madbench.suites.accuracy import evaluate
from madbench.suites.base import Interval, World, mixer_maker
from madbench.suites.mad import TrainingConfig, setting_of
from madbench.tasks import IGNORE, SPLITS, ceiling, generate


class MadTrial:
    """See :class:`madbench.suites.base.Trial`."""

    streams = ("init", "data", "order")
    clip = None
    is_kept = False

    def __init__(
        self,
        job: Job,
        device: str,
        world: World,
        corpora: Mapping[str, Any] | None = None,
        micro_batch: int | None = None,
    ):
        self.job, self.device, self.world, self.micro_batch = job, device, world, micro_batch
        self.setting = setting_of(job)
        self.data = load_data(job, device)
        self.model = self.build(job).to(device)
        self.mixer = self.model.backbone.layers[0]
        self.loss = TokenLoss(self.model)
        self.autocast = autocast(device, job.training.precision)
        examples, length = self.data["train"][0].shape
        self.steps_per_epoch = math.ceil(examples / job.training.batch_size)
        self.steps = job.training.epochs * self.steps_per_epoch
        self.batch_shape = (min(job.training.batch_size, examples, micro_batch or examples), length)
        self.is_published = job.fidelity == "published"
        self.judge = "test" if self.is_published else "validation"
        self.state: dict[str, Any] = {"best_loss": math.inf, "best_weights": None} if self.is_published else {}
        self._epoch, self._order = -1, torch.empty(0)

    @staticmethod
    def build(job: Job, path: str = "auto") -> nn.Module:
        setting, config = setting_of(job), job.model
        shape = (setting.vocab_size, config.d_model, config.n_layer, mixer_maker(job, setting.seq_len, path))
        with torch.random.fork_rng():
            torch.manual_seed(job.derived_seed("init"))
            if setting.model == "autoencoder":
                return Autoencoder(*shape, max_len=setting.input_len)
            return MadModel(*shape)

    def micro_batches(self, step: int) -> Iterator[tuple[tuple[Tensor, Tensor], float | Tensor]]:
        epoch, within = divmod(step, self.steps_per_epoch)
        examples, size = len(self.data["train"][0]), self.job.training.batch_size
        if epoch != self._epoch:
            self._epoch, self._order = epoch, torch.from_numpy(shuffled(self.job, epoch, examples)).to(self.device)
        places = np.arange(within * size, min((within + 1) * size, examples))
        mine = self.world.share(places)
        at_once = self.micro_batch or size
        if self.world.size() == 1 and len(mine) <= at_once:
            yield self._examples(mine), 1.0
            return
        counted = (self._examples(places)[1] != IGNORE).sum()
        for part in np.array_split(mine, math.ceil(len(mine) / at_once)):
            batch = self._examples(part)
            yield batch, self.world.size() * (batch[1] != IGNORE).sum() / counted

    def learning_rate(self, step: int) -> float:
        return scheduled_rate(self.job.training, self.job.fidelity, step, self.steps)

    def has_row(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0

    def row(self, interval: Interval) -> dict[str, float]:
        scores = evaluate(self.model, *self.data[self.judge], self.autocast)
        if self.is_published and scores.loss < self.state["best_loss"]:
            self.state = {"best_loss": scores.loss, "best_weights": copy.deepcopy(self.model.state_dict())}
        row = {"epoch": interval.step // self.steps_per_epoch, "step": interval.step, "train_loss": interval.mean_loss}
        return row | {f"{self.judge}_{name}": value for name, value in asdict(scores).items()}

    def accuracy(self, row: Mapping[str, float]) -> float:
        """The accuracy of an evaluation by which the fidelity judges."""
        return row[f"{self.judge}_{'batch_macro' if self.is_published else 'token'}_accuracy"]

    def is_done(self, row: Mapping[str, float]) -> bool:
        return self.accuracy(row) >= self.job.training.stop_accuracy

    def progress(self, row: Mapping[str, float]) -> dict[str, Any]:
        return {"accuracy": self.accuracy(row)}

    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """``accuracy`` is the number of the table, ``selection_accuracy`` the one that chooses rate and decay."""
        if self.is_published:
            self.model.load_state_dict(self.state["best_weights"])
        test = evaluate(self.model, *self.data["test"], self.autocast)
        metrics = {f"test_{name}": value for name, value in asdict(test).items()}
        metrics["accuracy"] = test.batch_macro_accuracy if self.is_published else test.token_accuracy
        if self.is_published:
            metrics["selection_accuracy"] = metrics["accuracy"]
        else:
            metrics["selection_accuracy"] = curve[-1]["validation_token_accuracy"]
            metrics["best_validation_accuracy"] = max(row["validation_token_accuracy"] for row in curve)
        metrics["ceiling"] = ceiling(self.job.task, self.setting, self.job.derived_seed("data"))
        return metrics

    def details(self, curve: Sequence[Mapping[str, float]]) -> dict[str, Any]:
        return {}

    def _examples(self, places: np.ndarray) -> tuple[Tensor, Tensor]:
        """Inputs and targets of consecutive places in the order of the epoch."""
        index = self._order[places[0] : places[-1] + 1]
        inputs, targets = self.data["train"]
        return inputs[index], targets[index]


def load_data(job: Job, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and targets (N, T) of the three splits, on the device."""
    setting = setting_of(job)
    data = {}
    for split in SPLITS:
        examples = generate(job.task, setting, split, job.derived_seed("data"))
        data[split] = tuple(torch.from_numpy(array).to(device) for array in (examples.inputs, examples.targets))
    return data


def scheduled_rate(config: TrainingConfig, fidelity: str, step: int, total_steps: int) -> float:
    """Cosine from ``learning_rate`` to ``min_learning_rate``; constant in the published fidelity."""
    if fidelity == "published":
        return config.learning_rate
    cosine = 0.5 * (1 + math.cos(math.pi * step / total_steps))
    return config.min_learning_rate + (config.learning_rate - config.min_learning_rate) * cosine


def shuffled(job: Job, epoch: int, count: int) -> np.ndarray:
    """The order of the training examples in one epoch: a function of seed and epoch alone."""
    return np.random.default_rng([job.derived_seed("order"), epoch]).permutation(count)
