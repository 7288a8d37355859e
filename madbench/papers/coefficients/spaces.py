"""Figure 4: outputs of untrained mixers for two value vectors in a plane, by the class of their coefficients."""

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
"""Classes of coefficients (Table 2): name to (label, True if coefficients are at least 0, True if they add up to 1)."""
VALUES = np.array([[1.0, 0.2], [0.3, 1.0]])
"""The two value vectors of which every output is a combination, (2 tokens, 2 channels)."""
SEQUENCES, EDGE, ROUNDING = 300, 2.0, 1e-9


class SpacesMeasure(PlainMeasure):
    """Plots outputs of untrained mixers of each class of Table 2, and checks the restrictions on their coefficients."""

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
    """Normalized coefficients (rows, 2) of the second token in random sequences, for an untrained mixer.

    There are 300 sequences. There is one row per sequence and head. Rows of zeros, which ReLU can give, are left out.
    """
    from madbench.mixers.cd.family import FAMILY
    from madbench.mixers.cd.sample_mixers import SampleMixers

    mixer, x = SampleMixers(FAMILY, coefficient_label(label)).sample(0, batch=SEQUENCES, length=2)
    a = mixer.coefficients(x).a[:, :, 1].reshape(-1, 2).numpy()
    return a[abs(a).sum(1) > ROUNDING]


def space_frame(of_class: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """One row per point: class, label and output (x, y). ``of_class`` maps a class to coefficients (rows, 2).

    Outputs of classes whose coefficients have no fixed sum are scaled to the panel.
    """
    parts = []
    for name, a in of_class.items():
        label, _, is_one = CLASSES[name]
        y = a @ VALUES
        y = y if is_one else y * EDGE / np.quantile(abs(y), 0.9)
        parts.append(pd.DataFrame({"class": name, "label": label, "x": y[:, 0], "y": y[:, 1]}))
    return pd.concat(parts, ignore_index=True)


def space_figure(frame: pd.DataFrame, layout: Layout | None = None) -> Page:
    """The figure of the output spaces: one panel per class of coefficients (:data:`CLASSES`).

    ``frame`` is the result of :func:`space_frame`. Its outputs are drawn as points, and the two value vectors
    (:data:`VALUES`) as arrows.
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
            "Outputs of second tokens of drawn sequences, for the two values of the arrows. Conical and linear ones "
            "are scaled to the panel; others may lie beyond it."
        ]
        return panels.finish(notes, {})
