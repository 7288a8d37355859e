"""mypy checks here that the public functions accept classes of a user's modules beside labels."""

from __future__ import annotations

from torch import nn

import madbench


class Mine(nn.Module):
    """A module of a user."""


def call_with_classes() -> None:
    """Call the functions that train, show and check labels. It is never run."""
    madbench.run([Mine, "S-p"], seeds=[0])
    madbench.plan(Mine)
    madbench.sweep([Mine, "S"], vary={"training.epochs": [1, 2]}, compare=True)
    madbench.table(Mine)
    madbench.compare(["S", Mine])
    madbench.open("results").select(Mine)
    madbench.verify(Mine)
    madbench.build(Mine, 32, 16)
