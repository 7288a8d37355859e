"""The scores of an evaluation against plain Python loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from madbench.suites.token_trial import evaluate
from madbench.tasks import IGNORE


class Fixed(nn.Module):
    """A model that returns given logits. The only token of an input is the number of its example."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits
        self.modes = []

    def hidden(self, x):
        self.modes.append(self.training)
        return self.logits[x[:, 0]]

    @property
    def readout(self):
        return torch.eye(self.logits.shape[-1]), None


def score(logits, targets, *batch_size):
    inputs = torch.arange(len(targets))[:, None].expand_as(targets)
    return evaluate(Fixed(logits), inputs, targets, torch.autocast("cpu", torch.bfloat16, enabled=False), *batch_size)


def macro(pairs, classes_that_count):
    """The mean recall over classes of pairs (target, predicted), in plain Python."""
    recalls = []
    for cls in classes_that_count:
        hits = [predicted == target for target, predicted in pairs if target == cls]
        recalls.append(sum(hits) / len(hits) if hits else 0.0)
    return sum(recalls) / len(recalls)


@pytest.mark.parametrize("examples", [1, 128, 300])
def test_scores_equal_loops_over_every_target(examples):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(examples, 5, 7, generator=generator)
    targets = torch.randint(5, (examples, 5), generator=generator)  # classes 5 and 6 are never targets
    targets[torch.rand(examples, 5, generator=generator) < 0.3] = IGNORE
    result = score(logits, targets)

    pairs, losses, batches = [], [], {}
    for n in range(examples):
        for t in range(5):
            target = targets[n, t].item()
            if target == IGNORE:
                continue
            row = logits[n, t].tolist()
            losses.append(math.log(sum(map(math.exp, row))) - row[target])
            pairs.append((target, row.index(max(row))))
            batches.setdefault(n // 128, []).append(pairs[-1])
    assert result["loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert result["token_accuracy"] == pytest.approx(sum(a == b for a, b in pairs) / len(pairs))
    assert result["macro_accuracy"] == pytest.approx(macro(pairs, {target for target, _ in pairs}))
    by_batch = [macro(batch, {cls for pair in batch for cls in pair}) for batch in batches.values()]
    assert result["batch_macro_accuracy"] == pytest.approx(sum(by_batch) / len(by_batch))
    assert len(batches) == math.ceil(examples / 128) and "batch_perplexity" not in result


def test_batch_means_of_the_reference_are_weighted_by_examples():
    """Batches of 2 and 1 examples with one target each: losses log 2, log 4 and 0; recalls 1/2, over two classes,
    and 1."""
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0], [99.0, 0.0]])[:, None]
    result = score(logits, torch.tensor([[0], [1], [0]]), 2)
    assert result["batch_perplexity"] == pytest.approx((2 * math.sqrt(2 * 4) + 1) / 3)
    assert result["batch_macro_accuracy"] == pytest.approx((2 * 0.5 + 1) / 3)
    assert result["loss"] == pytest.approx(math.log(8) / 3)


def test_a_predicted_class_without_targets_lowers_only_the_batch_macro():
    """Targets 0, 0, 0, 1; predictions 0, 0, 2, 1: recalls 2/3 and 1, and 0 for class 2 in the batch macro."""
    targets = torch.tensor([[0, 0, 0, 1]])
    logits = torch.eye(4)[torch.tensor([[0, 0, 2, 1]])]
    result = score(logits, targets)
    assert result["token_accuracy"] == pytest.approx(3 / 4)
    assert result["macro_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert result["batch_macro_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)


def test_predictions_at_ignored_targets_do_not_count():
    targets = torch.tensor([[IGNORE, 1, IGNORE]])
    right_where_it_counts = torch.eye(3)[torch.tensor([[0, 1, 2]])]
    result = score(right_where_it_counts, targets)
    assert [result[f"{kind}_accuracy"] for kind in ("token", "macro", "batch_macro")] == [1, 1, 1]


def test_evaluation_runs_in_eval_mode_and_leaves_training_mode_behind():
    model = Fixed(torch.zeros(3, 2, 4))
    evaluate(model, torch.arange(3)[:, None], torch.zeros(3, 2, dtype=torch.long), torch.autocast("cpu", enabled=False))
    assert model.modes == [False] and model.training
