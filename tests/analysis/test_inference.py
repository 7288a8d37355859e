from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from madbench.analysis.inference import (
    BOTH_SOLVE,
    LEVEL,
    NEITHER_LEARNED,
    Difference,
    Sample,
    Scale,
    binomial_interval,
    combination,
    difference,
    differences,
    exact_p,
    holm,
    many,
    may_be_best,
    students_t,
)
from madbench.analysis.power import power_at, seeds_needed
from references import cochran_cox_interval, cochran_cox_p, mean_side, side, wide_interval

ACCURACY = Scale(chance=4.0, solved=90.4, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
LOSS = Scale(chance=5.0, limits=(0.0, math.inf), resolution=0.001)
STEPS = Scale(chance=1000.0, limits=(0.0, math.inf), resolution=100.0, is_counted=True)
NAN = math.nan


def accuracies(*values: float, diverged: int = 0) -> Sample:
    """Of seeds with these values, and of some more that diverged."""
    return sample([*values], ACCURACY, diverged)


def losses(*values: float, diverged: int = 0) -> Sample:
    return sample([*values], LOSS, diverged)


def sample(values: list[float], scale: Scale, diverged: int) -> Sample:
    is_diverged = [False] * len(values) + [True] * diverged
    return Sample(np.array(values + [scale.chance] * diverged, dtype=float), scale, np.array(is_diverged))


def average(*parts: Sample) -> Sample:
    values = np.mean([part.values for part in parts], axis=0)
    return Sample(values, Scale(4.0, NAN, 100.0, (0.0, 100.0), 0.01), None, parts)


def gaussian(seed: int, mean: float, n: int, spread: float = 3.0) -> Sample:
    return accuracies(*np.random.default_rng(seed).normal(mean, spread, n))


# The mean of one sample


@pytest.mark.parametrize("n", [5, 8, 20])
def test_the_interval_of_a_level_sample_holds_some_seeds_elsewhere(n):
    values = gaussian(n, 50, n).values
    assert accuracies(*values).interval == pytest.approx(wide_interval(values))
    students = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    unsolvable = Sample(values, Scale(4.0, NAN, 100.0, (0.0, 100.0), 0.1))
    assert unsolvable.interval == pytest.approx(students)


def test_five_seeds_that_agree_leave_a_fifth_free_to_be_elsewhere():
    """A fifth at 65 and the rest at 33: five seeds are all at 33 with a probability of a third."""
    low, high = accuracies(*np.random.default_rng(0).normal(33, 0.5, 5)).interval
    assert 0.8**5 > LEVEL and low < 33 + 32 / 5 < high


def test_losses_cannot_be_solved_so_two_seeds_have_an_interval():
    found = losses(2.0, 2.1)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 1, 2.05, 0.05))
    assert losses(2.0, 4.0).interval[0] == 0.0


@pytest.mark.parametrize("k, n", [(k, n) for n in (1, 2, 3, 5, 12) for k in range(n + 1)])
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(k, n):
    expected = stats.binomtest(k, n).proportion_ci(method="exact")
    assert binomial_interval(k, n) == pytest.approx((expected.low, expected.high))


def test_the_interval_where_seeds_split_joins_those_of_share_and_means():
    found = accuracies(20.0, 24.0, 98.0, 99.0, 100.0)
    low, high = stats.binomtest(3, 5).proportion_ci(method="exact")
    solved_low = 99.0 - stats.t.ppf(0.975, 2) * 1.0 / math.sqrt(3)
    others_low, others_high = max(4.0, 22.0 - stats.t.ppf(0.975, 1) * 2.0), 22.0 + stats.t.ppf(0.975, 1) * 2.0
    expected = low * solved_low + (1 - low) * others_low, high * 100.0 + (1 - high) * others_high
    assert not found.is_level and found.solved == 3
    assert found.interval == pytest.approx(expected)


