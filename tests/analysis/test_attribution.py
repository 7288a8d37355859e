from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from madbench.analysis.attribution import PRIOR_FREEDOM, Effect
from madbench.analysis.attribution import attribute as attribute_all
from madbench.labels import expand, parse

STORES = 200
PLANTED = {"base": {"G": 4.0}, "conv": {True: 20.0}, "rank": {"v": -5.0}, "mix1": {True: 9.0}, "mix2": {True: 12.0}}
"""Points that a letter adds; RoPE, gates, layout and R against S are nulls."""


def attribute(values: pd.DataFrame) -> tuple[list[Effect], list[Effect]]:
    """Effects and interactions."""
    found = attribute_all(values)
    return tuple([one for one in found if one.is_interaction is wanted] for wanted in (False, True))


def cells(**of_labels: list[float | None]) -> pd.DataFrame:
    """Values of labels by seed; ``_`` stands for the hyphen of a label, None for a seed without a run."""
    rows = [
        {"label": label.replace("_", "-"), "column": "task", "seed": seed, "value": value}
        for label, values in of_labels.items()
        for seed, value in enumerate(values)
        if value is not None
    ]
    return pd.DataFrame(rows)


def planted(label: str) -> float:
    return sum(points.get(getattr(parse(label), factor), 0.0) for factor, points in PLANTED.items())


@functools.cache
def simulated(specs: tuple[str, ...], label_noise: float, seed_noise: float, seeds: int, interaction: float = 0.0):
    """What ``attribute`` finds in 200 additive stores, a task each: what all labels share of a seed is noise too."""
    labels = expand(specs)
    rng = np.random.default_rng(seeds)
    shape = (STORES, len(labels), seeds)
    values = label_noise * rng.normal(size=shape[:2] + (1,)) + 3.0 * rng.normal(size=(STORES, 1, seeds))
    values += seed_noise * rng.normal(size=shape) + np.array([planted(label) for label in labels])[:, None]
    variants = [parse(label) for label in labels]
    values += interaction * np.array([variant.rope and variant.conv for variant in variants])[:, None]
    keys = pd.MultiIndex.from_product([range(STORES), labels, range(seeds)], names=["column", "label", "seed"])
    return attribute(keys.to_frame(index=False).assign(value=values.ravel()))


def by_name(found: list[Effect]) -> dict[str, Effect]:
    return {" x ".join(contrast.short_name for contrast in one.contrasts): one for one in found}


def binomial_bound(alpha: float = 0.05) -> float:
    """The share of 200 that a frequency of ``alpha`` exceeds once in a thousand times."""
    return stats.binom.ppf(0.999, STORES, alpha) / STORES


@pytest.mark.parametrize("label_noise, seed_noise, seeds", [(0.0, 3.0, 3), (3.0, 2.0, 3), (3.0, 2.0, 1)])
def test_planted_effects_are_covered_as_often_as_the_interval_says_and_nulls_are_not_significant(
    label_noise, seed_noise, seeds
):
    effects, _ = simulated(("@table1",), label_noise, seed_noise, seeds)
    covered: dict[str, list[bool]] = {}
    has_false_effect = dict.fromkeys(range(STORES), False)
    for effect in effects:
        truths = {planted(given) - planted(without) for given, without in effect.cases}
        assert len(truths) == 1  # so that there is one effect to cover
        truth, estimate = truths.pop(), effect.estimate
        if len(effect.cases) > 1:
            covered.setdefault(effect.name, []).append(estimate.low <= truth <= estimate.high)
        elif seeds == 1:
            assert math.isnan(estimate.low) and not estimate.is_significant
        has_false_effect[effect.quantity] |= truth == 0 and estimate.is_significant
    assert len(covered) == 10 and {len(of_contrast) for of_contrast in covered.values()} == {STORES}
    assert 0.94 <= np.mean([*covered.values()]) <= 0.985
    assert {name: np.mean(found) for name, found in covered.items() if not 0.9 <= np.mean(found) <= 0.995} == {}
    assert np.mean([*has_false_effect.values()]) <= binomial_bound()


def test_large_planted_effects_are_significant():
    effects, _ = simulated(("@table1",), 3.0, 2.0, 3)
    for name in ("c", "2o"):
        claimed = [effect.estimate.is_significant for effect in effects if effect.contrasts[0].short_name == name]
        assert np.mean(claimed) > 0.8, name


