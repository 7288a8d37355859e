"""The test of differences: its formula, monotony, agreement of intervals, verdicts and marks, and power."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from madbench.analysis.cells import cells_of, with_marks
from madbench.analysis.comparison import comparison_table
from madbench.analysis.inference import (
    BOTH_SOLVE,
    LEVEL,
    NEITHER_LEARNED,
    Sample,
    Scale,
    binomial_interval,
    combination,
    difference,
    holm,
    not_best,
    planned_terms,
    step_down,
    terms_of_mean,
)
from madbench.analysis.power import power_at, seeds_needed
from madbench.suites.mad.suite import AVERAGE, MAD, MAD_TASKS
from madbench.suites.scoring import mean_over
from references import interval_of, loss_terms, p_of, terms
from score_frames import frame_of_scores

ACCURACY = Scale(chance=4.0, solved_threshold=90.4, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
LOSS = Scale(chance=5.0, limits=(0.0, math.inf), resolution=0.001)
COUNT = settings(max_examples=200)


def of(*values: float, scale: Scale = ACCURACY) -> Sample:
    return Sample(np.array(values, dtype=float), scale)


def expected_terms(values, scale: Scale):
    return terms(values) if scale is ACCURACY else loss_terms(values)


@pytest.mark.parametrize("scale", [ACCURACY, LOSS])
@pytest.mark.parametrize("n, other", [(3, 3), (5, 3), (3, 10)])
def test_a_difference_is_the_formula_of_the_method_page(scale, n, other):
    rng = np.random.default_rng(n)
    for spread in (0.01, 0.5, 4.0, 20.0) if scale is ACCURACY else (0.002, 0.05):
        center = 60.0 if scale is ACCURACY else 2.0
        first, second = rng.normal(center, spread, n), rng.normal(center * 1.1, spread / 3, other)
        found = difference(of(*first, scale=scale), of(*second, scale=scale))
        gap, both = first.mean() - second.mean(), [expected_terms(first, scale), expected_terms(second, scale)]
        assert found.p == pytest.approx(p_of(gap, both))
        assert (found.low, found.high) == pytest.approx(interval_of(gap, both))
        _, half = interval_of(0, both[:1])
        assert of(*first, scale=scale).half_width == pytest.approx(half)


def test_a_weighted_sum_is_the_formula_of_the_method_page_with_squared_weights():
    rng = np.random.default_rng(0)
    values = [rng.normal(center, 3.0, 4) for center in (60.0, 50.0, 40.0)]
    weights = (0.5, 0.5, -1.0)
    found = combination([(weight, of(*each)) for weight, each in zip(weights, values)])
    every = [terms(each, weight) for weight, each in zip(weights, values)]
    total = sum(weight * each.mean() for weight, each in zip(weights, values))
    assert found.estimate == pytest.approx(total) and found.p == pytest.approx(p_of(total, every))
    assert (found.low, found.high) == pytest.approx(interval_of(total, every))


@pytest.mark.parametrize("limits", [(0.0, 100.0), (-20.0, 100.0)])
def test_intervals_are_cut_at_the_largest_possible_difference(limits):
    scale = Scale(chance=4.0, limits=limits)
    high, low = of(99, 60, 100, scale=scale), of(limits[0], 45, limits[0] + 1, scale=scale)
    for weight in (1.0, 2.0):
        found = combination([(weight, high), (-weight, low)])
        assert found.low < found.estimate < found.high == weight * (100 - limits[0])


def test_a_difference_of_two_seeds_each_has_an_interval_and_no_test():
    found = difference(of(60, 62), of(40, 41))
    gap, both = 20.5, [terms((60, 62)), terms((40, 41))]
    assert (found.low, found.high) == pytest.approx(interval_of(gap, both)) and math.isnan(found.p)


def test_seeds_more_than_a_quarter_of_the_range_apart_count_as_a_split():
    for values in ((40.0, 50.0, 65.0), (40.0, 50.0, 65.1)):
        _, half = interval_of(0, [terms(values)])
        assert of(*values).half_width == pytest.approx(half)
    assert of(40, 50, 65).terms.variances.shape == (2,) and of(40, 50, 65.1).terms.variances[1] == 0


def test_the_interval_of_an_average_is_from_its_parts_or_from_its_own_seeds():
    rng = np.random.default_rng(0)
    parts = tuple(of(*rng.normal(60, 2, 3)) for _ in range(6))
    average = Sample(np.mean([part.values for part in parts], axis=0), ACCURACY, parts=parts)
    _, half = interval_of(0, [terms(part.values, 1 / 6) for part in parts])
    assert average.half_width == pytest.approx(half)
    alike = tuple(of(*(60 + np.array([-20.0, 0.0, 20.0]))) for _ in range(6))  # tasks that rise and fall together
    average = Sample(alike[0].values, ACCURACY, parts=alike)
    assert average.half_width == pytest.approx(stats.t.ppf(0.975, 2) * 20 / math.sqrt(3))


scatters = st.integers(3, 6).flatmap(lambda n: st.lists(st.floats(-8, 8), min_size=n, max_size=n))


@pytest.mark.slow
@COUNT
@given(scatters, scatters, st.floats(20, 45), st.floats(0, 40), st.floats(0, 40))
def test_a_larger_difference_never_has_a_larger_p(first, second, base, gap, further):
    """The scatter of the seeds is fixed. No label solves the task, because then nothing would be tested."""
    scale = Scale(limits=(-1000.0, 1000.0), resolution=0.1)
    a = Sample(base + np.array(first) - np.mean(first), scale)
    near, far = (Sample(base + shift + np.array(second) - np.mean(second), scale) for shift in (gap, gap + further))
    smaller, larger = difference(near, a), difference(far, a)
    assert larger.p <= smaller.p * (1 + 1e-9) + 1e-15


@pytest.mark.slow
@COUNT
@given(scatters, scatters, st.floats(1, 5), st.floats(0, 0.5), st.floats(0, 0.5), st.booleans())
def test_a_larger_difference_of_losses_never_has_a_larger_p(first, second, base, gap, further, is_upward):
    near, far = ((1 + x) if is_upward else 1 / (1 + x) for x in (gap, gap + further))
    scatter = 0.005 * base * (np.array(second) - np.mean(second))
    a = Sample(base + 0.005 * base * (np.array(first) - np.mean(first)), LOSS)
    smaller, larger = (difference(Sample(base * share + scatter, LOSS), a) for share in (near, far))
    assert larger.p <= max(smaller.p * (1 + 1e-9), 1e-6)


@pytest.mark.slow
@COUNT
@given(scatters, scatters, st.floats(5, 89), st.floats(5, 89))
def test_an_interval_holds_its_estimate_and_agrees_with_the_uncorrected_verdict(first, second, mean, other):
    a, b = (of(*np.clip(m + np.array(x), 0, 100)) for m, x in ((mean, first), (other, second)))
    found = difference(a, b)
    assert found.low <= found.estimate <= found.high
    if not found.reason and abs(found.p - LEVEL) > 1e-9:
        assert (found.p < LEVEL) == (not found.low <= 0 <= found.high)
    reverse = difference(b, a)
    assert (reverse.estimate, reverse.low, reverse.high) == pytest.approx((-found.estimate, -found.high, -found.low))


@pytest.mark.parametrize("gap, most", [(17.0, 0.02), (18.0, 0.01), (55.0, 1e-6)])
def test_three_close_seeds_find_a_large_gap_without_a_known_profile(gap, most):
    first, second = (of(*(x + np.array([-0.5, 0.0, 0.5]))) for x in (30.0, 30.0 + gap))
    assert difference(second, first).p < most


@pytest.mark.parametrize(
    "first, second, reason",
    [
        (of(50, 51), of(20, 21, 22), "two seeds"),
        (of(50), of(20, 21, 22), "single seed"),
        (of(5, 6, 5), of(4, 5, 4), NEITHER_LEARNED),
        (of(95, 96, 97), of(99, 99, 99), BOTH_SOLVE),
        (of(50, 51, 52), of(20, 21, 22), ""),
    ],
)
def test_differences_without_a_test_have_a_reason_and_no_p(first, second, reason):
    found = difference(first, second)
    assert found.reason == reason and math.isnan(found.p) == bool(reason)


def test_a_claim_of_no_loss_is_tested_where_both_solve_the_task():
    both = [(1.0, of(99, 99, 99)), (-1.0, of(98, 98, 98))]
    assert combination(both, tests_solved=True).test == "t"


def test_a_sample_without_a_seed_or_with_one_has_no_interval():
    assert math.isnan(Sample(np.array([])).mean) and math.isnan(of(3.0).half_width)
    assert all(map(math.isnan, of(3.0).interval))
    low, high = of(99.0, 99.5, 100.0).interval
    assert low < 99.5 and high == 100.0


def test_an_interval_without_limits_is_symmetric():
    low, high = Sample(np.array([-1.0, 0.0, 1.0])).interval
    assert low == -high < -1


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson():
    for n in (1, 3, 12):
        for k in range(n + 1):
            expected = stats.binomtest(k, n).proportion_ci(method="exact")
            assert binomial_interval(k, n) == pytest.approx((expected.low, expected.high))


def test_vectorized_terms_equal_those_of_single_samples():
    values = np.random.default_rng(0).normal(60, 5, (7, 2, 3))
    many = terms_of_mean(values, 100.0)
    for i, j in itertools.product(range(7), range(2)):
        assert many.half_width[i, j] == pytest.approx(float(terms_of_mean(values[i, j], 100.0).half_width))


@pytest.mark.parametrize("width", [100.0, math.nan])
def test_planned_terms_equal_terms_of_seeds_with_the_same_variance(width):
    """The mean is far from one, so that the prior of a loss is a share of it."""
    values = np.random.default_rng(2).normal(40, 0.1, 4)
    planned = planned_terms(values.var(ddof=1), values.mean(), len(values), width)
    assert planned.half_width.item() == pytest.approx(terms_of_mean(values, width).half_width.item())


def test_holm_multiplies_by_the_remaining_tests_and_is_monotone():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.02, math.nan, 0.03])[::2] == pytest.approx([0.04, 0.04])
    assert holm([]) == []
    families = np.array([[0.01, 0.04, 0.03], [0.02, math.nan, 0.03], [0.9, 0.9, 0.2]])
    assert np.array_equal(step_down(families), [holm(family) for family in families.tolist()], equal_nan=True)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_keeps_the_order_and_never_lowers_a_p_value(p_values):
    adjusted = holm(p_values)
    assert all(after >= before for before, after in zip(p_values, adjusted))
    ordered = sorted(range(len(p_values)), key=p_values.__getitem__)
    assert [adjusted[i] for i in ordered] == sorted(adjusted)


@pytest.mark.slow
def test_marks_of_two_labels_agree_with_the_verdict_of_compare():
    rng, contradictions, decided = np.random.default_rng(0), 0, 0
    columns = MAD.columns(MAD_TASKS)
    for _ in range(40):
        means = {label: dict(zip(MAD_TASKS, rng.uniform(50, 70, 6))) for label in ("S", "R")}
        frame = frame_of_scores({label: [0.0] * 3 for label in means}, MAD_TASKS)
        tasks = frame[frame.column.isin(MAD_TASKS)]
        centers = [means[label][task] for label, task in zip(tasks.label, tasks.column)]
        tasks = tasks.assign(value=np.clip(rng.normal(centers, rng.choice([0.5, 5, 15])), 0, 100))
        frame = pd.concat([tasks, mean_over(tasks, MAD_TASKS, AVERAGE)], ignore_index=True)
        cells = with_marks(columns, cells_of(frame, columns), ["S", "R"])
        for row in comparison_table("S", ["R"], frame).rows:
            worse = {"higher": "S", "lower": "R"}.get(row.verdict)
            decided += worse is not None
            marked = {label for label in ("S", "R") if cells[label][row.quantity].mark}
            contradictions += bool(marked) and marked != {"S", "R"} - {worse}
    assert decided > 10 and not contradictions
    assert AVERAGE in {column.name for column in columns}


def test_labels_far_from_the_best_are_significantly_worse():
    samples = {"a": of(80, 81, 82), "b": of(78, 80, 79), "c": of(20, 21, 22)}
    assert not_best({"x": (samples, True)}) == {"x": {"c"}}
    assert not_best({"x": (samples, False)}) == {"x": {"a", "b"}}


def test_power_equals_that_of_simulated_seeds_and_grows_with_gain_and_seeds():
    first, second = of(50, 54, 58, 46, 52), of(60, 64, 56, 62, 58)
    weighted = [(1.0, first), (-1.0, second)]
    powers = [power_at(weighted, gain, 5) for gain in (0, 5, 10, 20, 40)]
    assert powers == sorted(powers) and powers[0] == pytest.approx(LEVEL / 2, abs=1e-6)
    seeds = [seeds_needed(weighted, gain)[0] for gain in (40, 20, 10)]
    assert 3 <= seeds[0] <= seeds[1] <= seeds[2]
    rng, spread = np.random.default_rng(0), first.deviation
    found = 0
    for _ in range(200):
        a, b = (of(*rng.normal(mean, spread, 5)) for mean in (50, 62))
        found += difference(b, a).p <= LEVEL
    assert found / 200 >= power_at([(1.0, first), (-1.0, first)], 12, 5) - 0.1  # without the allowance for splits
    assert math.isnan(seeds_needed([(1.0, of(3.0)), (-1.0, of(4.0))], 1.0)[1])