def test_where_all_solve_the_next_seed_may_not():
    low, high = accuracies(99.0, 99.0, 99.0).interval
    share = 0.025 ** (1 / 3)
    assert high == 99.0 and low == pytest.approx(share * 99.0 + (1 - share) * 4.0)


def test_diverged_seeds_split_those_that_train_from_chance():
    found = accuracies(60.0, 61.0, 62.0, diverged=2)
    low, high = stats.binomtest(3, 5).proportion_ci(method="exact")
    half = stats.t.ppf(0.975, 2) / math.sqrt(3)
    assert found.interval == pytest.approx((low * (61 - half) + (1 - low) * 4.0, high * (61 + half) + (1 - high) * 4.0))


@pytest.mark.parametrize("diverged", [1, 2, 3])
def test_the_interval_of_losses_with_diverged_seeds_holds_the_mean_and_reaches_to_chance(diverged):
    found = losses(2.0, 2.1, diverged=diverged)
    low, high = found.interval
    assert 0.0 <= low < found.mean < high <= 5.0
    share = binomial_interval(2, 2 + diverged)[0]
    assert high == pytest.approx(share * (2.05 + students_t(1) * 0.05) + (1 - share) * 5.0)


@pytest.mark.parametrize(
    "found",
    [
        accuracies(50.0),
        accuracies(99.0),
        accuracies(50.0, 52.0),
        accuracies(50.0, 51.0, 52.0, 50.5),
        accuracies(50.0, 50.0, 50.0, 50.0, 50.0),
        losses(2.0),
        losses(2.0, 2.0, 2.0),
    ],
)
def test_seeds_that_are_too_few_or_agree_exactly_have_no_interval(found):
    assert np.isnan(found.interval).all() and math.isnan(found.half_width)


def test_no_seed_has_no_number():
    nothing = accuracies()
    assert math.isnan(nothing.mean) and math.isnan(nothing.spread) and np.isnan(nothing.interval).all()


def test_a_spread_is_never_below_the_rounding_error():
    assert accuracies(50.0, 50.0).spread == pytest.approx(0.1 / math.sqrt(12))
    assert accuracies(50.0, 60.0).spread == pytest.approx(np.std([50, 60], ddof=1))


@pytest.mark.parametrize(
    "found, is_level",
    [
        (accuracies(50.0, 60.0, 41.0), True),
        (accuracies(50.0, 60.0, 40.0), False),
        (accuracies(91.0, 89.0, 88.0), True),
        (accuracies(99.0, 80.0, 81.0), True),
        (accuracies(99.0, 79.0, 80.0), False),
        (accuracies(99.0, 98.0, 97.0), False),
        (accuracies(50.0, 51.0, diverged=1), False),
        (losses(2.0, 4.0), True),
        (losses(2.0, 2.1, diverged=1), False),
    ],
)
def test_a_sample_is_level_where_its_seeds_scatter_about_one_value(found, is_level):
    assert found.is_level == is_level


def test_a_seed_at_the_threshold_solves_the_task():
    assert accuracies(90.3, 90.4, 90.5).solved == 2


