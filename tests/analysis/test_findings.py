from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from madbench.analysis.claim_tests import margin, published_gains
from scipy import stats

from madbench.analysis.claims import CLAIMS
from madbench.analysis.findings import Finding, findings
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.scores import mean_over
from madbench.tasks import MAD_TASKS

BY_NAME = {claim.name: claim for claim in CLAIMS}
LABELS = list(dict.fromkeys(label for claim in CLAIMS for label in claim.labels(range(len(claim.pairs)))))
WHOLE = {"suite": "mad", "ceiling": 100.0, "done": 1, "expected": 1, "diverged": 0, "budget_ratio": 1.0}


def scored(values: dict[str, list[float | None]], tasks=MAD_TASKS) -> pd.DataFrame:
    """A frame of scores of labels with these accuracies by seed, the same on all ``tasks``, and their averages."""
    scores = pd.DataFrame(
        WHOLE | {"label": label, "column": task, "seed": seed, "value": accuracy}
        for label, accuracies in values.items()
        for task in tasks
        for seed, accuracy in enumerate(accuracies)
        if accuracy is not None
    )
    return pd.concat([scores, mean_over(scores, MAD_TASKS, MAD_AVERAGE)], ignore_index=True)


def lost(values: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(label, seed, loss) for label, losses in values.items() for seed, loss in enumerate(losses)]
    return pd.DataFrame(rows, columns=["label", "seed", "value"]).assign(
        **WHOLE | {"suite": "language", "column": LOSS}
    )


def of(found: list[Finding], name: str, quantity: str = MAD_AVERAGE) -> Finding:
    return next(one for one in found if (one.claim.name, one.quantity) == (name, quantity))


def test_one_claim_alone_is_students_test_and_interval():
    found = findings(scored({"R-12o!": [57.0, 59.0, 55.0], "R-12!": [49.0, 49.5, 48.5]}))
    lag = of(found, "lag")
    expected = stats.ttest_1samp([8.0, 9.5, 6.5], 0.0)
    assert lag.p == lag.p_holm == pytest.approx(expected.pvalue) and lag.tested == 1
    assert (lag.low, lag.high) == pytest.approx(expected.confidence_interval(0.95))
    assert (lag.ours, lag.n, lag.verdict, lag.command) == (8.0, 3, "supported", "")
    assert lag.published == pytest.approx(81.82 - 46.27) and lag.pairs == {("R-12o!", "R-12!"): 8.0}
    assert lag.reason == f"The gain is above 0: p {lag.p:.3f} after Holm (1 tested)."
    assert {one.verdict for one in found if one is not lag} == {"not enough data"}


def test_a_lower_loss_is_a_gain_and_a_collapse_the_other_way_contradicts():
    values = {"R-12o!": [3.0, 3.1, 3.2], "R-12!": [4.0, 4.2, 4.1]}
    found = findings(lost(values))
    assert {one.quantity for one in found} == {LOSS}
    assert of(found, "lag", LOSS).ours == pytest.approx(1.0) and of(found, "lag", LOSS).verdict == "supported"
    turned = findings(lost({"R-12o!": values["R-12!"], "R-12!": values["R-12o!"]}))
    assert of(turned, "lag", LOSS).verdict == "contradicted" and "below 0" in of(turned, "lag", LOSS).reason


def test_one_seed_decides_nothing_and_says_what_would():
    lag = of(findings(scored({"R-12o!": [90.0], "R-12!": [10.0]}), mad_options="-p full"), "lag")
    assert (lag.ours, lag.n, lag.verdict) == (80.0, 1, "not enough data") and math.isnan(lag.low)
    assert lag.command == "madbench run R-12o! R-12! --seeds 0-2 -p full"
    assert lag.reason == "Single seed; excluded from tests."


