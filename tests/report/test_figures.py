from __future__ import annotations

import os
import re
import sys

import pytest

from madbench.analysis.figures.kinds import KINDS
from madbench.report import figures
from madbench.report.figures import CAPTIONS, drawing_tasks, page_figures
from madbench.report.processes import in_processes


@pytest.fixture
def draw(store, gather, monkeypatch):
    """``draw(cores, **kinds)``: the figures of the store, with some kinds, or parts of them, replaced."""

    def call(cores, **kinds):
        monkeypatch.setattr(figures, "KINDS", kinds)
        monkeypatch.setattr(figures, "CAPTIONS", {name: CAPTIONS[name] for name in kinds})
        with in_processes(drawing_tasks(gather(store).material), cores) as result:
            return page_figures(result)

    return call


def replaced(name, draw):
    return type(KINDS[name])(KINDS[name].frame, draw, name, ())


def test_processes_draw_the_same_figures_as_one(draw):
    kinds = {name: KINDS[name] for name in ("loss", "budget", "difficulty")}
    serial, parallel = draw(1, **kinds), draw(2, **kinds)
    assert serial == parallel
    drawn, reasons = parallel
    assert [figure.name for figure in drawn] == ["loss", "budget"]
    assert list(reasons) == ["Accuracy against difficulty"]
    ids = [name for figure in drawn for name in re.findall(r'\bid="([^"]*)"', figure.svg)]
    assert len(ids) == len(set(ids)) > 100


def test_every_kind_of_figure_has_a_caption():
    assert list(CAPTIONS) == list(KINDS)


@pytest.mark.parametrize("cores", [1, 2])
def test_what_goes_wrong_with_a_figure_is_raised(draw, cores):
    def fail(frame, styles):
        raise ValueError(f"no figure of {sorted(frame.label.unique())}")

    with pytest.raises(ValueError, match="no figure of .*S-c"):
        draw(cores, loss=replaced("loss", fail), mad=replaced("mad", fail))


@pytest.mark.skipif(sys.platform != "linux", reason="draws in one process")
def test_a_figure_whose_process_was_killed_is_drawn_all_the_same(draw):
    here, loss = os.getpid(), KINDS["loss"].draw

    def end(frame, styles):
        if os.getpid() != here:
            os._exit(9)
        return loss(frame, styles=styles)

    drawn, _ = draw(2, loss=replaced("loss", end))
    assert [figure.name for figure in drawn] == ["loss"]
