"""Inference against SciPy, against definitions written out, at unequal numbers of seeds, and at every boundary."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from madbench.analysis.inference import (
    BOTH_SOLVE,
    LEVEL,
    NEITHER_LEARNED,
    Sample,
    Scale,
    binomial_interval,
    combination,
    difference,
    exact_p,
    holm,
    may_be_best,
    students_t,
)
from references import cochran_cox_interval, cochran_cox_p, level_p, mean_side

PERCENT = Scale(chance=0.0, solved=90.0, ceiling=100.0, limits=(0.0, 100.0), resolution=0.5)
"""Of which every boundary is a number that floating point has."""
LOSS = Scale(chance=5.0, limits=(0.0, math.inf), resolution=0.001)
UNEQUAL = [(3, 10), (10, 3), (3, 5), (5, 4), (7, 12)]
NAN = math.nan


def percents(*values: float, diverged: int = 0) -> Sample:
    is_diverged = np.arange(len(values) + diverged) >= len(values)
    return Sample(np.array([*values, *[PERCENT.chance] * diverged], dtype=float), PERCENT, is_diverged)


def solving(count: int, n: int) -> Sample:
    """``count`` of ``n`` seeds solve the task."""
    return percents(*(95.0 + i / 2 for i in range(count)), *(20.0 + i / 2 for i in range(n - count)))


def level(seed: int, mean: float, n: int, spread: float = 3.0, scale: Scale = PERCENT) -> Sample:
    return Sample(np.random.default_rng(seed).normal(mean, spread, n), scale)


def average(*parts: Sample) -> Sample:
    values = np.mean([part.values for part in parts], axis=0)
    return Sample(values, Scale(0.0, NAN, 100.0, (0.0, 100.0), 0.5), None, parts)


# Holm


def closed_bonferroni(p_values: Sequence[float]) -> list[float]:
    """Holm's procedure as the closed test it is: the largest Bonferroni p of all families that a hypothesis is in."""
    found = []
    for i in range(len(p_values)):
        families = itertools.chain.from_iterable(
            itertools.combinations(range(len(p_values)), size) for size in range(1, len(p_values) + 1)
        )
        found.append(max(min(1.0, len(one) * min(p_values[j] for j in one)) for one in families if i in one))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1) | st.sampled_from([0.01, 0.02, 0.05]), max_size=7))
def test_holms_method_is_the_closed_test_of_bonferroni(p_values):
    assert holm(p_values) == pytest.approx(closed_bonferroni(p_values))


@pytest.mark.parametrize("m", [1, 2, 3, 9, 10, 11, 30, 200])
def test_the_smallest_of_m_p_values_is_multiplied_by_m_and_the_largest_by_one(m):
    p_values = [0.0001 * (i + 1) for i in range(m - 1)] + [0.5]
    expected, largest = [], 0.0
    for i, p in enumerate(p_values):
        largest = max(largest, min(1.0, (m - i) * p))
        expected.append(largest)
    order = np.random.default_rng(m).permutation(m)
    adjusted = holm([p_values[i] for i in order])
    assert adjusted == pytest.approx([expected[i] for i in order])


def test_what_is_not_tested_leaves_the_factors_of_the_others():
    p_values = [0.001 * (i + 1) for i in range(10)]
    mixed = [p for p in p_values for p in (NAN, p)]
    assert (
        holm(mixed)[1::2]
        == holm(p_values)
        == pytest.approx(np.maximum.accumulate([0.001 * (i + 1) * (10 - i) for i in range(10)]))
    )


# The exact test


def boschloo(solved: int, n: int, others: int, other_n: int) -> float:
    """Written out: twice the least upper bound, over the common share, of the probability of a table as extreme.

    Extreme by the p-value of Fisher's one-sided test, on the side on which the counts are.
    """
    if solved * other_n < others * n:
        solved, n, others, other_n = others, other_n, solved, n
    tables = [(a, b) for a in range(n + 1) for b in range(other_n + 1)]
    fisher = {(a, b): stats.hypergeom.sf(a - 1, n + other_n, a + b, n) for a, b in tables}
    extreme = [table for table in tables if fisher[table] <= fisher[solved, others] * (1 + 1e-9)]
    share = np.linspace(0, 1, 2001)
    total = sum(stats.binom.pmf(a, n, share) * stats.binom.pmf(b, other_n, share) for a, b in extreme)
    return min(1.0, 2 * float(total.max()))


