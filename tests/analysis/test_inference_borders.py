"""Borders of the inference: each case by arithmetic of its own, at values where one rule gives way to another."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from madbench.analysis.inference import (
    LEVEL,
    ErrorOfSum,
    Sample,
    Scale,
    combination,
    difference,
    equivalence,
    may_be_best,
    ranks,
)
from madbench.analysis.inference.differences import _stand_apart
from madbench.analysis.noise_model import Noise

ACCURACY = Scale(chance=0.0, solved=90.0, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
PLAIN = replace(ACCURACY, solved=math.nan)
NOISE = Noise("p", heuristic=0.0, ceiling=100.0, low=2.0, middle=2.0, high=2.0, lent=4.0, surprises=1.0, jump=30.0)


def of(*values, scale=ACCURACY, diverged=0, noise=None):
    """A sample of seeds with these values, and of some more that diverged."""
    which = np.array([False] * len(values) + [True] * diverged) if diverged else None
    return Sample(np.array([*values, *[scale.chance] * diverged], dtype=float), scale, which, noise=noise)


def average(*parts):
    return Sample(np.mean([part.values for part in parts], axis=0), replace(PLAIN, resolution=0.01), None, parts)


def test_one_seed_alone_agrees_with_no_other():
    assert of(80.0, 80.05).has_zero_spread and not of(80.0, 80.2).has_zero_spread and not of(80.0).has_zero_spread


def test_seeds_are_two_levels_where_half_of_them_on_either_would_have_their_spread():
    assert of(10, 26, 10, 26).is_level  # spread 9.2, half of a fifth of the way is 10
    assert not of(10, 32, 10, 32).is_level


def test_some_seeds_that_solve_the_task_are_one_level_up_to_a_fifth_of_the_way():
    assert of(80, 100).is_level and not of(79.9, 100).is_level


def test_a_diverged_run_is_lent_nothing_and_no_outcome_of_an_average():
    assert not of(50, 60, diverged=1, noise=NOISE).has_noise and of(50, 60, noise=NOISE).has_noise
    with_diverged = average(of(50, 60, diverged=1), of(20, 30, 40))
    with_diverged = replace(with_diverged, diverged=np.array([False, False, True]))
    assert not with_diverged.has_outcomes


def test_what_has_been_learned():
    assert of(1, 2, 3, scale=replace(ACCURACY, chance=math.nan)).has_learned
    assert average(of(1, 2, 3), of(50, 60, 70)).has_learned and not average(of(1, 2, 3), of(2, 3, 4)).has_learned


def test_an_average_has_an_interval_from_three_seeds_on_and_where_they_agree():
    assert math.isnan(average(of(40, 50), of(41, 52)).half_width)
    assert average(of(40, 50, 60), of(60, 50, 40)).half_width > 0


def test_bounds_of_solved_and_diverged_seeds_part_at_the_threshold():
    """Of one seed that solves the task, one that does not and one that diverged."""
    low, high = stats.beta.ppf(0.025, 1, 3), stats.beta.ppf(0.975, 2, 2)
    others = [50.0, 0.0]
    half = stats.t.ppf(0.975, 1) * np.std(others, ddof=1) / math.sqrt(2)
    of_others = max(0.0, 25 - half), min(90.0, 25 + half)
    ends = [s * a + (1 - s) * b for s in (low, high) for a, b in zip((90.0, 100.0), of_others)]
    assert of(95, 50, diverged=1).bounds == pytest.approx((min(ends), max(ends)))


def test_the_error_of_an_average_is_at_least_that_of_its_own_seeds():
    rising = of(40, 50, 60, 70, 80, scale=PLAIN)
    assert average(rising, rising).error() == pytest.approx((stats.sem(rising.values), 4))


def test_seeds_that_fall_elsewhere_count_like_those_that_are_lent():
    few = of(40.0, 44.0, 48.0, noise=NOISE)
    variance, freedom = (4 * 4.0 + 2 * 16.0) / 6, 6  # below the seeds' own 16
    variance, freedom = max((variance, freedom), (16.0, 2))
    share = 1 / 4
    parts = [variance / 3, 900 * share * (1 - share) / 5]
    total = sum(parts)
    expected = total**2 / (parts[0] ** 2 / freedom + parts[1] ** 2 / 6)
    assert few.error() == pytest.approx((math.sqrt(total), expected))


@pytest.mark.parametrize(("mean", "distance"), [(70, 70), (30, 70)])
def test_an_unseen_seed_may_be_at_the_farther_end(mean, distance):
    error, _ = of(mean, mean, mean).error(has_unseen=True)
    assert error == pytest.approx(distance * math.sqrt(0.8 * 0.2 / 3))


def test_parts_of_an_average_share_the_success_and_the_failure_beyond_the_seeds():
    uneven = of(100, 100, 100, 50)  # a share of 4/6 alone, of 3.25/4.5 among four parts
    assert uneven.error()[0] == pytest.approx(max(stats.sem(uneven.values), 50 * math.sqrt(4 / 6 * 2 / 6 / 4)))
    share = 3.25 / 4.5
    assert uneven.error(4)[0] == pytest.approx(max(stats.sem(uneven.values), 50 * math.sqrt(share * (1 - share) / 4)))
    level = 3.25 / 3.5  # of three seeds that agree
    expected = 70 * math.sqrt(level * (1 - level) / 3)
    assert of(70, 70, 70).error(4, has_unseen=True)[0] == pytest.approx(expected)


def test_where_every_seed_solves_the_task_one_more_would_fall_to_chance():
    scale = replace(ACCURACY, chance=10.0)
    error, _ = of(100, 100, 100, scale=scale).error()
    assert error == pytest.approx(90 * math.sqrt(4 / 5 * 1 / 5 / 3))


def test_the_mean_of_solved_seeds_is_above_the_threshold():
    solved = of(91, 100, 0)  # Student's interval of two solved seeds reaches far below
    low, high = stats.beta.ppf(0.025, 2, 2), stats.beta.ppf(0.975, 3, 1)
    ends = [s * a + (1 - s) * b for s in (low, high) for a, b in zip((90.0, 100.0), (0.0, 90.0))]
    assert solved.bounds == pytest.approx((min(ends), max(ends)))


def test_seeds_that_agree_show_no_equivalence_as_the_next_may_fall_elsewhere():
    three, five = of(50, 50.1, 50.2), of(50, 50.1, 50.2, 50.1, 50.1)
    assert equivalence(three, three, 1.0).p > 0.3
    assert equivalence(five, five, 1.0).p < LEVEL  # which is enough to show a level


def test_equivalence_is_two_tests_with_their_own_sides():
    first, second = of(50, 51, 52, scale=PLAIN), of(53, 54, 55, scale=PLAIN)
    held = equivalence(first, second, 1.0)
    assert held.p_above > 0.5 and held.p_below < 0.05 and held.p == held.p_above


def test_counts_against_a_line_are_tested_by_t():
    solved, mixed = of(100, 100, 100, 99, 98), of(100, 99, 0, 1, 2)
    assert difference(solved, mixed).test == "exact" and difference(solved, mixed, line=5.0).test == "t"


def test_an_interval_holds_zero_where_seeds_on_either_side_do_not_reject_it():
    first, second = of(60, 61, 62), of(30, 31, 32)
    gain = difference(first, second)
    assert gain.p > 0.03 and (gain.low <= 0) == (gain.p > LEVEL)
    short = difference(of(60, 60.1), of(30, 30.1))
    assert short.low <= 0 <= short.high


def test_no_sum_is_beyond_what_its_weights_allow():
    terms = [(1.0, of(90, 5, 60)), (-1.0, of(80, 10, 50)), (1.0, of(90, 5, 60)), (-1.0, of(80, 10, 40))]
    total = combination(terms)
    assert -200 <= total.low < -100 and 100 < total.high <= 200
    pair = difference(of(100, 100, 0), of(100, 0, 0))
    assert -100 <= pair.low and pair.high <= 100


def test_seeds_that_all_diverged_are_tested_beside_seeds_that_all_solve_the_task():
    assert difference(of(100, 100, 100), of(diverged=3)).test == "exact"


def test_what_stands_apart_is_far_from_the_mean_of_the_other_sign():
    near, far = of(50, 50, 51), of(92, 93, 91)
    terms = [(1.0, near), (1.0, near), (-1.0, near), (-1.0, far)]
    assert _stand_apart(terms) == [True, True, False, True]


def test_shares_of_unequal_numbers_of_seeds_are_compared_as_shares():
    better, worse = of(*[100] * 4, 0), of(*[100] * 4, *[0] * 16)
    found = difference(better, worse)
    assert found.p == pytest.approx(stats.boschloo_exact([[4, 4], [1, 16]]).pvalue, abs=1e-8) and found.p < LEVEL


def test_runs_that_do_not_diverge_are_judged_by_their_own_mean():
    """Of five runs at 50 against five of which some diverged: 50 may be a level of the others' two values."""
    found = difference(of(50, 50, 50, 50, 50), of(50, diverged=4))
    assert found.p == pytest.approx(stats.boschloo_exact([[5, 1], [0, 4]]).pvalue, abs=1e-8)
    found = difference(of(50, 50, 50, 50, 50), of(diverged=5))
    assert found.p == pytest.approx(stats.boschloo_exact([[5, 0], [0, 5]]).pvalue, abs=1e-8)


