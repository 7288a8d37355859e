"""Rank correlations, their intervals over labels, and intraclass correlations over seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from madbench.analysis.agreement import LEAST_LABELS, intraclass_correlation, rank_correlation


def columns(n: int, seed: int, share: float = 0.0) -> tuple[dict[str, float], dict[str, float]]:
    """Two columns of scores of ``n`` labels. They share the given part of their variance."""
    rng = np.random.default_rng(seed)
    common, *own = rng.normal(size=(3, n))
    return tuple(dict(zip(map(str, range(n)), math.sqrt(share) * common + math.sqrt(1 - share) * one)) for one in own)


def test_rank_correlation_equals_scipys_with_and_without_ties():
    for seed in range(5):
        x, y = columns(12, seed, 0.5)
        assert rank_correlation(x, y).value == pytest.approx(stats.spearmanr([*x.values()], [*y.values()]).statistic)
        tied = {name: round(value) for name, value in x.items()}
        expected = stats.spearmanr([*tied.values()], [*y.values()]).statistic
        assert rank_correlation(tied, y).value == pytest.approx(expected)


def test_rank_correlation_matches_labels_by_name_and_ignores_unpaired_labels():
    x, _ = columns(8, 0)
    shuffled = {name: x[name] for name in reversed(x)} | {"another": 99.0}
    found = rank_correlation(x, shuffled)
    assert found.value == pytest.approx(1) and found.labels == 8


def test_rank_correlation_is_nan_for_few_labels_or_equal_values():
    x, y = columns(LEAST_LABELS - 1, 0)
    assert math.isnan(rank_correlation(x, y).value) and math.isnan(rank_correlation(x, y).low)
    x, _ = columns(8, 0)
    assert math.isnan(rank_correlation(x, dict.fromkeys(x, 1.0)).value)


@pytest.mark.slow
def test_bootstrap_intervals_of_the_rank_correlation_cover_the_true_value():
    whole = columns(20_000, 99, 0.6)
    truth = stats.spearmanr(*[[*one.values()] for one in whole]).statistic
    found = [rank_correlation(*columns(33, seed, 0.6)) for seed in range(30)]
    held = sum(one.low <= truth <= one.high for one in found)
    assert held >= 24  # 28.5 expected; a bootstrap of 33 labels is a little narrow
    assert np.mean([one.high - one.low for one in found]) < 0.8


def test_intraclass_correlation_equals_that_of_an_analysis_of_variance():
    rng = np.random.default_rng(1)
    values = [rng.normal(mean, 2, size=4) for mean in rng.normal(0, 3, size=9)]
    f = stats.f_oneway(*values).statistic
    assert intraclass_correlation(values).value == pytest.approx((f - 1) / (f + 3))


@pytest.mark.slow
def test_the_intraclass_correlation_of_unequal_seeds_is_the_share_of_variance():
    rng = np.random.default_rng(2)
    values = [rng.normal(mean, 1, size=int(rng.integers(2, 8))) for mean in rng.normal(0, 2, size=1000)]
    assert intraclass_correlation(values).value == pytest.approx(4 / 5, abs=0.03)


def test_intraclass_correlation_is_nan_with_one_seed_per_label():
    assert math.isnan(intraclass_correlation([np.array([float(i)]) for i in range(8)]).value)
