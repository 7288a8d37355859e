from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from madbench.analysis.statistics import holm

from madbench.analysis.comparison import ALL_TASKS, comparison_table

CELL = {"suite": "mad", "label": "S", "column": "compression", "setting": "a", "seed": 0, "value": 50.0}
CELL |= {"done": 1, "expected": 1}
"""A row of the scores of every setting."""


def frame(*changes: dict) -> pd.DataFrame:
    return pd.DataFrame([CELL | change for change in changes])


def cells(label: str, accuracies, **where) -> list[dict]:
    """A cell a seed."""
    return [{"label": label, "seed": seed, "value": value} | where for seed, value in enumerate(accuracies)]


def losses(label: str, values) -> list[dict]:
    shared = {"suite": "language", "setting": ""}
    of_l5 = cells(label, values, column="loss_l5", **shared)
    return of_l5 + cells(label, [value + 0.1 for value in values], column="validation_loss", **shared)


def by_quantity(table, label="R"):
    return {row.quantity: row for row in table.rows if row.label == label}


def test_pairing_finds_a_small_effect_among_seeds_that_differ_much_more():
    rng = np.random.default_rng(0)
    of_seed = rng.normal(50, 10, 8)
    noise = rng.normal(0, 0.3, (2, 8))
    made = frame(*cells("S", of_seed + noise[0]), *cells("R", of_seed + 2 + noise[1]))
    table = comparison_table("S", ["R"], made)
    (row,) = table.rows
    assert row.difference == pytest.approx(2, abs=4 * 0.3 * (2 / 8) ** 0.5) and row.high - row.low < 1 < row.low
    assert (row.n, row.p, row.verdict) == (8, 2 / 2**8, "higher")
    reversed_table = comparison_table("R", ["S"], made)
    assert reversed_table.rows[0].verdict == "lower"
    assert reversed_table.rows[0].difference == pytest.approx(-row.difference)


def test_labels_that_do_not_differ_are_seldom_significant():
    rng = np.random.default_rng(1)
    false_verdicts = 0
    for _ in range(20):
        made = [
            cell
            for task in ("compression", "memorization", "selective_copying")
            for label in ("S", "R")
            for cell in cells(label, rng.normal(50, 3, 10), column=task)
        ]
        verdicts = [row.verdict for row in comparison_table("S", ["R"], frame(*made)).rows]
        false_verdicts += verdicts != ["not significant"] * 4
    assert false_verdicts <= 3  # 1 is expected, of 20 families at the level of 5%


def test_rows_pair_the_same_setting_and_seed_whatever_their_order():
    table = comparison_table(
        "S",
        ["R"],
        frame(
            {"setting": "a", "value": 10.0},
            {"setting": "b", "value": 20.0},
            {"setting": "a", "seed": 1, "value": 30.0},
            {"label": "R", "setting": "a", "seed": 1, "value": 33.0},
            {"label": "R", "setting": "b", "value": 22.0},
            {"label": "R", "setting": "a", "value": 11.0},
            {"label": "R", "setting": "a", "seed": 2, "value": 99.0},
        ),
    )
    (row,) = table.rows
    assert (row.n, row.seeds, row.begun, row.difference) == (3, 2, 3, pytest.approx((1 + 2 + 3) / 3))
    assert (row.low, row.high) == (1.0, 3.0)


def test_all_tasks_count_the_same_and_its_pairs_are_the_seeds():
    gains = {("compression", "a"): (0, 4), ("memorization", "a"): (9, 12), ("memorization", "b"): (11, 20)}
    made = [
        cell
        for (task, setting), of_seeds in gains.items()
        for label, added in (("S", (0, 0)), ("R", of_seeds))
        for cell in cells(label, np.add(50.0, added), column=task, setting=setting)
    ]
    rows = by_quantity(comparison_table("S", ["R"], frame(*made)))
    assert list(rows) == ["compression", "memorization", ALL_TASKS]
    assert (rows["memorization"].n, rows["memorization"].difference) == (4, 13.0)
    whole = rows[ALL_TASKS]
    assert (whole.n, whole.low, whole.high, whole.difference) == (2, 5.0, 10.0, 7.5)


def test_a_pair_that_is_incomplete_or_diverged_is_left_out_and_counted():
    made = cells("S", [50.0] * 4) + cells("R", [51.0, 52.0, 90.0, math.nan])
    made[2] |= {"done": 1, "expected": 2}
    made += cells("S", [50.0] * 4, column="memorization") + cells("R", [51.0] * 4, column="memorization")
    table = comparison_table("S", ["R"], frame(*made))
    rows = by_quantity(table)
    assert {name: (row.n, row.begun) for name, row in rows.items()} == {
        "compression": (2, 4), "memorization": (4, 4), ALL_TASKS: (2, 4),
    }  # fmt: skip
    assert rows["compression"].difference == 1.5
    assert "Pairs n/m" in table.caption and table.text_rows()[1][0][2] == "2/4"


