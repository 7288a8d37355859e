"""Verdicts on claims: the test against the threshold, corrected p-values, and the command for missing runs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from hypermlp_claims import BY_NAME, CLAIMS, REFERENCE, findings
from madbench.analysis.findings import Finding
from madbench.analysis.inference import BOTH_SOLVE, NEITHER_LEARNED, difference
from madbench.analysis.samples import samples_of
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.scoring import COLUMNS, mean_over
from score_frames import frame_of_losses, frame_of_scores

LABELS = list(dict.fromkeys(label for claim in CLAIMS for label in claim.labels(range(len(claim.pairs)))))
COLLAPSE = {"R-12o!": [57.0, 59.0, 55.0], "R-12!": [9.0, 9.5, 8.5]}


def scores_with_average(values) -> pd.DataFrame:
    """A frame with the same accuracies on all six tasks, and their averages."""
    return frame_of_scores(values, MAD_TASKS)


def of(found: list[Finding], name: str, quantity: str = MAD_AVERAGE) -> Finding:
    return next(one for one in found if (one.claim.name, one.quantity) == (name, quantity))


def test_a_claim_is_tested_as_a_difference_against_its_threshold():
    scores = scores_with_average(COLLAPSE)
    lag = of(findings(scores), "lag")
    samples = samples_of(scores)[MAD_AVERAGE]
    threshold = (81.82 - 46.27) / 2
    expected = difference(samples["R-12o!"], samples["R-12!"], of(findings(scores), "lag").threshold)
    assert lag.threshold == pytest.approx(threshold) and repr(lag.ours) == repr(expected)
    assert lag.p == lag.p_holm == pytest.approx(expected.p) and lag.tested == 1
    assert (lag.n, lag.verdict, lag.detail) == (3, "supported", "")
    assert lag.published == pytest.approx(81.82 - 46.27) and lag.pairs == {("R-12o!", "R-12!"): 48.0}
    assert lag.reason.startswith("The gain is above +17.8: p ") and lag.reason.endswith("after Holm (1 tested).")
    assert lag.command == "madbench run R-12o! R-12! --seeds 0-4"


def test_scores_of_a_suite_with_two_columns_per_task_change_no_verdict():
    scores = scores_with_average(COLLAPSE)
    agents = frame_of_scores({"hfa:C3": [-2.0, -1.9]}, ("hunters", "hunters_elsewhere"), suite="interactions")
    expected = [(one.claim, one.quantity, one.verdict, one.reason) for one in findings(scores)]
    found = findings(pd.concat([scores, agents], ignore_index=True))
    assert [(one.claim, one.quantity, one.verdict, one.reason) for one in found] == expected


def test_an_adjusted_p_value_equal_to_the_level_is_significant(monkeypatch):
    p = of(findings(scores_with_average(COLLAPSE)), "lag").p_holm
    for level, verdict in ((p, "supported"), (math.nextafter(p, 0), "not decided")):
        monkeypatch.setattr("madbench.analysis.findings.LEVEL", level)
        assert of(findings(scores_with_average(COLLAPSE)), "lag").verdict == verdict


def test_a_claim_of_a_large_gain_is_not_supported_by_a_small_one():
    small = {"R-12o!": [57.0, 57.2, 57.1], "R-12!": [49.0, 49.2, 49.1]}
    lag = of(findings(scores_with_average(small)), "lag")
    assert lag.ours.low > 0 and lag.verdict == "contradicted" and "below +17.8" in lag.reason


def test_a_lower_loss_is_a_gain_and_a_higher_one_contradicts_the_claim():
    values = {"R-12o!": [3.0, 3.02, 3.04], "R-12!": [5.0, 5.2, 5.1]}
    found = findings(frame_of_losses(values))
    lag = of(found, "lag", LOSS)
    assert {one.quantity for one in found} == {LOSS}
    assert lag.ours.estimate == pytest.approx(2.08) and lag.verdict == "supported"
    assert lag.ours.low == pytest.approx(-difference(*samples_of(frame_of_losses(values))[LOSS].values()).high)
    turned = of(findings(frame_of_losses({"R-12o!": values["R-12!"], "R-12!": values["R-12o!"]})), "lag", LOSS)
    assert turned.verdict == "contradicted" and "below" in turned.reason


@pytest.mark.parametrize("seeds, reason", [(1, "Single seed: not tested."), (2, "Two seeds: not tested.")])
def test_fewer_than_three_seeds_decide_nothing(seeds, reason):
    values = {label: of_label[:seeds] for label, of_label in COLLAPSE.items()}
    lag = of(findings(scores_with_average(values), options={"mad": "-p full"}), "lag")
    assert (lag.n, lag.verdict, lag.reason) == (seeds, "not enough data", reason) and math.isnan(lag.p_holm)
    assert lag.command == "madbench run R-12o! R-12! --seeds 0-4 -p full"


def test_without_any_runs_every_claim_names_its_shortest_command():
    found = findings()
    assert {one.claim.name for one in found} == set(BY_NAME) and {one.verdict for one in found} == {"not enough data"}
    assert of(found, "lag").command == "madbench run R-12o! R-12! --seeds 0-4"
    assert of(found, "lag", LOSS).command == "madbench run R-12o! R-12! --seeds 0-4"
    assert of(found, "earlier", "steps_to_3.1").command == "madbench run R-cg-q-12o R-cg-q --seeds 0-4"
    assert of(found, "fuzzy-recall", "fuzzy_in_context_recall").command.endswith("0-4 -t fuzzy_in_context_recall")
    assert of(found, "headline").command == "madbench run R-cg-q-12o S-pc G-cg-q-12o S-g-q --seeds 0-4"
    partly = of(findings(scores_with_average({"G-12o!": [1.0, 2.0, 3.0, 4.0]})), "lag")
    assert partly.missing == ("G-12!",) and partly.command == "madbench run G-12o! G-12! --seeds 0-4"


def test_published_numbers_contradict_exactly_the_claims_with_such_a_note():
    against = {(one.claim.name, one.quantity) for one in findings() if not one.published_agrees}
    assert against == {
        ("rank", MAD_AVERAGE),
        ("rank", LOSS),
        ("noisy-recall", "noisy_in_context_recall"),
        ("memorization", "memorization"),
    }


def test_diverged_seeds_count_at_chance_and_unfinished_ones_not_at_all():
    values = {"R-12o!": [60.0, 61.0, 62.0], "R-12!": [math.nan] * 3, "R-pc": [50.0, 60.0], "S-pc": [50.0, 60.0]}
    frame = scores_with_average(values)
    frame.loc[frame.label == "S-pc", "done"] = 0
    found = findings(frame, claims=[BY_NAME["lag"], BY_NAME["softmax"]])
    assert of(found, "lag").ours.estimate == 57.0 and of(found, "lag").n == 3
    assert of(found, "softmax").missing == ("S-pc",)
    alone = frame_of_scores({label: values[label] for label in ("R-12o!", "R-12!")}, ["compression"])
    claim = replace(BY_NAME["lag"], quantities=("compression",), reach=0.0)
    (lag,) = findings(alone, claims=[claim])
    assert lag.p < 0.001 and lag.verdict == "supported"


def test_a_claim_uses_pairs_with_three_seeds_or_else_all_stored_pairs():
    values = {"R-12o!": [60.0, 61.0, 62.0], "R-12!": [9.0, 10.0, 11.0], "G-12o!": [50.0, 51.0], "G-12!": [10.0] * 3}
    lag = of(findings(scores_with_average(values)), "lag")
    assert (lag.n, list(lag.pairs)) == (3, [("R-12o!", "R-12!")])
    few = {label: of_label[:2] for label, of_label in values.items()}
    both = of(findings(scores_with_average(few)), "lag")
    assert (both.n, len(both.pairs), both.verdict) == (2, 2, "not enough data")
    assert both.ours.estimate == pytest.approx((60.5 - 9.5 + 50.5 - 10) / 2)
    whole = of(findings(scores_with_average(values | {"G-12o!": [50.0, 51.0, 49.0]})), "lag")
    assert len(whole.pairs) == 2 and "2 of 2 pairs are on the claim's side of it." in whole.reason


def test_a_claim_on_every_pair_needs_all_pairs_and_is_decided_by_the_worst():
    best = {"R-cg-q-12o": 80.0, "G-cg-q-12o": 82.0, "S-pc": 60.0, "S-g-q": 50.0}
    noise = np.random.default_rng(0).normal(0, 0.5, (4, 3))
    values = {label: list(mean + row) for row, (label, mean) in zip(noise, best.items())}
    headline = of(findings(scores_with_average(values), claims=[BY_NAME["headline"]]), "headline")
    assert headline.verdict == "supported" and headline.gain_name == "R-cg-q-12o - S-pc" and len(headline.pairs) == 4
    worse = values | {"S-pc": [81.0, 81.5, 80.5]}
    assert of(findings(scores_with_average(worse), claims=[BY_NAME["headline"]]), "headline").verdict != "supported"
    without = {label: of_label for label, of_label in values.items() if label != "S-g-q"}
    assert of(findings(scores_with_average(without)), "headline").missing == ("S-g-q",)
    clearly = values | {"S-pc": list(90 + noise[0])}
    assert (
        of(findings(scores_with_average(clearly), claims=[BY_NAME["headline"]]), "headline").verdict == "contradicted"
    )


def test_a_claim_of_equality_needs_the_margin_and_not_just_a_large_p_value():
    noisy = {"R-pc": [50.0, 60.0, 40.0], "S-pc": [50.0, 45.0, 55.0]}
    softmax = of(findings(scores_with_average(noisy)), "softmax")
    assert softmax.threshold == -REFERENCE.margin(MAD_AVERAGE) and softmax.verdict == "not decided"
    for close in ([50.0, 50.2, 50.1], [50.0, 50.2, 49.9]):  # above and below
        softmax = of(findings(scores_with_average({"R-pc": close * 2, "S-pc": [50.1, 50.3, 49.8] * 2})), "softmax")
        assert (softmax.verdict, softmax.detail) == ("supported", "equal within the margin")
    below = {"R-pc": [48.0, 48.2, 48.1] * 6, "S-pc": [50.1, 50.3, 49.9] * 6}
    softmax = of(findings(scores_with_average(below)), "softmax")
    assert (softmax.verdict, softmax.detail) == ("supported", "worse, within the margin")
    worse = {"R-pc": [40.0, 40.2, 40.1], "S-pc": [50.1, 50.3, 49.9]}
    assert of(findings(scores_with_average(worse)), "softmax").verdict == "contradicted"
    better = {"R-pc": [60.0, 60.2, 60.1], "S-pc": [50.1, 50.3, 49.9]}
    softmax = of(findings(scores_with_average(better)), "softmax")
    assert (softmax.verdict, softmax.detail) == ("supported", "better")
    published = REFERENCE.gains
    gained = published["R-cg-q-12o"][MAD_AVERAGE] - published["R-cg-q"][MAD_AVERAGE]
    assert REFERENCE.margin(MAD_AVERAGE) == REFERENCE.margin("compression") == pytest.approx(gained / 4)


def test_an_expectation_of_one_column_decides_whether_both_directions_are_tested():
    claim = replace(BY_NAME["softmax"], within=1.0, expects_on={MAD_AVERAGE: "equal"})
    assert claim.expects == "no loss"
    better = scores_with_average({"R-pc": [60.0, 60.2, 60.1], "S-pc": [50.1, 50.3, 49.9]})
    assert of(findings(better, claims=[claim]), "softmax").verdict == "contradicted"
    of_other_columns = replace(claim, expects="equal", expects_on={MAD_AVERAGE: "no loss"})
    assert of(findings(better, claims=[of_other_columns]), "softmax").verdict == "supported"


def test_claims_on_solved_and_on_unlearned_tasks_are_not_testable():
    solved = {"R-cg-q-12o": [100.0] * 3, "R-cg-q": [99.9] * 3}
    names = ("noisy_in_context_recall", "memorization")
    noisy, memorization = findings(
        frame_of_scores(solved, names), claims=[BY_NAME["noisy-recall"], BY_NAME["memorization"]]
    )
    assert (noisy.verdict, noisy.detail) == ("not testable", BOTH_SOLVE) and math.isnan(noisy.p)
    assert memorization.verdict == "not decided" and memorization.p > 0.05
    nothing = {"R-cg-q-12o": [4.1, 4.2, 4.3], "R-cg-q": [3.9, 4.0, 4.1]}
    for one in findings(frame_of_scores(nothing, names), claims=[BY_NAME["noisy-recall"], BY_NAME["memorization"]]):
        assert (one.verdict, one.detail) == ("not testable", NEITHER_LEARNED)


def test_steps_to_a_loss_are_a_gain_where_fewer_are_needed():
    steps = {"R-cg-q-12o": [5000.0, 5500.0, 5500.0], "R-cg-q": [21000.0, 22000.0, 21500.0]}
    (earlier,) = findings(frame_of_losses(steps, column="steps_to_3.1", chance=50000.0), claims=[BY_NAME["earlier"]])
    assert earlier.ours.estimate == pytest.approx(21500 - 16000 / 3) and earlier.verdict == "supported"
    never = {"R-cg-q-12o": [5000.0, 5500.0, 5500.0], "R-cg-q": [math.nan] * 3}
    claim = replace(BY_NAME["earlier"], reach=0.0)
    (earlier,) = findings(frame_of_losses(never, column="steps_to_3.1", chance=50000.0), claims=[claim])
    assert earlier.p < 0.05 and earlier.verdict == "supported"


DOMINANT = {"R-cg-q-12o": 80.0, "R-cg-q": 60.0, "R-g-q-12o": 78.0, "R-pcg-q-12o": 73.0, "G-cg-q-12o": 81.0}


@pytest.mark.parametrize(
    "label, mean, ours, rival, verdict",
    [
        ("S", 0.0, 13.0, "RoPE (reversed)", "supported"),
        ("R-pcg-q-12o", 30.0, -30.0, "RoPE (reversed)", "contradicted"),
        ("R-g-q-12o", 40.0, -20.0, "conv", "contradicted"),
        ("G-cg-q-12o", 100.5, -0.5, "GLU", "not decided"),
    ],
)
def test_the_dominant_factor_is_compared_with_the_next_largest_of_either_sign(label, mean, ours, rival, verdict):
    noise = np.random.default_rng(1).normal(size=(6, 6))
    values = {name: [*(level + row)] for row, (name, level) in zip(noise, (DOMINANT | {label: mean}).items())}
    dominant = of(findings(scores_with_average(values), claims=[BY_NAME["dominant"]]), "dominant")
    assert (dominant.gain_name, dominant.verdict) == (rival, verdict)
    assert dominant.ours.estimate == pytest.approx(ours, abs=2)
    without = {name: found for name, found in values.items() if name != "R-g-q-12o"}
    assert of(findings(scores_with_average(without)), "dominant").missing == ("R-g-q-12o",)


def test_p_values_of_claims_are_adjusted_over_all_tested_claims():
    values = COLLAPSE | {"R-pc": [50.0, 52.0, 54.0], "S-pc": [50.1, 51.0, 53.0]}
    both = [one for one in findings(scores_with_average(values)) if not math.isnan(one.p)]
    first, second = sorted(one.p for one in both)
    assert {one.tested for one in both} == {2}
    assert sorted(one.p_holm for one in both) == pytest.approx([min(1, 2 * first), min(1, max(2 * first, second))])
    (alone,) = findings(scores_with_average(values), quantities=[MAD_AVERAGE], claims=[BY_NAME["lag"]])
    assert alone.tested == 1 and alone.p_holm == alone.p


def findings_of_simulation(rng: np.random.Generator, seeds: int, spread: float, means) -> list[Finding]:
    """The findings on a simulated store with every label of a claim.

    The noise is 3 points and 0.02 nats, times exp(``spread`` * normal number).
    """
    factor = np.exp(spread * rng.normal(size=len(LABELS)))
    frames = [
        frame_of_scores(
            {x: (50 + means(x, task) + rng.normal(0, 3 * f, seeds)).tolist() for x, f in zip(LABELS, factor)}, [task]
        )
        for task in MAD_TASKS
    ]
    tasks = pd.concat(frames, ignore_index=True)[list(COLUMNS)]
    losses = {x: (3 - means(x, LOSS) + rng.normal(0, 0.02 * f, seeds)).tolist() for x, f in zip(LABELS, factor)}
    return findings(
        pd.concat([tasks, mean_over(tasks, MAD_TASKS, MAD_AVERAGE), frame_of_losses(losses)], ignore_index=True)
    )


def no_differences(label: str, quantity: str) -> float:
    return 0.0


def on_the_line(label: str, quantity: str) -> float:
    """Means of labels exactly on the thresholds: "no loss" and "no gain" are just false, and no MAD average gains
    anything."""
    threshold = REFERENCE.margin(quantity) if label.startswith("S") else 0.0
    if label.endswith("cg-q-12o"):
        signs = {"memorization": 1, "in_context_recall": 1, "compression": -1, "fuzzy_in_context_recall": -1}
        threshold += signs.get(quantity, 0) * REFERENCE.margin(quantity)
    return threshold


TRUE_VERDICTS = {
    no_differences: {(name, "supported") for name in ("softmax", "clean-recall", "memorization")}
    | {("glu", "supported"), ("mixing", "contradicted"), ("lag", "contradicted")},
    on_the_line: {(name, "contradicted") for name in ("compression", "fuzzy-recall", "without-conv", "mixing", "lag")}
    | {("headline", "contradicted"), ("glu", "supported")},
}
"""Verdicts that are true for the simulated means."""


def false_share(stores: int, seeds: int, spread: float, means) -> float:
    """The share of simulated stores with a false verdict."""
    rng = np.random.default_rng(seeds)
    has_false = [
        any(
            one.verdict in ("supported", "contradicted") and (one.claim.name, one.verdict) not in TRUE_VERDICTS[means]
            for one in findings_of_simulation(rng, seeds, spread, means)
        )
        for _ in range(stores)
    ]
    return float(np.mean(has_false))


NULLS = pytest.mark.parametrize("means", TRUE_VERDICTS)


@pytest.mark.slow
@NULLS
def test_planted_nulls_are_rarely_decided(means):
    assert false_share(8, 3, 0.5, means) <= stats.binom.ppf(0.999, 8, 0.05) / 8


@pytest.mark.slow
@NULLS
def test_planted_nulls_are_rarely_decided_in_many_stores(means):
    assert false_share(25, 5, 0.0, means) <= stats.binom.ppf(0.999, 25, 0.05) / 25


@pytest.mark.slow
def test_planted_effects_and_planted_equivalence_are_found():
    gains = REFERENCE.gains

    def published(label: str, quantity: str) -> float:
        return gains[label][quantity] + (3 if quantity == LOSS else -50) if label.endswith(("q", "12o")) else 0.0

    found = findings_of_simulation(np.random.default_rng(0), 12, 0.0, published)
    for name, quantity in (("mixing", LOSS), ("selective-copying", "selective_copying")):
        assert of(found, name, quantity).verdict == "supported"
    assert of(found, "mixing").ours.low > 0
    assert of(found, "memorization", "memorization").verdict == "contradicted"
    same = findings_of_simulation(np.random.default_rng(0), 12, 0.0, no_differences)
    assert of(same, "softmax").verdict == of(same, "clean-recall", "in_context_recall").verdict == "supported"
    assert of(same, "mixing").verdict == of(same, "lag", LOSS).verdict == "contradicted"
    assert of(same, "conv").verdict == of(same, "rank", LOSS).verdict == "not decided"