@pytest.mark.slow
@pytest.mark.parametrize("n, other_n", UNEQUAL)
def test_the_exact_test_of_unequal_numbers_of_seeds_is_boschloos(n, other_n):
    """Of every table of few seeds, and of those of many whose second count is at an end or in the middle."""
    counts = range(other_n + 1) if n + other_n < 10 else (0, other_n // 2, other_n)
    for solved, others in itertools.product(range(n + 1), counts):
        p = exact_p(solved, n, others, other_n)
        if solved * other_n == others * n:
            assert p == 1.0
        else:
            table = [[solved, others], [n - solved, other_n - others]]
            assert p == pytest.approx(stats.boschloo_exact(table, "two-sided").pvalue, abs=1e-8)


@pytest.mark.parametrize("counts", [(3, 3, 2, 10), (3, 3, 0, 10), (1, 3, 9, 10), (4, 5, 1, 3), (2, 4, 7, 7)])
def test_the_exact_test_is_the_one_of_the_definition(counts):
    assert exact_p(*counts) == pytest.approx(boschloo(*counts), abs=1e-4)


def counts_p(first: Sample, second: Sample) -> float:
    """Boschloo's test, and where the seeds of one agree that of a level at the mean of the other's two values."""
    better, worse = (first, second) if first.mean > second.mean else (second, first)
    (above, below), (other_above, other_below) = better.modes, worse.modes
    p = exact_p(len(above), better.n, len(other_above), worse.n)
    if not len(other_above):
        p = max(p, level_p(worse.mean, above.mean(), below.mean() if len(below) else 0.0, len(above), better.n))
    if not len(below):
        other = other_above.mean() if len(other_above) else 100.0
        p = max(p, level_p(better.mean, other_below.mean(), other, len(other_below), worse.n))
    return p


@pytest.mark.slow
@pytest.mark.parametrize("n, other_n", [(3, 10), (5, 4)])
def test_a_difference_tests_the_counts_of_its_own_samples(n, other_n):
    """Shares are compared, not counts: of 3 against 10 seeds the smaller count may be the larger share."""
    compared = 0
    for solved, others in itertools.product(range(n + 1), range(other_n + 1)):
        first, second = solving(solved, n), solving(others, other_n)
        found = difference(first, second)
        if found.test == "exact":
            is_agreed = (found.estimate > 0) == (solved * other_n > others * n)
            expected = counts_p(first, second) if is_agreed else 1.0
            assert found.p == pytest.approx(expected), (solved, others)
            assert (found.low > 0 or found.high < 0) == (expected <= LEVEL)
            assert found.n == min(n, other_n)
            compared += expected < 1.0
    assert compared > n


def test_a_larger_share_is_not_a_larger_count():
    found = difference(solving(3, 3), solving(4, 10))
    assert found.estimate > 0 and found.p == exact_p(3, 3, 4, 10) < 1.0
    assert difference(solving(4, 10), solving(3, 3)).p == found.p
    assert exact_p(1, 2, 1, 6) < 1.0 and exact_p(1, 3, 2, 6) == 1.0  # equal counts, equal shares


@pytest.mark.parametrize("n, other_n", [(3, 10), (10, 3)])
def test_seeds_that_do_not_diverge_are_counted_by_their_own_numbers(n, other_n):
    steady, unstable = percents(*[60.0 + i / 2 for i in range(n)]), percents(61.0, 62.0, diverged=other_n - 2)
    found = difference(steady, unstable)
    assert found.test == "exact" and found.p == pytest.approx(exact_p(n, n, 2, other_n))


def test_a_line_is_tested_by_t_even_where_seeds_split():
    first, second = solving(3, 3), percents(20.0, 22.0, 24.0)
    found = combination([(1.0, first), (-1.0, second)], line=10.0)
    assert found.test == "t"
    sides = [(one.error()[0] ** 2, 2) for one in (first, second)]
    assert found.p == pytest.approx(cochran_cox_p(found.estimate - 10.0, sides))
    plain = difference(first, second)
    assert plain.test == "exact" and (plain.low, plain.high) == (found.low, found.high)


# Shares, means and differences


@pytest.mark.parametrize("n", [1, 3, 5, 10, 12, 13, 40, 100])
def test_shares_of_any_number_of_seeds_have_clopper_and_pearsons_interval(n):
    for k in {0, 1, n // 3, n // 2, n - 1, n}:
        expected = stats.binomtest(k, n).proportion_ci(0.95, "exact")
        low, high = binomial_interval(k, n)
        assert (low, high) == pytest.approx((expected.low, expected.high))
        if 0 < k < n:  # its definition
            assert stats.binom.sf(k - 1, n, low) == pytest.approx(LEVEL / 2)
            assert stats.binom.cdf(k, n, high) == pytest.approx(LEVEL / 2)


@pytest.mark.parametrize("n, other_n", [*UNEQUAL, (2, 30), (30, 2)])
@pytest.mark.parametrize("spreads", [(3.0, 3.0), (1.0, 9.0), (9.0, 1.0)])
def test_the_test_of_unequal_numbers_and_spreads_lies_between_those_of_the_two_degrees_of_freedom(n, other_n, spreads):
    first, second = (level(i, 3.0, count, s / 9, LOSS) for i, (count, s) in enumerate(zip((n, other_n), spreads)))
    found, welch = difference(first, second), stats.ttest_ind(first.values, second.values, equal_var=False)
    sides = mean_side(first.values), mean_side(second.values)
    assert (found.low, found.high) == pytest.approx(cochran_cox_interval(found.estimate, sides))
    if min(n, other_n) > 2:
        assert (found.test, found.p) == ("t", pytest.approx(cochran_cox_p(found.estimate, sides)))
        fewest, most = (2 * stats.t.sf(abs(welch.statistic), freedom) for freedom in sorted((n - 1, other_n - 1)))
        assert most - 1e-12 <= found.p <= fewest + 1e-12
    else:
        assert found.reason == "two seeds" and math.isnan(found.p)


def test_an_interval_ends_at_the_limits_on_either_side():
    scale = Scale(limits=(0.0, 100.0), resolution=0.5)
    high, low = (Sample(np.array(values), scale) for values in ((88.0, 60.0, 89.0), (1.0, 30.0, 2.0)))
    half = students_t(2) * math.hypot(high.error()[0], low.error()[0])
    assert high.mean - low.mean + half > 100.0
    up, down = difference(high, low), difference(low, high)
    assert (up.high, down.low) == (100.0, -100.0) and up.low == -down.high == pytest.approx(up.estimate - half)
    doubled = combination([(2.0, high), (-2.0, low)])  # the limits of a sum are those of its weights
    assert doubled.high == 200.0 and doubled.low == pytest.approx(2 * up.low)


@pytest.mark.parametrize("parts", [2, 6])
def test_the_parts_of_an_average_share_one_more_success_and_one_more_failure(parts):
    split = [solving(3, 3) for _ in range(parts)]
    share = (3 + 1 / parts) / (3 + 2 / parts)
    own = (split[0].values.mean() - 0.0) * math.sqrt(share * (1 - share) / 3)
    error, freedom = average(*split).error()
    assert error == pytest.approx(own / math.sqrt(parts)) and freedom == pytest.approx(2 * parts)
    assert error < split[0].error()[0] / math.sqrt(parts)


def test_an_average_has_an_interval_from_three_seeds_on():
    two, three = (average(*[percents(*values)] * 3) for values in ((50.0, 53.0), (50.0, 53.0, 51.0)))
    assert math.isnan(two.half_width) and np.isnan(two.interval).all()
    error, freedom = three.error()
    assert three.half_width == pytest.approx(students_t(freedom) * error)


@pytest.mark.parametrize("solved, n", [(2, 3), (1, 3), (9, 10)])
def test_seeds_that_split_have_the_error_of_their_spread_or_the_binomial_one(solved, n):
    split = solving(solved, n)
    successes, others = split.modes
    share = (solved + 1) / (n + 2)
    binomial = (successes.mean() - others.mean()) * math.sqrt(share * (1 - share) / n)
    assert split.error() == (pytest.approx(max(split.values.std(ddof=1) / math.sqrt(n), binomial)), n - 1)


def test_an_average_has_nothing_to_solve_and_no_outcome_of_its_own_where_runs_diverged():
    parts = [percents(50.0, 52.0, diverged=1), percents(60.0, 61.0, 59.0)]
    values = np.mean([part.values for part in parts], axis=0)
    found = Sample(values, PERCENT, np.array([False, False, True]), tuple(parts))
    assert not found.has_threshold and not found.has_outcomes and found.is_level
    error, freedom = found.error()
    assert found.half_width == pytest.approx(students_t(freedom) * error)


def test_only_a_plain_difference_of_two_samples_is_tested_by_counts():
    terms = [(1.0, solving(3, 3)), (-1.0, percents(20.0, 21.0, 22.0))]
    assert combination(terms).test == "exact"
    for factor in (0.5, 2.0):
        assert combination([(factor * weight, one) for weight, one in terms]).test == "t"
    assert combination([(-weight, one) for weight, one in terms]).test == "t"


# The best


def marked(samples: dict[str, Sample], columns: int) -> list[str]:
    """Written out for level samples: nobody with a better mean is better at the shared one-sided level."""
    found = []
    for name, one in samples.items():
        better = [rival for rival in samples.values() if rival.mean > one.mean]
        p_values = [
            cochran_cox_p(rival.mean - one.mean, [mean_side(rival.values), mean_side(one.values)]) / 2
            for rival in better
        ]
        if all(p > LEVEL / (columns * (len(samples) - 1)) for p in p_values):
            found.append(name)
    return sorted(found, key=lambda name: -samples[name].mean)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2, 7])
