from __future__ import annotations

import math

import matplotlib
import pytest
from matplotlib.collections import PolyCollection

from madbench.analysis.figures import loss_curves as module
from madbench.analysis.figures.files import save_figure
from madbench.analysis.figures.loss_curves import loss_curve_figure
from madbench.analysis.loss_curves import loss_curves, read_curves, write_curves
from madbench.errors import ConfigError, StoreError
from madbench.language_jobs import loss_l5

LOSSES = [5.0, 4.0, 3.0, 2.8, 2.5, 2.6, 2.4, 2.5]


def bands(axes) -> list[PolyCollection]:
    return [drawn for drawn in axes.collections if isinstance(drawn, PolyCollection)]


def legend_texts(figure) -> list[str]:
    _, _, title, *entries = (text.get_text() for text in figure.texts)
    assert title == "L5"
    return entries


def test_training_losses_are_drawn_as_they_are_and_smoothed_to_l5(language_run, lines):
    left, right = loss_curve_figure(loss_curves([language_run("S", LOSSES)])).axes
    (steps, raw), (middles, smooth) = lines(left)
    assert steps == [10 * i for i in range(1, 9)] and raw == LOSSES
    assert middles == steps[2:-2]
    assert smooth[0] == pytest.approx(sum(LOSSES[:5]) / 5) and smooth[-1] == pytest.approx(loss_l5(LOSSES))
    assert lines(right) == [(steps, pytest.approx([loss + 0.1 for loss in LOSSES]))]


def test_too_few_evaluations_are_drawn_unsmoothed(language_run, lines):
    left, _ = loss_curve_figure(loss_curves([language_run("S", LOSSES[:5])])).axes
    assert [values for _, values in lines(left)] == [LOSSES[:5]]


@pytest.mark.parametrize(("x", "last"), [("step", 80), ("tokens", 5120), ("seconds", 24.0)])
def test_the_x_axis_is_what_was_asked_for(language_run, lines, x, last):
    left, right = loss_curve_figure(loss_curves([language_run("S", LOSSES, seconds=3.0)]), x).axes
    assert lines(left)[0][0][-1] == lines(right)[0][0][-1] == last
    assert module._X_NAMES[x] == left.get_xlabel() == right.get_xlabel()


def test_seeds_are_a_mean_and_a_band(language_run, lines):
    runs = [language_run("S", [loss + 0.2 * seed for loss in LOSSES], seed=seed, seconds=1.0 + seed) for seed in (0, 1)]
    figure = loss_curve_figure(loss_curves(runs), "seconds")
    left, right = figure.axes
    times, validation = lines(right)[0]
    assert times == [1.5 * i for i in range(1, 9)]
    assert validation == pytest.approx([loss + 0.2 for loss in LOSSES])
    (band,) = (drawn.get_paths()[0].vertices[:, 1] for drawn in bands(right))
    assert (band.min(), band.max()) == pytest.approx((min(LOSSES) + 0.1, max(LOSSES) + 0.3))
    assert len(bands(left)) == 1
    assert legend_texts(figure) == [f"S  {loss_l5(LOSSES) + 0.1:.3f} (n = 2)"]
    assert "Bands: lowest to highest seed" in figure.get_supxlabel()


def test_labels_are_listed_by_their_loss_and_diverged_ones_last(language_run):
    runs = [language_run("S-p", LOSSES, status="diverged"), language_run("S", LOSSES)]
    runs += [language_run("R", [loss - 1 for loss in LOSSES]), language_run("R-p", [], status="diverged")]
    figure = loss_curve_figure(loss_curves(runs))
    assert legend_texts(figure) == [f"R  {loss_l5(LOSSES) - 1:.3f}", f"S  {loss_l5(LOSSES):.3f}", "S-p  diverged"]
    assert "Cross: diverged" in figure.get_supxlabel()


def test_a_diverged_run_ends_in_a_cross_and_is_in_no_mean(language_run, points, lines):
    runs = [language_run("S", LOSSES), language_run("S", [9.0, 8.0, float("nan")], seed=1, status="diverged")]
    _, right = loss_curve_figure(loss_curves(runs)).axes
    assert points(right, 6, "x") == [(20.0, 8.1)]
    assert any(values == pytest.approx([loss + 0.1 for loss in LOSSES]) for _, values in lines(right))


def test_the_steep_start_is_off_a_linear_axis_and_on_a_logarithmic_one(language_run):
    frame = loss_curves([language_run("S", [100.0, *[2.0 - i / 100 for i in range(29)]])])
    low, high = loss_curve_figure(frame).axes[0].get_ylim()
    assert 1.5 < low < 1.72 and 2.1 < high < 3.0
    logarithmic = loss_curve_figure(frame, log_x=True).axes[0]
    assert logarithmic.get_xscale() == "log" and logarithmic.get_ylim()[1] > 100


def test_no_evaluation_is_an_error(language_run):
    for run in (language_run("S", []), language_run("S", [float("nan")], status="diverged")):
        with pytest.raises(ConfigError, match="no run was evaluated"):
            loss_curve_figure(loss_curves([run]))


def test_the_same_curves_give_the_same_bytes_also_from_the_csv(language_run, tmp_path):
    frame = loss_curves([language_run(label, LOSSES, seed=seed) for label in ("S", "R-12o!") for seed in (0, 1)])
    write_curves(frame, tmp_path / "curves.csv")
    first = save_figure(loss_curve_figure(frame, "tokens"), tmp_path / "a" / "one")
    with matplotlib.rc_context({"lines.linewidth": 9, "font.size": 30, "savefig.dpi": 30}):
        again = save_figure(loss_curve_figure(read_curves(tmp_path / "curves.csv"), "tokens"), tmp_path / "two")
    assert [path.name for path in first] == ["one.png", "one.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    png, pdf = (path.read_bytes() for path in first)
    assert png.startswith(b"\x89PNG") and b"Software" not in png
    assert pdf.startswith(b"%PDF") and b"Date" not in pdf


def test_a_folder_that_cannot_be_made_is_a_store_error(language_run, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError, match="taken: a file is where a folder should be"):
        save_figure(loss_curve_figure(loss_curves([language_run("S")])), tmp_path / "taken" / "curves")


def test_evaluations_that_are_not_finite_leave_out_the_means_around_them(language_run, lines):
    gap = [[math.nan if i == missing else loss for i, loss in enumerate(LOSSES)] for missing in (2, 3)]
    left, _ = loss_curve_figure(loss_curves([language_run("S", losses, seed=i) for i, losses in enumerate(gap)])).axes
    (_, raw), (middles, smooth) = lines(left)
    assert raw == LOSSES
    assert middles == [60] and smooth == pytest.approx([sum(LOSSES[3:]) / 5])
