from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.lines import Line2D

from madbench.analysis.figures import files, registry
from madbench.cli.plot import plot
from madbench.labels import expand


@pytest.fixture
def drawn(invoke):
    """``drawn(*words)``: the paths that the verb says it wrote."""

    def call(*words):
        output = invoke(plot, "loss", *words)
        assert not output.exception, output.exception
        return output.stdout.split()

    return call


@pytest.fixture
def no_drawing(monkeypatch):
    """The figures that were asked for, as the labels of their curves and the axis; none is drawn."""
    asked = []

    def figure(curves, x="tokens", log_x=False, *, layout):
        asked.append((curves.label.unique().tolist(), x, log_x))

    drawing = replace(registry.drawing_of("loss"), draw=figure)
    monkeypatch.setattr(registry, "drawing_of", lambda name: {"loss": drawing}[name])
    monkeypatch.setattr(files, "save_figure", lambda figure, stem: [stem.with_name(f"{stem.name}.png")])
    return asked


@pytest.mark.slow
def test_a_plot_is_redrawn_from_its_csv_alone(fill_language, drawn, tmp_path):
    for seed in (0, 1):
        fill_language("S", [3.0, 2.0 + seed / 7], seed=seed)
    fill_language("R-c", [3.0, 1.9])
    stem = "results/plots/loss_curves"
    assert drawn() == [f"{stem}.csv", f"{stem}.png", f"{stem}.pdf"]
    (tmp_path / "results" / "runs").rename(tmp_path / "gone")
    assert drawn("--from", f"{stem}.csv", "--output", "again") == ["again/loss_curves.png", "again/loss_curves.pdf"]
    for ending in ("png", "pdf"):
        assert (tmp_path / "again" / f"loss_curves.{ending}").read_bytes() == (
            tmp_path / f"{stem}.{ending}"
        ).read_bytes()


@pytest.mark.slow
def test_of_many_labels_the_csv_has_the_same_in_the_same_colours(fill_language, drawn, monkeypatch):
    figures = []
    monkeypatch.setattr(files, "save_figure", lambda figure, stem: figures.append(figure) or [])
    for i, label in enumerate(expand(["@table1"])[:10]):
        fill_language(label, [3.0, 2.5 - i / 20])
    drawn()
    drawn("--from", "results/plots/loss_curves.csv", "--output", "again")
    one, other = (
        [(line.get_color(), line.get_linestyle(), repr(line.get_xydata())) for line in figure.findobj(Line2D)]
        for figure in figures
    )
    assert one == other and len({(color, style) for color, style, _ in one}) >= 10


def test_labels_and_axis_are_those_asked_for(fill_language, drawn, no_drawing, tmp_path):
    for label in ("R-c", "S", "R"):
        fill_language(label)
    drawn()
    assert drawn("R-c", "S", "--x", "seconds", "--log-x", "--output", "slides/two.v2") == [
        "slides/two.v2/loss_curves.csv", "slides/two.v2/loss_curves.png",
    ]  # fmt: skip
    drawn("--from", "slides/two.v2/loss_curves.csv", "S", "--x", "step")
    assert no_drawing == [
        (["S", "R", "R-c"], "tokens", False), (["R-c", "S"], "seconds", True), (["S"], "step", False),
    ]  # fmt: skip


def test_protocols_are_never_drawn_together(fill_language, drawn, refuse, no_drawing, tmp_path):
    fill_language("S")
    other = {"name": "owt", "digest": "deadbeef01234567"}
    fill_language("R", setting={"corpus": other["digest"], "vocab_size": 320}, details={"corpus": other})
    assert "2 protocols" in refuse(plot, "loss")
    assert not (tmp_path / "results" / "plots").exists()
    drawn("--corpus", "owt")
    assert no_drawing == [(["R"], "tokens", False)]


def test_the_budget_chooses_the_curves(fill_language, drawn, no_drawing):
    fill_language("S")
    fill_language("R", budget="paper")
    drawn()
    drawn("--budget", "paper")
    assert no_drawing == [(["S"], "tokens", False), (["R"], "tokens", False)]


def test_times_of_different_devices_are_not_drawn_together(fill_language, drawn, refuse, no_drawing):
    fill_language("S")
    fill_language("R", details={"device": "an abacus"})
    assert refuse(plot, "loss", "--x", "seconds") == (
        "--x seconds: the runs differ in device, so their times cannot be compared; use --x tokens"
    )
    drawn("--x", "step")
    assert len(no_drawing) == 1


def test_a_choice_among_runs_has_no_effect_on_a_csv(fill_language, drawn, refuse, no_drawing):
    fill_language("S")
    drawn()
    source = ("--from", "results/plots/loss_curves.csv")
    for words in (["--results", "elsewhere"], ["--profile", "tiny"], ["--corpus", "x"], ["--protocol", "x"]):
        assert (
            refuse(plot, "loss", *source, *words)
            == f"{words[0]} has no effect with --from: the CSV holds what is drawn"
        )
    assert "'training.steps=1' has no effect with --from" in refuse(plot, "loss", *source, "training.steps=1")
    assert refuse(plot, "loss", *source, "S-p").endswith("loss_curves.csv: holds no curve of 'S-p'; expected one of: S")


def test_a_file_that_is_no_csv_of_curves_is_named(fill_language, refuse, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert refuse(plot, "loss", "--from", "other.csv") == "other.csv: no loss curves: without column 'protocol'"
    assert refuse(plot, "loss", "--from", "none.csv") == "none.csv: cannot be read: No such file or directory"


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named(fill_language, refuse, tmp_path):
    fill_language("S")
    (tmp_path / "taken").write_text("")
    assert refuse(plot, "loss", "--output", "taken").startswith("taken: a file is where a folder should be")
