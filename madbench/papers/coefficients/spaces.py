"""Figure 4: outputs of untrained mixers for two value vectors in a plane, one panel per class of coefficients."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from madbench.labels.names import typed_label
from madbench.papers.coefficients import coefficient_label
from madbench.papers.making import REPRODUCED, DrawnFigure, ItemResult, PlainMeasure, Request

if TYPE_CHECKING:
    from madbench.analysis.figures.panels import Layout, Page
    from madbench.analysis.scores import Results

CLASSES: Mapping[str, tuple[str, bool, bool]] = {
    "convex": ("cd:softmax", True, True),
    "conical": ("cd:relu-wx", True, False),
    "affine": ("cd:id-sum", False, True),
    "linear": ("cd:deltanet", False, False),
}
"""The classes of coefficients (Table 2), each with a label of a mixer that has such coefficients.

Name to (label, True if coefficients are at least 0, True if they sum to 1).
"""
VALUES = np.array([[1.0, 0.2], [0.3, 1.0]])
"""The two value vectors (2 tokens, 2 channels). Every output is a combination of them."""
SEQUENCES, EDGE, ROUNDING = 300, 2.0, 1e-9


class SpacesMeasure(PlainMeasure):
    """A measure that plots outputs of untrained mixers, one per class of Table 2, and checks their coefficients.

    The possible restrictions are that coefficients are at least 0, and that they sum to 1. The coefficients of a mixer
    must have the restrictions of its class and no others.
    """

    operators = tuple(label for label, _, _ in CLASSES.values())

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        of_class, verdicts = {name: sample_coefficients(label) for name, (label, _, _) in CLASSES.items()}, {}
        for name, (label, is_positive, is_one) in CLASSES.items():
            a = of_class[name]
            is_in_space = (a.min() >= 0) == is_positive and (abs(a.sum(1) - 1).max() <= ROUNDING) == is_one
            subject = f"{name} combinations, {typed_label(label)}: "
            subject += "coefficients have the restrictions of the class and no other"
            verdicts[subject] = REPRODUCED if is_in_space else "not reproduced"
        frame = space_frame(of_class)
        figure = DrawnFigure(f"coefficients_{request.item.id}", functools.partial(space_figure, frame), frame)
        return ItemResult((), verdicts, {"points": len(frame)}, [figure])


def sample_coefficients(label: str) -> np.ndarray:
    """Normalized coefficients (rows, 2) of the second token in sequences of two random tokens, for an untrained mixer.

    There is one row for each of 300 sequences and each head. Rows of zeros, which ReLU can give, are left out.
    """
    from madbench.mixers.cd.family import FAMILY
    from madbench.mixers.cd.sample_mixers import SampleMixers

    mixer, x = SampleMixers(FAMILY, coefficient_label(label)).sample(0, batch=SEQUENCES, length=2)
    a = mixer.coefficients(x).a[:, :, 1].reshape(-1, 2).numpy()
    coefficients: np.ndarray = a[abs(a).sum(1) > ROUNDING]
    return coefficients


def space_frame(of_class: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """The points of the figure, one per row, with the columns ``class``, ``label``, ``x`` and ``y``.

    ``of_class`` maps a class to coefficients (rows, 2). (x, y) is the output for the values :data:`VALUES`. If the
    coefficients of a class have no fixed sum, its outputs are scaled to fit the panel.
    """
    parts = []
    for name, a in of_class.items():
        label, _, is_one = CLASSES[name]
        y = a @ VALUES
        y = y if is_one else y * EDGE / np.quantile(abs(y), 0.9)
        parts.append(pd.DataFrame({"class": name, "label": label, "x": y[:, 0], "y": y[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def space_figure(frame: pd.DataFrame, layout: Layout | None = None) -> Page:
    """Draw the outputs of each class of coefficients (:data:`CLASSES`) as points in a panel.

    ``frame`` is the result of :func:`space_frame`. The two value vectors (:data:`VALUES`) are drawn as arrows.
    """
    from madbench.analysis.figures.panels import Layout, Panels
    from madbench.analysis.figures.style import PALETTE, style

    with style():
        layout = layout or Layout()
        lines = layout.lines([len(CLASSES)], 4, 1.3 if layout.is_small else 1.8, 0.7)
        heading = "Outputs by the class of their coefficients"
        panels = Panels(layout, "output spaces", heading, lines, (1.9, 1.9), least=0.6, entries=0)
        for axes, (name, (label, _, _)) in zip(panels.axes, CLASSES.items()):
            rows = frame[frame["class"] == name]
            axes.plot(rows.x, rows.y, linestyle="", marker="o", markersize=2, alpha=0.5, color=PALETTE[0])
            for value in VALUES:
                axes.annotate("", value, (0, 0), arrowprops={"arrowstyle": "->", "color": PALETTE[1], "linewidth": 1.4})
            edges = (-EDGE, EDGE)
            axes.set(
                title=f"{name}: {typed_label(label)}", xlim=edges, ylim=edges, xticks=(-1, 0, 1), yticks=(-1, 0, 1)
            )
        notes = [
            (
                "Outputs of second tokens of drawn sequences, for the two values of the arrows. Conical and linear "
                "ones are scaled to the panel; others may lie beyond it."
            )
        ]
        return panels.finish(notes, {})
