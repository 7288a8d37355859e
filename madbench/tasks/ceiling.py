"""The best test accuracy that a task's data allow."""

from __future__ import annotations

from madbench.tasks.base import IGNORE, TaskSetting
from madbench.tasks.generation import generate


def ceiling(task: str, setting: TaskSetting, seed: int) -> float:
    """Share of the test targets that follow from their sequence or from the training data, counted one by one.

    Below 1 in two tasks: memorization cannot answer for a key that training never shows, and fuzzy in-context recall
    asks now and then for a probe it never showed. Such a target counts as missed, so a lucky guess (1 in 8 for the
    first value token of fuzzy recall at the baseline) can lift a model a little above the ceiling.
    """
    test = generate(task, setting, "test", seed)
    known = setting.knowable(test, lambda: generate(task, setting, "train", seed))
    return float(known.sum() / (test.targets != IGNORE).sum())
