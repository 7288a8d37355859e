"""The function that trains a group of jobs, for a command that hands it to other processes.

Such a command needs no torch, whose import takes longer than all that the command does itself.
"""

from __future__ import annotations

from typing import Any

from madbench.jobs import Record


def train(*arguments: Any, **settings: Any) -> list[Record]:
    """Import :func:`madbench.training.loop.train`, and torch with it. Call it with the same arguments."""
    from madbench.training.loop import train as train_group

    return train_group(*arguments, **settings)