def test_where_chance_is_one_of_two_the_best_is_still_100():
    coin = Scale(chance=50.0, solved=95.0, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
    found = difference(sample([100.0, 100.0, 99.0], coin, 0), sample([50.0, 51.0, 52.0], coin, 0))
    assert found.p == 0.03125 and found.low > 0
    assert (ACCURACY.best, LOSS.best, Scale(ceiling=3.0).best) == (100.0, 0.0, 3.0)


# Differences


@pytest.mark.parametrize("n, other_n", [(3, 3), (3, 8), (6, 4)])
def test_two_level_samples_are_compared_by_the_test_of_cochran_and_cox(n, other_n):
    first, second = gaussian(1, 50, n), gaussian(2, 54, other_n, 5.0)
    sides = mean_side(first.values), mean_side(second.values)
    assert first.is_level and second.is_level
    found = difference(first, second)
    assert (found.test, found.n) == ("t", min(n, other_n))
    assert found.estimate == pytest.approx(first.mean - second.mean, abs=1e-8)
    assert (found.low, found.high) == pytest.approx(cochran_cox_interval(found.estimate, sides))
    assert found.p == pytest.approx(cochran_cox_p(found.estimate, sides))


@pytest.mark.parametrize("counts", [(3, 3, 0, 3), (4, 5, 1, 5), (2, 3, 0, 5), (0, 3, 3, 4), (9, 10, 3, 8)])
def test_the_exact_test_is_boschloos(counts):
    solved, n, others, other_n = counts
    table = [[solved, others], [n - solved, other_n - others]]
    expected = stats.boschloo_exact(table, "two-sided").pvalue
    assert exact_p(*counts) == pytest.approx(expected)
    assert exact_p(others, other_n, solved, n) == pytest.approx(expected)


def test_small_exact_p_values_are_those_of_a_fair_coin():
    assert [exact_p(n, n, 0, n) for n in (2, 3, 4)] == [2 * 0.5 ** (2 * n) for n in (2, 3, 4)]
    assert exact_p(1, 3, 1, 3) == exact_p(0, 3, 0, 5) == exact_p(4, 4, 2, 2) == 1.0


def test_where_seeds_solve_the_task_their_counts_are_tested():
    solves, fails = accuracies(99.0, 99.0, 99.0), accuracies(20.0, 22.0, 24.0)
    found = difference(solves, fails)
    assert (found.test, found.p, found.estimate) == ("exact", 0.03125, 77.0)
    low_share, high_share = 0.025 ** (1 / 3), 1 - 0.025 ** (1 / 3)
    half = students_t(2) * 2 / math.sqrt(3)
    above = high_share * 100.0 + (1 - high_share) * (22.0 + half) - 22.0
    bounds = low_share * 99.0 + (1 - low_share) * 4.0, 22.0 - half
    assert found.high == pytest.approx(77.0 + math.hypot(0.0, 22.0 - bounds[1]))
    assert found.low == max(0.1, 77.0 - math.hypot(99.0 - bounds[0], above))


def test_an_interval_without_a_correction_by_the_test_is_that_of_zou_and_donner():
    first, second = accuracies(20.0, 24.0, 98.0, 99.0, 100.0), accuracies(25.0, 26.0, 95.0, 96.0, 97.0)
    found = difference(first, second)
    (low, high), (other_low, other_high) = first.interval, second.interval
    below = math.hypot(first.mean - low, other_high - second.mean)
    above = math.hypot(high - first.mean, second.mean - other_low)
    gap = first.mean - second.mean
    assert found.p == 1.0
    assert (found.low, found.high) == pytest.approx((gap - below, gap + above))


def test_diverged_seeds_are_the_outcomes_where_none_solves_the_task():
    stable, unstable = accuracies(60.0, 61.0, 62.0), accuracies(diverged=3)
    found = difference(stable, unstable)
    assert (found.test, found.p, found.estimate) == ("exact", 0.03125, 57.0) and 0 < found.low < 57 < found.high
    assert difference(stable, accuracies(63.0, diverged=2)).p == pytest.approx(exact_p(3, 3, 1, 3))


def test_solved_seeds_are_the_outcomes_where_some_diverge_and_others_solve_the_task():
    assert difference(accuracies(99.0, 98.0, diverged=1), accuracies(6.0, 7.0, 8.0)).p == exact_p(2, 3, 0, 3)


@pytest.mark.parametrize(
    "low, high, share", [(20.0, 99.0, 0.5), (40.0, 80.0, 0.5), (25.0, 80.0, 0.5), (20.0, 95.0, 0.6)]
)
@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_level_and_two_values_with_the_same_mean_are_seldom_different(low, high, share, n):
    rng = np.random.default_rng(n)
    mean, rejected, draws = low + share * (high - low), 0, 100
    for _ in range(draws):
        split = np.where(rng.random(n) < share, high, low) + rng.normal(0, 0.5, n)
        found = difference(accuracies(*rng.normal(mean, 1, n)), accuracies(*np.clip(split, 0, 100)))
        rejected += found.p <= LEVEL
    assert rejected <= stats.binom.ppf(0.999, draws, LEVEL)


def test_seeds_that_agree_on_either_side_are_not_different_where_one_label_may_have_both_values():
    assert difference(accuracies(99.0, 99.0, 98.0), accuracies(60.0, 61.0, 62.0)).p > LEVEL
    assert difference(accuracies(99.0, 99.0, 98.0), accuracies(8.0, 9.0, 10.0)).p == exact_p(3, 3, 0, 3)


def test_a_loss_that_diverges_is_a_failure_and_less_is_better():
    found = difference(losses(2.0, 2.1, 2.2), losses(diverged=3))
    assert (found.test, found.p) == ("exact", 0.03125) and found.low < found.estimate < found.high < 0
    steps = difference(sample([300.0, 400.0, 500.0], STEPS, 0), sample([], STEPS, 3))
    assert (steps.estimate, steps.p) == (-600.0, 0.03125) and steps.high < 0


def test_steps_that_agree_exactly_bound_a_difference_by_their_rounding_error():
    found = difference(sample([500.0] * 3, STEPS, 0), sample([], STEPS, 3))
    half = students_t(2) * 100 / math.sqrt(12) / math.sqrt(3)
    assert found.low == pytest.approx(-500 - half) and found.high == -100 and found.p == 0.03125


@pytest.mark.parametrize(
    "first, second",
    [
        (accuracies(*[91.0] * 10), accuracies(*[100.0] * 5, *[89.9] * 5)),
        (accuracies(*[20.0] * 10), accuracies(*[80.0] * 4, diverged=6)),
    ],
)
def test_the_label_with_the_worse_mean_is_never_significantly_better(first, second):
    assert exact_p(10, 10, 5, 10) < LEVEL
    found = difference(first, second)
    assert found.estimate < 0 and found.p == 1.0 and found.low < 0 <= found.high


@pytest.mark.parametrize(
    "first, second, reason",
    [
        (accuracies(), accuracies(50.0, 51.0, 52.0), "no seed"),
        (accuracies(50.0), accuracies(10.0, 11.0, 12.0), "single seed"),
        (accuracies(99.0, 99.0), accuracies(10.0, 11.0, 12.0), "two seeds"),
        (losses(2.0, 2.1), losses(3.0, 3.1), "two seeds"),
        (accuracies(8.7, 8.8, 8.7), accuracies(3.9, 4.0, 4.1), NEITHER_LEARNED),
        (accuracies(4.4, 4.5, 4.4), accuracies(diverged=3), NEITHER_LEARNED),
        (accuracies(99.0, 98.0, 97.0), accuracies(100.0, 100.0, 100.0), BOTH_SOLVE),
        (accuracies(50.0, 50.0, 50.0), accuracies(60.0, 60.0, 60.0), "zero variance"),
        (losses(2.0, 2.0, 2.0), losses(1.0, 1.0, 1.0), "zero variance"),
    ],
)
def test_what_cannot_be_told_is_not_tested(first, second, reason):
    found = difference(first, second)
    assert found.reason == reason and math.isnan(found.p) and found.test == ""


def test_fewer_seeds_than_the_least_are_counted_whatever_the_least_is(monkeypatch):
    monkeypatch.setattr(differences, "LEAST_SEEDS", 6)
    found = difference(accuracies(50.0, 51.0, 52.0, 53.0, 54.0), accuracies(10.0, 11.0, 12.0, 13.0, 14.0))
    assert found.reason == "5 seeds" and math.isnan(found.p)


def test_a_claim_of_no_loss_is_tested_where_both_solve_the_task():
    terms = [(1.0, accuracies(99.0, 98.0, 97.0)), (-1.0, accuracies(100.0, 100.0, 100.0))]
    assert math.isnan(combination(terms, -3.0).p)
    assert combination(terms, -3.0, tests_solved=True).p > LEVEL  # three seeds may all be lucky


def test_one_label_that_learns_or_spreads_is_enough_for_a_test():
    assert difference(accuracies(8.9, 9.0, 8.9), accuracies(3.9, 4.0, 4.1)).test == "t"
    assert difference(accuracies(50.0, 50.0, 50.0), accuracies(60.0, 61.0, 60.0)).test == "t"
    assert difference(accuracies(99.0, 99.0, 99.0), accuracies(99.0, 99.0, 50.0)).test == "exact"


def test_equal_numbers_differ_by_nothing():
    found = difference(losses(0.1 + 0.2, 0.3, 0.4), losses(0.3, 0.3, 0.4))
    assert found.estimate == 0.0 and found.p == pytest.approx(1.0)


@pytest.mark.parametrize("line", [-5.0, 0.0, 2.0])
def test_a_sum_over_samples_has_satterthwaites_degrees_of_freedom_on_either_side(line):
    weights = (0.5, -0.5, 0.5, -0.5)
    samples = [gaussian(seed, 40 + 5 * seed, n, 1.0 + seed) for seed, n in enumerate((3, 5, 4, 9))]
    sides = [side(*zip(*(mean_side(samples[i].values, 0.5) for i in places))) for places in ((0, 2), (1, 3))]
    estimate = sum(w * s.values.mean() for w, s in zip(weights, samples))
    found = combination([*zip(weights, samples)], line)
    assert (found.low, found.high) == pytest.approx(cochran_cox_interval(estimate, sides))
    assert found.p == pytest.approx(cochran_cox_p(estimate - line, sides))


def test_the_variance_of_split_seeds_in_a_sum_is_at_least_the_binomial_one():
    solves, level = accuracies(99.0, 99.0, 99.0), gaussian(0, 50, 3)
    error, freedom = solves.error()
    assert error == pytest.approx((99.0 - 4.0) * math.sqrt(4 / 5 * 1 / 5 / 3)) and freedom == 2
    shared, _ = solves.error(sharing=6)
    share = (3 + 1 / 6) / (3 + 2 / 6)
    assert shared == pytest.approx(95.0 * math.sqrt(share * (1 - share) / 3))
    found = combination([(0.5, solves), (-0.5, level), (0.5, solves), (-0.5, level)])
    unseen = max(100.0 - level.mean, level.mean - 4.0) * math.sqrt(4 / 5 * 1 / 5 / 3)  # it stands apart
    sides = [side([(0.5 * one) ** 2] * 2, [2, 2]) for one in (error, unseen)]
    assert (found.low, found.high) == pytest.approx(cochran_cox_interval(99.0 - level.mean, sides))


def test_the_error_of_an_average_is_that_of_its_parts_or_of_its_own_seeds():
    parts = [gaussian(seed, 40 + seed, 4) for seed in range(6)]
    found = average(*parts)
    own = found.values.std(ddof=1) / 2
    joined = math.sqrt(sum(part.values.var(ddof=1) / 4 for part in parts)) / 6
    assert found.error()[0] == pytest.approx(max(own, joined))
    moving = np.array([0.0, 10.0, 20.0, 30.0])
    together = average(*(accuracies(*(part.values + moving)) for part in parts))
    assert together.error() == pytest.approx((together.values.std(ddof=1) / 2, 3))


def test_an_average_whose_parts_all_agree_has_an_interval_of_some_width():
    found = average(*[accuracies(99.0, 99.0, 99.0)] * 6)
    low, high = found.interval
    assert low < 97 and high == 100.0


# Families


def test_holm_multiplies_the_k_th_smallest_by_what_is_left_and_never_falls():
    assert holm([0.03, 0.01, 0.02, 0.9]) == pytest.approx([0.06, 0.04, 0.06, 0.9])
    assert holm([0.4, 0.7]) == pytest.approx([0.8, 0.8])
    assert holm([0.02], share=0.2) == pytest.approx([0.1])


def test_holm_does_not_count_what_is_not_a_number():
    adjusted = holm([NAN, 0.02, NAN, 0.03])
    assert np.isnan(adjusted).tolist() == [True, False, True, False]
    assert adjusted[1::2] == pytest.approx([0.04, 0.04])
    assert holm([]) == [] and math.isnan(holm([NAN])[0])


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_reorders_or_lowers(p_values):
    adjusted = holm(p_values)
    assert all(p <= q <= 1.0 for p, q in zip(p_values, adjusted))
    for (p, q), (r, s) in itertools.combinations(zip(p_values, adjusted), 2):
        assert (p - r) * (q - s) >= 0


def test_all_that_may_be_the_best_are_named_from_the_best_on():
    of_column = {"low": accuracies(20.0, 21.0, 22.0), "b": accuracies(60.0, 61.0, 62.0), "a": accuracies(62, 60, 63)}
    assert may_be_best(of_column, True) == ["a", "b", "low"]  # of which other seeds may solve the task
    of_column = {name: accuracies(*[*one.values] * 3) for name, one in of_column.items()}
    assert may_be_best(of_column, True) == ["a", "b"]
    assert may_be_best(of_column, False) == ["low"]
    of_losses = {"low": losses(2.0, 2.01, 2.02), "high": losses(3.0, 3.01, 3.02)}
    assert may_be_best(of_losses, False) == ["low"]


def test_a_noisy_best_does_not_save_a_label_that_another_beats():
    of_column = {
        "noisy": accuracies(10.0, 80.0, 88.0),
        "sure": accuracies(50.0, 50.1, 50.2),
        "poor": accuracies(*[12.0, 12.1] * 5),
    }
    assert may_be_best(of_column, True) == ["noisy", "sure"]


def test_rivals_and_columns_share_the_level_at_which_a_label_is_ruled_out():
    of_column = {"a": accuracies(60.0, 61.0, 62.0), "b": accuracies(57.0, 58.0, 59.0)}
    p = difference(of_column["a"], of_column["b"]).p / 2
    assert LEVEL / 2 < p < LEVEL
    assert may_be_best(of_column, True) == ["a"]
    assert may_be_best(of_column, True, columns=2) == ["a", "b"]
    assert may_be_best(of_column | {"poor": accuracies(10.0, 11.0, 12.0, 11.5, 10.5)}, True) == ["a", "b"]


def test_labels_that_are_not_tested_may_be_the_best():
    of_column = {"a": accuracies(100.0, 100.0, 100.0), "b": accuracies(95.0, 96.0, 97.0)}
    assert may_be_best(of_column, True) == ["a", "b"]


# Whatever the seeds gave


@st.composite
def samples(draw, scale: Scale | None = None, least: int = 0, most: int = 5) -> Sample:
    scale = scale or draw(st.sampled_from([ACCURACY, LOSS, STEPS]))
    n = draw(st.integers(least, most))
    diverged = draw(st.integers(0, n))
    numbers = {
        ACCURACY: st.sampled_from([0.0, 3.0, 4.0, 4.2, 50.0, 90.3, 90.4, 99.9, 100.0]) | st.floats(0, 100),
        LOSS: st.sampled_from([0.0, 2.0, 2.001, 5.0, 6.0]) | st.floats(0, 6),
        STEPS: st.integers(1, 10).map(lambda count: 100.0 * count),
    }
    values = [draw(numbers[scale]) for _ in range(n - diverged)]
    return sample(values, scale, diverged)


@st.composite
def of_one_column(draw, count: int, least: int = 0) -> list[Sample]:
    scale = draw(st.sampled_from([ACCURACY, LOSS, STEPS]))
    return [draw(samples(scale, least)) for _ in range(count)]


EPS = 1e-6


@pytest.mark.slow
@given(samples())
def test_an_interval_holds_the_mean_and_stays_within_the_limits(found):
    low, high = found.interval
    assert math.isnan(low) == math.isnan(high)
    if not math.isnan(low):
        assert found.scale.limits[0] <= low <= found.mean + EPS and found.mean - EPS <= high <= found.scale.limits[1]
        assert found.n > 1


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(of_one_column(2))
def test_a_difference_is_complete_and_its_test_agrees_with_its_interval(pair):
    found = difference(*pair)
    assert math.isnan(found.p) == bool(found.reason) == (not found.test)
    assert math.isnan(found.low) == math.isnan(found.high) == (found.n < 2)
    assert math.isnan(found.estimate) == (found.n < 1)
    if found.n > 1:
        assert found.low <= found.estimate + EPS and found.estimate - EPS <= found.high
    if found.test:
        assert found.n >= 3 and 0 < found.p <= 1
        assert (found.p <= LEVEL) == (found.low > 0 or found.high < 0) or abs(found.p - LEVEL) < EPS
    if found.test == "exact":
        low, high = pair[0].scale.limits
        assert low - high <= found.low and found.high <= high - low


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(of_one_column(2, least=1))
def test_a_difference_the_other_way_round_is_its_negative(pair):
    there, back = difference(*pair), difference(*pair[::-1])
    assert (back.estimate, back.n, back.test, back.reason) == (-there.estimate, there.n, there.test, there.reason)
    assert (-back.high, -back.low, back.p) == pytest.approx((there.low, there.high, there.p), nan_ok=True)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(of_one_column(2, least=3), st.permutations(range(5)))
def test_the_order_of_the_seeds_does_not_matter(pair, order):
    def shuffled(one: Sample) -> Sample:
        places = [i for i in order if i < one.n]
        return Sample(one.values[places], one.scale, one.diverged[places])

    there, again = difference(*pair), difference(*map(shuffled, pair))
    assert (there.low, there.high, there.p) == pytest.approx((again.low, again.high, again.p), nan_ok=True)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(of_one_column(4, least=2), st.sampled_from([0.0, 3.0]))
def test_a_sum_over_samples_is_complete(four, line):
    found = combination([*zip((1.0, -1.0, -1.0, 1.0), four)], line)
    assert math.isfinite(found.low) and math.isfinite(found.high) and found.low <= found.estimate <= found.high
    assert math.isnan(found.p) == bool(found.reason)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(of_one_column(2, least=2))
def test_the_interval_of_a_difference_does_not_depend_on_the_line(pair):
    terms = [*zip((1.0, -1.0), pair)]
    plain, shifted = combination(terms), combination(terms, line=0.5)
    assert (plain.estimate, plain.low, plain.high) == (shifted.estimate, shifted.low, shifted.high)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(samples(ACCURACY, 3), min_size=1, max_size=5), st.booleans())
