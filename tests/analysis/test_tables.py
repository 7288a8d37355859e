from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from scipy import stats

from madbench.analysis.cells import Cell
from madbench.analysis.quantities import mad_columns
from madbench.analysis.scores import COLUMNS, MAD_AVERAGE, Results, mean_over, published_scores
from madbench.analysis.tables import ResultTable, suite_table
from madbench.errors import ConfigError
from madbench.experiment import Experiment, PlannedRow, Protocol
from madbench.grid import Grid, Row
from madbench.suites import MAD, Column
from madbench.tasks import MAD_TASKS

NAN = float("nan")
SCORE = {
    "suite": "mad",
    "label": "S",
    "column": "compression",
    "seed": 0,
    "value": 50.0,
    "ceiling": 100.0,
    "done": 6,
    "expected": 6,
    "diverged": 0,
    "budget_ratio": 0.99,
}
"""One row of a frame of scores."""


def table(*changes: dict, tasks=("compression",), caption: str = "Percent.") -> ResultTable:
    frame = pd.DataFrame([SCORE | change for change in changes])[list(COLUMNS)]
    frame = pd.concat([frame, mean_over(frame, MAD_TASKS, MAD_AVERAGE)])
    shared = (MAD.Profile.load("quick"), "quick", (), list(tasks), "corrected", "strict", "float32", "cpu")
    rows = [PlannedRow(Row(label), Protocol(MAD, *shared), []) for label in frame.label.unique()]
    results = Results(Experiment(Grid(tuple(row.row for row in rows)), rows, "cpu", Path()), None)
    return suite_table(results, MAD, mad_columns(tasks), [frame], caption)


def complete(label: str = "S", seed: int = 0, accuracy: float = 50.0) -> list[dict]:
    return [{"label": label, "seed": seed, "column": task, "value": accuracy + i} for i, task in enumerate(MAD_TASKS)]


PERCENT = Column("compression", "Compr.", 1, "higher", missing="-")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(76.14, 1.25, 3, 18, 18, 0, 3.11), "76.1 ±3.1"),
        (Cell(76.14, 1.25, 2, 12, 12, 0, 3.11), "76.1 ±3.1 n=2"),
        (Cell(76.14, 1.25, 2, 17, 18, 0, 3.11), "76.1 ±3.1 (17/18)"),
        (Cell(76.14, NAN, 1, 6, 6, 0), "76.1†"),
        (Cell(76.14, NAN, 1, 6, 6, 2), "76.1†"),
        (Cell(76.14, NAN, 1, 3, 6, 0), "76.1† (3/6)"),
        (Cell(76.14, 0.01, 3, 18, 18, 0, 0.04), "76.1"),
        (Cell(100.0, 0.0, 3, 3, 18, 0), "100.0 (3/18)"),
        (Cell(NAN, NAN, 1, 6, 6, 6), "diverged"),
        (Cell(NAN, NAN, 1, 1, 6, 1), "diverged (1/6)"),
        (Cell(NAN, NAN, 0, 0, 6, 0), "-"),
    ],
)
def test_a_cell_says_what_it_rests_on(cell, text):
    assert cell.text(PERCENT, 3) == text


def test_a_cell_is_the_mean_over_seeds_and_its_interval():
    made = table({"seed": 0, "value": 40.0}, {"seed": 1, "value": 44.0}, {"seed": 2, "value": 48.0})
    cell = made.cells["S"]["compression"]
    assert (cell.mean, cell.spread, cell.n, cell.done, cell.expected) == (44.0, 4.0, 3, 18, 18)
    assert cell.half_width == pytest.approx(stats.t.ppf(0.975, 2) * 4.0 / 3**0.5)
    headings, (ours, published) = made.text_rows()
    assert headings == ["Label", "Compr.", "Budget", "n"]
    assert ours == ["S", "44.0 ±9.9", "0.990", "3"]
    assert published == ["  published", "35.2", "", ""]


