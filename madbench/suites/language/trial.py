"""The trial of a language-model job: windows of a corpus, and evaluations on the same windows for every label.

A window has ``seq_len`` tokens. Its targets are the tokens one place later, so it needs ``seq_len + 1`` tokens of the
split. Windows ignore document boundaries, as in nanoGPT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from madbench.details import Details, EvaluationDetails
from madbench.errors import TrainingError
from madbench.models.blocks import autocast
from madbench.models.gpt import GPT
from madbench.models.token_loss import TokenLoss
from madbench.suites.columns import loss_l5
from madbench.suites.language.suite import LANGUAGE, LanguageJob, LanguageTraining, sequences_per_step
from madbench.suites.training import MICRO_BATCH_TOKENS
from madbench.suites.trial import LogWindow, Trial, mixer_maker
from madbench.text.corpus import Corpus, window_count
from madbench.text.manifest import SPLITS, Split

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

ROWS_PER_EVALUATION = 20
_EVALUATION_STREAM = 0x6576616C  # separates evaluation windows from those of any training seed


class LanguageTrial(Trial[LanguageJob]):
    """The trial of a language-model job, with an evaluation every ``eval_every`` steps.

    Raises ``ConfigError`` if the number of processes does not divide the number of windows of a step, or if a split is
    too short for one window. Raises ``TrainingError`` if the job's corpus is not in ``corpora``, and ``StoreError`` if
    its token files have changed or are not on this machine.
    """

    model: GPT
    streams = ("init", "order")
    is_kept = True

    def open(self, corpora: Mapping[str, Corpus]) -> None:
        setting, config, seq_len = self.job.setting, self.job.training, self.job.model.seq_len
        count, processes = sequences_per_step(self.job), self.world.size()
        if setting["corpus"] not in corpora:
            raise TrainingError(f"{self.job.label}: the corpus {setting['corpus']} of the job is not given")
        self.corpus = corpora[setting["corpus"]]
        LANGUAGE.check_processes(self.job, processes)
        self.corpus.verify()
        self.batches = Batches(self.corpus, seq_len, self.device, self.micro_batch)
        self.evaluation = Evaluation(self.batches, config, self.autocast, self.world)
        self.schedule = LANGUAGE.schedule(self.job)
        self.steps, self.clip = self.schedule.steps, config.grad_clip or math.inf
        self.row_every = max(1, config.eval_every // ROWS_PER_EVALUATION)
        self.batch_shape = (min(self.batches.micro_batch, count // processes), seq_len)

    @staticmethod
    def evaluator(corpus: Corpus, seq_len: int, config: LanguageTraining, device: str) -> Evaluation:
        """The evaluation of trained models on a corpus, in windows of ``seq_len`` tokens, by one process.

        ``config`` has the number of windows and the precision.
        """
        return Evaluation(Batches(corpus, seq_len, device), config, autocast(device, config.precision))

    @property
    def mixers(self) -> list[Mixer]:
        return [block.mixer for block in self.model.blocks]

    @staticmethod
    def build(job: LanguageJob, path: str = "auto") -> GPT:
        config = job.model
        with torch.random.fork_rng():
            torch.manual_seed(job.derived_seed("init"))
            shape = (job.setting["vocab_size"], config.d_model, config.n_layer, mixer_maker(job, config.seq_len, path))
            blocks = (config.mlp_width, config.mlp, config.output, config.norm)
            return GPT(*shape, config.seq_len, config.positions, *blocks)

    @staticmethod
    def examples(job: LanguageJob, count: int, corpora: Mapping[str, Corpus]) -> Tensor:
        batches = Batches(corpora[job.setting["corpus"]], job.model.seq_len, "cpu", micro_batch=count)
        starts = evaluation_starts("val", 0, job.training.eval_sequences, len(batches.tokens["val"]), job.model.seq_len)
        return next(batches.micro_batches("val", starts[:count]))[0]

    def micro_batches(self, step: int) -> Iterator[tuple[tuple[Tensor, Tensor], float | Tensor]]:
        seed, n_tokens = self.job.derived_seed("order"), len(self.batches.tokens["train"])
        count = sequences_per_step(self.job)
        starts = training_starts(seed, step, count, n_tokens, self.job.model.seq_len)
        for part, share in self.shares(starts, self.batches.micro_batch):
            [batch] = self.batches.micro_batches("train", part)
            yield batch, share

    def has_row(self, step: int) -> bool:
        return self.is_evaluated(step) or step % self.row_every == 0

    def is_evaluated(self, step: int) -> bool:
        """True if there is an evaluation after ``step`` steps: every ``eval_every`` steps, and after the last step."""
        return step % self.job.training.eval_every == 0 or step == self.steps

    def row(self, interval: LogWindow) -> dict[str, float]:
        config = self.job.training
        row: dict[str, Any] = {
            "step": interval.step,
            "tokens": interval.step * config.tokens_per_step,
            "seconds": interval.seconds,
            "step_loss": interval.mean_loss,
            "tokens_per_second": interval.steps * config.tokens_per_step / max(interval.interval_seconds, 1e-9),
            "learning_rate": interval.learning_rate,
            "grad_norm": interval.grad_norm,
            "memory_bytes": interval.memory_bytes,
        }
        if self.is_evaluated(interval.step) and math.isfinite(interval.mean_loss):
            row |= self.evaluation.losses(self.model, math.ceil(interval.step / config.eval_every))
        return row

    def progress(self, row: Mapping[str, float]) -> dict[str, float]:
        return {"loss": row["step_loss"], "tokens_per_second": row["tokens_per_second"]}

    def finish(self, curve: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """Return the metrics of the trained model.

        ``loss_l5`` is the mean training loss of the last five evaluations, or of all if there are fewer
        (:func:`madbench.suites.columns.loss_l5`). ``train_loss``, ``validation_loss`` and, if it is known,
        ``validation_bits_per_byte`` are those of the last evaluation. ``best_validation_loss`` is the lowest of all
        evaluations.
        """
        rows = [row for row in curve if "evaluation" in row]
        names = ("train_loss", "validation_loss", "validation_bits_per_byte")
        metrics = {"loss_l5": loss_l5([row["train_loss"] for row in rows])}
        metrics |= {name: rows[-1][name] for name in names if name in rows[-1]}
        return metrics | {"best_validation_loss": min(row["validation_loss"] for row in rows)}

    def details(self, curve: Sequence[Mapping[str, float]]) -> Details:
        return {
            "corpus": self.corpus.description(),
            "tokens_per_second": float(np.median([row["tokens_per_second"] for row in curve])),
            "evaluation": self.evaluation.description(),
        }


def windows(tokens: np.ndarray, starts: np.ndarray, seq_len: int) -> tuple[np.ndarray, np.ndarray]:
    """The inputs and targets, int64 (N, T), of the windows that begin at the indices ``starts`` (N,) of ``tokens``.

    T is ``seq_len``. Targets are the tokens one place after the inputs. ``tokens`` (n_tokens,) may be memory-mapped:
    only the windows are read. Every start must be below ``n_tokens - seq_len``.
    """
    rows = np.lib.stride_tricks.sliding_window_view(tokens, seq_len + 1)[starts].astype(np.int64)
    return rows[:, :-1], rows[:, 1:]


def training_starts(seed: int, step: int, count: int, n_tokens: int, seq_len: int) -> np.ndarray:
    """Draw the windows of one optimizer step. Return the indices (``count``,) of their first tokens.

    Indices are drawn uniformly with replacement, and depend on ``seed`` and ``step``. Raises ``ConfigError`` if a split
    of ``n_tokens`` tokens is too short for one window.
    """
    return np.random.default_rng([seed, step]).integers(window_count("train", n_tokens, seq_len), size=count)


def evaluation_starts(split: Split, evaluation: int, count: int, n_tokens: int, seq_len: int) -> np.ndarray:
    """Choose the windows of one evaluation. Return the indices (``count``,) of their first tokens.

    The windows are equal for every label and seed. On ``val`` they are the same at every evaluation, and evenly spread
    over the split from its first token on. They overlap if ``count`` windows have more tokens than the split. On
    ``train`` they are random, and drawn anew at each evaluation, whose number is ``evaluation``. Raises ``ConfigError``
    if a split of ``n_tokens`` tokens is too short for one window.
    """
    possible = window_count(split, n_tokens, seq_len)
    if split == "val":
        return np.arange(count, dtype=np.int64) * possible // count
    return np.random.default_rng([_EVALUATION_STREAM, evaluation]).integers(possible, size=count)


class Batches:
    """The two splits of a corpus, from which micro-batches of windows are cut. The windows have ``seq_len`` tokens.

    A micro-batch has at most ``micro_batch`` windows. By default it has at most 12,288 tokens, or a single window.
    """

    def __init__(self, corpus: Corpus, seq_len: int, device: str, micro_batch: int | None = None):
        self.corpus, self.seq_len, self.device = corpus, seq_len, torch.device(device)
        self.micro_batch = micro_batch or max(1, MICRO_BATCH_TOKENS // seq_len)
        self.tokens = {split: corpus.tokens(split) for split in SPLITS}

    def micro_batches(self, split: Split, starts: np.ndarray) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the windows that begin at ``starts`` (N,), in micro-batches of similar size.

        A micro-batch has inputs and targets, int64 (B, ``seq_len``), on the device.
        """
        for part in np.array_split(starts, math.ceil(len(starts) / self.micro_batch)) if len(starts) else ():
            batches: Iterator[Tensor] = map(torch.from_numpy, windows(self.tokens[split], part, self.seq_len))
            if self.device.type == "cuda":
                batches = (ids.pin_memory() for ids in batches)
            inputs, targets = (ids.to(self.device, non_blocking=True) for ids in batches)
            yield inputs, targets


