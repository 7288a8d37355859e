"""The content of samples: the values of seeds, and the scale of their column."""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys

import numpy as np
import pandas as pd
import pytest

from hypermlp_claims import findings
from madbench.analysis import quantities, samples
from madbench.analysis.attribution import attribution_table
from madbench.analysis.cells import Cell, cells_of, with_marks
from madbench.analysis.comparison import comparison_table
from madbench.analysis.inference import Sample, Scale
from madbench.analysis.quantities import column
from madbench.analysis.samples import sample_of, samples_of
from madbench.suites.language.columns import LOSS, LOSSES, PERPLEXITIES, SPEED
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from score_frames import frame_of_losses, frame_of_scores

STEADY = {"R-cg-q": [50.00, 50.02, 50.04], "R-cg-q-12o": [50.01, 50.05, 50.03], "R-g-q-12o": [60.0, 60.01, 60.02]}
"""Seeds that agree to a tenth of a percent."""
STEADY_LOSSES = {"R-cg-q": [2.5000, 2.5001, 2.5002], "R-cg-q-12o": [2.4001, 2.4000, 2.4002]}


@pytest.fixture
def set_printed_digits(monkeypatch):
    """``set_printed_digits(digits)``: set the number of decimals of every table."""

    def call(digits: int) -> None:
        for name, module in list(sys.modules.items()):
            if name.startswith("madbench.") and getattr(module, "column", None) is column:
                monkeypatch.setattr(module, "column", lambda name: dataclasses.replace(column(name), digits=digits))

    return call


def verdicts_and_marks(scores: pd.DataFrame) -> str:
    """Every estimate, interval, p, verdict and mark."""
    columns = [quantities.column(name) for name in dict.fromkeys(scores.column)]
    marks = {
        (label, name): cell.mark
        for label, row in with_marks(columns, cells_of(scores, columns), set(scores.label)).items()
        for name, cell in row.items()
    }
    compared = [
        (row.difference, row.p_holm, row.verdict) for row in comparison_table("R-cg-q", [*STEADY][1:], scores).rows
    ]
    effects = [(one.name, one.quantity, one.estimate, one.p_holm) for one in attribution_table(scores).rows]
    claims = [(one.claim.name, one.quantity, one.ours, one.p_holm, one.verdict) for one in findings(scores)]
    intervals = [(name, one.interval, one.half_width) for name, of in samples_of(scores).items() for one in of.values()]
    return repr((marks, compared, effects, claims, intervals))


def first_row(scores: pd.DataFrame) -> list[str]:
    """The first row of a comparison as text."""
    return comparison_table("R-cg-q", ["R-g-q-12o"], scores).lines[1]


@pytest.mark.slow
@pytest.mark.parametrize("digits", [0, 2, 3, 6])
def test_printed_digits_change_no_verdict_and_no_mark(digits, set_printed_digits):
    scores = pd.concat([frame_of_scores(STEADY, MAD_TASKS), frame_of_losses(STEADY_LOSSES)], ignore_index=True)
    before, text = verdicts_and_marks(scores), first_row(scores)
    assert "not significant" in before and "best" in before
    set_printed_digits(digits)
    assert quantities.column("compression").digits == samples.column(LOSS).digits == digits
    assert verdicts_and_marks(scores) == before
    assert first_row(scores) != text


def test_the_resolution_of_a_sample_is_that_of_its_column(monkeypatch):
    values = {"value": [50.00, 50.02, 50.04], "is_diverged": [False] * 3}
    values |= {"chance": [4.0] * 3, "solved_threshold": [90.4] * 3, "ceiling": [100.0] * 3}
    assert sample_of("compression", values).scale.resolution == 0.1
    finer = dataclasses.replace(column("compression"), resolution=0.001)
    monkeypatch.setattr(samples, "column", lambda name: finer)
    assert sample_of("compression", values).scale.resolution == 0.001


def test_the_resolution_of_steps_is_their_greatest_common_divisor():
    values = {"value": [300.0, 450.0, 600.0], "is_diverged": [False] * 3}
    values |= dict.fromkeys(("chance", "solved_threshold", "ceiling"), [float("nan")] * 3)
    assert sample_of("steps_to_2.5", values).scale.resolution == 150.0


@pytest.mark.parametrize(
    "name", [*MAD_TASKS, MAD_AVERAGE, *LOSSES, *PERPLEXITIES, "steps_to_3.1", LANGUAGE.column(SPEED).name]
)
def test_every_column_prints_the_digits_of_its_resolution(name):
    """Otherwise bold means and zero variances would not match the printed numbers."""
    assert column(name).resolution == 10 ** -column(name).digits


def test_means_that_are_equal_at_the_resolution_are_both_best():
    percent = dataclasses.replace(column("compression"), digits=3)
    scale = Scale(4.0, 90.4, 100.0, (0.0, 100.0), 0.1)
    values = {"a": [80.0, 80.1, 80.2], "b": [80.02, 80.12, 80.22], "c": [80.4, 79.6, 79.4]}
    cells = {label: {"compression": Cell(Sample(np.array(of), scale))} for label, of in values.items()}
    marks = {label: row["compression"].mark for label, row in with_marks([percent], cells, cells).items()}
    assert marks == {"a": "best", "b": "best", "c": "within_noise"}


