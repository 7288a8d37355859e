"""Figures of stored runs. Their names are here, so that nothing is drawn, and no Matplotlib loaded, to list them."""

from __future__ import annotations

from collections.abc import Iterable

from madbench.suites import Suite, suites

SHARED = ("effects", "budget")
"""The figures of any suite, behind those that suites have of their own; ``scores`` stands before them."""


def figure_names(chosen: Iterable[Suite] | None = None) -> list[str]:
    """The figures of suites, of all by default, in the order in which they are drawn."""
    own = [name for suite in (suites().values() if chosen is None else chosen) for name in suite.figures]
    return list(dict.fromkeys(("scores", *own, *SHARED)))


def suites_of_figure(name: str) -> list[Suite]:
    """The suites that have the figure of their own; none where any suite has it."""
    return [suite for suite in suites().values() if name in suite.figures]
