"""The figures of the paper on coefficients."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from coefficient_results import decide_principle
from madbench.analysis.figures.files import frame_of
from madbench.analysis.figures.panels import HEIGHT, WIDTHS, Layout
from madbench.papers.coefficients import coefficients
from madbench.papers.coefficients.figures import BAR_COLUMNS, bar_figure
from madbench.papers.coefficients.studies import FIGURES, principle


def test_figures_7_and_2_have_only_their_own_panels():
    rows = pd.DataFrame(
        [{"task": "compression", "label": "cd:exp-sum-p", "near_zero": 0.3, "ratio": 0.0, "accuracy": 40.0}]
    )

    def panels(figure):
        return {point["panel"] for point in coefficients.figure_points(rows, FIGURES[figure].shown)}

    assert panels("figure7") == {"compression, near one / near zero"}
    assert panels("figure2") == {"compression, share near zero", coefficients.READOUT_PANEL}


def test_readouts_are_drawn_around_their_near_zero_set():
    frame = pd.DataFrame(coefficients.readout_points(["cd:exp-sum-p", "cd:id-sum-p", "cd:kelu-sum-p"]))
    assert set(frame.series) == {"cd:exp-sum-p", "cd:id-sum-p"}  # a kernel is no function of the score
    exp = frame[frame.series == "cd:exp-sum-p"]
    np.testing.assert_allclose(exp.y, np.exp(exp.x))


@pytest.mark.slow
@pytest.mark.parametrize("width", ["single", "double"])
@pytest.mark.parametrize("number", ["3", "5"])
def test_the_figure_of_a_principle_fits_a_column(number, width, tmp_path):
    decision = decide_principle(number, tmp_path, lambda label: 0.3 + len(label) / 40)
    first = decision.draw(layout=Layout(width))
    for page in (first, *first.following):
        page.draw_without_rendering()
        assert page.get_size_inches()[0] == pytest.approx(WIDTHS[width])
        assert width == "double" or page.get_size_inches()[1] <= HEIGHT
        texts = [text for text in page.findobj(Text) if text.get_visible() and text.get_text().strip()]
        assert min(text.get_fontsize() for text in texts) >= 7
        boxes = [
            text.get_window_extent() for text in (*page.legends[0].get_texts(), *(axes.title for axes in page.axes))
        ]
        assert all(0 <= box.x0 and box.x1 <= page.bbox.width for box in boxes)
    assert width == "double" or decision.figure.get_suptitle() in first.caption


@pytest.mark.slow
def test_more_remainders_than_colors_in_the_palette_all_have_one():
    one = {"protocol": "p", "task": "compression", "group": "exp", "mark": "mean", "state": "", "n": 1}
    rows = [one | {"remainder": f"remainder-{i}", "accuracy": 10.0 * i} for i in range(10)]
    figure = bar_figure(frame_of(rows, BAR_COLUMNS, "p"), principle("3"))
    assert len({patch.get_facecolor() for patch in figure.axes[0].patches}) == 10


def test_bars_are_centered_on_their_group_for_any_number_of_bars():
    one = {"protocol": "p", "task": "compression", "mark": "mean", "state": "", "n": 1, "accuracy": 10.0}
    bars = [("a", "x"), ("a", "y"), ("b", "y"), ("c", "y"), ("c", "x")]
    figure = bar_figure(
        frame_of([one | {"group": g, "remainder": v} for g, v in bars], BAR_COLUMNS, "p"), principle("3")
    )
    centers = [patch.get_x() + patch.get_width() / 2 for patch in figure.axes[0].patches]
    assert centers == pytest.approx([-0.2, 0.2, 1.0, 2.2, 1.8])
