"""The figures of the page, those for which there is something to draw."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from madbench.analysis.figures.data import FigureData, figure_frame
from madbench.analysis.figures.files import svg
from madbench.analysis.figures.registry import FIGURES
from madbench.analysis.frames import NothingToDrawError

CAPTIONS = {
    "mad": "Accuracy on each task, by label",
    "learning": "Learning curves of the MAD runs",
    "loss": "Loss curves of the language models",
    "effects": "What each factor is worth",
    "budget": "Accuracy and L5 loss against the budget",
    "difficulty": "Accuracy against difficulty",
}


@dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    name: str
    caption: str
    svg: Markup
    """An ``<svg>`` element with a title and a description."""


def drawing_tasks(data: FigureData) -> dict[str, Callable[[], tuple[str, str]]]:
    """What draws each kind, by name, the slowest first: it gives the SVG, or nothing and why."""
    return {name: functools.partial(_draw, name, data) for name in reversed(CAPTIONS)}


def page_figures(result: Callable[[str], tuple[str, str]]) -> tuple[list[PageFigure], dict[str, str]]:
    """The figures, and why each other kind is left out, by caption; ``result`` gives what a task gave."""
    drawn = {name: result(name) for name in CAPTIONS}
    figures = [PageFigure(name, CAPTIONS[name], Markup(text)) for name, (text, _) in drawn.items() if text]
    return figures, {CAPTIONS[name]: reason for name, (text, reason) in drawn.items() if not text}


def _draw(name: str, data: FigureData) -> tuple[str, str]:
    try:
        return svg(FIGURES[name].draw(figure_frame(name, data), styles=data.styles), f"figure-{name}"), ""
    except NothingToDrawError as error:
        return "", str(error)