def test_one_seed_has_no_spread():
    cell = table({}).cells["S"]["compression"]
    assert (cell.mean, cell.n) == (50.0, 1) and math.isnan(cell.spread)


def test_a_seed_not_begun_is_left_out_of_the_mean_but_not_of_what_is_expected():
    cell = table({}, {"seed": 1, "value": NAN, "done": 0}).cells["S"]["compression"]
    assert (cell.mean, cell.n, cell.text(PERCENT)) == (50.0, 1, "50.0† (6/12)")


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_a_diverged_seed_leaves_the_cell_without_a_number(seeds):
    rows = [{"seed": seed, "value": 40.0 + seed} for seed in range(1, seeds)]
    made = table(*rows, {"seed": 0, "value": NAN, "diverged": 6})
    assert made.cells["S"]["compression"].text(PERCENT) == "diverged"


def test_the_average_column_is_there_for_all_six_tasks_only():
    made = table(*complete(accuracy=40.0), tasks=MAD_TASKS)
    assert made.cells["S"]["mad_average"].mean == 42.5
    headings, (ours, published) = made.text_rows()
    assert headings[-3:] == ["MAD avg", "Budget", "n"]
    assert ours[-3] == "42.5†" and published[-3] == "50.7"
    assert "MAD avg" not in table({}).text_rows()[0]


def test_the_average_is_over_complete_seeds():
    begun = complete(seed=1, accuracy=90.0)
    begun[3] |= {"done": 0, "value": NAN}
    begun[0] |= {"diverged": 1}
    made = table(*complete(accuracy=40.0), *begun, tasks=MAD_TASKS)
    assert made.cells["S"]["mad_average"].text(PERCENT) == "42.5†"
    (ours, _) = made.text_rows()[1]
    assert ours[1] == "65.0 ±317.7" and ours[-1] == "2"
    only_begun = table(*begun, tasks=MAD_TASKS)
    assert only_begun.text_rows()[1][0][-3:] == ["-", "0.990", "1"]


def test_rows_keep_the_order_of_the_labels_and_published_rows_follow_theirs():
    made = table({"label": "S-p"}, {"label": "R-q"}, {"label": "S"})
    assert [row[0] for row in made.text_rows()[1]] == ["S-p", "  published", "R-q", "S", "  published"]


def test_records_hold_every_cell_and_are_strict_json():
    made = table({"seed": 0}, {"seed": 1, "value": 54.0}, {"label": "R-q", "value": NAN, "diverged": 6})
    ours, other = made.records()
    assert ours == {
        "label": "S",
        "task": "compression",
        "mean": 52.0,
        "spread": pytest.approx(8**0.5),
        "budget_ratio": 0.99,
        "low": pytest.approx(52 - 12.7062 * 2),
        "high": pytest.approx(52 + 12.7062 * 2),
        "n": 2,
        "mark": "",
        "done": 12,
        "expected": 12,
        "diverged": 0,
        "published": published_scores()["S"]["compression"],
    }
    assert (other["mean"], other["spread"], other["published"], other["diverged"]) == (None, None, None, 6)
    assert (other["low"], other["high"], other["mark"]) == (None, None, "")
    assert json.loads(json.dumps(made.records(), allow_nan=False)) == [ours, other]


def test_csv_is_a_line_a_cell():
    made = table(*complete(), {"label": "R-q"}, tasks=MAD_TASKS)
    lines = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert len(lines) == 8
    assert (lines[0]["label"], lines[0]["task"], float(lines[0]["mean"]), lines[0]["spread"]) == (
        "S", "compression", 50.0, "",
    )  # fmt: skip
    assert float(lines[0]["published"]) == 35.19 and lines[7]["published"] == ""


def test_markdown_has_a_rule_and_as_many_columns_in_every_row():
    text = table(*complete(), {"label": "R-12o!"}, tasks=MAD_TASKS, caption="Mean | n.").to_markdown()
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row.count("|") for row in rows] == [11] * 6
    assert rows[1] == "| --- |" + " ---: |" * 9
    assert rows[3].startswith("| *published* | 35.2 |") and rows[4].startswith("| R-12o! | 50.0† |")
    assert lines[-1].startswith("Mean | n. †: single seed")


