"""Accuracy and loss over all the targets of a split, computed once, on the device, with one transfer at the end."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.tasks import IGNORE

PUBLISHED_BATCH = 128


@dataclass(frozen=True)
class Scores:
    """Numbers of one evaluation."""

    loss: float
    """Mean cross-entropy in nats per target; its exponential is the perplexity."""
    token_accuracy: float
    """Share of all targets predicted right (micro)."""
    macro_accuracy: float
    """Mean over the classes that occur as targets of their recall."""
    batch_macro_accuracy: float
    """The reference implementation's figure: macro recall within each batch of 128, a class predicted but never a
    target counting as zero, averaged over batches."""


@torch.inference_mode()
def evaluate(model: nn.Module, inputs: Tensor, targets: Tensor, autocast: torch.autocast) -> Scores:
    """Scores ``model`` on inputs and targets (N, T); targets of -100 do not count."""
    model.eval()
    loss, right_by_class, target_by_class, batch_macros = 0.0, 0, 0, []
    for x, y in zip(inputs.split(PUBLISHED_BATCH), targets.split(PUBLISHED_BATCH)):
        with autocast:
            logits = model(x)
        counted = y != IGNORE
        logits, y = logits[counted].float(), y[counted]
        loss = loss + F.cross_entropy(logits, y, reduction="sum").double()
        predicted, classes = logits.argmax(-1), logits.shape[-1]
        target_count = torch.bincount(y, minlength=classes)
        predicted_count = torch.bincount(predicted, minlength=classes)
        right_count = torch.bincount(y, weights=(predicted == y).double(), minlength=classes)
        batch_macros.append(_macro(right_count, target_count, (target_count + predicted_count) > 0))
        right_by_class = right_by_class + right_count
        target_by_class = target_by_class + target_count
    model.train()
    total = target_by_class.sum()
    numbers = torch.stack(
        [
            loss / total,
            right_by_class.sum() / total,
            _macro(right_by_class, target_by_class, target_by_class > 0),
            torch.stack(batch_macros).mean(),
        ]
    )
    return Scores(*numbers.tolist())


def _macro(right: Tensor, targets: Tensor, counted: Tensor) -> Tensor:
    recall = right / targets.clamp(min=1)
    return recall.sum() / counted.sum()