def test_a_noise_model_says_itself_how_often_seeds_fall_elsewhere():
    small = replace(NOISE, surprises=0.01, jump=1.0)
    first, second = of(60, 61, 62, noise=small), of(30, 31, 32, noise=small)
    assert difference(first, second).p < 1e-4


def test_a_level_between_the_values_of_the_others_is_tested_on_both_sides():
    """Three of ten seeds at 100 and seven at 0 against ten at 20: the share is 0.2 where the means are equal."""
    better, worse = of(*[100] * 6, *[0] * 4), of(*[20] * 10)
    expected = max(stats.boschloo_exact([[6, 0], [4, 10]]).pvalue, 2 * stats.binom.sf(5, 10, 0.2))
    assert difference(better, worse).p == pytest.approx(expected, abs=1e-8)
    better, worse = of(*[95] * 10), of(*[100] * 4, *[0] * 6)
    expected = max(stats.boschloo_exact([[10, 4], [0, 6]]).pvalue, 2 * stats.binom.sf(5, 10, 0.05))
    assert difference(better, worse).p == pytest.approx(expected, abs=1e-8)
    expected = max(stats.boschloo_exact([[10, 2], [0, 1]]).pvalue, 2 * stats.binom.sf(0, 3, 0.09))
    assert difference(of(*[91] * 10), of(100, 100, 0)).p == pytest.approx(expected, abs=1e-8)


