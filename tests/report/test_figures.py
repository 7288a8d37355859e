"""The figures of the page, drawn once for the same runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from markupsafe import Markup

from madbench.analysis.figures import registry
from madbench.jobs import Record
from madbench.report import figures
from madbench.report.figures import CAPTIONS, PageFigure, page_figures
from madbench.store.runs import Store


@pytest.fixture
def copied(store, tmp_path, monkeypatch) -> Store:
    """A store without figures, of which three are asked for."""
    monkeypatch.setattr(figures, "CAPTIONS", {name: CAPTIONS[name] for name in ("loss", "budget", "difficulty")})
    shutil.copytree(store.root / "runs", tmp_path / "results" / "runs")
    return Store.open(tmp_path / "results")


@pytest.fixture
def drawn(monkeypatch) -> list[str]:
    """Names of the figures that were drawn, which is done in no time."""
    names = []

    def draw(name, results):
        names.append(name)
        return PageFigure(name, Markup(f"<svg>{name}</svg>"))

    monkeypatch.setattr(figures, "_draw", draw)
    return names


def test_every_figure_has_a_caption():
    assert list(CAPTIONS) == list(registry.FIGURES)


def test_figures_have_ids_of_their_own_and_those_without_data_say_why(copied, selected):
    *shown, without = page_figures(selected(copied))
    assert [figure.name for figure in shown] == ["loss", "budget"]
    assert not without.svg and without.reason
    ids = [name for figure in shown for name in re.findall(r'\bid="([^"]*)"', figure.svg)]
    assert len(ids) == len(set(ids)) > 100


def test_figures_of_the_same_runs_are_drawn_once(copied, selected, drawn):
    first = page_figures(selected(copied))
    assert page_figures(selected(copied)) == first and len(drawn) == 3


def test_another_process_finds_the_same_figures(copied, selected, monkeypatch):
    script = (
        "from pathlib import Path; from madbench.analysis.stored import Selection; from madbench.report import figures;"
        f"results = Selection(tasks=['language_model'], results=Path({str(copied.root)!r})).select();"
        "figures.CAPTIONS = {name: figures.CAPTIONS[name] for name in ('loss', 'budget', 'difficulty')};"
        "print(figures._digest(results))"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == figures._digest(selected(copied, tasks=["language_model"]))


def test_other_labels_or_another_result_are_drawn_anew(copied, selected, drawn):
    page_figures(selected(copied))
    page_figures(selected(copied, "S", "S-c"))
    run = next(run for run in copied.runs() if run.record.status == "finished" and run.job.suite == "mad")
    copied.finish(run.job, Record("diverged"), replace=True)
    page_figures(selected(copied, "S", "S-c"))
    assert len(drawn) == 9


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:-9], lambda content: b"x" + content])
def test_damaged_files_are_drawn_anew(copied, selected, drawn, damage):
    first = page_figures(selected(copied))
    (path,) = (copied.root / "index" / "figures").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert page_figures(selected(copied)) == first and len(drawn) == 6


def test_where_they_cannot_be_stored_they_are_drawn_each_time(copied, selected, drawn):
    (copied.root / "index").write_text("a file in its place")
    assert page_figures(selected(copied)) == page_figures(selected(copied)) and len(drawn) == 6


def test_the_oldest_files_go(copied, selected, drawn, monkeypatch):
    monkeypatch.setattr(figures, "MOST_FILES", 1)
    page_figures(selected(copied))
    page_figures(selected(copied, "S"))
    assert len(list((copied.root / "index" / "figures").iterdir())) == 1


def test_what_goes_wrong_with_a_figure_is_raised(copied, selected, monkeypatch):
    def fail(frame):
        raise ValueError(f"no figure of {sorted(frame.label.unique())}")

    monkeypatch.setitem(registry.FIGURES, "loss", replace(registry.FIGURES["loss"], draw=fail))
    with pytest.raises(ValueError, match="no figure of .*S-c"):
        page_figures(selected(copied))
