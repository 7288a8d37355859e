"""What guessing gives on a task."""

from __future__ import annotations

import dataclasses

from madbench.tasks.base import IGNORE, TaskSetting
from madbench.tasks.generation import generate

_EXAMPLES = 256


def chance(task: str, setting: TaskSetting) -> float:
    """Expected accuracy of an answer drawn uniformly from the ids that the test targets of 256 examples are.

    A model that has learned more than which ids may be asked for, such as those of its sequence, is above it.
    """
    import numpy as np

    targets = generate(task, dataclasses.replace(setting, num_test_examples=_EXAMPLES), "test", 0).targets
    return 1 / len(np.unique(targets[targets != IGNORE]))
