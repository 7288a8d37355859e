"""The layout of panels: no text overlaps or leaves the figure, and wide figures continue on further pages."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from analysis.figures import synthetic
from drawings import FIGURES
from madbench.analysis.figures.panels import WIDTHS, Layout, Panels
from madbench.analysis.figures.style import style
from madbench.suites.mad.suite import MAD_TASKS


@pytest.fixture
def boxes(monkeypatch):
    """``boxes(figure, dpi)``: each drawn text with its box in pixels."""
    draw = Text.draw
    texts = []
    monkeypatch.setattr(Text, "draw", lambda text, renderer: (texts.append(text), draw(text, renderer)))

    def call(figure, dpi):
        texts.clear()
        figure.set_dpi(dpi)
        figure.draw_without_rendering()
        assert not any(isinstance(text, Annotation) for text in texts)
        return [(text, text.get_window_extent()) for text in texts if text.get_text().strip()]

    return call


def overlaps(boxes: list[Bbox], others: list[Bbox]) -> np.ndarray:
    """For each pair of boxes, True if they share more than a pixel."""
    ours, theirs = (np.array([box.extents for box in some]).reshape(-1, 4) for some in (boxes, others))
    low = np.maximum(ours[:, None, :2], theirs[:, :2])
    high = np.minimum(ours[:, None, 2:], theirs[:, 2:])
    return (high - low > 1).all(axis=-1)


@functools.cache
def make_figure(name, labels, count, width, **choices):
    """A figure with ``count`` panels, cached for all tests. Tests change only its resolution."""
    frame = getattr(synthetic, name)(synthetic.LABELS[labels], MAD_TASKS[:count])
    return FIGURES[name].draw(frame, layout=Layout(width), **choices)


CHOICES = [*((name, {}) for name in FIGURES), ("learning", {"y": "loss"}), ("loss", {"log_x": True})]
CASES = [
    pytest.param(name, labels, count, choices, id=f"{name}, {labels}, {count}, {choices}")
    for name, choices in CHOICES
    for labels, count in (("one label", 1), ("long labels", 1), ("long labels", 5), ("33 labels", 3))
    if labels == "long labels" or not choices
]


@pytest.mark.slow
@pytest.mark.parametrize("name, labels, count, choices", CASES)
def test_no_text_covers_another_or_a_panel_or_leaves_the_figure(name, labels, count, choices, boxes):
    check_texts(make_figure(name, labels, count, None, **choices), boxes, 100 if labels == "33 labels" else 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("labels", ["three labels", "33 labels"])
def test_a_double_column_figure_fills_the_width_without_overlapping_texts(name, labels, boxes):
    for figure in pages(make_figure(name, labels, 4, "double")):
        assert figure.get_size_inches()[0] == pytest.approx(WIDTHS["double"])
        check_texts(figure, boxes, 200)


SINGLE_COLUMN_CASES = [
    *(("three labels", 6, name, choices) for name, choices in CHOICES),
    *(("long labels", 2, name, {}) for name in FIGURES),
    *(("33 labels", 3, name, {}) for name in FIGURES),
]


@pytest.mark.slow
@pytest.mark.parametrize("labels, count, name, choices", SINGLE_COLUMN_CASES)
def test_pages_of_a_single_column_fit_its_height_without_overlapping_texts(labels, count, name, choices, boxes):
    for figure in pages(make_figure(name, labels, count, "single", **choices)):
        width, height = figure.get_size_inches()
        assert width == pytest.approx(3.3) and height <= 2.5
        assert all(axes.bbox.height / figure.dpi > 0.12 for axes in figure.axes)  # a row of text
        check_texts(figure, boxes, 100)


@pytest.mark.slow
def test_long_y_axis_names_are_broken_into_lines_in_low_panels(boxes):
    check_texts(make_figure("learning", "33 labels", 6, "single", y="loss"), boxes, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["effects", "difficulty"])
def test_pages_show_every_row_and_panel_once(name):
    whole, first = make_figure(name, "33 labels", 3, None), make_figure(name, "33 labels", 3, "single")
    shown = [axes for page in pages(first) for axes in page.axes]
    assert first.following and sum(map(marks, shown)) == sum(map(marks, whole.axes))


def marks(axes):
    """The number of marks in a panel."""
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() not in ("None", "", None))


@pytest.mark.slow
def test_a_single_column_figure_moves_title_and_notes_to_the_caption():
    frame = synthetic.scores(["S"], MAD_TASKS[:1])
    whole = FIGURES["scores"].draw(frame)
    figure = FIGURES["scores"].draw(frame, layout=Layout("single"))
    assert figure.get_suptitle() == figure.get_supxlabel() == ""
    said = " ".join([whole.get_suptitle(), *whole.get_supxlabel().split()])
    assert " ".join(figure.caption.split()) == said
    assert FIGURES["scores"].draw(frame, layout=Layout("single", False, False)).caption == ""


def test_shortened_names_stay_distinct():
    names = [f"family:{'x' * 20}{i}{'y' * 20}" for i in range(9)]
    shown = Layout("single").names(names)
    assert len(set(shown.values())) == 9 and max(map(len, shown.values())) <= 22
    assert [*Layout("double").names(names).values()] == names


def pages(figure):
    return [figure, *figure.following]


@pytest.mark.slow
def test_a_layout_can_leave_out_title_and_caption(boxes):
    frame = synthetic.scores(["S"], MAD_TASKS[:1])
    whole, bare = (FIGURES["scores"].draw(frame, layout=one) for one in (Layout(), Layout(None, False, False)))
    assert bare.get_suptitle() == bare.get_supxlabel() == ""
    assert bare.get_size_inches()[1] < whole.get_size_inches()[1] - 0.5
    check_texts(bare, boxes, 100)


def check_texts(figure, boxes, dpi):
    """No text is smaller than 7 points, leaves the figure, or covers another one or a panel."""
    found = boxes(figure, dpi)
    assert len(found) > 5 and min(text.get_fontsize() for text, _ in found) >= 7
    width, height = figure.bbox.size
    texts, places = zip(*found)
    for text, box in found:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, (text, box)
    in_axes = overlaps(places, [axes.bbox for axes in figure.axes])
    covered = [(texts[i], figure.axes[j]) for i, j in np.argwhere(in_axes)]
    assert [text for text, axes in covered if axes is not text.axes] == []
    assert [(texts[i], texts[j]) for i, j in np.argwhere(overlaps(places, places)) if i < j] == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, *WIDTHS])
@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_shows_the_whole_legend(name, width):
    figure = make_figure(
        name, *{None: ("one label", 1), "single": ("three labels", 6), "double": ("three labels", 4)}[width], width
    )
    shown = Bbox(figure.dpi * figure.get_tightbbox().get_points()).padded(1)  # which a notebook cuts the figure to
    (box,) = (legend.get_window_extent() for legend in figure.legends)
    assert shown.x0 <= box.x0 and shown.y0 <= box.y0 and box.x1 <= shown.x1 and box.y1 <= shown.y1


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_marks_are_inside_their_axes(name):
    figure = make_figure(name, "33 labels", 3, None)
    for axes in figure.axes:
        (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
        for line in axes.lines:
            if line.get_transform() is axes.transData and not line.get_clip_on():
                x, y = line.get_xydata().T
                assert np.all((left <= x) & (x <= right) & (bottom <= y) & (y <= top)), line


@pytest.mark.slow
def test_long_names_do_not_change_the_size_of_panels():
    for name in ("S", "long" * 20):
        with style():
            panels = Panels(Layout(), "some", "A title", [2, 1], (1.5, 1.0))
            panels.name_rows({name: 0})
            figure = panels.finish([synthetic.PROTOCOL], {"x": {"color": "k", "linestyle": "-"}})
        sizes = [axes.bbox.size / figure.dpi for axes in figure.axes]
        assert np.allclose(sizes, [[1.5, 1.0]] * 3, atol=0.02)


@pytest.mark.slow
def test_the_second_panel_has_the_rows_of_the_first_without_their_names(ticks):
    first, second = FIGURES["scores"].draw(synthetic.scores(["S", "R", "G"], MAD_TASKS[:2])).axes
    assert ticks(first, "y") == {"S": 0, "R": 1, "G": 2} and not ticks(second, "y")
    assert first.get_ylim() == second.get_ylim() == (2.6, -0.6)
    shades = [patch for patch in second.patches if patch.get_facecolor() == to_rgba("#f2f2f2")]
    assert [patch.get_y() for patch in shades] == [-0.5, 1.5]


@pytest.mark.slow
@pytest.mark.parametrize("width", [None, *WIDTHS])
def test_titles_of_panels_are_above_the_marks_of_curves_that_end_at_the_top(width):
    names = dict.fromkeys(["task", "label", "id", "status", "split"], "") | {
        "split": "validation",
        "status": "finished",
    }
    rows = [
        names
        | {"task": task, "label": label, "id": task + label, "accuracy": 100.0, "epoch": epoch, "step": 10 * epoch}
        for task in MAD_TASKS
        for last, label in enumerate(synthetic.TABLE[:8], 3)
        for epoch in range(1, last)
    ]
    figure = FIGURES["learning"].draw(synthetic.frame_of("learning", rows), layout=Layout(width))
    for page in pages(figure):
        page.draw_without_rendering()
        for axes in page.axes:
            radius = max(line.get_markersize() for line in axes.lines) / np.sqrt(2) * page.dpi / 72  # of a diamond
            top = axes.transData.transform((0, 100))[1] + radius
            assert axes.title.get_window_extent().y0 >= top