class Evaluation:
    """The evaluation of language models. Its windows are the same for every label, seed and number of processes.

    ``world`` is :mod:`madbench.training.distributed` if several processes share the evaluation. If None, this process
    does all of it.
    """

    def __init__(
        self, batches: Batches, config: LanguageTraining, autocast: torch.autocast, world: ModuleType | None = None
    ):
        self.batches, self.config, self.autocast, self.world = batches, config, autocast, world
        self.validation_starts = self._starts("val", 0)
        self.validation_bytes: int | None = None
        """The UTF-8 bytes of the targets of all validation windows. None if the text of the token ids is not known."""
        if (bytes_of_token := batches.corpus.token_bytes()) is not None:
            _, targets = windows(batches.tokens["val"], self.validation_starts, batches.seq_len)
            self.validation_bytes = int(bytes_of_token[targets].sum(dtype=np.int64))

    def losses(self, model: nn.Module, number: int) -> dict[str, float]:
        """The results of the ``number``-th evaluation of a run, counted from 1. They are equal in every process.

        ``evaluation`` is ``number``. ``train_loss`` and ``validation_loss`` are in nats per token.
        ``validation_bits_per_byte`` is the loss of the whole evaluated validation text in bits, divided by the number
        of its UTF-8 bytes. It is left out if the number of bytes is not known.
        """
        train_loss = self._mean_loss(model, "train", self._starts("train", number))
        return {"evaluation": number, "train_loss": train_loss} | self.validation(model)

    def validation(self, model: nn.Module) -> dict[str, float]:
        """The losses on the validation windows: ``validation_loss`` and, if known, ``validation_bits_per_byte``."""
        losses = {"validation_loss": self._mean_loss(model, "val", self.validation_starts)}
        if self.validation_bytes is not None:
            nats = losses["validation_loss"] * self.validation_starts.size * self.batches.seq_len
            losses["validation_bits_per_byte"] = nats / (math.log(2) * self.validation_bytes)
        return losses

    def description(self) -> EvaluationDetails:
        """The description of the evaluated windows in the record of a run."""
        starts = self.validation_starts
        return {
            "windows": len(starts),
            "seq_len": self.batches.seq_len,
            "train": "uniform, drawn anew at every evaluation; the same for every label and seed",
            "val": "the same at every evaluation, evenly spread over the split",
            "val_stride": float(starts[-1] - starts[0]) / max(1, len(starts) - 1),
            "val_bytes": self.validation_bytes,
        }

    def _starts(self, split: Split, number: int) -> np.ndarray:
        tokens, count = self.batches.tokens[split], self.config.eval_sequences
        return evaluation_starts(split, number, count, len(tokens), self.batches.seq_len)

    @torch.inference_mode()
    def _mean_loss(self, model: nn.Module, split: Split, starts: np.ndarray) -> float:
        model.eval()
        loss = TokenLoss(model)
        nats = torch.zeros((), dtype=torch.float64, device=self.batches.device)
        mine = self.world.share(starts) if self.world else starts
        for inputs, targets in self.batches.micro_batches(split, mine):
            with self.autocast:
                nats += loss(inputs, targets).double() * targets.numel()
        model.train()
        return float(self.world.total(nats) if self.world else nats) / (len(starts) * self.batches.seq_len)