def test_without_any_runs_every_claim_names_its_shortest_command():
    found = findings()
    assert {one.claim.name for one in found} == set(BY_NAME) and {one.verdict for one in found} == {"not enough data"}
    assert of(found, "lag").command == "madbench run R-12o! R-12! --seeds 0-2"
    assert of(found, "lag", LOSS).command == "madbench lm R-12o! R-12! --seeds 0-2"
    assert of(found, "fuzzy-recall", "fuzzy_in_context_recall").command.endswith("0-2 -t fuzzy_in_context_recall")
    assert [one for one in found if not one.published_agrees] == [
        of(found, name, quantity)
        for name, quantity in (
            ("rank", MAD_AVERAGE),
            ("rank", LOSS),
            ("noisy-recall", "noisy_in_context_recall"),
            ("memorization", "memorization"),
        )
    ]
    partly = of(findings(scored({"G-12o!": [1.0, 2.0, 3.0, 4.0]})), "lag")
    assert partly.missing == ("G-12!",) and partly.command == "madbench run G-12o! G-12! --seeds 0-3"


def test_diverged_and_unfinished_runs_are_none():
    cells = scored({"R-12o!": [90.0, 91.0], "R-12!": [math.nan, math.nan], "R-pc": [50.0, 60.0], "S-pc": [50.0, 60.0]})
    cells.loc[cells.label == "S-pc", "done"] = 0
    found = findings(cells)
    assert of(found, "lag").reason == "No finished runs of R-12!." and of(found, "softmax").missing == ("S-pc",)
    assert {one.n for one in findings(cells[cells.label == "R-12!"])} == {0}


def test_pairs_count_with_the_seeds_they_share_and_the_one_with_the_fewest_goes_first():
    values = {"R-12o!": [9.0, 8.0, 7.0], "R-12!": [1.0, 1.0, 2.0], "G-12o!": [6.0, 5.0], "G-12!": [1.0, 1.0]}
    lag = of(findings(scored(values)), "lag")
    assert (lag.n, lag.ours) == (2, (7.5 + 4.5) / 2) and len(lag.pairs) == 2 and "2 of 2 pairs" in lag.reason
    alone = of(findings(scored(values | {"G-12o!": [6.0]})), "lag")
    assert (alone.n, alone.ours) == (3, pytest.approx(20 / 3)) and list(alone.pairs) == [("R-12o!", "R-12!")]
    nothing = of(findings(scored({"R-12o!": [9.0], "R-12!": [None, 1.0]})), "lag")
    assert nothing.n == 0 and nothing.reason == "R-12o!, R-12!: no seed in common."
    assert nothing.command == "madbench run R-12o! R-12! --seeds 0-2"


def test_a_difference_is_excluded_by_the_margin_and_not_by_a_large_p():
    noisy = {"R-pc": [50.0, 60.0, 40.0], "S-pc": [50.0, 45.0, 55.0]}
    softmax = of(findings(scored(noisy)), "softmax")
    assert softmax.line == -margin(MAD_AVERAGE) and softmax.verdict == "not enough data"
    close = {"R-pc": [50.0, 60.0, 40.0], "S-pc": [50.1, 60.0, 39.8]}
    assert of(findings(scored(close)), "softmax").verdict == "supported"
    worse = {"R-pc": [40.0, 50.1, 30.0], "S-pc": [50.1, 60.0, 39.8]}
    assert of(findings(scored(worse)), "softmax").verdict == "contradicted"
    better = {"R-pc": [60.0, 69.9, 50.0], "S-pc": [50.1, 60.0, 39.8]}
    assert of(findings(scored(better)), "softmax").verdict == "supported"
    published = published_gains()
    gained = published["R-cg-q-12o"][MAD_AVERAGE] - published["R-cg-q"][MAD_AVERAGE]
    assert margin(MAD_AVERAGE) == margin("compression") == pytest.approx(gained / 4)


