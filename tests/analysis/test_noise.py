from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.analysis.noise import least_difference, not_told_apart


def test_the_least_difference_of_two_pairs_is_students():
    values = {"S": [1.0, 1.2], "R": [2.0, 2.4]}
    pooled = math.sqrt((statistics.variance(values["S"]) + statistics.variance(values["R"])) / 2)
    assert least_difference(values) == pytest.approx(4.303 * pooled * math.sqrt(2 / 2))


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
def test_a_pair_is_in_a_set_exactly_when_it_is_not_told_apart(means, difference):
    sets = not_told_apart(means, difference)
    for one, other in itertools.combinations(means, 2):
        within = abs(means[one] - means[other]) <= difference
        assert any({one, other} <= set(of_it) for of_it in sets) == within
    assert all(not set(a) <= set(b) for a, b in itertools.permutations(sets, 2))
