"""Effects and interactions of factors over pairs of labels, with intervals and corrected p-values."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from madbench.analysis.attribution import EFFECTS_SHARE, Effect, attribute, attribution_table
from madbench.analysis.inference import holm
from madbench.labels import expand, parse
from madbench.labels.names import DisplayNames, using_names
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from references import interval_of, terms
from score_frames import frame_of_losses, frame_of_scores

SQUARE = {"S": (10.0, 10.2, 10.4), "S-c": (29.1, 29.2, 29.3), "S-p": (14.0, 14.1, 14.2), "S-pc": (19.0, 19.2, 19.1)}
SIX_LABELS = SQUARE | {"R": (10.0, 10.1, 10.3), "R-c": (29.1, 29.3, 29.2)}
"""Convolution adds 19.0 to S, 19.1 to R and 5.0 to S-p."""
PLANTED_GAINS = {
    "base": {"G": 4.0},
    "conv": {True: 16.0},
    "rank": {"v": -5.0},
    "mix1": {True: 6.0},
    "mix2": {True: 8.0},
}
"""The gain in points of each letter. RoPE, gates, layout and R against S have no effect."""


def of_labels(**values: list[float | None]) -> pd.DataFrame:
    """A frame of scores of the labels given as keywords. ``_`` stands for the hyphen of a label."""
    return frame_of_scores({label.replace("_", "-"): of_label for label, of_label in values.items()})


def by_name(found: list[Effect]) -> dict[str, Effect]:
    return {" x ".join(contrast.short_name for contrast in one.contrasts): one for one in found}


def shown(table) -> dict[str, list[str]]:
    _, lines = table.text_rows()
    return {name: cells for name, *cells in lines}


# Effects and interactions


def test_an_effect_is_the_mean_of_pair_differences_with_their_joint_interval():
    values = {"S": [10.0, 12.0, 11.0], "S-c": [15.0, 18.0, 17.0], "G-p": [1.0, 5.0, 2.0], "G-pc": [9.0, 9.5, 10.0, 9.2]}
    effect = by_name(attribute(frame_of_scores(values)))["c"]
    sides = [sum((terms(values[name], 0.5) for name in names), []) for names in (("S-c", "G-pc"), ("S", "G-p"))]
    gains = {("S-c", "S"): 50 / 3 - 11, ("G-pc", "G-p"): 9.425 - 8 / 3}
    estimate = sum(gains.values()) / 2
    expected = interval_of(estimate, sides)
    assert effect.estimate.estimate == pytest.approx(estimate) and effect.estimate.n == 3
    assert (effect.estimate.low, effect.estimate.high) == pytest.approx(expected)
    assert {pair: one.estimate for pair, one in effect.cases.items()} == pytest.approx(gains)


def test_an_effect_of_one_pair_is_that_pairs_difference():
    (effect,) = attribute(of_labels(S=[10.0, 20.0, 30.0], S_c=[15.0, 26.0, 34.0]))
    assert effect.estimate == effect.cases["S-c", "S"]
    (exact,) = attribute(of_labels(S=[10.0, 20.0, 30.0], S_c=[99.0, 99.0, 99.0]))
    assert exact.estimate.test == "t" and exact.is_significant


def test_an_effect_accepts_different_seeds_of_its_two_labels():
    effect = by_name(attribute(of_labels(S=[10.0, 70.0, 30.0, None], S_c=[11.0, 71.5, None, 99.0])))["c"]
    assert effect.estimate.estimate == pytest.approx((11 + 71.5 + 99) / 3 - 110 / 3) and effect.estimate.n == 3


@pytest.mark.parametrize("seeds, reason", [(1, "single seed"), (2, "two seeds")])
def test_fewer_than_three_seeds_give_no_test_and_no_star(seeds, reason):
    (effect,) = attribute(of_labels(S=[10.0, 10.1][:seeds], S_c=[90.0, 90.1][:seeds]))
    assert effect.estimate.estimate == 80.0 and effect.estimate.reason == reason
    assert math.isnan(effect.p_holm) and not effect.is_significant


def test_an_interaction_is_the_difference_of_differences():
    values = {"S-pc": [9.0, 11.0, 13.0], "S-c": [1.0, 2.0, 6.0], "S-p": [20.0, 20.5, 21.0], "S": [0.0, 0.1, 0.2]}
    *_, interaction = attribute(frame_of_scores(values))
    sides = [sum((terms(values[name]) for name in names), []) for names in (("S-pc", "S"), ("S-c", "S-p"))]
    expected = interval_of((11.0 - 3.0) - (20.5 - 0.1), sides)
    assert interaction.name == "p x c" and list(interaction.cases) == [("S-pc", "S-c", "S-p", "S")]
    assert (interaction.estimate.low, interaction.estimate.high) == pytest.approx(expected)


def test_an_interaction_needs_three_seeds_of_all_four_labels():
    values = {label: list(of_label) for label, of_label in SQUARE.items()}
    assert len(attribute(frame_of_scores(values | {"S-c": [30.1, 30.2]}))) == 2
    assert [one.is_interaction for one in attribute(frame_of_scores(values))] == [False, False, True]


def test_effects_and_interactions_are_two_holm_families_that_split_the_error_level():
    effects = attribute(frame_of_scores(SIX_LABELS, ["compression", "memorization"]))
    for family, share in ((False, EFFECTS_SHARE), (True, 1 - EFFECTS_SHARE)):
        members = [one for one in effects if one.is_interaction is family]
        assert members
        expected = holm([one.estimate.p for one in members], share)
        assert [one.p_holm for one in members] == pytest.approx(expected)


def test_equal_labels_have_an_effect_of_zero_and_missing_seeds_are_left_out():
    (effect,) = attribute(of_labels(S=[10.1, 10.2, 10.3], S_c=[10.1, 10.2, 10.3, None]))
    assert (effect.estimate.estimate, effect.estimate.p, effect.estimate.n) == (0.0, 1.0, 3)
    assert attribute(of_labels(S=[None], S_c=[1.0])) == []


def test_an_effect_of_identical_seeds_still_has_a_wide_interval():
    (effect,) = attribute(of_labels(S=[10.0] * 3, S_c=[14.0] * 3))
    assert effect.estimate.estimate == 4.0 and effect.estimate.high - 4.0 > 5
    assert not effect.is_significant


def planted_scores(label: str) -> float:
    return sum(points.get(getattr(parse(label), factor), 0.0) for factor, points in PLANTED_GAINS.items())


@pytest.mark.slow
def test_planted_effects_are_covered_and_nulls_are_seldom_significant():
    labels = expand(("@table1",))
    rng = np.random.default_rng(0)
    covered, false, found_conv = [], [], []
    for _ in range(25):
        values = {label: (40 + planted_scores(label) + rng.normal(0, 2, 4)).tolist() for label in labels}
        effects = [one for one in attribute(frame_of_scores(values)) if not one.is_interaction]
        for effect in effects:
            truth = np.mean([planted_scores(given) - planted_scores(without) for given, without in effect.cases])
            covered.append(effect.estimate.low <= truth <= effect.estimate.high)
            if effect.contrasts[0].short_name == "c":
                found_conv.append(effect.is_significant)
        nulls = [one for one in effects if all(planted_scores(a) == planted_scores(b) for a, b in one.cases)]
        false.append(any(one.is_significant for one in nulls))
    assert np.mean(covered) >= 0.93 and np.mean(found_conv) > 0.9
    assert sum(false) <= stats.binom.ppf(0.999, 25, 0.05)


# The table


def test_the_attribution_table_has_a_row_per_contrast():
    table = attribution_table(frame_of_scores(SIX_LABELS))
    rows = shown(table)
    assert table.text_rows()[0] == ["Factor", "Compr.", "Pairs", "n"]
    assert list(rows)[:3] == ["base: R vs. S", "rope: p vs. none", "conv: c vs. none"]
    conv = next(one for one in table.rows if one.contrasts[0].factor == "conv")
    assert conv.estimate.estimate == pytest.approx((19.0 + 5.0 + 19.0667) / 3, abs=1e-4) and conv.is_significant
    half = conv.estimate.high - conv.estimate.estimate
    assert rows["conv: c vs. none"] == [f"+14.4 ±{half:.1f}*", "3", "3"]
    assert not rows["base: R vs. S"][0].endswith("*")


def test_insignificant_interactions_are_only_in_the_records():
    flat = frame_of_scores(
        {"S": (10.0, 13.0, 11.0), "S-c": (30.0, 32.0, 35.0), "S-p": (14.0, 12.0, 16.0), "S-pc": (32.0, 38.0, 33.0)}
    )
    table = attribution_table(flat)
    assert "p x c" not in shown(table)
    assert [row["kind"] for row in table.json_rows()].count("interaction") == 1


def test_pairs_are_rows_of_the_table_only_with_shows_pairs():
    frame = frame_of_scores({"S": (10.0, 12.0, 11.0), "S-c": (15.0, 16.0, 17.0), "R": (1.0,), "R-c": (4.0,)})
    table = attribution_table(frame, shows_pairs=True)
    rows = shown(table)
    assert rows["  S-c − S"][0].startswith("+5.0 ±") and rows["  R-c − R"] == ["(+3.0)", "", "1"]
    plain = attribution_table(frame)
    assert not any(" - " in name for name in shown(plain)) and plain.json_rows() == table.json_rows()
    pairs = [(record["given"], record["without"]) for record in plain.json_rows() if record["kind"] == "pair"]
    assert ("S-c", "S") in pairs and ("R-c", "R") in pairs


def test_pairs_have_the_display_names_of_both_labels():
    frame = frame_of_scores({"cd:id-dg-cg": (10.0, 12.0), "cd:id-dg-g": (15.0, 16.0), "S": (1.0,), "S-c": (4.0,)})
    with using_names(DisplayNames(by_user={"S": "softmax", "S-c": "convolved", "cd:id-dg-g": "gated"})):
        markdown = attribution_table(frame, shows_pairs=True).to_markdown()
    assert "|   convolved − softmax |" in markdown and "|   cd:gla-cg − gated |" in markdown


def test_the_attribution_table_has_columns_for_the_average_and_the_loss():
    frame = frame_of_scores({"S": (10.0, 20.0), "S-c": (40.0, 40.0)}, MAD_TASKS)
    frame = frame[~(frame.column.isin(["memorization", MAD_AVERAGE]) & (frame.seed == 1))]
    table = attribution_table(pd.concat([frame, frame_of_losses({"S": (3.0, 3.2), "S-c": (2.5, 2.6)})]))
    assert table.quantities == [*MAD_TASKS, MAD_AVERAGE, "loss_l5"]
    *_, average, loss, pairs, seeds = shown(table)["conv: c vs. none"]
    assert (average, pairs, seeds) == ("(+30.0)", "1", "1-2") and loss.startswith("−0.550 ±")
    assert "Lower is better" in table.notes
    units = {record["quantity"]: record["unit"] for record in table.json_rows()}
    assert units[MAD_AVERAGE] == "points" and units["loss_l5"] == "nats_per_token"


def test_unfinished_seeds_are_left_out_and_counted_and_diverged_ones_count_at_chance():
    frame = frame_of_scores({"S": (10.0, 12.0, 11.0), "S-c": (15.0, math.nan, 15.0)})
    frame.loc[frame.label.eq("S") & frame.seed.eq(2), "expected"] = 2
    table = attribution_table(frame)
    (effect,) = table.rows
    assert effect.estimate.estimate == pytest.approx((15 + 4 + 15) / 3 - 11) and effect.estimate.n == 2
    assert "1 result of a label, task and seed is left out" in table.notes
    assert "left out" not in attribution_table(frame[frame.seed < 2]).notes


def test_notes_name_the_source_of_the_intervals():
    two = attribution_table(
        frame_of_scores({"S": (10.0, 12.0, 9.0), "S-c": (15.0, 16.0, 17.0)}), protocol=["A protocol."]
    )
    assert two.notes.startswith("A protocol. ")
    assert all(words in two.notes for words in ("95% interval over seeds", "In brackets: no interval"))
    assert "no two factors have all four combinations" in two.notes
    assert two.caption.startswith("Mean difference between labels that differ only in this factor")
    assert (
        "Holm-corrected over 1 effect," in two.notes
        and "Of 2 tested interactions" in attribution_table(frame_of_scores(SIX_LABELS)).notes
    )


def test_the_attribution_table_fits_120_columns_and_has_every_format():
    table = attribution_table(
        pd.concat([frame_of_scores(SIX_LABELS, MAD_TASKS), frame_of_losses(SQUARE)]), shows_pairs=True
    )
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table.to_rich(120))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 120 and any(line.startswith("conv: c vs. none  ") for line in lines)
    assert "…" not in captured.get()
    assert "| conv: c vs. none | " in table.to_markdown()
    assert r"\texttt{conv:~c~vs.~none} & " in table.to_latex() and r"$\pm$" in table.to_latex()
    heading, *rows = table.to_csv().splitlines()
    assert heading.startswith(
        "kind,contrast,second,given,without,pairs,quantity,unit,estimate,low,high,p,n,test,reason"
    )
    assert len(rows) == len(table.json_rows())
