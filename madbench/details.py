"""The types of the details in a run's record. At run time they are plain dicts, as JSON and checkpoints have them."""

from __future__ import annotations

from typing import TypedDict


class TrainingPlace(TypedDict):
    """The version of torch and the device of a part of a run, from one step on."""

    torch: str
    device: str
    from_step: int
    """The step after which this part begins: 0 for the first part."""


class TrainingGroup(TypedDict):
    """The jobs that trained together in common steps, from one step on."""

    from_step: int
    """The step after which the jobs trained together."""
    ids: list[str]
    """The ids of the jobs, in order."""
