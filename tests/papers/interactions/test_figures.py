"""The figures of worlds of agents, from records without training."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from matplotlib.text import Text

from madbench.analysis.figures.panels import HEIGHT, WIDTHS, Layout
from madbench.labels.names import DisplayNames, using_names
from madbench.papers.interactions import measure
from madbench.papers.interactions.figures import Matrices, devised_figure, error_figure
from madbench.papers.interactions.profile import TASKS, InteractionProfile
from madbench.papers.interactions.rows import interaction_rows
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.papers.interactions.worlds import Colliding
from madbench.rows import Row, SuiteRow
from madbench.suites.protocol import Protocol
from partial_stores import interaction_record


def rows_with_records(status):
    """Rows with three seeds of each label of every task. The first seed has the status."""
    loaded, chance = InteractionProfile.load("quick"), random.Random(0)
    shared = {"fidelity": "corrected", "budget": "strict", "precision": "float64", "device": "cpu"}
    protocol = Protocol(INTERACTIONS, loaded, "quick", (), list(TASKS), **shared)
    by_row = {}
    for job in INTERACTIONS.jobs((), loaded, seeds=(0, 1, 2)):
        by_row.setdefault((job.task, job.label, str(job.setting), job.model.relu), []).append(job)
    records = {
        job.id: interaction_record(job, status if job.seed == 0 else "finished", chance)
        for jobs in by_row.values()
        for job in jobs
    }
    return interaction_rows([SuiteRow(Row(jobs[0].label), protocol, jobs) for jobs in by_row.values()], records)


@pytest.fixture(scope="module")
def draw_errors():
    """``draw_errors(status, width)``: the figure of errors of :func:`rows_with_records`."""
    return functools.cache(lambda status, width: error_figure(rows_with_records(status), Layout(width)))


def check(figure, width, has_titles=True):
    for page in (figure, *figure.following):
        page.draw_without_rendering()
        assert page.get_size_inches()[0] == pytest.approx(WIDTHS[width])
        assert width == "double" or page.get_size_inches()[1] <= HEIGHT
        texts = [text for text in page.findobj(Text) if text.get_visible() and text.get_text().strip()]
        assert min(text.get_fontsize() for text in texts) >= 7
        names = {axes.get_title(side) for axes in page.axes for side in ("left", "center", "right")}
        titles = [text.get_window_extent() for text in texts if text.get_text() in names]
        assert bool(titles) == has_titles and all(0 <= box.x0 and box.x1 <= page.bbox.width for box in titles)
        assert not any(one.overlaps(other) for i, one in enumerate(titles) for other in titles[:i])


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_figure_of_errors_fits_a_column(width, draw_errors):
    figure = draw_errors("finished", width)
    check(figure, width)
    assert sum(len(page.axes) for page in (figure, *figure.following)) == len(TASKS)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [2, 4])
def test_the_figure_of_matrices_fits_a_column(count, width):
    names = ["learned E C Eᵀ", "devised E C Eᵀ", "learned T", "theoretical T"]
    panels = {name: np.eye(8) for name in names[-count:]}
    figure = Matrices("Colliding agents, hfa:C1 one-hot", "Seed 0. " + "T is an effect. " * 10, panels).draw(
        Layout(width)
    )
    check(figure, width)
    assert width == "double" or "Seed 0." in figure.caption


@pytest.mark.parametrize("width", WIDTHS)
def test_the_figure_of_the_devised_diagonal_fits_a_column(width):
    check(
        devised_figure(Colliding(positions=8, radius=2, embedding="sinusoidal"), Layout(width))[0],
        width,
        has_titles=False,
    )


@pytest.mark.slow
def test_rows_and_entries_of_the_legend_have_the_display_name_of_a_label():
    colliding = [row for row in rows_with_records("finished") if row.task == "colliding"]
    with using_names(DisplayNames(by_user={"hfa:C1": "coupled"})):
        lines, figure = measure.error_table(colliding).lines, error_figure(colliding)
    names = {row.name.replace("hfa:C1", "coupled") for row in colliding}
    assert "coupled one-hot" in names <= {line[0] for line in lines}
    assert names <= {text.get_text() for text in figure.findobj(Text)}


@pytest.mark.slow
def test_every_row_of_a_task_has_a_color_of_its_own(draw_errors):
    counts = []
    for axes in draw_errors("finished", "double").axes:
        colors = {line.get_color() for line in axes.lines if line.get_linewidth() == 1.6}
        counts.append(len(colors))
        assert len(colors) == sum(line.get_linewidth() == 1.6 for line in axes.lines)
    assert sorted(counts) == [1, 1, 1, 2, 2, 4, 6]


@pytest.mark.slow
def test_diverged_seeds_are_counted_below_the_figure(draw_errors):
    assert "1 of 3 seeds" in " ".join(draw_errors("diverged", "double").get_supxlabel().split())
    assert "iverged" not in draw_errors("finished", "double").get_supxlabel()


def test_figure_1_has_a_verdict_on_the_printed_diagonal(main, tmp_path, monkeypatch):
    made = main("paper", "interactions", "figure1", "--no-figures", "--results", tmp_path)
    assert made.code == 0 and "reproduced: The printed diagonal" in made.stdout
    assert not (tmp_path / "plots").exists() and ".png" not in made.stdout
    monkeypatch.setattr(measure, "DEVISED", Colliding(positions=36, radius=2, embedding="sinusoidal"))
    monkeypatch.setattr(Colliding, "effects", np.zeros((36, 36)))
    made = main("paper", "interactions", "figure1", "--no-figures", "--results", tmp_path)
    assert "not reproduced: The printed diagonal" in made.stdout
