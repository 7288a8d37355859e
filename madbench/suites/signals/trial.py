"""The trial of a signals job: data on the device, one evaluation per epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from madbench.models.signals import SignalLoss, SignalModel
from madbench.suites.epoch_trial import EpochTrial
from madbench.suites.signals.suite import SIGNALS, SignalJob, setting_of
from madbench.suites.trial import LogWindow, mixer_maker
from madbench.tasks.base import SPLITS
from madbench.text.corpus import Corpus

EVALUATION_BATCH = 256


class SignalTrial(EpochTrial[SignalJob]):
    """The trial of a signals job.

    Each row of the curve has an evaluation on the validation examples. The reported score is that on the test examples.
    """

    Loss = SignalLoss

    def open(self, corpora: Mapping[str, Corpus]) -> None:
        self.setting, seed = setting_of(self.job), self.job.derived_seed("data")
        data: dict[str, tuple[Tensor, Tensor]] = {}
        for split in SPLITS:
            inputs, targets = (torch.from_numpy(array).to(self.device) for array in self.setting.data(split, seed))
            data[split] = inputs, targets
        self.take(data, self.setting.length, SIGNALS.schedule(self.job))

    @staticmethod
    def build(job: SignalJob, path: str = "auto") -> SignalModel:
        setting, config = setting_of(job), job.model
        make_mixer = mixer_maker(job, setting.length, path, causal=config.causal)
        outputs = setting.classes or setting.channels - 1
        with torch.random.fork_rng():
            torch.manual_seed(job.derived_seed("init"))
            shape = (setting.channels, outputs, setting.horizon, config.d_model, config.n_layer)
            return SignalModel(*shape, make_mixer, config.mlp_width)

    @staticmethod
    def examples(job: SignalJob, count: int, corpora: Mapping[str, Corpus]) -> Tensor:
        return torch.from_numpy(setting_of(job).data("test", job.derived_seed("data"))[0][:count])

    @staticmethod
    def random_batch(job: SignalJob, size: int, length: int, device: str) -> tuple[Tensor, ...]:
        setting = setting_of(job)
        x = torch.randn(size, length, setting.channels, device=device)
        if setting.classes:
            return x, torch.randint(setting.classes, (size,), device=device)
        return x, torch.randn(size, setting.horizon, setting.channels - 1, device=device)

    def row(self, interval: LogWindow) -> dict[str, float]:
        return self.progress_columns(interval) | self._scores("validation")

    def progress(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"accuracy": row["validation_score"]}

    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Return the metrics of the trained model. Tables show ``score``.

        ``test_score`` and ``score`` are the accuracy on digits, or the share of the variance of the next time steps
        that the forecast explains, on the test examples. ``ceiling`` is the best possible score, and ``test_loss`` the
        loss on the test examples.
        """
        metrics = self._scores("test")
        ceiling = self.setting.ceiling(self.job.derived_seed("data"))
        return metrics | {"score": metrics["test_score"], "ceiling": ceiling}

    @torch.inference_mode()
    def _scores(self, split: str) -> dict[str, float]:
        self.model.eval()
        inputs, targets = self.data[split]
        with self.autocast:
            told = torch.cat([self.model(x).float() for x in inputs.split(EVALUATION_BATCH)])
        self.model.train()
        if targets.is_floating_point():
            loss = (told - targets).double().square().mean()
            score = 1 - loss / targets.double().square().mean()
        else:
            loss, score = nn.functional.cross_entropy(told, targets), (told.argmax(-1) == targets).double().mean()
        return {f"{split}_loss": float(loss), f"{split}_score": float(score)}
