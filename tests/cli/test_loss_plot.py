"""``madbench plot loss``: the choice of curves and axes, and drawing again from a CSV file."""

from __future__ import annotations

import pytest
from matplotlib.lines import Line2D

from madbench.analysis.figures import files
from madbench.cli.plot import plot
from madbench.labels import expand


@pytest.fixture
def drawn_paths(invoke):
    """``drawn_paths(*words)``: the paths that the verb printed."""

    def call(*words):
        output = invoke(plot, "loss", *words)
        assert not output.exception, output.exception
        return output.stdout.split()

    return call


@pytest.fixture
def shown(monkeypatch):
    """The figures so far: legend labels, x axis and its scale. Nothing is written."""
    found = []

    def save(figure, stem):
        (legend,), (axes, *_) = figure.legends, figure.axes
        labels = [text.get_text().split()[0] for text in legend.get_texts()]
        found.append((labels, axes.get_xlabel(), axes.get_xscale()))
        return [stem.with_name(f"{stem.name}.png")]

    monkeypatch.setattr(files, "save_figure", save)
    return found


@pytest.mark.slow
def test_a_plot_is_redrawn_from_its_csv_alone(fill_language, drawn_paths, tmp_path):
    for seed in (0, 1):
        fill_language("S", [3.0, 2.0 + seed / 7], seed=seed)
    fill_language("R-c", [3.0, 1.9])
    stem = "results/plots/loss_curves"
    assert drawn_paths() == [f"{stem}.csv", f"{stem}.png", f"{stem}.pdf"]
    (tmp_path / "results" / "runs").rename(tmp_path / "gone")
    assert drawn_paths("--from", f"{stem}.csv", "--output", "again") == [
        "again/loss_curves.png",
        "again/loss_curves.pdf",
    ]
    for ending in ("png", "pdf"):
        assert (tmp_path / "again" / f"loss_curves.{ending}").read_bytes() == (
            tmp_path / f"{stem}.{ending}"
        ).read_bytes()


@pytest.mark.slow
def test_a_loss_figure_drawn_from_its_csv_has_equal_lines_and_colors(fill_language, drawn_paths, monkeypatch):
    figures = []
    monkeypatch.setattr(files, "save_figure", lambda figure, stem: figures.append(figure) or [])
    for i, label in enumerate(expand(["@table1"])[:10]):
        fill_language(label, [3.0, 2.5 - i / 20])
    drawn_paths()
    drawn_paths("--from", "results/plots/loss_curves.csv", "--output", "again")
    one, other = (
        [(line.get_color(), line.get_linestyle(), repr(line.get_xydata())) for line in figure.findobj(Line2D)]
        for figure in figures
    )
    assert one == other and len({(color, style) for color, style, _ in one}) >= 10


@pytest.mark.slow
def test_options_choose_the_labels_and_the_axis_of_loss_curves(fill_language, drawn_paths, shown, tmp_path):
    for label in ("R-c", "S", "R"):
        fill_language(label)
    drawn_paths()
    assert drawn_paths("R-c", "S", "--x", "seconds", "--log-x", "--output", "slides/two.v2") == [
        "slides/two.v2/loss_curves.csv", "slides/two.v2/loss_curves.png",
    ]  # fmt: skip
    drawn_paths("--from", "slides/two.v2/loss_curves.csv", "S", "--x", "step")
    assert shown == [
        (["S", "R", "R-c"], "training tokens", "linear"),
        (["R-c", "S"], "training time, seconds", "log"),
        (["S"], "optimizer steps", "linear"),
    ]


@pytest.mark.slow
def test_protocols_are_never_drawn_together(fill_language, drawn_paths, refuse, shown, tmp_path):
    fill_language("S")
    other = {"name": "owt", "digest": "deadbeef01234567"}
    fill_language("R", setting={"corpus": other["digest"], "vocab_size": 320}, details={"corpus": other})
    assert "2 protocols" in refuse(plot, "loss")
    assert not (tmp_path / "results" / "plots").exists()
    drawn_paths("--corpus", "owt")
    assert shown == [(["R"], "training tokens", "linear")]


@pytest.mark.slow
def test_the_budget_chooses_the_curves(fill_language, drawn_paths, shown):
    fill_language("S")
    fill_language("R", budget="paper")
    drawn_paths()
    drawn_paths("--budget", "paper")
    assert shown == [(["S"], "training tokens", "linear"), (["R"], "training tokens", "linear")]


@pytest.mark.slow
def test_times_of_different_devices_are_not_drawn_together(fill_language, drawn_paths, refuse, shown):
    fill_language("S")
    fill_language("R", details={"device": "an abacus"})
    assert refuse(plot, "loss", "--x", "seconds") == (
        "--x seconds: the runs differ in device, so their times cannot be compared; use --x tokens"
    )
    drawn_paths("--x", "step")
    assert len(shown) == 1


@pytest.mark.slow
def test_options_that_choose_runs_are_refused_with_from(fill_language, drawn_paths, refuse, shown):
    fill_language("S")
    drawn_paths()
    source = ("--from", "results/plots/loss_curves.csv")
    usual = ["--budget", "strict"]
    for words in (["--results", "elsewhere"], ["--profile", "tiny"], ["--corpus", "x"], ["--protocol", "x"], usual):
        assert (
            refuse(plot, "loss", *source, *words)
            == f"{words[0]} has no effect with --from: the CSV holds what is drawn"
        )
    assert "'training.steps=1' has no effect with --from" in refuse(plot, "loss", *source, "training.steps=1")
    assert refuse(plot, "loss", *source, "S-p").endswith("loss_curves.csv: holds no curve of 'S-p'; expected one of: S")


def test_plotting_from_a_file_without_loss_curves_is_an_error(fill_language, refuse, tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    assert refuse(plot, "loss", "--from", "other.csv") == "other.csv: no loss curves: without column 'protocol'"
    assert refuse(plot, "loss", "--from", "none.csv") == "none.csv: cannot be read: No such file or directory"


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_named(fill_language, refuse, tmp_path):
    fill_language("S")
    (tmp_path / "taken").write_text("")
    assert refuse(plot, "loss", "--output", "taken").startswith("taken: a file is where a folder should be")