def test_a_solved_task_has_nothing_to_gain():
    solved = {"R-cg-q-12o": [100.0, 100.0], "R-cg-q": [100.0, 100.0]}
    found = findings(scored(solved, tasks=("noisy_in_context_recall", "memorization")))
    assert [one.claim.name for one in found] == ["noisy-recall", "memorization"]
    noisy, memorization = found
    assert (noisy.p, noisy.verdict, noisy.seeds) == (1.0, "not enough data", ()) and "R-cg-q solves" in noisy.reason
    assert "not even 20 seeds" in noisy.reason and memorization.verdict == "supported"


DOMINANT = {"R-cg-q-12o": 80.0, "R-cg-q": 60.0, "R-g-q-12o": 78.0, "R-pcg-q-12o": 73.0, "G-cg-q-12o": 81.0}


@pytest.mark.parametrize(
    "label, mean, ours, rival, verdict",
    [
        ("S", 0.0, 13.0, "RoPE", "supported"),
        ("R-pcg-q-12o", 110.0, -10.0, "RoPE", "contradicted"),
        ("R-g-q-12o", 110.0, -10.0, "conv", "contradicted"),
        ("G-cg-q-12o", 100.5, -0.5, "GLU", "not enough data"),
    ],
)
def test_the_dominant_factor_is_held_against_the_next_largest_of_either_sign(label, mean, ours, rival, verdict):
    noise = np.random.default_rng(1).normal(size=(6, 4))
    values = {name: [*(level + row)] for row, (name, level) in zip(noise, (DOMINANT | {label: mean}).items())}
    dominant = of(findings(scored(values), claims=[BY_NAME["dominant"]]), "dominant")
    assert (dominant.rival, dominant.verdict) == (rival, verdict) and dominant.ours == pytest.approx(ours, abs=2)
    without = {name: found for name, found in values.items() if name != "R-g-q-12o"}
    assert of(findings(scored(without)), "dominant").missing == ("R-g-q-12o",)


def test_the_variance_of_an_average_is_moderated_by_the_other_claims_and_that_of_a_task_is_not():
    values = {"R-cg-q-12o": [9.0, 8.0, 7.0], "R-cg-q": [1.0, 1.0, 2.0], "R-12o!": [9.0, 9.0, 5.0], "R-12!": [1.0] * 3}
    found = findings(scored(values))
    own, other = np.var([8.0, 7.0, 5.0], ddof=1), np.var([8.0, 8.0, 4.0], ddof=1)
    expected = stats.t.interval(0.95, 4, 20 / 3, math.sqrt((2 * own + 2 * other) / 4 / 3))
    assert (of(found, "mixing").low, of(found, "mixing").high) == pytest.approx(expected)
    alone = stats.ttest_1samp([8.0, 7.0, 5.0], 0.0).confidence_interval()
    assert of(found, "compression", "compression").high == pytest.approx(alone.high)


def test_the_command_asks_for_the_seeds_that_would_decide():
    values = {"R-12o!": [57.0, 59.0, 52.0], "R-12!": [49.0, 49.5, 50.5]}
    lag = of(findings(scored(values)), "lag")
    assert lag.verdict == "not enough data" and 3 < len(lag.seeds) < 20
    assert lag.command == f"madbench run R-12o! R-12! --seeds 0-{len(lag.seeds) - 1}"
    assert f"{len(lag.seeds)} seeds like these 3 would decide" in lag.reason


def simulated(rng: np.random.Generator, seeds: int, spread: float, means):
    """A store of every label that a claim needs, with a noise of 3 points and 0.02 nats times exp(spread normal)."""
    factor = np.exp(spread * rng.normal(size=len(LABELS)))[:, None, None]
    values = 50 + 3 * rng.normal(size=(1, len(MAD_TASKS), seeds))
    values = values + 3 * factor * rng.normal(size=(len(LABELS), len(MAD_TASKS), seeds))
    values += np.array([[means(label, task) for task in MAD_TASKS] for label in LABELS])[..., None]
    keys = pd.MultiIndex.from_product([LABELS, MAD_TASKS, range(seeds)], names=["label", "column", "seed"])
    cells = keys.to_frame(index=False).assign(value=values.ravel(), **WHOLE)
    cells = pd.concat([cells, mean_over(cells, MAD_TASKS, MAD_AVERAGE)], ignore_index=True)
    losses = 3 - np.array([means(label, LOSS) for label in LABELS])[:, None]
    losses = losses + 0.02 * (rng.normal(size=(1, seeds)) + factor[:, 0] * rng.normal(size=(len(LABELS), seeds)))
    return findings(pd.concat([cells, lost(dict(zip(LABELS, losses.tolist())))], ignore_index=True))


