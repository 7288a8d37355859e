"""The figures of the page, those for which there is something to draw."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from madbench.analysis.figures.files import svg
from madbench.analysis.figures.kinds import KINDS, Material, NothingToDrawError

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


def page_figures(material: Material) -> tuple[list[PageFigure], dict[str, str]]:
    """The figures, and why each other kind is left out, by caption."""
    figures, reasons = [], {}
    for name, kind in KINDS.items():
        try:
            frame = kind.frame(material)
            drawn = svg(kind.draw(frame, styles=material.styles), f"figure-{name}")
        except NothingToDrawError as error:
            reasons[CAPTIONS[name]] = str(error)
        else:
            figures.append(PageFigure(name, CAPTIONS[name], Markup(drawn)))
    return figures, reasons
