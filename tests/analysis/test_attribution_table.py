from __future__ import annotations

import math

import pandas as pd
import pytest
from madbench.analysis.attribution_table import attribution_table
from rich.console import Console

from madbench.analysis.quantities import MAD_AVERAGE
from madbench.analysis.scores import mean_over
from madbench.tasks import MAD_TASKS

CELL = {"suite": "mad", "column": "compression", "done": 2, "expected": 2, "diverged": 0}
CELL |= {"ceiling": 100.0, "budget_ratio": 1.0}
SQUARE = {"S": (10.0, 10.2, 10.4), "S-c": (30.1, 30.2, 30.3), "S-p": (14.0, 14.1, 14.2), "S-pc": (19.0, 19.2, 19.1)}
SIX = SQUARE | {"R": (10.0, 10.1, 10.3), "R-c": (30.1, 30.3, 30.2)}
"""Convolution adds 20.0 to S, 20.1 to R and 5.0 to S-p."""


def scored(values: dict[str, tuple[float, ...]], **changes) -> pd.DataFrame:
    """A frame of scores of labels with these values by seed."""
    return pd.DataFrame(
        CELL | {"label": label, "seed": seed, "value": value} | changes
        for label, of_label in values.items()
        for seed, value in enumerate(of_label)
    )


def lost(values: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    return scored(values, suite="language", column="loss_l5", done=1, expected=1)


def shown(table) -> dict[str, list[str]]:
    _, lines = table.text_rows()
    return {name: cells for name, *cells in lines}


def test_a_contrast_is_a_row_with_its_interval_pairs_and_seeds():
    table = attribution_table(scored(SIX))
    rows = shown(table)
    assert table.text_rows()[0] == ["Factor", "Compr.", "Pairs", "n"]
    assert list(rows) == ["base: R against S", "rope: p against none", "conv: c against none", "p x c"]
    conv = next(effect.estimate for effect in table.effects if effect.contrasts[0].factor == "conv")
    assert conv.difference == pytest.approx((20.0 + 5.0 + 20.0667) / 3, abs=1e-4) and not conv.is_significant
    assert rows["conv: c against none"] == [f"+15.0 ±{conv.high - conv.difference:.1f}", "3", "3"]
    assert rows["p x c"][0].startswith("-15.0 ±") and rows["p x c"][0].endswith("*")


def test_a_significant_effect_is_starred():
    values = {f"{base}{rest}": (i, i + 1.0) for i, base in enumerate("SRG") for rest in ("", "-p")}
    values |= {
        f"{base}{rest}c": (1.1 * i + 20.0, 1.1 * i + 20.0) for i, base in enumerate("SRG") for rest in ("-", "-p")
    }
    rows = shown(attribution_table(scored(values)))
    assert rows["conv: c against none"][0].endswith("*") and not rows["rope: p against none"][0].endswith("*")


def test_pairs_are_shown_when_asked_for_and_in_the_records_anyway():
    cells = scored({"S": (10.0, 12.0), "S-c": (15.0, 16.0), "R": (1.0,), "R-c": (4.0,)})
    table = attribution_table(cells, shows_pairs=True)
    rows = shown(table)
    assert rows["  S-c - S"][0].startswith("+4.5 ±") and rows["  R-c - R"] == ["(+3.0)", "", "1"]
    plain = attribution_table(cells)
    assert "In brackets" in table.caption and "In brackets" not in plain.caption
    assert not any(" - " in name for name in shown(plain)) and plain.records() == table.records()
    pairs = [(record["given"], record["without"]) for record in plain.records() if record["kind"] == "pair"]
    assert ("S-c", "S") in pairs and ("R-c", "R") in pairs


def test_the_average_is_a_column_of_seeds_with_all_tasks_and_the_loss_one_of_its_own():
    cells = pd.concat([scored({"S": (10.0, 20.0), "S-c": (40.0, 40.0)}, column=task) for task in MAD_TASKS])
    cells = cells[~((cells.column == "memorization") & (cells.seed == 1))]
    averages = mean_over(cells, MAD_TASKS, MAD_AVERAGE)
    table = attribution_table(pd.concat([cells, averages, lost({"S": (3.0, 3.2), "S-c": (2.5, 2.6)})]))
    assert table.quantities == [*MAD_TASKS, MAD_AVERAGE, "loss_l5"]
    *_, average, loss, pairs, seeds = shown(table)["conv: c against none"]
    assert (average, pairs, seeds) == ("(+30.0)", "1", "1-2") and loss.startswith("-0.550 ±0.")
    assert "L5 in nats per token, where less is better" in table.caption
    units = {record["quantity"]: record["unit"] for record in table.records()}
    assert units[MAD_AVERAGE] == "points" and units["loss_l5"] == "nats_per_token"


def test_unfinished_and_diverged_cells_are_left_out_and_counted():
    cells = scored({"S": (10.0, 12.0, 11.0), "S-c": (15.0, math.nan, 15.0)})
    cells.loc[cells.label.eq("S") & cells.seed.eq(2), "done"] = 1
    nothing = scored({"R": (math.nan,)}, done=0)
    table = attribution_table(pd.concat([cells, nothing]))
    (effect,) = table.effects
    assert (effect.estimate.difference, effect.estimate.seeds) == (5.0, 1)
    assert "2 results of a label, task and seed are left out" in table.caption


def test_the_caption_says_what_the_intervals_rest_on():
    one = attribution_table(scored({"S": (10.0, 12.0), "S-c": (15.0, 16.0)}), protocol=["A protocol."]).caption
    assert one.startswith("A protocol. Effect: the first label's number less the second's")
    assert "of that pair alone, and excluded from tests" in one and "moderated" not in one
    assert "of no two factors are all four combinations" in one
    single = attribution_table(scored({"S": (1.0,), "S-c": (2.0,)})).caption
    assert "one pair of a single seed, or zero variance; no interval" in single
    none = attribution_table(scored(dict.fromkeys(SQUARE, (1.0, 2.0)))).caption
    assert "moderated" in none and "Interactions of two factors tested: 1; none is significant" in none


def test_every_format_is_written_and_120_columns_are_enough():
    table = attribution_table(
        pd.concat([*(scored(SIX, column=task) for task in MAD_TASKS), lost(SQUARE)]), shows_pairs=True
    )
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table.to_rich(120))
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 120 and any(line.startswith("conv: c against none  ") for line in lines)
    assert "…" not in captured.get()
    assert "| conv: c against none | " in table.to_markdown()
    assert r"\texttt{conv: c against none} & " in table.to_latex() and r"$\pm$" in table.to_latex()
    heading, *rows = table.to_csv().splitlines()
    assert heading.startswith("kind,contrast,second,given,without,pairs,quantity,unit,seeds,difference,low,high")
    assert len(rows) == len(table.records())