@pytest.mark.parametrize("count", [2, 3, 8])
def test_marks_share_the_level_between_rivals_and_columns(columns, count):
    rng = np.random.default_rng(10 * columns + count)
    wide = Scale(limits=(0.0, 1000.0), resolution=0.5)
    sizes = set()
    for _ in range(8):
        numbers = rng.integers(3, 11, count)
        samples = {
            f"label {i}": Sample(rng.normal(50 + 3 * i, rng.uniform(0.5, 4), n), wide) for i, n in enumerate(numbers)
        }
        assert may_be_best(samples, True, columns) == marked(samples, columns)
        sizes.add(len(marked(samples, columns)))
    assert len(sizes) > 1


# Boundaries


@pytest.mark.parametrize("n", [3, 10])
def test_seeds_that_differ_by_the_step_have_a_variance(n):
    apart, alike = percents(50.0, *[50.5] * (n - 1)), percents(50.0, *[50.25] * (n - 1))
    assert not apart.has_zero_spread and alike.has_zero_spread and not percents(50.0).has_zero_spread
    assert difference(apart, percents(*[60.0] * n)).test == "t"
    assert difference(alike, percents(*[60.0] * n)).reason == "zero variance"


def test_seeds_as_far_apart_as_one_level_may_be_are_level():
    assert percents(100.0, 80.0, 81.0).is_level and not percents(100.0, 79.5, 81.0).is_level