def test_without_interactions_none_is_significant_and_a_planted_one_is():
    grid = ("{S,R}{,-p,-c,-pc}",)
    _, none = simulated(grid, 0.0, 3.0, 3)
    claimed = {one.quantity for one in none if one.estimate.is_significant}
    assert len(none) == 3 * STORES and len(claimed) / STORES <= binomial_bound()
    _, found = simulated(grid, 0.0, 1.0, 3, interaction=15.0)
    of_both = [one for one in found if {contrast.factor for contrast in one.contrasts} == {"rope", "conv"}]
    covered = [one.estimate.low <= 15.0 <= one.estimate.high for one in of_both]
    assert 0.9 <= np.mean(covered) and np.mean([one.estimate.is_significant for one in of_both]) > 0.8


def test_pairs_of_one_contrast_alone_give_students_interval_and_p():
    frame = cells(S=[10.0, 12.0], S_c=[15.0, 18.0], R=[20.0, 20.0], R_c=[22.0, 23.0], G_p=[1.0], G_pc=[9.0])
    frame = frame[frame.label.isin(["S", "S-c", "G-p", "G-pc"])]
    ((effect,), interactions) = attribute(frame)
    expected = stats.ttest_1samp([5.5, 8.0], 0.0)
    assert (effect.contrasts[0].short_name, effect.estimate.seeds, interactions) == ("c", 2, [])
    assert effect.estimate.difference == 6.75 and effect.estimate.p == pytest.approx(expected.pvalue)
    assert (effect.estimate.low, effect.estimate.high) == pytest.approx(expected.confidence_interval(0.95))
    assert {pair: one.difference for pair, one in effect.cases.items()} == {("S-c", "S"): 5.5, ("G-pc", "G-p"): 8.0}


CUBE = dict(S=[0.0], S_c=[6.0], S_p=[1.0], S_pc=[11.0], R=[0.0], R_c=[5.0], R_p=[4.0], R_pc=[12.0])


def test_the_variance_is_moderated_by_that_of_the_other_contrasts():
    effects, _ = attribute(cells(**CUBE))
    rope, conv, base = [1.0, 5.0, 4.0, 7.0], [6.0, 10.0, 5.0, 8.0], [0.0, -1.0, 3.0, 1.0]
    for name, own, others in (("c", conv, (rope, base)), ("p", rope, (conv, base)), ("R/S", base, (conv, rope))):
        prior = sum(np.var(values, ddof=1) for values in others) / 2
        variance = (PRIOR_FREEDOM * prior + 3 * np.var(own, ddof=1)) / (PRIOR_FREEDOM + 3)
        expected = stats.t.interval(0.95, PRIOR_FREEDOM + 3, np.mean(own), math.sqrt(variance / 4))
        estimate = by_name(effects)[name].estimate
        assert (estimate.low, estimate.high) == pytest.approx(expected)


def test_seeds_are_paired_and_those_of_one_label_alone_do_not_count():
    frame = cells(S=[10.0, 70.0, 30.0, None], S_c=[11.0, 71.5, None, 99.0], R=[0.0, 0.0], R_c=[2.0, 2.0])
    effects, _ = attribute(frame)
    conv = by_name(effects)["c"]
    assert conv.cases["S-c", "S"].difference == 1.25 and conv.cases["S-c", "S"].seeds == conv.estimate.seeds == 2
    assert conv.estimate.difference == pytest.approx((1.25 + 2.0) / 2)


def test_one_pair_of_one_seed_is_not_tested_whatever_the_other_contrasts_say():
    (effect,), _ = attribute(cells(S=[10.0], S_c=[90.0]))
    assert effect.estimate.difference == 80.0 and math.isnan(effect.estimate.low) and math.isnan(effect.estimate.p)
    effects, _ = attribute(cells(S=[10.0], S_c=[90.0], R=[10.0], R_c=[90.1], R_v=[10.0]))
    rank = by_name(effects)["v"].estimate
    assert rank.difference == 0.0 and math.isnan(rank.high) and not rank.is_significant


