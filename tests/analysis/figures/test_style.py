"""Every label has its own color and marker in figures, and colors differ for every kind of color vision."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from matplotlib.colors import same_color, to_rgb

from analysis.figures import synthetic
from drawings import FIGURES
from madbench.analysis.figures.colors import distinct_colors
from madbench.analysis.figures.style import (
    COLORS,
    MARKERS,
    OTHERS,
    PALETTE,
    Highlights,
    best_first,
    label_style,
    label_styles,
)
from madbench.mixers.srg.listing import all_labels
from madbench.suites.mad.suite import MAD_TASKS

pytestmark = pytest.mark.usefixtures("without_layout")

TABLE = synthetic.TABLE
PROTAN = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
DEUTAN = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
"""Matrices from linear RGB to the RGB that protanopes and deuteranopes see (Machado, Oliveira and Fernandes, 2009,
severity 1)."""
LMS = [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566]]
LMS += [[0.0883024619, 0.2817188376, 0.6299787005]]
LAB = [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099]]
LAB += [[0.0259040371, 0.7827717662, -0.8086757660]]
"""To Oklab: Ottosson, 2020."""


def linear(color: str) -> np.ndarray:
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(color)])


def distance(one: str, other: str, seen_by=np.eye(3)) -> float:
    """The distance of two colors in Oklab. About 0.02 is just noticeable."""
    seen = [LAB @ np.cbrt(np.clip(LMS @ np.array(seen_by) @ linear(color), 0, None)) for color in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def test_all_504_labels_have_distinct_styles():
    styles = {label: label_style(label) for label in all_labels()}
    assert len({(one.color, one.dashes, one.marker) for one in styles.values()}) == 504
    paper = [styles[label] for label in TABLE]
    assert len({(one.color, one.dashes) for one in paper}) == 33


def test_colors_of_the_labels_of_table_1_are_visibly_different():
    for one, other in itertools.combinations([label_style(label).color for label in TABLE], 2):
        assert distance(one, other) > 0.04
    assert len({label_style(label).color for label in all_labels()}) == 504


LABELS_OF_OTHER_FAMILIES = ["S", "R", *(f"fla:{i}" for i in range(31))]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "budget", "learning", "loss", "difficulty"])
@pytest.mark.parametrize("labels", [TABLE, LABELS_OF_OTHER_FAMILIES], ids=["of the paper", "of other families"])
def test_no_color_of_a_figure_stands_for_two_labels(name, labels):
    frame = getattr(synthetic, name)(labels, MAD_TASKS[:1])
    for axes in FIGURES[name].draw(frame).axes:
        shown = {(line.get_color(), line.get_marker()) for line in axes.lines if line.get_marker() in MARKERS}
        colors = [color for color, _ in shown]
        assert len(colors) == len(set(colors)) >= min(8, len(labels) - 2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 8, 9, 33])
def test_any_requested_number_of_palette_colors_is_distinct(count):
    colors = distinct_colors(PALETTE, count)
    assert colors[:8] == PALETTE[:count] and len(colors) == count
    assert all(distance(one, other) > 0.04 for one, other in itertools.combinations(colors, 2))
    assert all(1.05 / (luminance(color) + 0.05) > 1.9 for color in colors)


def test_a_label_of_the_grammar_keeps_its_color_if_another_family_has_the_same():
    assert label_style("fla:gla").color == label_style("S").color
    for labels in (["S", "fla:gla"], ["fla:gla", "S"]):
        styles = label_styles(labels)
        assert [*styles] == labels and styles["S"] == label_style("S")
        assert distance(styles["S"].color, styles["fla:gla"].color) > 0.04


def test_the_style_of_a_label_of_another_family_depends_on_its_text_alone():
    labels = [f"fla:{name}" for name in ("gla", "retnet", "mamba2", "rwkv7", "hgrn2")]
    assert len({label_style(label) for label in labels}) == 5
    one = label_style("fla:gla")
    assert (one.color, one.marker) == ("#557df8", "D")  # on every machine


def test_colors_differ_under_color_blindness_most_of_all_with_equal_dashes():
    for one, other in itertools.combinations(itertools.product(COLORS, range(8)), 2):
        (base, i), (other_base, j) = one, other
        has_dashes_too = (i + 2 * "SRG".index(base) - j - 2 * "SRG".index(other_base)) % 5 != 0
        for seen_by in (np.eye(3), PROTAN, DEUTAN):
            least = 0.05 if has_dashes_too else 0.085
            assert distance(COLORS[base][i], COLORS[other_base][j], seen_by) > least, (one, other)


def luminance(color: str) -> float:
    return float(linear(color) @ (0.2126, 0.7152, 0.0722))


def test_every_color_stands_out_from_white_paper_and_from_a_dark_page():
    for color in itertools.chain(*COLORS.values()):
        assert (
            1.05 / (luminance(color) + 0.05) > 1.95 and (luminance(color) + 0.05) / (luminance("#14171b") + 0.05) > 1.95
        )


def test_up_to_eight_labels_are_all_colored_in_the_given_order():
    shown = Highlights.from_results({label: [float(i)] for i, label in enumerate(TABLE[:8])})
    assert shown.styles == {label: label_style(label) for label in TABLE[:8]} and [*shown.styles] == TABLE[:8]
    assert not shown.others and not shown.note("learning", "x") and [*shown.entries()] == TABLE[:8]


@pytest.mark.parametrize("is_lower_better", [False, True])
@pytest.mark.parametrize("count", [9, 33])
def test_among_many_labels_s_and_the_seven_best_are_colored(count, is_lower_better):
    labels = TABLE[:count]
    results = {label: [float(-i if is_lower_better else i)] * 2 for i, label in enumerate(labels)}
    shown = Highlights.from_results(results, is_lower_better)
    assert [*shown.styles] == [*labels[:-8:-1], "S"] and shown.others == labels[1:-7]
    assert [*shown.entries()][8:] == [f"{count - 8} other label{'s' * (count > 9)}"]
    assert "madbench plot scores LABEL" in shown.note("scores", "x")
    del results["S"]
    assert len(Highlights.from_results(results).styles) == 8


def test_labels_with_missing_results_rank_last_for_colors():
    results = {"a": [math.nan, 99.0], "b": [1.0, 2.0], "c": [math.nan, math.inf], "d": [2.0, 2.0]}
    assert best_first(results) == ["d", "b", "a", "c"]
    assert best_first(results, is_lower_better=True) == ["b", "d", "a", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learning", "loss", "difficulty"])
def test_labels_without_a_color_are_drawn_gray_behind_the_others(name, names):
    frame = getattr(synthetic, name)(TABLE, MAD_TASKS[:2])
    figure = FIGURES[name].draw(frame)
    assert len(names(figure)) == 9 and names(figure)[-1].startswith("25 other")
    for axes in figure.axes:
        lines = [line for line in axes.lines if line.get_linewidth() == OTHERS["linewidth"] and line.get_zorder() < 2]
        (gray,) = (line for line in lines if same_color(line.get_color(), OTHERS["color"]))
        assert np.isnan(gray.get_xdata()).sum() >= 25
        assert all(line.get_zorder() > gray.get_zorder() for line in axes.lines if line.get_linewidth() > 1.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "learning", "loss", "budget", "difficulty"])
def test_a_label_keeps_its_style_among_others(name):
    styles = []
    for labels in (["G-cg-q-12o", "R"], ["S", "G-cg-q-12o", "R"]):
        frame = getattr(synthetic, name)(labels, MAD_TASKS[:1])
        (axes, *_) = FIGURES[name].draw(frame[frame.label != "R"]).figure.axes
        styles.append({(line.get_color(), line.get_marker()) for line in axes.lines})
    one = label_style("G-cg-q-12o")
    assert all((one.color, one.marker) in found for found in styles)
