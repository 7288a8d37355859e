"""The trial of an interactions job: it trains on samples of L* agents and tests on samples of several lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from madbench.papers.interactions.model import InteractionModel, ValueLoss, interaction_mixer
from madbench.papers.interactions.profile import InteractionJob, world_of
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites.trial import LogWindow, Trial
from madbench.text.corpus import Corpus

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

ROWS = 20
TEST_BATCH = 500


class InteractionTrial(Trial[InteractionJob]):
    """The trial of an interactions job.

    Batches are drawn with replacement from the training samples. The curve has about 20 rows. The trained model is
    tested at every test length of its world.
    """

    model: InteractionModel
    Loss = ValueLoss
    streams = ("init", "data", "order")
    clip = None
    is_kept = True

    def open(self, corpora: Mapping[str, Corpus]) -> None:
        self.agents, config = world_of(self.job), self.job.training
        self.schedule = INTERACTIONS.schedule(self.job)
        self.steps, self.row_every = config.steps, max(1, config.steps // ROWS)
        self.batch_shape = (min(config.batch_size, self.micro_batch or config.batch_size), self.agents.length)
        self.symbols, self.values = self._data("train", self.agents.length)

    @property
    def mixers(self) -> list[Mixer]:
        return [cast("Mixer", self.model.mixer)]

    @staticmethod
    def build(job: InteractionJob, path: str = "auto") -> InteractionModel:
        agents = world_of(job)
        vectors, max_len = torch.from_numpy(agents.vectors), max(agents.length, *agents.lengths)
        options = {"n_head": job.model.n_head, "budget": job.budget, "path": path, **job.mixer}
        with torch.random.fork_rng():
            torch.manual_seed(job.derived_seed("init"))
            mixer = interaction_mixer(job.label, vectors.shape[1], max_len, **options)
            model = InteractionModel(vectors, mixer, job.model.relu)
            for tensor in (*model.parameters(), *model.buffers()):  # Module.to cannot convert tensors without data
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(getattr(torch, job.training.precision))
            model.start()
            return model

    @staticmethod
    def random_batch(job: InteractionJob, size: int, length: int, device: str) -> tuple[Tensor, ...]:
        symbols = torch.randint(len(world_of(job).vectors), (size, length), device=device)
        return symbols, torch.zeros(size, length, dtype=getattr(torch, job.training.precision), device=device)

    def micro_batches(self, step: int) -> Iterator[tuple[tuple[Tensor, Tensor], float | Tensor]]:
        generator = np.random.default_rng([self.job.derived_seed("order"), step])
        batch = generator.integers(len(self.symbols), size=self.job.training.batch_size)
        for part, share in self.shares(batch, self.batch_shape[0]):
            index = torch.from_numpy(part).to(self.device)
            yield (self.symbols[index], self.values[index]), share

    def has_row(self, step: int) -> bool:
        return step % self.row_every == 0 or step == self.steps

    def row(self, interval: LogWindow) -> dict[str, float]:
        rate = interval.learning_rate
        return {"step": interval.step, "train_loss": interval.mean_loss, "learning_rate": rate}

    def progress(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"loss": row["train_loss"]}

    @torch.inference_mode()
    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Return the results of the tests after training.

        ``mse_<L>`` is the mean squared error per agent in test samples of L agents. ``variance_<L>`` is the variance of
        their values, which is the error of the best constant. ``mse`` is ``mse_<L>`` at the training length, if this is
        a test length. ``train_loss`` is the last value of the curve.

        ``effects_error`` is the mean squared difference between the entries of the learned and the theoretical matrix
        or tensor of effects. For pairs, ``diagonal_error`` is that of the diagonal. Both are left out if the model has
        no learned effects, or effects of pairs where the theory has effects of triples, or the reverse.
        """
        metrics = {"train_loss": curve[-1]["train_loss"]}
        for length in self.agents.lengths:
            symbols, values = self._data("test", length)
            parts = zip(symbols.split(TEST_BATCH), values.split(TEST_BATCH))
            total = sum(float((self.model(x) - y).double().square().sum()) for x, y in parts)
            metrics |= {f"mse_{length}": total / values.numel(), f"variance_{length}": float(values.double().var())}
        if self.agents.length in self.agents.lengths:
            metrics["mse"] = metrics[f"mse_{self.agents.length}"]
        learned = self.model.effects()
        if learned is not None and learned.ndim == self.agents.effects.ndim:
            off = learned.double().cpu().numpy() - self.agents.effects
            metrics["effects_error"] = float(np.square(off).mean())
            if off.ndim == 2:
                metrics["diagonal_error"] = float(np.square(off.diagonal()).mean())
        return metrics

    def _data(self, split: str, length: int) -> tuple[Tensor, Tensor]:
        symbols, values = map(torch.from_numpy, self.agents.data(split, length, self.job.derived_seed("data")))
        precision = getattr(torch, self.job.training.precision)
        return symbols.to(self.device), values.to(self.device, precision)
