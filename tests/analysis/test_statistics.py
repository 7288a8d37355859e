from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from madbench.analysis.statistics import (
    bootstrap_interval,
    half_width,
    holm,
    mean_interval,
    sign_flip_p,
    smallest_p,
)
from scipy import stats


def test_an_interval_covers_the_true_mean_about_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, (300, 8))
    covered = [low <= 3.0 <= high for low, high in (bootstrap_interval(draw, resamples=999) for draw in draws)]
    assert 0.9 <= np.mean(covered) <= 0.98


def test_an_interval_of_many_values_is_students():
    values = np.random.default_rng(1).normal(size=200)
    expected = stats.t.interval(0.8, 199, values.mean(), stats.sem(values))
    assert bootstrap_interval(values, level=0.8) == pytest.approx(expected, abs=0.01)


def test_an_interval_of_three_values_is_their_range():
    assert bootstrap_interval(np.array([2.0, -1.0, 7.0])) == (-1.0, 7.0)
    assert bootstrap_interval(np.array([4.0, 4.0])) == (4.0, 4.0)


def test_an_interval_is_the_same_every_time_and_another_with_another_seed():
    values = np.random.default_rng(2).normal(size=12)
    assert bootstrap_interval(values) == bootstrap_interval(values) != bootstrap_interval(values, seed=1)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_p_is_the_share_of_signs_with_a_mean_at_least_as_far_from_zero(n):
    differences = np.random.default_rng(n).normal(0.5, 1.0, n)
    means = [np.mean(signs * differences) for signs in itertools.product([-1, 1], repeat=n)]
    as_far = np.abs(means) >= abs(differences.mean()) - 1e-12
    assert sign_flip_p(differences) == pytest.approx(as_far.mean())


def test_p_of_many_differences_is_near_that_of_students_test():
    differences = np.random.default_rng(3).normal(0.2, 1.0, 60)
    assert sign_flip_p(differences) == pytest.approx(stats.ttest_1samp(differences, 0).pvalue, abs=0.015)


@pytest.mark.parametrize("n", [2, 3, 6, 13, 14, 40])
def test_the_smallest_p_is_that_of_equal_differences(n):
    assert sign_flip_p(np.ones(n)) == smallest_p(n)


def test_no_differences_at_all_are_no_evidence():
    assert sign_flip_p(np.zeros(4)) == 1.0


@pytest.mark.parametrize("values", [[], [1.0]])
def test_fewer_than_two_values_say_nothing(values):
    assert all(map(math.isnan, (*bootstrap_interval(np.array(values)), sign_flip_p(np.array(values)))))


def test_holm_multiplies_the_k_th_smallest_by_what_is_left_and_never_falls():
    assert holm([0.03, 0.01, 0.02, 0.9]) == pytest.approx([0.06, 0.04, 0.06, 0.9])
    assert holm([0.4, 0.7]) == pytest.approx([0.8, 0.8])


def test_holm_does_not_count_what_is_not_a_number():
    adjusted = holm([math.nan, 0.02, math.nan, 0.03])
    assert np.isnan(adjusted).tolist() == [True, False, True, False]
    assert adjusted[1::2] == pytest.approx([0.04, 0.04])
    assert holm([]) == [] and math.isnan(holm([math.nan])[0])


@pytest.mark.parametrize("n", [2, 3, 8])
def test_the_interval_of_a_mean_is_students(n):
    values = np.random.default_rng(n).normal(50, 9, n)
    expected = (values.mean(), *stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values)))
    assert mean_interval(values) == pytest.approx(expected)


@pytest.mark.parametrize("values", [[], [7.0], [0.0, 0.0], [100.0] * 3, [100 * 0.1] * 3, [100 * 0.7] * 7])
def test_seeds_that_agree_give_no_interval_as_one_seed_gives_none(values):
    mean, *ends = mean_interval(values)
    assert np.isnan(ends).all() and mean == pytest.approx(values[0] if values else math.nan, nan_ok=True)
    spread = np.std(values, ddof=1) if len(values) > 1 else math.nan
    assert math.isnan(half_width(spread, len(values), len(values) - 1))
