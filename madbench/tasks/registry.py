"""The six tasks by name."""

from __future__ import annotations

import importlib

from madbench.errors import ConfigError, did_you_mean
from madbench.tasks.base import TaskSetting

_CLASSES = {
    "compression": "Compression",
    "fuzzy_in_context_recall": "FuzzyInContextRecall",
    "in_context_recall": "InContextRecall",
    "memorization": "Memorization",
    "noisy_in_context_recall": "NoisyInContextRecall",
    "selective_copying": "SelectiveCopying",
}

TASK_NAMES: tuple[str, ...] = tuple(_CLASSES)
"""Every task, in the order of the columns of the published table (HyperMLP, Table 1)."""


def settings_class(task: str) -> type[TaskSetting]:
    """The settings dataclass of ``task``; an unknown name is a ``ConfigError``."""
    check_task(task)
    return getattr(importlib.import_module(f"madbench.tasks.{task}"), _CLASSES[task])


def check_task(task: str, where: str = "") -> None:
    """Raises ``ConfigError`` unless ``task`` is the name of a task; ``where`` opens the message."""
    if task not in _CLASSES:
        raise ConfigError(f"{where}unknown task {task!r}{did_you_mean(task, TASK_NAMES)}")