@pytest.mark.parametrize("missing", ["", "-"])
def test_a_label_that_never_reaches_a_loss_is_not_compared(missing):
    steps = dataclasses.replace(column("steps_to_2.5"), missing=missing)
    scale = Scale(chance=1000.0, limits=(0.0, np.inf), resolution=10.0, is_counted=True)
    samples_of_labels = {
        "never": Sample(np.array([1000.0] * 3), scale, np.array([True] * 3)),
        "late": Sample(np.array([900.0, 990.0, 1000.0]), scale, np.array([False, False, True])),
        "soon": Sample(np.array([880.0, 900.0, 1000.0]), scale, np.array([False, False, True])),
    }
    cells = {label: {steps.name: Cell(sample)} for label, sample in samples_of_labels.items()}
    marks = {label: row[steps.name].mark for label, row in with_marks([steps], cells, cells).items()}
    assert marks == {"never": "", "late": "within_noise", "soon": "best"}


def test_an_average_has_its_tasks_as_parts_even_if_they_are_not_shown():
    scores = frame_of_scores({"S": [50.0, 52.0, 51.0]}, MAD_TASKS)
    (cell,) = cells_of(scores, MAD.columns(MAD_TASKS)[-1:])["S"].values()
    assert len(cell.sample.parts) == 6 and cell.interval == samples_of(scores)[MAD_AVERAGE]["S"].interval


def test_an_average_without_its_tasks_is_refused():
    scores = frame_of_scores({"S": [50.0, 52.0, 51.0]}, MAD_TASKS)
    with pytest.raises(AssertionError, match="lack one of its tasks"):
        samples_of(scores[scores.column == MAD_AVERAGE])


def sample(*values: float, **scale) -> Sample:
    return Sample(np.array(values), Scale(**scale))


@pytest.mark.parametrize(
    "limits, width",
    [((-1.0, 1.0), 2.0), ((20.0, 100.0), 80.0), ((-math.inf, 100.0), 96.0), ((0.0, math.inf), math.nan)],
)
def test_the_range_of_a_column_begins_at_its_lower_limit_or_else_at_chance(limits, width):
    assert Scale(chance=4.0, limits=limits).width == pytest.approx(width, nan_ok=True)


@pytest.mark.parametrize("values", [(3.0, 5.0), (1.5, 2.0, 4.0), (2.0, 2.0, 2.0, 7.0)])
def test_the_deviation_is_the_sample_standard_deviation(values):
    assert sample(*values).deviation == pytest.approx(statistics.stdev(values))
    assert math.isnan(sample(values[0]).deviation)


def test_two_seeds_have_an_interval_around_their_mean():
    low, high = sample(40.0, 60.0, limits=(0.0, 100.0)).interval
    assert 0.0 <= low < 40.0 and 60.0 < high <= 100.0


@pytest.mark.parametrize(
    "diverged, count, finite",
    [
        (None, 0, [1.0, 2.0, 3.0]),
        ([False] * 3, 0, [1.0, 2.0, 3.0]),
        ([False, True, False], 1, [1.0, 3.0]),
        ([True] * 3, 3, []),
    ],
)
def test_seeds_of_diverged_runs_are_counted_and_can_be_left_out(diverged, count, finite):
    of = Sample(np.array([1.0, 2.0, 3.0]), diverged=None if diverged is None else np.array(diverged))
    assert (of.diverged_count, of.has_diverged, of.all_diverged) == (count, count > 0, count == 3)
    assert of.finite_values.tolist() == finite


def test_headroom_is_the_upper_limit_minus_the_heuristic_averaged_over_parts():
    parts = tuple(sample(70.0, heuristic=heuristic, limits=(0.0, 100.0)) for heuristic in (30.0, 60.0))
    assert [part.headroom for part in parts] == [70.0, 40.0]
    assert Sample(np.array([70.0]), parts=parts).headroom == 55.0


@pytest.mark.parametrize("values, splits", [((10.0, 35.0), False), ((10.0, 36.0), True), ((50.0,), False)])
def test_seeds_split_at_gaps_of_more_than_a_quarter_of_the_range(values, splits):
    of = sample(*values, limits=(0.0, 100.0))
    assert of.splits is splits
    assert not Sample(of.values, of.scale, parts=(of, of)).splits  # an average of tasks does not


@pytest.mark.parametrize(
    "scale, line",
    [
        ({"heuristic": 40.0, "ceiling": 90.0}, 42.5),  # a twentieth of the way to the ceiling
        ({"chance": 20.0, "ceiling": 100.0}, 24.0),
        ({"chance": 20.0, "heuristic": 40.0, "ceiling": 100.0}, 43.0),  # the heuristic replaces chance
    ],
)
def test_a_task_is_learned_from_a_twentieth_of_the_headroom_on(scale, line):
    assert [sample(value, **scale).has_learned for value in (line - 0.01, line + 0.01)] == [False, True]


@pytest.mark.parametrize("name", ["chance", "heuristic"])
def test_a_mean_exactly_at_the_learned_threshold_is_not_learned(name):
    assert not sample(5.0, ceiling=100.0, **{name: 0.0}).has_learned


def test_a_mean_far_below_chance_counts_as_learned():
    """Losses fall during learning, and an answer can be systematically wrong."""
    assert [sample(value, chance=20.0, ceiling=100.0).has_learned for value in (16.01, 15.99)] == [False, True]
    assert sample(3.0).has_learned  # nothing is known of the column