def test_the_best_mean_may_always_be_the_best(found, is_higher_better):
    of_column = dict(enumerate(found))
    best = may_be_best(of_column, is_higher_better)
    means = [one.mean for one in found]
    assert of_column[best[0]].mean == (max if is_higher_better else min)(means)


# Numbers of seeds


def test_the_seeds_that_are_needed_are_those_of_the_usual_formula_where_the_spread_is_known():
    first, second = gaussian(0, 50, 200, 5.0), gaussian(1, 58, 200, 5.0)
    gap = second.mean - first.mean
    spread = math.sqrt((first.spread**2 + second.spread**2) / 2)
    expected = 2 * ((1.96 + 0.84) * spread / gap) ** 2
    n, power = seeds_needed([(1.0, first), (-1.0, second)])
    assert expected - 1 <= n <= expected + 4 and power >= 0.8  # few seeds have few degrees of freedom


@pytest.mark.slow
def test_more_seeds_are_needed_for_a_smaller_effect_and_a_stricter_level():
    few = seeds_needed([(1.0, gaussian(0, 50, 30)), (-1.0, gaussian(1, 60, 30))])[0]
    more = seeds_needed([(1.0, gaussian(0, 50, 30)), (-1.0, gaussian(1, 54, 30))])[0]
    strict = seeds_needed([(1.0, gaussian(0, 50, 30)), (-1.0, gaussian(1, 54, 30))], level=0.005)[0]
    assert 3 <= few < more < strict


