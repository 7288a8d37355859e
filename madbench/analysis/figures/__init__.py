"""Figures of stored runs. This module has only their names, so listing them does not import Matplotlib."""

from __future__ import annotations

from collections.abc import Iterable

from madbench.suites import Suite, suites

SHARED = ("effects", "budget")
"""Figures that every suite has and that are drawn last. ``scores``, which every suite has too, is drawn first."""


def figure_names(chosen_suites: Iterable[Suite] | None = None) -> list[str]:
    """The names of the figures of ``chosen_suites``, by default of all suites, in the order of drawing."""
    of_suites = [
        name for suite in (suites().values() if chosen_suites is None else chosen_suites) for name in suite.figures
    ]
    return list(dict.fromkeys(("scores", *of_suites, *SHARED)))


def suites_of_figure(name: str) -> list[Suite]:
    """The suites that define the figure ``name`` themselves. Empty for a figure of every suite, such as ``scores``."""
    return [suite for suite in suites().values() if name in suite.figures]