def test_a_mean_as_far_from_chance_as_not_to_have_learned_is_not_tested():
    chance = percents(0.0, 0.5, 1.0)
    assert difference(percents(4.5, 5.0, 5.5), chance).reason == NEITHER_LEARNED
    assert difference(percents(4.5, 5.5, 6.0), chance).test == "t"


def test_a_mean_far_below_chance_is_not_at_chance():
    coin = Scale(chance=50.0, solved=95.0, ceiling=100.0, limits=(0.0, 100.0), resolution=0.5)
    below, at = (Sample(np.array([m - 1, m, m + 1]), coin) for m in (30.0, 50.0))
    assert below.has_learned and not at.has_learned and difference(below, at).test == "t"


@pytest.mark.parametrize(
    "n, other_n, reason", [(3, 3, ""), (2, 10, "two seeds"), (10, 2, "two seeds"), (10, 1, "single seed")]
)
def test_the_label_with_the_fewest_seeds_says_whether_there_is_a_test(n, other_n, reason):
    found = difference(level(0, 50.0, n), level(1, 60.0, other_n))
    assert (found.reason, found.n) == (reason, min(n, other_n)) and bool(found.test) == (not reason)


@pytest.mark.parametrize("n, other_n", [(3, 10), (10, 3)])
def test_one_label_that_does_not_always_solve_it_is_enough_for_a_test(n, other_n):
    always = solving(n, n)
    assert difference(always, solving(other_n, other_n)).reason == BOTH_SOLVE
    assert difference(always, solving(other_n - 1, other_n)).test == "exact"
