"""Figures of gates and other measurements inside a model, for one model or two."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from madbench.analysis.figures.inspection import inspection_figures
from madbench.analysis.figures.panels import HEIGHT, WIDTHS, Layout
from madbench.analysis.inspection import Inspection
from madbench.mixers.probe import LagKernel, Probe


def model(layers: int) -> Inspection:
    """A model in which every gate is a tenth of the number of its layer."""
    numbers = [*range(1, layers + 1)]
    return Inspection({}, [Probe(gates={"QK": torch.full((1, 4), n / 10 + 0.01)}) for n in numbers], numbers)


@pytest.mark.slow
def test_gate_panels_match_the_layers_of_models_of_different_depth_by_number():
    ((name, figure),) = inspection_figures({"deep": model(6), "shallow": model(4)})
    assert name == "gates"
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["QK, layer 1", "QK, layer 3", "QK, layer 6"]
    for axes, layer, count in zip(figure.axes, (1, 3, 6), (2, 2, 1)):
        steps = [patch.get_data() for patch in axes.patches]
        assert len(steps) == count
        for step in steps:
            place = np.argmax(step.values)
            assert step.edges[place] <= layer / 10 + 0.01 < step.edges[place + 1]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_inspection_panels_fit_the_page_width_with_separate_titles(width):
    names = ("G-cg-q-12o", "R-pcg-q-12o")
    models = {name: model(2) for name in names}
    for inspection in models.values():
        for probe in inspection.probes:
            probe.matrices.update({"factor 1": torch.eye(8).repeat(2, 1, 1)})
    drawn = {name: [first, *first.following] for name, first in inspection_figures(models, Layout(width))}
    assert {name: sum(len(page.axes) for page in pages) for name, pages in drawn.items()} == {"gates": 2, "matrices": 8}
    for pages in drawn.values():
        for page in pages:
            page.draw_without_rendering()
            assert page.get_size_inches()[0] == pytest.approx(WIDTHS[width])
            assert width == "double" or page.get_size_inches()[1] <= HEIGHT
            assert all(axes.title.get_fontsize() >= 7 for axes in page.axes)
            titles = [axes.title.get_window_extent() for axes in page.axes]
            assert not any(one.overlaps(other) for one, other in itertools.combinations(titles, 2))
            assert all(0 <= box.x0 and box.x1 <= page.bbox.width for box in titles)


def test_the_gates_of_two_models_differ_in_color():
    ((_, figure),) = inspection_figures({"one": model(1), "two": model(1)})
    assert len({patch.get_edgecolor() for patch in figure.axes[0].patches}) == 2


@pytest.mark.parametrize(
    "layouts, order",
    [
        (["lag"], "newest first."),
        (["position"], "oldest first."),
        (["lag", "position"], "newest first (lag) or oldest first (position)."),
    ],
)
def test_the_note_below_mixing_matrices_names_the_order_of_their_slots(layouts, order):
    tables = (torch.rand(1, 4, 2), torch.rand(1, 4, 2), torch.rand(1, 4), torch.rand(1, 2))
    models = {
        layout: Inspection({}, [Probe(kernels={"R(1)": LagKernel(*tables, layout=layout)})], [1]) for layout in layouts
    }
    ((name, figure),) = inspection_figures(models)
    shown = " ".join(" ".join(text.get_text() for text in figure.texts).split())
    assert name == "kernels" and f"tokens (rows), {order}" in shown
