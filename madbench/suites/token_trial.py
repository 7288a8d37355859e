"""The trial of a job on a token task. The data are on the device, and each epoch ends with an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.traits import mixers_in
from madbench.models.blocks import Backbone
from madbench.models.mad import Autoencoder, MadModel, imitate_reference
from madbench.models.token_loss import logits_of
from madbench.suites.epoch_trial import EpochTrial
from madbench.suites.tokens import LARGEST_COEFFICIENT, TokenJob, TokenSuite, setting_of
from madbench.suites.trial import LogWindow, mixer_maker
from madbench.tasks import ceiling, generate
from madbench.tasks.base import IGNORE, SPLITS
from madbench.text.corpus import Corpus

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

EVALUATION_BATCH = 128
WATCHED_EXAMPLES = 16


@torch.inference_mode()
def evaluate(
    model: MadModel | Autoencoder,
    inputs: Tensor,
    targets: Tensor,
    autocast: torch.autocast,
    batch_size: int | None = None,
) -> dict[str, float]:
    """The scores of ``model``, by name, on inputs and targets (N, T), under ``autocast``. Targets of -100 are ignored.

    - ``loss``: mean cross-entropy in nats per target;
    - ``token_accuracy``: share of the targets that are predicted correctly;
    - ``macro_accuracy``: mean recall over the classes that occur as targets;
    - ``batch_macro_accuracy``: mean over batches of the mean recall in a batch, as in the reference implementation. A
      class of the batch that is predicted but is never a target has recall 0;
    - ``batch_perplexity``: mean over batches of exp(loss of the batch), as in the reference implementation. Left out if
      ``batch_size`` is None.

    With a ``batch_size``, a batch has a weight in proportion to its number of examples, as in the reference
    implementation. Without it, batches have 128 examples and equal weights.
    """
    model.eval()
    losses, rights, counts, batch_macros, perplexities, weights = [], [], [], [], [], []
    size = batch_size or EVALUATION_BATCH
    for x, y in zip(inputs.split(size), targets.split(size)):
        counted = y != IGNORE
        with autocast:
            logits = logits_of(model, model.hidden(x)[counted]).float()
        y = y[counted]
        batch_loss = F.cross_entropy(logits, y, reduction="sum").double()
        losses.append(batch_loss)
        perplexities.append((batch_loss / len(y)).exp())
        weights.append(len(x) / len(inputs))
        predicted, classes = logits.argmax(-1), logits.shape[-1]
        target_count = torch.bincount(y, minlength=classes)
        predicted_count = torch.bincount(predicted, minlength=classes)
        right_count = torch.bincount(y, weights=(predicted == y).double(), minlength=classes)
        batch_macros.append(_macro(right_count, target_count, (target_count + predicted_count) > 0))
        rights.append(right_count)
        counts.append(target_count)
    model.train()
    loss, right_by_class, target_by_class = (sum(each[1:], each[0]) for each in (losses, rights, counts))
    total = target_by_class.sum()
    macro = _macro(right_by_class, target_by_class, target_by_class > 0)
    numbers = {
        "loss": loss / total,
        "token_accuracy": right_by_class.sum() / total,
        "macro_accuracy": macro,
    }
    if batch_size is None:
        numbers["batch_macro_accuracy"] = torch.stack(batch_macros).mean()
    else:
        by_batch = {"batch_macro_accuracy": batch_macros, "batch_perplexity": perplexities}
        numbers |= {name: torch.stack(values) @ loss.new_tensor(weights) for name, values in by_batch.items()}
    return dict(zip(numbers, torch.stack(list(numbers.values())).tolist()))


def _macro(right: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    return (right / targets.clamp(min=1)).sum() / counted.sum()


class TokenTrial(EpochTrial[TokenJob]):
    """The trial of a job on a token task, with one evaluation per epoch.

    Evaluations use the validation examples, or the test examples in the published fidelity.
    """

    model: MadModel | Autoencoder

    def open(self, corpora: Mapping[str, Corpus]) -> None:
        self.setting = setting_of(self.job)
        self.take(load_data(self.job, self.device), self.setting.input_len, TokenSuite.schedule(self.job))
        self.is_published = self.job.fidelity == "published"
        self.judge = "test" if self.is_published else "validation"
        if self.is_published:
            self.state = {"best_perplexity": math.inf, "best_weights": None}

    @staticmethod
    def build(job: TokenJob, path: str = "auto") -> MadModel | Autoencoder:
        setting, config = setting_of(job), job.model
        make_mixer = mixer_maker(job, setting.seq_len, path)
        with torch.random.fork_rng():
            torch.manual_seed(job.derived_seed("init"))
            backbone = Backbone(setting.vocab_size, config.d_model, config.n_layer, make_mixer, config.mlp_width)
            is_autoencoder = setting.model == "autoencoder"
            model = Autoencoder(backbone, setting.input_len) if is_autoencoder else MadModel(backbone)
            if job.fidelity == "published":
                imitate_reference(model)
            return model

    @staticmethod
    def examples(job: TokenJob, count: int, corpora: Mapping[str, Corpus]) -> Tensor:
        return torch.from_numpy(generate(job.task, setting_of(job), "test", job.derived_seed("data")).inputs[:count])

    def row(self, interval: LogWindow) -> dict[str, float]:
        scores = self._scores(self.judge)
        if self.is_published:
            perplexity, best = scores["test_batch_perplexity"], self.state["best_perplexity"]
            if self.state["best_weights"] is None or perplexity < best:
                weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
                self.state = {"best_perplexity": perplexity, "best_weights": weights}
        return self.progress_columns(interval) | scores | self._growth()

    def accuracy(self, row: Mapping[str, float]) -> float:
        """The accuracy in a row of the curve. Training ends once it reaches ``stop_accuracy``.

        It is the token accuracy on validation examples, or the batch macro accuracy on test examples in the published
        fidelity.
        """
        return row[f"{self.judge}_{'batch_macro' if self.is_published else 'token'}_accuracy"]

    def is_done(self, row: Mapping[str, float]) -> bool:
        return self.accuracy(row) >= self.job.training.stop_accuracy

    def progress(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"accuracy": self.accuracy(row)}

    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Return the metrics of the trained model. Tables show ``accuracy``.

        Learning rate and weight decay are chosen by ``selection_accuracy``. In the published fidelity, the model first
        gets back its weights of the evaluation with the lowest perplexity.
        """
        if self.is_published:
            self.model.load_state_dict(self.state["best_weights"])
        metrics = self._scores("test")
        if self.is_published:
            metrics["accuracy"] = metrics["selection_accuracy"] = metrics["test_batch_macro_accuracy"]
        else:
            metrics["accuracy"] = metrics["test_token_accuracy"]
            metrics["selection_accuracy"] = curve[-1]["validation_token_accuracy"]
            metrics["best_validation_accuracy"] = max(row["validation_token_accuracy"] for row in curve)
        metrics["ceiling"] = ceiling(self.job.task, self.setting, self.job.derived_seed("data"))
        return metrics

    def _scores(self, split: str) -> dict[str, float]:
        batch_size = self.job.training.batch_size if self.is_published else None
        scores = evaluate(self.model, *self.data[split], self.autocast, batch_size)
        return {f"{split}_{name}": value for name, value in scores.items()}

    @torch.inference_mode()
    def _growth(self) -> dict[str, float]:
        """The largest mixing coefficient |a_ij| on 16 validation examples, under the key ``LARGEST_COEFFICIENT``.

        Only mixers with the trait ``may_grow`` count, whose coefficients can grow with the distance between tokens.
        Empty if the model has no such mixer.
        """
        mixers = [mixer for _, mixer, traits in mixers_in(self.model) if traits.may_grow]
        if not mixers:
            return {}
        largest: list[Tensor] = []

        def watch(mixer: Mixer, inputs: tuple[Tensor, ...]) -> None:
            largest.append(mixer.coefficients(*inputs).a.abs().amax())

        hooks = [mixer.register_forward_pre_hook(watch) for mixer in mixers]
        with self.autocast:
            self.model(self.data["validation"][0][:WATCHED_EXAMPLES])
        for hook in hooks:
            hook.remove()
        return {LARGEST_COEFFICIENT: float(torch.stack(largest).amax())}

    def terms(self, places: np.ndarray) -> Tensor:
        """The number of targets of some training examples, without ignored targets, as a tensor of shape ().

        ``places`` (N,) are the examples' consecutive positions in the order of the epoch.
        """
        return (self.data["train"][1][self._index(places)] != IGNORE).sum()


def load_data(job: TokenJob, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """The inputs and targets (N, T) of the splits train, validation and test, by split, on ``device``."""
    setting = setting_of(job)
    data: dict[str, tuple[Tensor, Tensor]] = {}
    for split in SPLITS:
        examples = generate(job.task, setting, split, job.derived_seed("data"))
        inputs, targets = (torch.from_numpy(array).to(device) for array in (examples.inputs, examples.targets))
        data[split] = inputs, targets
    return data
