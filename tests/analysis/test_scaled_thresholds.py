"""Thresholds that are shares of published accuracies are scaled to the headroom of a profile."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from hypermlp_claims import BY_NAME, REFERENCE, findings
from madbench.analysis.findings_table import explanation, findings_table
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE, MAD_TASKS, MadProfile
from madbench.tasks import heuristic, make_setting
from score_frames import frame_of_losses, frame_of_scores

QUICK = {task: 10.0 * (1 + i) for i, task in enumerate(MAD_TASKS)}
"""Heuristics of the tasks of a profile."""
GAINS = {"R-12o!": [70.0, 71.0, 69.0], "R-12!": [40.0, 41.0, 39.0]}


def of(found, name, quantity=AVERAGE):
    return next(one for one in found if (one.claim.name, one.quantity) == (name, quantity))


def quick(values) -> pd.DataFrame:
    frame = frame_of_scores(values, MAD_TASKS)
    return frame.assign(heuristic=[QUICK.get(name, math.nan) for name in frame.column])


def test_thresholds_scale_with_the_headroom_of_the_profile():
    headroom = sum(100 - QUICK[task] for task in MAD_TASKS) / 6
    lag = of(findings(quick(GAINS)), "lag")
    unscaled = of(findings(quick(GAINS), scales=False), "lag")
    assert unscaled.threshold == lag.published_threshold == pytest.approx((81.82 - 46.27) / 2)
    assert (
        lag.threshold == pytest.approx(unscaled.threshold * headroom / REFERENCE.headroom(AVERAGE))
        and lag.threshold < unscaled.threshold
    )
    assert math.isnan(unscaled.published_threshold) and lag.published == unscaled.published
    assert lag.published_agrees and unscaled.published_agrees


def test_thresholds_without_a_known_heuristic_are_in_the_papers_points():
    lag = of(findings(frame_of_scores(GAINS, MAD_TASKS)), "lag")
    assert lag.threshold == pytest.approx((81.82 - 46.27) / 2) and math.isnan(lag.published_threshold)


def test_margins_scale_but_thresholds_of_users_and_on_losses_do_not():
    values = {"R-pc": [70.0, 70.5, 70.2], "S-pc": [70.1, 70.4, 70.0]}
    softmax = of(findings(quick(values)), "softmax")
    assert abs(softmax.threshold) < abs(softmax.published_threshold) and softmax.threshold < 0
    own = replace(BY_NAME["softmax"], within=2.0)
    (found,) = (one for one in findings(quick(values), claims=[own]) if one.quantity == AVERAGE)
    assert found.threshold == -2.0 and math.isnan(found.published_threshold)
    of_loss = of(findings(frame_of_losses({"R-12o!": [3.0, 3.1, 3.05], "R-12!": [5.0, 5.1, 5.2]})), "lag", LOSS)
    assert math.isnan(of_loss.published_threshold)


def test_a_finding_states_its_threshold_the_published_one_and_the_scale():
    rows = [of(findings(quick(GAINS)), "lag")]
    table = findings_table(rows)
    (record,) = table.json_rows()
    assert record["published_threshold"] == pytest.approx(17.775) and record["threshold"] < 17
    assert "in the paper's points)" in record["reason"] and "--unscaled" in table.notes
    assert any("in the paper's points)" in text for _, text in explanation(rows))
    (plain,) = findings_table([of(findings(frame_of_scores(GAINS, MAD_TASKS)), "lag")]).json_rows()
    assert plain["published_threshold"] is None
    json.dumps(record)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["compression", "in_context_recall", "noisy_in_context_recall"])
def test_the_papers_heuristics_are_those_of_profile_full(task):
    settings = MadProfile.load("full", ()).settings(task)
    own = [100 * heuristic(task, make_setting(task, setting, task)) for setting in settings]
    assert REFERENCE.heuristics[task] == pytest.approx(sum(own) / len(own), abs=0.06)
    assert set(REFERENCE.heuristics) == set(MAD_TASKS)