def test_one_pair_has_the_interval_of_its_seeds_and_no_test_where_no_contrast_has_two():
    (effect,), _ = attribute(cells(S=[10.0, 20.0, 30.0], S_c=[15.0, 26.0, 34.0]))
    expected = stats.ttest_1samp([5.0, 6.0, 4.0], 0.0).confidence_interval(0.95)
    assert (effect.estimate.low, effect.estimate.high) == pytest.approx(expected)
    assert math.isnan(effect.estimate.p) and not effect.estimate.is_significant


@pytest.mark.parametrize("spread, is_wider", [(0.5, False), (40.0, True)])
def test_one_pair_has_the_wider_of_the_two_intervals(spread, is_wider):
    effects, _ = attribute(cells(S=[10, 20], S_c=[15, 27], R=[9, 9], R_c=[15 + spread, 15 + spread], R_v=[8, 9]))
    alone = by_name(effects)["v"]
    assert (alone.estimate.high > alone.cases["R-v", "R"].high) == is_wider


def test_an_interaction_is_the_difference_of_differences_with_welchs_interval():
    values = {"S_pc": [9.0, 11.0, 13.0], "S_c": [1.0, 2.0, 6.0], "S_p": [4.0, 4.5, 5.0], "S": [0.0, 0.1, 0.2]}
    _, (interaction,) = attribute(cells(**values))
    errors = [np.var(of_label, ddof=1) / 3 for of_label in values.values()]
    freedom = sum(errors) ** 2 / sum(error**2 / 2 for error in errors)
    expected = stats.t.interval(0.95, freedom, (11.0 - 3.0) - (4.5 - 0.1), math.sqrt(sum(errors)))
    assert interaction.name == "p x c"
    assert (interaction.estimate.low, interaction.estimate.high) == pytest.approx(expected)
    assert list(interaction.cases) == [("S-pc", "S-c", "S-p", "S")] and interaction.estimate.seeds == 3


def test_a_square_counts_with_the_seeds_that_all_four_labels_have():
    square = {"S_pc": [9.0, 11.0, 500.0], "S_c": [1.0, 2.0, None], "S_p": [4.0, 4.5, 5.0], "S": [0.0, 0.1, 0.2]}
    _, (interaction,) = attribute(cells(**square))
    assert (
        interaction.estimate.difference == pytest.approx(10.0 - 1.5 - 4.25 + 0.05) and interaction.estimate.seeds == 2
    )
    one_seed = {label: values[:1] for label, values in square.items()}
    assert attribute(cells(**one_seed))[1] == []
    other = {label.replace("S", "R"): values[:1] for label, values in square.items()}
    assert by_name(attribute(cells(**square, **other))[1])["p x c"].cases == interaction.cases


def test_holm_is_over_the_contrasts_of_a_task():
    effects, _ = attribute(cells(**CUBE))
    ordered = sorted((effect.estimate for effect in effects), key=lambda estimate: estimate.p)
    expected = itertools.accumulate((estimate.p * (3 - i) for i, estimate in enumerate(ordered)), max)
    assert [estimate.p_holm for estimate in ordered] == pytest.approx([min(1.0, p) for p in expected])


def test_equal_labels_differ_by_nothing_and_missing_values_do_not_count():
    effects, _ = attribute(cells(S=[0.1, math.nan], S_c=[0.1, 5.0], R=[0.3, 0.3], R_c=[0.1 + 0.2, 0.3]))
    conv = by_name(effects)["c"].estimate
    assert (conv.difference, conv.p) == (0.0, 1.0) and not conv.is_significant
    assert by_name(effects)["c"].cases["S-c", "S"].seeds == 1
    assert attribute(cells(S=[math.nan], S_c=[1.0])) == ([], [])


def test_zero_variance_gives_no_interval():
    cells = pd.DataFrame(
        {"label": label, "column": "compression", "seed": seed, "value": value}
        for label, value in {"S": 10.0, "S-c": 20.0, "S-p": 10.0}.items()
        for seed in range(3)
    )
    effects, _ = attribute(cells)
    conv, rope = (
        next(one.estimate for one in effects if one.contrasts[0].factor == factor) for factor in ("conv", "rope")
    )
    assert conv.difference == 10.0 and math.isnan(conv.low) and not conv.is_significant
    assert (rope.difference, rope.low, rope.high) == (0.0, 0.0, 0.0) and not rope.is_significant