def test_no_number_of_seeds_shows_an_effect_that_is_not_there():
    same = gaussian(0, 50, 10)
    assert seeds_needed([(1.0, same), (-1.0, same)])[0] == 0
    assert seeds_needed([(1.0, accuracies(50.0)), (-1.0, same)])[0] == 0


@pytest.mark.parametrize("gap, n", [(0.1, 20), (0.06, 20), (0.0, 8)])
def test_power_is_that_of_students_t_where_the_spread_is_known(gap, n):
    rng = np.random.default_rng(0)
    first, second = (losses(*rng.normal(2.0, 0.1, 200)) for _ in range(2))
    spread = math.sqrt((first.spread**2 + second.spread**2) / 2)
    shift = gap / spread * math.sqrt(n / 2)
    critical = stats.t.ppf(0.975, n - 1)
    expected = stats.nct.sf(critical, n - 1, shift)
    found = power_at([(1.0, first), (-1.0, second)], gap, n, draws=400)
    assert abs(found - expected) < 3 * math.sqrt(max(0.02, expected * (1 - expected)) / 400) + 0.02


@pytest.mark.slow
def test_seeds_that_split_need_as_many_seeds_as_the_exact_test_does():
    solves, fails = accuracies(*[99.0] * 30), accuracies(*[20.0, 21.0, 22.0] * 10)
    assert seeds_needed([(1.0, solves), (-1.0, fails)])[0] == 3
    half = accuracies(*[99.0] * 15, *[20.0] * 15)
    assert seeds_needed([(1.0, solves), (-1.0, half)], draws=100)[0] > 6


