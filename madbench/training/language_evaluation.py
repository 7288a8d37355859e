"""The losses of an evaluation: over sampled training windows and over the validation windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from madbench.language_jobs import LanguageTraining
from madbench.text.batches import Split, evaluation_starts
from madbench.training.distributed import own_share, total
from madbench.training.language_batches import Batches


class Evaluation:
    """Evaluates models on the same windows whatever the label, the seed and the number of processes."""

    def __init__(self, batches: Batches, config: LanguageTraining, autocast: torch.autocast):
        self.batches, self.config, self.autocast = batches, config, autocast
        self.validation_starts = self._starts("val", 0)
        self.validation_bytes = self._text_bytes()
        """UTF-8 bytes of the targets of all validation windows; None where the corpus is ids without text."""

    def losses(self, model: nn.Module, number: int) -> dict[str, float]:
        """Numbers of the ``number``-th evaluation, counted from 1: the same in every process.

        ``train_loss`` and ``validation_loss`` are nats per token, ``validation_bits_per_byte`` the nats of the whole
        evaluated text over ln 2 and its bytes.
        """
        train_loss = self._mean_loss(model, "train", self._starts("train", number))
        return {"evaluation": number, "train_loss": train_loss} | self.validation(model)

    def validation(self, model: nn.Module) -> dict[str, float]:
        """The numbers of the validation windows alone."""
        losses = {"validation_loss": self._mean_loss(model, "val", self.validation_starts)}
        if self.validation_bytes is not None:
            nats = losses["validation_loss"] * self.validation_starts.size * self.batches.seq_len
            losses["validation_bits_per_byte"] = nats / (math.log(2) * self.validation_bytes)
        return losses

    def description(self) -> dict[str, Any]:
        """Which windows were evaluated, for the run's record."""
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

    def _text_bytes(self) -> int | None:
        bytes_of_token = self.batches.corpus.token_bytes()
        if bytes_of_token is None:
            return None
        count = 0
        for part in np.array_split(self.validation_starts, self.batches.count(len(self.validation_starts))):
            _, targets = self.batches.read("val", part)
            count += int(bytes_of_token[targets].sum(dtype=np.int64))
        return count

    @torch.inference_mode()
    def _mean_loss(self, model: nn.Module, split: Split, starts: np.ndarray) -> float:
        model.eval()
        nats = torch.zeros((), dtype=torch.float64, device=self.batches.device)
        for inputs, targets in self.batches.micro_batches(split, own_share(starts)):
            with self.autocast:
                nats += model.loss(inputs, targets).double() * targets.numel()
        model.train()
        return float(total(nats)) / (len(starts) * self.batches.seq_len)
