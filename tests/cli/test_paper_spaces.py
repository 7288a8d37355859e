"""Figure 4 of the coefficients paper: outputs lie in the space of their class."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.analysis.figures.panels import Layout
from madbench.papers import load_paper
from madbench.papers.coefficients import spaces
from madbench.papers.making import Request

PAPER = load_paper("coefficients")
REQUEST = Request(PAPER, PAPER.item("figure4"))
LAYOUTS = (Layout(), Layout(width="single"))


@pytest.fixture(scope="module")
def outcome():
    return spaces.SpacesMeasure().decide(REQUEST, None)


def test_all_four_classes_of_coefficients_are_reproduced(outcome):
    assert len(outcome.verdicts) == 4 and set(outcome.verdicts.values()) == {"reproduced"}


def test_convex_outputs_are_between_the_values_and_affine_outputs_on_their_line(outcome):
    (drawn,) = outcome.figures
    first, second = spaces.VALUES
    normal = np.array([second[1] - first[1], first[0] - second[0]])
    for name in ("convex", "affine"):
        points = drawn.frame[drawn.frame["class"] == name][["x", "y"]].to_numpy()
        assert abs((points - first) @ normal).max() < 1e-6
    along = (drawn.frame[drawn.frame["class"] == "convex"].x - first[0]) / (second[0] - first[0])
    assert along.between(0, 1).all()


@pytest.mark.slow
def test_the_figure_of_spaces_has_one_panel_per_class(outcome):
    (drawn,) = outcome.figures
    titles = [[axes.get_title().partition(":")[0] for axes in drawn.draw(layout=layout).axes] for layout in LAYOUTS]
    assert titles == [[*spaces.CLASSES], [*spaces.CLASSES][:2]]  # as wide as it needs, and a page of a column


def test_a_label_of_the_wrong_class_is_not_reproduced(monkeypatch):
    monkeypatch.setitem(spaces.CLASSES, "convex", ("cd:id-sum", True, True))
    outcome = spaces.SpacesMeasure().decide(REQUEST, None)
    assert [value for name, value in outcome.verdicts.items() if name.startswith("convex")] == ["not reproduced"]
