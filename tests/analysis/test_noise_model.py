"""Noise models: what is lent to a few seeds, when, and that it comes from the file alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from madbench.analysis.inference import NEITHER_LEARNED, Sample, Scale, combination, difference
from madbench.analysis.noise_model import FOLDER, WIDE_NOTE, Noise, NoiseModel, noise_note, noise_of
from madbench.errors import ConfigError
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.scoring import scoring_of
from quick_noise import QUICK_NOISE
from references import cochran_cox_interval, cochran_cox_p, level_p, side

PERCENT = Scale(chance=4.0, solved=90.4, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
NOISE = Noise(
    protocol="",
    heuristic=30.0,
    ceiling=100.0,
    low=1.0,
    middle=3.0,
    high=0.1,
    lent=3.0,
    surprises=0.1,
    jump=10.0,
    source="made-1",
)
NOTHING = replace(NOISE, lent=0.0, surprises=1e-12, jump=0.0)


def sample(*values: float, noise: Noise | None = NOISE, diverged: int = 0) -> Sample:
    is_diverged = np.arange(len(values) + diverged) >= len(values)
    return Sample(np.array([*values, *[PERCENT.chance] * diverged]), PERCENT, is_diverged, noise=noise)


def error_of(found: Sample) -> tuple[float, float]:
    """Variance of the mean and its degrees of freedom, written out."""
    n, own = found.n, max(found.values.var(ddof=1), 0.1**2 / 12)
    x = min(1, max(0, (found.mean - 30) / 70))
    lent = 1.0 * (1 - x) ** 2 + 9.0 * 2 * x * (1 - x) + 0.01 * x**2
    moderated = (3 * lent + (n - 1) * own) / (n + 2)
    variance, freedom = (moderated, n + 2) if moderated > own else (own, n - 1)
    share = 0.1 / (n + 0.1)
    unseen = 100 * share * (1 - share) / (n + 1.1)
    return side([variance / n, unseen], [freedom, n + 2])


@pytest.mark.parametrize("values", [(31.0, 30.0, 32.0), (100.0, 100.0, 99.9), (60.0, 75.0, 90.0), (50.0, 50.5)])
def test_the_error_of_a_mean_is_that_of_lent_variance_and_surprises(values):
    found = sample(*values)
    variance, freedom = error_of(found)
    assert found.error() == pytest.approx((math.sqrt(variance), freedom))
    low, high = cochran_cox_interval(found.mean, [(variance, freedom)])
    assert found.interval == pytest.approx((max(0, low), min(100, high)))


@pytest.mark.parametrize("n, other_n", [(3, 3), (3, 10), (5, 2)])
def test_a_difference_is_that_of_cochran_and_cox_with_these_errors(n, other_n):
    rng = np.random.default_rng(n)
    first, second = sample(*rng.normal(60, 2, n)), sample(*rng.normal(50, 3, other_n))
    found, sides = difference(first, second), [error_of(first), error_of(second)]
    assert (found.low, found.high) == pytest.approx(cochran_cox_interval(found.estimate, sides))
    if min(n, other_n) > 2:
        assert (found.test, found.p) == ("t", pytest.approx(cochran_cox_p(found.estimate, sides)))


@pytest.mark.parametrize("values", [(50.0, 53.0, 52.0), (31.0, 33.0, 32.5, 31.5, 30.0)])
def test_a_model_that_lends_nothing_leaves_students_interval(values):
    from scipy import stats

    expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert sample(*values, noise=NOTHING).interval == pytest.approx(expected, rel=1e-6)


def test_lent_variance_raises_a_small_spread_and_leaves_a_large_one():
    assert NOISE.lend(0.01, 65.0, 3)[0] > 1
    assert NOISE.lend(900.0, 65.0, 3) == (900.0, 2)
    variance, freedom = NOISE.lend(4.0, 65.0, 5)
    assert 4.0 < variance <= NOISE.variance(65.0) and freedom == 7


def test_a_seed_that_solves_the_task_is_no_outcome_of_its_own():
    around = sample(89.0, 91.0, 92.0)
    assert around.is_level and difference(around, sample(85.0, 86.0, 84.0)).test == "t"
    solves, fails = sample(100.0, 99.9, 100.0, 100.0, 99.9), sample(31.0, 32.0, 31.5, 30.5, 33.0)
    assert difference(solves, fails).p < 1e-4
    unknown = [replace(one, noise=None) for one in (solves, fails)]
    as_counts, as_level = 2 * 0.5**10, level_p(31.6, 99.96, 4.0, 5, 5)
    assert difference(*unknown).p == pytest.approx(as_level) and as_level > as_counts


def test_seeds_that_agree_far_apart_are_no_more_than_counts_without_a_model():
    one, other = (sample(*values, noise=None) for values in ((80.0, 80.1, 80.2), (25.0, 25.1, 25.2)))
    as_counts, as_level = 2 * 0.5**6, level_p(25.1, 80.1, 4.0, 3, 3)
    assert difference(one, other).p == pytest.approx(as_level) and as_level > as_counts
    near = sample(79.0, 79.1, 79.2, noise=None)
    assert difference(one, near).p < 0.01


def test_a_diverged_run_leaves_the_model():
    found = sample(60.0, 61.0, diverged=1)
    assert not found.has_noise and not found.is_level and difference(found, sample(60.0, 61.0, 62.0)).test == "exact"


def test_labels_that_answer_by_the_heuristic_have_not_learned():
    at, above = sample(32.0, 31.0, 33.0), sample(36.0, 37.0, 38.0)
    assert not at.has_learned and above.has_learned
    assert difference(at, sample(30.0, 30.5, 31.0)).reason == NEITHER_LEARNED
    assert replace(at, noise=None).has_learned
    of_setting = replace(PERCENT, heuristic=30.0)
    assert not replace(at, noise=None, scale=of_setting).has_learned
    assert replace(above, noise=None, scale=of_setting).has_learned
    average = Sample(at.values, replace(PERCENT, solved=math.nan), None, (at, at))
    assert not average.has_learned


def test_an_average_joins_what_is_lent_to_its_parts():
    parts = (sample(60.0, 61.0, 62.0), sample(100.0, 100.0, 100.0))
    average = Sample(np.mean([part.values for part in parts], axis=0), replace(PERCENT, solved=math.nan), None, parts)
    variance, freedom = side([error_of(part)[0] / 4 for part in parts], [error_of(part)[1] for part in parts])
    assert average.error() == pytest.approx((math.sqrt(variance), freedom))
    assert math.isfinite(average.half_width)


def test_an_average_has_a_model_where_every_part_has_one():
    solved, scale = sample(60.0, 61.0), replace(PERCENT, solved=math.nan)
    averages = [Sample(solved.values, scale, None, (solved, replace(solved, noise=noise))) for noise in (NOISE, None)]
    assert [one.has_noise for one in averages] == [True, False]
    assert math.isfinite(averages[0].half_width) and math.isnan(averages[1].half_width)


def test_seeds_that_agree_exactly_are_tested_where_a_model_says_how_far_others_may_be():
    one, other = sample(60.0, 60.0, 60.0), sample(50.0, 50.0, 50.0)
    found = difference(one, other)
    assert (found.test, found.reason) == ("t", "")
    assert found.p == pytest.approx(cochran_cox_p(10.0, [error_of(one), error_of(other)]))
    unknown = difference(*(replace(each, noise=None) for each in (one, other)))
    assert unknown.reason == "zero variance" and math.isnan(unknown.p)


def test_a_mean_a_twentieth_of_the_way_from_the_heuristic_has_not_learned():
    assert not sample(33.5, 33.5).has_learned and sample(33.6, 33.6).has_learned


def test_a_sum_is_tested_against_a_line_with_the_model():
    terms = [(1.0, sample(60.0, 61.0, 62.0)), (-1.0, sample(50.0, 51.0, 52.0))]
    found, sides = combination(terms, 5.0), [error_of(one) for _, one in terms]
    assert found.p == pytest.approx(cochran_cox_p(5.0, sides))


def jobs(**changes):
    how = {"tasks": list(MAD_TASKS), "fidelity": "corrected", "budget": "strict", "precision": "float32"} | changes
    return MAD.plan(["S", "R"], MAD.Profile.load("quick"), seeds=[0, 7], **how).jobs


def test_a_model_applies_to_every_label_and_seed_of_its_protocol_and_to_nothing_else():
    for task in MAD_TASKS:
        own = [job for job in jobs() if job.task == task]
        assert len(own) == 4 and noise_of(own).source == QUICK_NOISE.name
        assert noise_of([replace(own[0], setting=own[0].setting | {"num_test_examples": 1})]) is None
        assert noise_of([replace(own[0], training=replace(own[0].training, learning_rate=1.0))]) is None
        assert noise_of([own[0], replace(own[0], setting=own[0].setting | {"num_test_examples": 1})]) is None
    assert noise_of([replace(job, fidelity="published") for job in jobs()[:1]]) is None


def test_shipped_models_are_whole_and_name_the_heuristic_of_their_tasks():
    model = QUICK_NOISE
    assert set(model.columns) == set(MAD_TASKS) and model.name == "quick-2"
    for job in jobs()[: len(MAD_TASKS) * 2]:
        noise = model.columns[job.task]
        numbers = [value for value in vars(noise).values() if isinstance(value, float)]
        assert np.isfinite(numbers).all() and min(numbers) >= 0 and noise.heuristic < noise.ceiling
        assert noise.heuristic == pytest.approx(scoring_of(MAD).heuristic(job), rel=1e-3)


@pytest.mark.parametrize(
    "old, new, problem", [("name:", "nome:", "needs name"), ("jump:", "jamp:", "jamp"), ("low: ", "low: x", "low")]
)
def test_a_damaged_model_is_an_error_that_names_the_file(tmp_path, old, new, problem):
    path = tmp_path / "bad.yaml"
    path.write_text((FOLDER / "quick.yaml").read_text().replace(old, new))
    with pytest.raises(ConfigError, match=problem) as caught:
        NoiseModel.load(path)
    assert "bad.yaml" in str(caught.value)


def test_captions_name_the_models():
    assert noise_note([None]) == WIDE_NOTE
    assert "made-1" in noise_note([NOISE, NOISE]) and "other" not in noise_note([NOISE])
    assert "other" in noise_note([NOISE, None])