def test_a_seed_without_one_of_the_tasks_has_no_number_over_all():
    made = cells("S", [50.0] * 3) + cells("R", [51.0] * 3)
    made += cells("S", [50.0], column="memorization") + cells("R", [52.0], column="memorization")
    made += cells("S", [math.nan], column="selective_copying", done=0)
    rows = by_quantity(comparison_table("S", ["R"], frame(*made)))
    assert list(rows) == ["compression", "memorization", ALL_TASKS]
    assert (rows[ALL_TASKS].n, rows[ALL_TASKS].begun, rows[ALL_TASKS].verdict) == (0, 3, "no pairs")
    assert rows["memorization"].verdict == "single seed; excluded from tests"


def test_one_pair_has_a_difference_and_nothing_else():
    table = comparison_table("S", ["R"], frame(*cells("S", [10.0]), *cells("R", [90.0])))
    headings, (line,) = table.text_rows()
    assert line == ["R", "Compr.", "1", "+80.0", "", "", "", "single seed; excluded from tests"]
    (record,) = table.records()
    assert record["difference"] == 80.0 and record["low"] is record["p"] is record["p_holm"] is None


def test_many_settings_of_one_seed_give_no_verdict():
    accuracies = {"S": 10.0, "R": 90.0}
    made = [{"label": label, "setting": str(i), "value": x} for label, x in accuracies.items() for i in range(9)]
    (row,) = comparison_table("S", ["R"], frame(*made)).rows
    assert (row.n, row.seeds, row.verdict) == (9, 1, "single seed; no verdict") and row.p_holm < 0.01


def test_of_the_language_model_lower_is_better_and_said_to_be():
    values = [2.0, 2.3, 1.9, 2.2, 2.1, 2.4, 2.0, 2.5]
    made = losses("S", values) + losses("R", [x - 0.05 for x in values]) + losses("G", [3.0, math.nan])
    table = comparison_table("S", ["R", "G"], frame(*made))
    rows = by_quantity(table)
    assert list(rows) == ["loss_l5", "validation_loss"]
    assert {row.verdict for row in rows.values()} == {"lower"}
    assert rows["loss_l5"].difference == pytest.approx(-0.05)
    assert [(row.n, row.begun) for row in by_quantity(table, "G").values()] == [(1, 2)] * 2
    assert "lower is better" in table.caption and "percentage points" not in table.caption
    assert {record["unit"] for record in table.records()} == {"nats_per_token"}


def test_the_family_is_all_rows():
    rng = np.random.default_rng(2)
    labels = ("S", "R-c", "G-c")
    made = [cell for label in labels for cell in cells(label, rng.normal(50 + 20 * len(label), 2, 7))]
    text = [row for label in labels for row in losses(label, rng.normal(2, 0.1, 7))]
    table = comparison_table("S", ["R-c", "G-c"], frame(*made, *text))
    assert [(row.label, row.quantity) for row in table.rows] == [
        (label, name) for label in ("R-c", "G-c") for name in ("compression", "loss_l5", "validation_loss")
    ]
    assert [row.p_holm for row in table.rows] == holm([row.p for row in table.rows])
    assert max(row.p_holm / row.p for row in table.rows) == pytest.approx(6)


@pytest.mark.parametrize(
    ("seeds", "labels", "said", "unsaid"),
    [
        (3, "R", ["0.25 for 3 pairs", "at most 75% for 3 pairs", "in this family a row needs 6 pairs"], []),
        (6, "R", ["0.031 for 6 pairs"], ["With so few pairs", "covers at most"]),
        (6, "RG", ["0.031 for 6 pairs", "in this family a row needs 7 pairs"], ["covers at most"]),
        (7, "RG", ["0.016 for 7 pairs"], ["With so few pairs"]),
    ],
)
def test_the_caption_says_what_so_few_pairs_cannot_say(seeds, labels, said, unsaid):
    made = [cell for i, label in enumerate(f"S{labels}") for cell in cells(label, [10.0 * i + 5] * seeds)]
    table = comparison_table("S", list(labels), frame(*made), protocol=["Profile pico."])
    assert table.caption.startswith("Profile pico. Difference: the label's mean minus that of S.")
    assert all(part in table.caption for part in said) and not any(part in table.caption for part in unsaid)
    is_possible = "With so few pairs" in unsaid
    assert {row.verdict for row in table.rows} == {"higher" if is_possible else "not significant"}


def test_text_and_records_say_the_same():
    made = cells("S", [50.0] * 11) + cells("R", np.arange(51.0, 62.0))
    table = comparison_table("S", ["R"], frame(*made, *losses("S", [2.0]), *losses("R", [2.125])))
    headings, lines = table.text_rows()
    assert headings == ["Label", "On", "Pairs", "Difference", "95% interval", "p", "Holm p", "Verdict"]
    first, *_ = table.records()
    interval = f"[+{first['low']:.1f}, +{first['high']:.1f}]"
    assert lines[0] == ["R", "Compr.", "11", "+6.0", interval, "<0.001", "<0.001", "higher"]
    assert lines[1] == ["R", "L5 loss", "1", "+0.125", "", "", "", "single seed; excluded from tests"]
    assert [record["verdict"] for record in table.records()] == [line[-1] for line in lines]
    assert r"\texttt{R} & Compr. & 11 & +6.0" in table.to_latex()
