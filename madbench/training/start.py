"""The function that trains a group of jobs, for a command that hands it to other processes.

Such a command needs no torch, whose import takes longer than all that the command does itself.
"""

from __future__ import annotations

from typing import Any

from madbench.jobs import Record


def train(*arguments: Any, **settings: Any) -> list[Record]:
    """Call :func:`madbench.training.loop.train` with the same arguments. It is imported now, and torch with it."""
    from madbench.training.loop import train as train_group

    return train_group(*arguments, **settings)
