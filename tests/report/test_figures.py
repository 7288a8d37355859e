"""The figures of a report page."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace

import pytest

from drawings import FIGURES
from madbench.analysis.figures import registry
from madbench.report import page
from madbench.report.page import report_page


@pytest.fixture(autouse=True)
def three(monkeypatch):
    monkeypatch.setattr(page, "figure_names", lambda chosen: ["loss", "budget", "difficulty"])


def test_every_figure_has_a_caption():
    assert all(figure.caption for figure in FIGURES.values())


@pytest.mark.slow
def test_figures_of_a_page_have_distinct_ids_and_those_without_data_a_reason(store, selected):
    made = report_page(selected(store))
    assert [name for name, _, _ in made.content["figures"]] == ["loss", "budget"]
    assert any(one.text.startswith("No figure “Accuracy against difficulty”: every task is") for one in made.missing)
    ids = [name for _, _, svg in made.content["figures"] for name in re.findall(r'\bid="([^"]*)"', svg)]
    assert len(ids) == len(set(ids)) > 100


@pytest.mark.slow
def test_an_error_while_a_figure_is_drawn_is_raised(store, selected, monkeypatch):
    def fail(frame):
        raise ValueError(f"no figure of {sorted(frame.label.unique())}")

    shutil.rmtree(store.root / "index" / "figures", ignore_errors=True)
    monkeypatch.setattr(registry, "LOSS", replace(FIGURES["loss"], draw=fail))
    with pytest.raises(ValueError, match="no figure of .*S-c"):
        report_page(selected(store))


@pytest.mark.slow
def test_a_figure_is_drawn_again_if_its_stored_drawing_is_not_a_file(store, selected, monkeypatch):
    monkeypatch.setattr(page, "figure_names", lambda chosen: ["budget"])
    drawn = report_page(selected(store)).content["figures"]
    (stored,) = (store.root / "index" / "figures").glob("budget-*.svg")
    stored.unlink()
    stored.mkdir()
    assert report_page(selected(store)).content["figures"] == drawn


@pytest.mark.slow
def test_only_old_drawings_of_the_report_are_deleted_from_the_figures_folder(store, selected, monkeypatch):
    monkeypatch.setattr(page, "figure_names", lambda chosen: ["budget"])
    monkeypatch.setattr(page, "MOST_FIGURES", 1)
    folder = store.root / "index" / "figures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    old = folder / f"budget-{'0' * 16}.svg"
    for path in (folder / "budget-of-the-paper.svg", old):
        path.write_text("<svg/>")
        os.utime(path, (0, 0))
    report_page(selected(store))
    assert (folder / "budget-of-the-paper.svg").exists() and not old.exists()
