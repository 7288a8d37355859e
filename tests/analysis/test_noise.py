from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from madbench.analysis.noise import Sample, least_difference, may_be_best, pooled_spread, within_noise
from madbench.analysis.statistics import half_width
from scipy import stats


def test_the_least_difference_of_two_pairs_is_students():
    values = {"S": [1.0, 1.2], "R": [2.0, 2.4]}
    pooled = math.sqrt((statistics.variance(values["S"]) + statistics.variance(values["R"])) / 2)
    assert least_difference(values) == pytest.approx(stats.t.ppf(0.975, 2) * pooled * math.sqrt(2 / 2))


def test_single_values_alone_have_no_noise_to_go_by():
    assert least_difference({"S": [1.0], "R": [2.0]}) is None


def test_the_fewest_values_of_a_key_decide():
    some = least_difference({"S": [1.0, 1.2], "R": [2.0, 2.4]})
    assert least_difference({"S": [1.0, 1.2], "R": [2.0, 2.4], "G": [1.0]}) == pytest.approx(some * math.sqrt(2))


def test_one_pair_in_twenty_differs_by_chance():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(1500, 2, 3))
    differ = [abs(a.mean() - b.mean()) > least_difference({"a": list(a), "b": list(b)}) for a, b in draws]
    assert 0.035 < np.mean(differ) < 0.065


@given(st.dictionaries(st.text("abc", max_size=3), st.floats(0, 1), max_size=7), st.floats(0, 1))
def test_a_pair_is_in_a_set_exactly_when_it_is_within_the_noise(means, difference):
    sets = within_noise(means, difference)
    for one, other in itertools.combinations(means, 2):
        within = abs(means[one] - means[other]) <= difference
        assert any({one, other} <= set(of_it) for of_it in sets) == within
    assert all(not set(a) <= set(b) for a, b in itertools.permutations(sets, 2))


NORMAL = {"alike": [1.0] * 8, "unlike": [0.05, 0.1, 0.5, 1.0, 2.0, 4.0, 10.0, 25.0]}
"""Standard deviations of the noise of eight labels."""


def draws(spreads: list[float], seeds: int, columns: int, shared: float = 0.0) -> np.ndarray:
    """Values of equally good labels (columns, labels, seeds), with noise of ``shared`` that a seed gives to all."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(columns, len(spreads), seeds)) * np.array(spreads)[:, None]
    return own + shared * rng.normal(size=(columns, 1, seeds))


def samples(column: np.ndarray) -> dict[int, Sample]:
    return {i: Sample(xs.mean(), xs.std(ddof=1), len(xs)) for i, xs in enumerate(column)}


def covered(column: np.ndarray, is_pooled: bool) -> list[bool]:
    """Whether the interval of each label holds the truth, which is 0."""
    of_column = samples(column)
    pooled, freedom = pooled_spread(list(of_column.values()))
    noise = {i: (pooled, freedom) if is_pooled else (s.spread, s.n - 1) for i, s in of_column.items()}
    halves = [half_width(noise[i][0], s.n, noise[i][1]) for i, s in of_column.items()]
    return [abs(s.mean) <= half for s, half in zip(of_column.values(), halves)]


@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("noise", NORMAL)
def test_95_of_100_own_intervals_hold_the_truth_of_a_label_whatever_the_noise_of_others(noise, seeds):
    held = np.mean([covered(column, is_pooled=False) for column in draws(NORMAL[noise], seeds, 1000)], axis=0)
    assert held.min() > 0.93 and held.max() < 0.97


def test_pooled_intervals_hold_the_truth_where_the_noise_is_alike_and_are_several_times_narrower():
    columns = draws(NORMAL["alike"], 2, 500)
    held = np.mean([covered(column, is_pooled=True) for column in columns], axis=0)
    assert held.min() > 0.92 and held.max() < 0.98
    own = np.median([half_width(spread, 2, 1) for spread in columns.std(axis=2, ddof=1).ravel()])
    assert own > 2.5 * half_width(1.0, 2, 8)


def test_pooled_intervals_are_wrong_both_ways_where_the_noise_is_not_alike():
    held = np.mean([covered(column, is_pooled=True) for column in draws(NORMAL["unlike"], 3, 1000)], axis=0)
    assert held[0] == 1 and held[-1] < 0.85


def ruled_out(columns: np.ndarray, is_pooled: bool = False) -> np.ndarray:
    """How often each of equally good labels is not among those that may be the best."""
    kept = np.zeros(columns.shape[1])
    for column in columns:
        of_column = samples(column)
        pooled = pooled_spread(list(of_column.values())) if is_pooled else None
        kept[may_be_best(of_column, True, 0.001, pooled)] += 1
    return 1 - kept / len(columns)


@pytest.mark.parametrize(
    ("noise", "shared", "is_pooled"),
    [("alike", 0, False), ("unlike", 0, False), ("alike", 2, False), ("alike", 0, True)],
)
def test_the_best_label_is_lost_in_at_most_one_column_of_twenty(noise, shared, is_pooled):
    assert ruled_out(draws(NORMAL[noise], 3, 500, shared), is_pooled).max() < 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 500)


def test_every_pair_at_the_5_percent_level_would_lose_it_far_more_often():
    columns = draws(NORMAL["alike"], 3, 500)
    first, others = columns[:, :1], columns[:, 1:]
    p = stats.ttest_ind(others, first, axis=2, equal_var=False, alternative="greater").pvalue
    assert 0.14 < np.mean((p <= 0.05).any(axis=1)) < 0.22


def test_the_pooled_test_is_not_for_noise_of_different_size():
    assert ruled_out(draws(NORMAL["unlike"], 3, 500), is_pooled=True).max() > 0.1


def test_a_better_label_differs_in_either_direction():
    of_column = {"low": Sample(1.0, 0.1, 3), "middle": Sample(4.8, 0.3, 3), "high": Sample(5.0, 0.2, 3)}
    assert may_be_best(of_column, True, 0.1) == ["high", "middle"]
    assert may_be_best(of_column, False, 0.1) == ["low"]


def test_a_noisy_best_does_not_save_a_label_that_another_beats():
    of_column = {"noisy": Sample(60.0, 50.0, 3), "sure": Sample(50.0, 0.1, 3), "poor": Sample(30.0, 0.1, 3)}
    assert may_be_best(of_column, True, 0.1) == ["noisy", "sure"]


def test_seeds_that_agree_do_not_tell_apart_what_the_digits_do_not():
    of_column = {"a": Sample(100.0, 0.0, 3), "b": Sample(99.96, 0.0, 3), "c": Sample(98.0, 0.0, 3)}
    assert may_be_best(of_column, True, 0.1) == ["a", "b"]
