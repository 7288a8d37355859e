"""Which jobs train together: consecutive ones of equal shapes, which may share a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from madbench.jobs import Job, content_id

MOST = 8  # jobs of a group where no number is given
GROUPS_PER_SLOT = 8  # at least, then, so that no slot is idle for long at the end
MAY_DIFFER = ("learning_rate", "min_learning_rate", "weight_decay")
"""Training settings that may differ within a group; beside them only the seed may."""


def shape_of(job: Job) -> str:
    """What is equal for all jobs of a group: an id of all that decides the operations of a step and their shapes."""
    content: dict[str, Any] = job.to_dict() | {"seed": 0}
    content["training"] = {name: value for name, value in content["training"].items() if name not in MAY_DIFFER}
    return content_id(content)


def usual_size(jobs: int, slots: int) -> int:
    """Jobs of a group where no number is given: fewer where several slots share few jobs."""
    return MOST if slots == 1 else max(1, min(MOST, jobs // (GROUPS_PER_SLOT * slots)))


def groups_of(jobs: Iterable[Job], most: int) -> list[list[Job]]:
    """Consecutive jobs of equal shapes in groups of like size, of at most ``most``."""
    groups = []
    for _, same in itertools.groupby(jobs, shape_of if most > 1 else lambda job: job.id):
        same = list(same)
        count = math.ceil(len(same) / most)
        bounds = [i * len(same) // count for i in range(count + 1)]
        groups += [same[start:end] for start, end in itertools.pairwise(bounds)]
    return groups
