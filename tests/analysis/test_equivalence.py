"""Tests of equivalence within a margin, by two one-sided tests, in tables, findings and Python."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from madbench.analysis.claims.sentences import parse_claim
from madbench.analysis.comparison import comparison_table
from madbench.analysis.findings import findings
from madbench.analysis.inference import LEVEL, Sample, Scale, difference, equivalence, holm
from madbench.errors import ConfigError
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import MAD_TASKS
from score_frames import frame_of_losses, frame_of_scores

PERCENT = Scale(chance=4.0, solved_threshold=90.4, ceiling=100.0, limits=(0.0, 100.0), resolution=0.1)
NATS = Scale(chance=5.0, limits=(0.0, math.inf), resolution=0.001)


def nats(*values: float) -> Sample:
    return Sample(np.array(values), NATS)


@pytest.mark.parametrize("margin", [0.05, 0.2, 1.0])
def test_equivalence_tests_the_difference_against_both_margins(margin):
    rng = np.random.default_rng(3)
    first, second = (nats(*rng.normal(mean, spread, 4)) for mean, spread in ((2.0, 0.1), (2.05, 0.05)))
    found, plain = equivalence(first, second, margin), difference(first, second)
    error = (plain.high - plain.estimate) / 2  # the same error and degrees of freedom on either side
    assert found.p == max(found.p_above, found.p_below) and error > 0
    for p, line, sign in ((found.p_above, -margin, 1), (found.p_below, margin, -1)):
        moved = difference(Sample(first.values - line, NATS), second)
        one_sided = moved.p / 2 if sign * moved.estimate > 0 else 1 - moved.p / 2
        assert p == pytest.approx(one_sided, rel=0.2)  # one hundredth of the loss moves with it


def test_too_few_seeds_and_labels_that_have_not_learned_are_not_equivalent():
    assert equivalence(nats(2.0, 2.01), nats(2.0, 2.01), 1.0).reason == "two seeds"
    nothing = Sample(np.array([4.0, 4.1, 4.2]), PERCENT)
    assert equivalence(nothing, nothing, 5.0).reason == "neither learned it"
    solved = Sample(np.array([100.0, 99.9, 100.0, 100.0]), PERCENT)
    assert equivalence(solved, solved, 15.0).p <= LEVEL  # of which a difference is not tested


def test_false_equivalence_of_labels_at_the_margin_stays_at_the_error_level():
    rng = np.random.default_rng(0)
    equivalent, draws = 0, 200
    for _ in range(draws):
        first, second = rng.normal(60, 1.2, 3), rng.normal(62, 1.2, 5)
        samples = (Sample(values, PERCENT) for values in (first, second))
        equivalent += equivalence(*samples, 2.0).p <= LEVEL
    assert equivalent <= stats.binom.ppf(0.999, draws, LEVEL)


def test_holm_with_exclusive_hypotheses_controls_the_error():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p_values, groups = rng.uniform(0, 0.1, 6).tolist(), [0, 0, 0, 1, 1, 2]
        adjusted = holm(p_values, groups=groups)
        assert holm(p_values, groups=range(6)) == holm(p_values)
        for i, p in enumerate(p_values):  # closed testing by Bonferroni's method, written out
            others = [[None, *(j for j in range(6) if groups[j] == g)] for g in {0, 1, 2} - {groups[i]}]
            sets = [[i, *(j for j in chosen if j is not None)] for chosen in itertools.product(*others)]
            closed = max(min(p_values[j] for j in one) * len(one) for one in sets)
            assert adjusted[i] >= min(1.0, closed) - 1e-12 and adjusted[i] >= p


def margin_rows(values, within, **changes):
    frame = pd.concat(
        [frame_of_scores(values), frame_of_losses({label: np.array(v) / 30 for label, v in values.items()})]
    )
    return {row.quantity: row for row in comparison_table("S", ["R"], frame, within=within).rows}


CLOSE_VALUES = {"S": [60.0, 60.2, 60.1, 59.9, 60.0], "R": [60.1, 60.0, 60.2, 60.1, 59.9]}
VALUES_BELOW = {"S": [60.0, 60.2, 60.1, 59.9, 60.0], "R": [30.1, 30.0, 30.2, 30.1, 29.9]}


def test_a_comparison_has_a_verdict_on_its_margin_for_accuracies_and_losses():
    rows = margin_rows(CLOSE_VALUES, {"compression": 10.0, LOSS: 0.08})
    assert [row.equivalence_verdict for row in rows.values()] == ["equivalent"] * 2
    assert all(row.verdict == "not significant" for row in rows.values())
    rows = margin_rows(VALUES_BELOW, {"compression": 10.0, LOSS: 0.08})
    assert rows["compression"].equivalence_verdict == "no better" and rows["compression"].verdict == "lower"
    assert rows[LOSS].equivalence_verdict == "no worse" and rows[LOSS].verdict == "lower"
    noisy = {"S": [60.0, 50.0, 70.0, 55.0, 66.0], "R": [58.0, 61.0, 52.0, 69.0, 60.0]}
    rows = margin_rows(noisy, {"compression": 10.0, LOSS: 0.08})
    assert {row.equivalence_verdict for row in rows.values()} == {"not shown"}


def test_a_single_margin_applies_only_to_columns_in_points():
    rows = margin_rows(CLOSE_VALUES, 10.0)
    assert rows["compression"].equivalence.margin == 10.0 and rows[LOSS].equivalence is None
    assert rows[LOSS].equivalence_verdict == "" and math.isnan(rows[LOSS].equivalence_p)
    without = margin_rows(CLOSE_VALUES, None)
    assert without["compression"].equivalence is None
    assert without["compression"].difference == rows["compression"].difference


def test_p_values_of_difference_and_equivalence_are_adjusted_together():
    frames = [frame_of_scores(CLOSE_VALUES, [task]) for task in MAD_TASKS[:4]]
    table = comparison_table("S", ["R"], pd.concat(frames), within=10.0)
    assert "Margin: 10 points, in every column measured in points." in table.caption
    raw = equivalence(table.rows[0].sample, table.rows[0].of_baseline, 10.0)
    expected = holm([table.rows[0].difference.p, raw.p_above, raw.p_below] * 4, groups=[i // 3 for i in range(12)])
    assert [table.rows[0].p_holm, table.rows[0].equivalence.p_above] == pytest.approx(expected[:2])


def test_every_format_has_the_margin_and_its_verdict():
    table = comparison_table("S", ["R"], frame_of_scores(CLOSE_VALUES), within=10.0)
    (record,) = table.json_rows()
    assert (record["margin"], record["equivalence"]) == (10.0, "equivalent") and record["p_equivalence"] <= LEVEL
    for text in (table.to_csv(), table.to_markdown(), table.to_latex(), table.to_html()):
        assert "equivalent" in text
    assert "Margin: Compr. 10." in table.caption and "two one-sided tests" in table.notes
    (plain,) = comparison_table("S", ["R"], frame_of_scores(CLOSE_VALUES)).json_rows()
    assert "equivalence" not in plain


@pytest.mark.parametrize(
    "within, message",
    [
        (-1.0, "^within -1: expected a number above 0"),
        ({"compresion": 1.0}, "did you mean 'compression'?"),
        ({"compression": math.inf}, "^within compression=inf: expected a number above 0"),
    ],
)
def test_wrong_margins_are_refused(within, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        comparison_table("S", ["R"], frame_of_scores(CLOSE_VALUES), within=within)


def test_a_single_margin_is_refused_if_no_column_is_in_points():
    with pytest.raises(ConfigError, match="no column here is in points; name one of loss_l5"):
        comparison_table("S", ["R"], frame_of_losses({"S": [2.0, 2.1, 2.2], "R": [2.0, 2.1, 2.3]}), within=2.0)


@pytest.mark.parametrize(
    "sentence, expects, on_close, on_below",
    [
        ("R = S on compression within 10", "equal", "supported", "contradicted"),
        ("R ~ S on compression within 10", "equal", "supported", "contradicted"),
        ("R >= S on compression within 10", "no loss", "supported", "contradicted"),
        ("S >= R on compression within 10", "no loss", "supported", "supported"),
    ],
)
def test_sentences_with_a_margin_are_claims_of_equivalence_or_no_loss(sentence, expects, on_close, on_below):
    claim, entry = parse_claim(sentence)
    assert claim.expects == expects and entry["within"] == 10
    for values, verdict in ((CLOSE_VALUES, on_close), (VALUES_BELOW, on_below)):
        (found,) = findings(frame_of_scores(values), claims=[claim])
        assert found.verdict == verdict
        if values is CLOSE_VALUES:
            assert found.detail == "equal within the margin"


def test_a_claim_of_no_loss_needs_a_margin():
    with pytest.raises(ConfigError, match=">= needs a margin: within NUMBER"):
        parse_claim("R >= S on compression")


def test_three_identical_seeds_show_equivalence_only_within_a_wide_margin():
    three = {label: values[:3] for label, values in CLOSE_VALUES.items()}
    for margin, verdict in ((5, "not decided"), (20, "supported")):
        claim, _ = parse_claim(f"R >= S on compression within {margin}")
        (found,) = findings(frame_of_scores(three), claims=[claim])
        assert found.verdict == verdict
