"""The ceiling of a task: the highest accuracy that its data allow."""

from __future__ import annotations

import dataclasses
import math

import pytest

from madbench.tasks import IGNORE, ceiling, generate, load_task


@pytest.mark.parametrize(("vocab_size", "published"), [(2048, 0.987), (4096, 0.869), (8192, 0.632)])
def test_the_ceiling_of_memorization_is_the_share_of_keys_seen_in_training(vocab_size, published):
    setting = next(s for s in load_task("memorization").settings if s.vocab_size == vocab_size)
    num_keys, draws = (vocab_size - 1) // 2, 256 * 16
    expected = 1 - (1 - 1 / num_keys) ** draws
    spread = 4.5 * math.sqrt((1 - expected) / num_keys)
    for seed in (0, 1):
        known = {key for row in generate("memorization", setting, "train", seed).inputs.tolist() for key in row[0::2]}
        asked = [key for row in generate("memorization", setting, "test", seed).inputs.tolist() for key in row[0::2]]
        found = ceiling("memorization", setting, seed)
        assert found == sum(key in known for key in asked) / len(asked)
        assert abs(found - expected) < spread and abs(found - published) < spread


def test_the_ceiling_of_memorization_at_the_baseline_is_one():
    assert ceiling("memorization", load_task("memorization").baseline, 0) == 1.0


def test_fuzzy_recall_misses_the_probes_it_never_shows():
    setting = dataclasses.replace(load_task("fuzzy_in_context_recall").baseline, num_test_examples=400)
    examples = generate("fuzzy_in_context_recall", setting, "test", 0)
    asked = missed = 0
    for inputs, targets in zip(examples.inputs.tolist(), examples.targets.tolist()):
        asked += sum(target != IGNORE for target in targets)
        value_len = next(n for n in (1, 2, 3) if [*inputs, targets[-1]][-n - 1] < 7)
        key = inputs[-2 - value_len : 1 - value_len or None][:3]
        context = inputs[: 1 - value_len - 3 or None]
        if not any(context[i : i + 3] == key for i in range(len(context) - 2)):
            missed += value_len
    assert missed > 0
    assert ceiling("fuzzy_in_context_recall", setting, 0) == 1 - missed / asked


@pytest.mark.parametrize("task", ["compression", "in_context_recall", "noisy_in_context_recall", "selective_copying"])
def test_the_ceiling_of_the_other_tasks_is_one(task):
    setting = dataclasses.replace(load_task(task).baseline, num_test_examples=50)
    assert ceiling(task, setting, 0) == 1.0
