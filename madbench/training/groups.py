"""Groups of jobs with equal shapes, which can train in common steps. This module does not import torch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from madbench.jobs import Job, content_id

MOST = 8  # default size of a group
GROUPS_PER_SLOT = 8  # fewest groups per slot by default, so that no slot is idle for long at the end
MAY_DIFFER = ("learning_rate", "min_learning_rate", "weight_decay")
"""Training settings that may differ between the jobs of a group. Apart from these, only the seed may differ."""


def shape_of(job: Job) -> str:
    """A key that is equal for jobs that can train in one group.

    It is a hash of all that determines the operations of a step and their shapes: the whole job, except the seed and
    the settings in ``MAY_DIFFER``.
    """
    content: dict[str, Any] = job.to_dict() | {"seed": 0}
    content["training"] = {name: value for name, value in content["training"].items() if name not in MAY_DIFFER}
    return content_id(content)


def usual_size(jobs: int, slots: int) -> int:
    """The default size of a group: ``MOST`` for one slot. For several slots it is smaller if there are few jobs."""
    return MOST if slots == 1 else max(1, min(MOST, jobs // (GROUPS_PER_SLOT * slots)))


def groups_of(jobs: Iterable[Job], most: int) -> list[list[Job]]:
    """Split jobs into groups of at most ``most`` consecutive jobs with equal :func:`shape_of`.

    If more than ``most`` consecutive jobs have one shape, their groups have equal sizes, up to one job.
    """
    groups: list[list[Job]] = []
    for _, equal in itertools.groupby(jobs, shape_of if most > 1 else attrgetter("id")):
        same = list(equal)
        count = math.ceil(len(same) / most)
        bounds = [i * len(same) // count for i in range(count + 1)]
        groups += [same[start:end] for start, end in itertools.pairwise(bounds)]
    return groups
