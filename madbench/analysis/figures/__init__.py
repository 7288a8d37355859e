"""Figures of stored runs. Their names are here, so that a list of them does not import Matplotlib."""

from __future__ import annotations

from collections.abc import Iterable

from madbench.suites import Suite, suites

SHARED = ("effects", "budget")
"""The figures of every suite. They come after the figures of single suites; ``scores`` comes first."""


def figure_names(chosen_suites: Iterable[Suite] | None = None) -> list[str]:
    """The names of the figures of ``chosen_suites``, by default of all suites, in the order of drawing."""
    of_suites = [
        name for suite in (suites().values() if chosen_suites is None else chosen_suites) for name in suite.figures
    ]
    return list(dict.fromkeys(("scores", *of_suites, *SHARED)))


def suites_of_figure(name: str) -> list[Suite]:
    """The suites that define the figure ``name``. Empty for a figure that every suite has, such as ``scores``."""
    return [suite for suite in suites().values() if name in suite.figures]
