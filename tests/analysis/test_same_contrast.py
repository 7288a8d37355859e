"""A contrast has the same estimate, interval and p-value in every verb."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hypermlp_claims import findings
from madbench.analysis.attribution import attribution_table
from madbench.analysis.claims.testing import as_gain
from madbench.analysis.comparison import comparison_table
from madbench.analysis.scores import Results
from madbench.analysis.tables import TableOptions, result_table
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS

RNG = np.random.default_rng(0)
KINDS = {
    "level": lambda label, seed: RNG.normal(0.6 if label == "R-g-q-12o" else 0.5, 0.03),
    "solved": lambda label, seed: RNG.normal(0.995, 0.002) if label == "R-g-q-12o" else RNG.normal(0.2, 0.02),
    "split": lambda label, seed: 0.99 if (seed + len(label)) % 2 else RNG.normal(0.2, 0.02),
    "diverging": lambda label, seed: math.nan if label != "R-g-q-12o" and seed else RNG.normal(0.6, 0.02),
    "unlearned": lambda label, seed: RNG.normal(1 / 16, 0.001),
    "both solve": lambda label, seed: RNG.normal(0.99, 0.002),
}
PAIR = "R-cg-q-12o", "R-g-q-12o"


@pytest.fixture(params=[2, 3, 5])
def results(request, grid_results) -> Results:
    """Results in which every task is of another kind. A claim, a contrast and a grid share one pair of labels."""
    kinds = dict(zip(MAD_TASKS, KINDS.values()))
    labels = PAIR[::-1]
    return grid_results(
        labels, lambda job: kinds[job.task](job.label, job.seed), tasks=[*MAD_TASKS], seeds=list(range(request.param))
    )


@pytest.mark.slow
def test_every_verb_has_the_same_estimate_and_interval_of_a_contrast(results):
    scores = results.scores
    compared = {row.quantity: row.difference for row in comparison_table(PAIR[1], [PAIR[0]], scores).rows}
    attributed = {one.quantity: one.cases[PAIR] for one in attribution_table(scores, shows_pairs=True).rows}
    effects = {one.quantity: one.estimate for one in attribution_table(scores).rows}
    of_claims = {(one.claim.name, one.quantity): one for one in findings(scores)}
    table = result_table(results, TableOptions(has_baseline=True))
    assert set(compared) == {*MAD_TASKS, MAD_AVERAGE} == set(attributed) == set(effects)
    for quantity, found in compared.items():
        swept = table.differences[PAIR[0], quantity]
        for other in (attributed[quantity], effects[quantity], swept):
            assert repr(other) == repr(found)
    conv = of_claims["conv", MAD_AVERAGE]
    assert repr(conv.ours) == repr(as_gain(compared[MAD_AVERAGE], MAD_AVERAGE))
    assert conv.p == pytest.approx(compared[MAD_AVERAGE].p, nan_ok=True)


@pytest.mark.slow
def test_records_of_every_verb_have_the_same_numbers(results):
    names = ("estimate", "low", "high", "p")
    compared = {
        row["quantity"]: [row[name] for name in names]
        for row in comparison_table(PAIR[1], [PAIR[0]], results.scores).json_rows()
    }
    pairs = [row for row in attribution_table(results.scores).json_rows() if row["kind"] == "pair"]
    assert {row["quantity"]: [row[name] for name in names] for row in pairs} == compared
    table = result_table(results, TableOptions(has_baseline=True))
    swept = {row["task"]: row for row in table.json_rows() if row["label"] == PAIR[0]}
    for quantity, numbers in compared.items():
        keys = ("difference", "difference_low", "difference_high", "difference_p")
        assert [swept[quantity][key] for key in keys] == numbers


@pytest.mark.slow
def test_a_claim_with_a_threshold_has_the_same_interval_and_its_own_p_value(grid_results):
    pair = ("R-12o!", "R-12!")
    made = grid_results(
        pair[::-1], lambda job: 0.995 if job.label == pair[0] else 0.2 + job.seed / 100, tasks=[*MAD_TASKS]
    )
    (compared, *_) = [
        row.difference for row in comparison_table(pair[1], [pair[0]], made.scores).rows if row.quantity == MAD_AVERAGE
    ]
    lag = next(one for one in findings(made.scores) if one.claim.name == "lag" and one.quantity == MAD_AVERAGE)
    assert lag.threshold > 0 and (lag.ours.estimate, lag.ours.low, lag.ours.high) == (
        compared.estimate,
        compared.low,
        compared.high,
    )
    assert lag.p > compared.p
