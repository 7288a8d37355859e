from __future__ import annotations

import os
import re
import shutil
import sys

import pytest

from madbench.analysis.figures import kinds as all_kinds
from madbench.analysis.figures.kinds import KINDS
from madbench.report import figures
from madbench.report.figures import CAPTIONS, PageFigures
from madbench.report.processes import in_processes
from madbench.runs import Store


@pytest.fixture
def draw(store, gather, tmp_path, monkeypatch):
    """``draw(cores, **kinds)``: the figures of a fresh copy of the store, with some kinds, or parts of them, replaced."""

    def call(cores, **kinds):
        root = tmp_path / f"{cores}"
        shutil.copytree(store.root, root, ignore=shutil.ignore_patterns("figures.json"))
        stored = gather(Store.open(root))
        monkeypatch.setattr(all_kinds, "KINDS", kinds)
        monkeypatch.setattr(figures, "CAPTIONS", {name: CAPTIONS[name] for name in kinds})
        drawing = PageFigures(stored.material, stored.records)
        with in_processes(drawing.tasks, cores) as result:
            drawn = drawing.collect(result)
        assert PageFigures(stored.material, stored.records).tasks == {}, "they are kept"
        return drawn

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