def test_the_quantile_of_a_sum_is_the_mean_of_those_of_its_sides():
    error = ErrorOfSum.of([(1.0, 3.0, 2.0), (-1.0, 4.0, 20.0)])
    quantile = (9 * stats.t.ppf(0.975, 2) + 16 * stats.t.ppf(0.975, 20)) / 25
    assert error.half_width == pytest.approx(5 * quantile) and error.p(5 * quantile) == pytest.approx(0.05)
    assert ErrorOfSum.of([(1.0, 1.0, 400.0), (-1.0, 1.0, 400.0)]).p(60.0) > 0


def test_ranks_rule_out_at_the_level_and_equal_means_share_a_place():
    samples = {"a": of(90, 91, 92, scale=PLAIN), "b": of(80, 85, 90, scale=PLAIN), "c": of(80, 85, 90, scale=PLAIN)}
    assert [ranks(samples, True)[key].place for key in "abc"] == [1, 2, 2]
    first, second = of(60, 61, 62, scale=PLAIN), of(56, 57, 58, scale=PLAIN)
    assert LEVEL / 2 < difference(first, second).p <= LEVEL
    placed = ranks({"a": first, "b": second}, True)
    assert (placed["a"].high, placed["b"].low) == (1, 2)


@pytest.mark.parametrize("n, texts", [(3, ["3 [2,3]", "2 [1,3]", "1 [1,2]"]), (6, ["3 [3,3]", "2 [2,2]", "1 [1,1]"])])
def test_pairs_within_the_reach_of_one_label_are_ordered_by_their_counts_too(n, texts):
    noise = replace(NOISE, surprises=1e-9, lent=100.0, reach=20.0)
    samples = {mean: of(*[mean] * n, noise=noise) for mean in (30, 50, 70)}
    assert difference(samples[70], samples[50]).p < 1e-6
    counts = [[n, 0], [0, n]]  # of two of the three pairs; the third is 40 points apart
    assert (2 * stats.boschloo_exact(counts).pvalue <= LEVEL) == (n == 6)
    assert [rank.text for rank in dict(sorted(ranks(samples, True).items())).values()] == texts


def test_the_reach_of_an_average_is_that_of_parts_that_fall_elsewhere_each_by_itself():
    parts = [of(50, 51, noise=replace(NOISE, reach=reach)) for reach in (30.0, 40.0)]
    assert average(*parts).reach == pytest.approx(25) and NOISE.reach == math.inf
    assert average(parts[0], of(50, 51)).reach == 15 and of(50, 51).reach == 0
    with_diverged = of(50, diverged=1, noise=NOISE)
    assert with_diverged.reach == 0


def test_the_best_shares_the_level_with_its_rivals_and_the_columns():
    first, second = of(60, 61, 62, scale=PLAIN), of(57, 58, 59, scale=PLAIN)
    p = difference(first, second).p
    assert LEVEL < p <= 2 * LEVEL  # one-sided half of it: ruled out by one rival, not by one of two, nor in two columns
    assert may_be_best({"a": first, "b": second}, True) == ["a"]
    assert may_be_best({"a": first, "b": second}, True, columns=2) == ["a", "b"]
