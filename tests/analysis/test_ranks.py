"""Ranks and their intervals: what the pairwise tests imply, and how often all intervals of a column are right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from madbench.analysis.cells import cells_of, with_marks, with_ranks
from madbench.analysis.inference import LEVEL, Sample, Scale, difference, holm, ranks
from madbench.suites.mad.suite import MAD
from score_frames import frame_of_scores

SCALE = Scale(7.1, 90.7, 100.0, (0.0, 100.0), 0.1, heuristic=27.0)


def random_samples(means: dict[str, float], seeds: int, rng: np.random.Generator) -> dict[str, Sample]:
    """Seeds around the means, with a few outliers."""
    samples = {}
    for label, mean in means.items():
        values = rng.normal(mean, 2.0, seeds)
        is_elsewhere = rng.random(seeds) < 0.01
        values = values + is_elsewhere * rng.normal(0, 5.0, seeds)
        samples[label] = Sample(values, SCALE)
    return samples


def true_places(means: dict[str, float]) -> dict[str, tuple[int, int]]:
    """The true ranks of each label: all ranks among the labels that are equally good."""
    return {
        label: (1 + sum(other > mean for other in means.values()), sum(other >= mean for other in means.values()))
        for label, mean in means.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize(
    "means",
    [
        dict.fromkeys("abcdefgh", 60.0),
        {"a": 60.0, "b": 60.0, "c": 60.0, "d": 70.0, "e": 70.0, "f": 90.0, "g": 40.0, "h": 40.0},
        dict(zip("abcdefgh", np.linspace(50, 64, 8))),
    ],
)
def test_rank_intervals_of_a_column_hold_jointly_in_95_percent_of_tables(means, seeds):
    """At most 6 of 60 tables may fail: 5% are 3, and three standard errors are 5 more."""
    rng, places, lost = np.random.default_rng([seeds, len(set(means.values()))]), true_places(means), 0
    for _ in range(60):
        found = ranks(random_samples(means, seeds, rng), is_higher_better=True)
        lost += any(one.low > places[label][0] or one.high < places[label][1] for label, one in found.items())
    assert lost <= 6


def test_the_rank_interval_follows_from_the_pairwise_tests():
    samples = random_samples({"a": 95.0, "b": 90.0, "c": 60.0, "d": 59.0}, 5, np.random.default_rng(1))
    pairs = [*itertools.permutations(samples, 2)]
    p = dict(zip(pairs, [difference(samples[one], samples[other]).p for one, other in pairs]))
    unordered = [*itertools.combinations(samples, 2)]
    p |= dict(zip(unordered, holm([p[pair] for pair in unordered])))
    for label, rank in ranks(samples, is_higher_better=True).items():
        significant = [other for other in samples if other != label and p[tuple(sorted((label, other)))] <= LEVEL]
        above = sum(samples[other].mean > samples[label].mean for other in significant)
        assert (rank.low, rank.high) == (1 + above, 4 - len(significant) + above)
        assert rank.low <= rank.place <= rank.high
    assert ranks(samples, True)["a"].high < ranks(samples, True)["c"].low


def test_the_lowest_loss_has_rank_one():
    samples = {
        name: Sample(np.array([x, x + 0.01, x - 0.01]), Scale(chance=5.0)) for name, x in (("a", 2.0), ("b", 1.0))
    }
    assert ranks(samples, is_higher_better=False)["b"].place == 1


def test_equal_means_share_a_rank():
    solved = {name: Sample(np.full(3, 100.0), SCALE) for name in "ab"}
    found = ranks(solved | {"c": Sample(np.full(3, 20.0), SCALE)}, is_higher_better=True)
    assert [found[name].text for name in "abc"] == ["1 [1,2]", "1 [1,2]", "3 [3,3]"]


def test_labels_that_cannot_be_best_have_no_rank():
    scores = frame_of_scores(
        {"S": [60.0, 61.0, 62.0], "R": [90.0, 91.0, 92.0], "G": [50.0, 51.0], "R-12!": [99.0, 99.0, 99.0]}
    )
    (column,) = MAD.columns(["compression"])
    cells = cells_of(scores, [column])
    competing = ["S", "R", "G"]
    ranked, marked = with_ranks([column], cells, competing), with_marks([column], cells, competing)
    places = {name: row["compression"].rank and row["compression"].rank.place for name, row in ranked.items()}
    assert places == {"S": 2, "R": 1, "G": None, "R-12!": None}
    assert marked["R"]["compression"].mark == "best"