def on_terminal(made: ResultTable, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(made.to_rich(width))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


def test_a_wide_terminal_shows_a_line_a_row():
    text = on_terminal(table(*complete(), *complete(seed=1, accuracy=60.0), tasks=MAD_TASKS), 120)
    lines = text.rstrip().splitlines()
    assert len(lines) == 4
    ours = "S 55.0 ±63.5 56.0 ±63.5 57.0 ±63.5 58.0 ±63.5 59.0 ±63.5 60.0 ±63.5 57.5 ±63.5 0.990 2"
    assert lines[2].split() == ours.split()
    assert lines[3].split() == "published 35.2 8.9 83.7 29.2 85.0 62.1 50.7".split()


def test_80_columns_show_every_number_in_full():
    rows = complete("G-pcg-q-12o") + complete("G-pcg-q-12o", seed=1, accuracy=60.0)
    rows[2] |= {"done": 3}
    rows[4] |= {"value": NAN, "diverged": 6}
    text = on_terminal(table(*rows, tasks=MAD_TASKS), 80)
    assert set(text.split()) >= {"55.0", "±63.5", "(9/12)", "diverged", "62.5†", "0.990", "2", "100.0", "74.8"}
    assert "…" not in text


def test_latex_escapes_what_tex_reads():
    caption = r"d_model 64 & 50%, {a: #1}, $x^2$ ~ C:\runs, <mean ±1>"
    text = table(*complete(), {"label": "R-12o!"}, tasks=MAD_TASKS, caption=caption).to_latex()
    assert (
        r"\caption{d\_model 64 \& 50\%, \{a: \#1\}, \$x\textasciicircum{}2\$ \textasciitilde{} "
        r"C:\textbackslash{}runs, \textless{}mean $\pm$1\textgreater{} $^\dagger$: single seed; "
    ) in text
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    columns = re.search(r"\\begin\{tabular\}\{(l?r+)\}", text)[1]
    assert len(columns) == 10
    assert [row.count(" & ") for row in rows] == [9] * 5
    assert rows[1].startswith(r"\texttt{S} & 50.0$^\dagger$ &") and rows[2].startswith(r"\quad published & 35.2")
    for environment in ("table*", "tabular"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 1
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("{") == unescaped.count("}")


def test_40_columns_show_every_number_in_full_a_line_each():
    made = table(*complete(accuracy=70.0), *complete("R-c", accuracy=60.0), tasks=MAD_TASKS)
    console = Console(width=40, file=io.StringIO())
    console.print(made.to_rich(40))
    words = [line.split() for line in console.file.getvalue().splitlines()[2:]]
    assert [line for line in words if len(line) == 1] == [["S"], ["R-c"]]
    published = f"{published_scores()['R-c']['compression']:.1f}"
    assert words[11:13] == [["Compr.", "60.0†", published], ["Fuzzy", "recall", "61.0†", words[12][-1]]]
    assert ["MAD", "avg", "72.5†"] == words[7][:3] and ["Budget", "0.990"] in words


def three_seeds(label: str, task: str, *accuracies: float, **rest) -> list[dict]:
    return [{"label": label, "column": task, "seed": i, "value": x} | rest for i, x in enumerate(accuracies)]


def marks_of(made: ResultTable) -> dict[str, str]:
    return {label: cells["compression"].mark for label, cells in made.cells.items()}


def test_means_that_are_printed_alike_are_the_best_together():
    rows = [
        *three_seeds("S", "compression", 99.98, 100.0, 99.99),
        *three_seeds("R", "compression", 100.0, 100.0, 100.0),
    ]
    assert marks_of(table(*rows)) == {"S": "best", "R": "best"}


def test_the_best_and_what_may_be_the_best_are_marked():
    rows = [
        *three_seeds("S", "compression", 50.0, 50.5, 51.0),
        *three_seeds("R", "compression", 50.2, 50.9, 51.0),
        *three_seeds("G", "compression", 20.0, 20.5, 21.0),
    ]
    made = table(*rows)
    assert marks_of(made) == {"S": "within_noise", "R": "best", "G": ""}
    assert [record["mark"] for record in made.records()] == ["within_noise", "best", ""]
    assert "Bold: the best mean of its column, to the digits shown. Underlined: may be the best" in made.caption
    assert "do not compete" not in made.caption


def test_only_repeated_whole_labels_within_the_budget_compete():
    rows = [
        *three_seeds("S", "compression", 50.0, 50.5, 51.0),
        *three_seeds("R", "compression", 50.2, 50.9, 51.0),
        *three_seeds("R-12o!", "compression", 90.0, 90.5, 91.0),
        *three_seeds("G-q", "compression", 92.0, 92.5, 93.0, budget_ratio=1.2),
        *three_seeds("G", "compression", 93.0, 93.0, 93.0, done=5),
        *three_seeds("S-p", "compression", 99.0),
        *three_seeds("S-c", "compression", 99.0, NAN, 99.0, diverged=6),
    ]
    made = table(*rows)
    assert {label for label, mark in marks_of(made).items() if mark} == {"S", "R"}
    for words in (
        "Labels over budget (! or a ratio above 1.01) do not compete.",
        "†: single seed",
        "(d/e): d of e jobs",
    ):
        assert words in made.caption


@pytest.mark.parametrize(
    "rivals", [[], three_seeds("R", "compression", 10.0), three_seeds("R-1!", "compression", 9.0, 8.0)]
)
def test_one_label_alone_is_not_the_best_of_anything(rivals):
    made = table(*three_seeds("S", "compression", 50.0, 50.5, 51.0), *rivals)
    assert not any(marks_of(made).values()) and "Bold" not in made.caption


def test_the_interval_of_a_program_stays_within_0_and_100():
    first, second = table(
        *three_seeds("S", "compression", 1.0, 30.0, 40.0), *three_seeds("R", "compression", 99.0, 99.9, 100.0)
    ).records()
    assert first["low"] == 0.0 and first["high"] > 70 and second["high"] == 100.0 and second["low"] < 99


def test_seeds_that_agree_have_no_interval_and_the_caption_says_what_that_means():
    made = table(*three_seeds("S", "compression", 100.0, 100.0, 100.0))
    assert made.text_rows()[1][0][1] == "100.0" and made.records()[0]["low"] is None
    assert "After 3 such seeds up to 63% of further ones may still differ" in made.caption
    assert 0.37**3 == pytest.approx(0.05, abs=0.001)  # all three agree although 63% would not
    assert "Without ±" not in table(*three_seeds("S", "compression", 1.0, 2.0)).caption


def test_rows_are_sorted_by_a_column_best_first_and_those_without_it_last():
    rows = [
        *three_seeds("S", "compression", 50.0, budget_ratio=0.9),
        *three_seeds("R", "compression", NAN, diverged=6),
        *three_seeds("G", "compression", 70.0, 71.0, budget_ratio=0.95),
    ]
    made = table(*rows)
    orders = {"compression": "G S R", "budget_ratio": "S G R", "n": "G S R", "label": "S R G"}
    assert {key: " ".join(made.sorted_by(key).rows) for key in orders} == orders
    with pytest.raises(ConfigError, match="--sort 'compresion': no such column; did you mean 'compression'?"):
        made.sorted_by("compresion")


def test_a_cell_of_fewer_seeds_than_its_row_says_so():
    rows = [*three_seeds("S", "compression", 50.0, 51.0, 52.0), *three_seeds("S", "memorization", 50.0, 51.0)]
    made = table(*rows, tasks=["compression", "memorization"])
    assert made.text_rows()[1][0][1:] == ["51.0 ±2.5", "50.5 ±6.4 n=2", "0.990", "3"]
    assert "n=: fewer seeds than the row has." in made.caption
    assert "n=" not in table(*rows[:3]).caption