@pytest.mark.slow
def test_the_promised_power_is_reached():
    rng, stored = np.random.default_rng(5), 5
    reached = []
    for _ in range(20):
        gap = rng.uniform(4, 10)
        draw = lambda mean, n: accuracies(*rng.normal(mean, 4, n))  # noqa: E731
        n, _ = seeds_needed([(1.0, draw(50, stored)), (-1.0, draw(50 + gap, stored))], draws=100)
        if n:
            reached.append(np.mean([difference(draw(50, n), draw(50 + gap, n)).p <= LEVEL for _ in range(60)]))
    assert 0.65 <= np.mean(reached) <= 0.99  # the number of seeds also makes up for the few that are stored


@pytest.mark.parametrize(("p", "best"), [(2 * LEVEL, ["a"]), (2 * LEVEL + 1e-9, ["a", "b"])])
def test_what_is_ruled_out_as_the_best_at_exactly_the_level_is_ruled_out(p, best, monkeypatch):
    gain = Difference(1.0, 0.0, 2.0, p, 3, "t")
    monkeypatch.setattr(many, "difference", lambda *pair: gain)
    assert may_be_best({"b": gaussian(0, 50.0, 3), "a": gaussian(0, 60.0, 3)}, True) == best


def test_seeds_that_agree_low_may_have_others_that_solve_the_task():
    """Five at 10 and none at 100 may have the mean 30, which all of the other label have, with a probability of 70 in
    90 each; that five at 30 may have the mean 10 is far less likely."""
    near = (-0.1, -0.05, 0.0, 0.05, 0.1)
    gain = difference(accuracies(*(30 + x for x in near)), accuracies(*(10 + x for x in near)))
    assert gain.p == pytest.approx(2 * (70 / 90) ** 5)