def no_differences(label: str, quantity: str) -> float:
    return 0.0


def on_the_line(label: str, quantity: str) -> float:
    """Means for which "no loss" and "no gain" are false by nothing, and no MAD average gains anything."""
    line = margin(quantity) if label.startswith("S") else 0.0
    if label.endswith("cg-q-12o"):
        signs = {"memorization": 1, "in_context_recall": 1, "compression": -1, "fuzzy_in_context_recall": -1}
        line += signs.get(quantity, 0) * margin(quantity)
    return line


TRUE = {
    no_differences: {(name, "supported") for name in ("softmax", "clean-recall", "memorization")},
    on_the_line: {(name, "contradicted") for name in ("compression", "fuzzy-recall")},
}
"""Verdicts that are not false."""


def false_share(stores: int, seeds: int, spread: float, means) -> float:
    """The share of stores with a verdict that is false."""
    rng = np.random.default_rng(seeds)
    has_false = [
        any(
            one.verdict != "not enough data" and (one.claim.name, one.verdict) not in TRUE[means]
            for one in simulated(rng, seeds, spread, means)
        )
        for _ in range(stores)
    ]
    return float(np.mean(has_false))


NULLS = pytest.mark.parametrize("means", TRUE)


@NULLS
def test_planted_nulls_are_rarely_decided(means):
    assert false_share(15, 3, 0.5, means) <= stats.binom.ppf(0.999, 15, 0.05) / 15


@pytest.mark.slow
@NULLS
@pytest.mark.parametrize("seeds, spread", [(2, 0.0), (3, 0.5)])
def test_planted_nulls_are_rarely_decided_in_many_stores(means, seeds, spread):
    assert false_share(150, seeds, spread, means) <= stats.binom.ppf(0.999, 150, 0.05) / 150


def test_planted_effects_and_planted_equivalence_are_found():
    gains = published_gains()
    rng = np.random.default_rng(0)
    found = simulated(
        rng, 8, 0.0, lambda label, quantity: gains[label][quantity] if label.endswith(("q", "12o")) else 0
    )
    for name, quantity in (("mixing", MAD_AVERAGE), ("mixing", LOSS), ("selective-copying", "selective_copying")):
        assert of(found, name, quantity).verdict == "supported"
    assert of(found, "memorization", "memorization").verdict == "contradicted"
    same = simulated(rng, 12, 0.0, no_differences)
    assert of(same, "softmax").verdict == of(same, "clean-recall", "in_context_recall").verdict == "supported"
    assert of(same, "mixing").verdict == of(same, "lag", LOSS).verdict == "not enough data"


def test_claims_are_the_family_of_the_adjustment():
    values = {"R-12o!": [57.0, 59.0, 55.0], "R-12!": [49.0, 49.5, 48.5], "R-pc": [50.0, 60.0, 40.0]}
    values |= {"S-pc": [50.1, 60.0, 39.8]}
    both = findings(scored(values))
    first, second = sorted(one.p for one in both if one.tested == 2 and one.n == 3)
    assert sorted(one.p_holm for one in both if one.n == 3) == pytest.approx([2 * first, max(2 * first, second)])
    alone = findings(scored(values), claims=[replace(BY_NAME["lag"])])
    assert alone[0].tested == 1 and alone[0].p_holm == alone[0].p
