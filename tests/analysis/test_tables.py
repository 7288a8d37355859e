"""Cells, marks and rows of result tables: means over seeds, intervals, averages and published rows."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from madbench.analysis.cells import Cell
from madbench.analysis.inference import Sample, Scale
from madbench.analysis.quantities import column
from madbench.analysis.result_table import ResultTable
from madbench.analysis.scores import Results
from madbench.analysis.tables import TableOptions, suite_table
from madbench.errors import ConfigError
from madbench.report.tables import result_page_table
from madbench.rows import Grid, Row, SuiteRow
from madbench.suites import Column
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.protocol import Protocol
from madbench.suites.published import published_scores
from madbench.suites.scoring import COLUMNS, mean_over
from references import interval_of, terms

NAN = float("nan")
SCORE = {
    "suite": "mad",
    "label": "S",
    "column": "compression",
    "seed": 0,
    "value": 50.0,
    "ceiling": 100.0,
    "chance": 4.0,
    "heuristic": math.nan,
    "solved_threshold": 90.4,
    "is_diverged": False,
    "done": 6,
    "expected": 6,
    "diverged": 0,
    "budget_ratio": 0.99,
}
"""One row of a frame of scores."""
DIVERGED = {"value": 4.0, "is_diverged": True, "diverged": 6}
ACCURACY = Scale(4.0, 90.4, 100.0, (0.0, 100.0), 0.1)


def table(*changes: dict, tasks=("compression",), about: str = "Percent.", shows_published: bool = True) -> ResultTable:
    frame = pd.DataFrame([SCORE | change for change in changes])[list(COLUMNS)]
    frame = pd.concat([frame, mean_over(frame, MAD_TASKS, MAD_AVERAGE)])
    shared = (MAD.Profile.load("quick"), "quick", (), list(tasks), "corrected", "strict", "float32", "cpu")
    rows = [SuiteRow(Row(label), Protocol(MAD, *shared), []) for label in frame.label.unique()]
    results = Results(Grid(tuple(row.row for row in rows)), rows, None)
    return suite_table(
        results, MAD, MAD.columns(tasks), [frame], lambda: about, TableOptions(shows_published=shows_published)
    )


def complete(label: str = "S", seed: int = 0, accuracy: float = 50.0) -> list[dict]:
    return [{"label": label, "seed": seed, "column": task, "value": accuracy + i} for i, task in enumerate(MAD_TASKS)]


PERCENT = Column("compression", "Compr.", digits=1, better="higher", missing="-")


def cell(*values: float, done: int | None = None, expected: int | None = None, diverged: int = 0) -> Cell:
    """A cell of seeds with these accuracies. The last ``diverged`` of them are from diverged runs."""
    seeds = [*values, *[4.0] * diverged]
    is_diverged = np.arange(len(seeds)) >= len(values)
    sample = Sample(np.array(seeds), ACCURACY, is_diverged)
    expected = 6 * len(seeds) if expected is None else expected
    return Cell(sample, expected if done is None else done, expected, 6 * diverged)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (cell(75.0, 76.0, 77.0, 76.0, 76.0), "76.0 ±4.2"),
        (cell(75.0, 76.0, 77.0, 76.0), "76.0 ±5.3"),
        (cell(99.0, 99.5, 99.8), "99.4 ±7.0"),
        (cell(99.0, 99.5, 99.8, 99.0, 99.0, 99.0), "99.2 ±3.5"),
        (cell(99.0, 20.0, 99.0, 99.0, 20.0), "67.4 ±53.7"),
        (cell(75.0, 77.0, done=11), "76.0 (11/12)"),
        (cell(76.1), "76.1†"),
        (cell(76.1, done=3), "76.1† (3/6)"),
        (cell(76.0, 76.0, 76.0, 76.0, 76.0), "76.0 ±4.3"),
        (cell(60.0, 62.0, diverged=1), "42.0 ±81.5‡"),
        (cell(99.0, 99.0, diverged=1), "67.3 ±100.0‡"),
        (cell(60.0, 62.0, diverged=1, done=17), "42.0‡ (17/18)"),
        (cell(diverged=1), "diverged"),
        (cell(diverged=3), "diverged"),
        (cell(diverged=1, done=1), "diverged (1/6)"),
        (cell(done=0, expected=6), "-"),
        (cell(50.0, done=0, expected=6), "-"),
    ],
)
def test_the_text_of_a_cell_shows_interval_seeds_and_missing_jobs(made, text):
    assert made.text(PERCENT, made.n) == text


def test_a_cell_of_steps_counts_the_seeds_that_reach_the_loss():
    scale = Scale(chance=1000.0, limits=(0.0, math.inf), resolution=10.0, is_counted=True)
    made = Cell(Sample(np.array([300.0, 400.0, 1000.0]), scale, np.array([False, False, True])), 3, 3)
    assert made.text(column("steps_to_2.5"), 3) == "350 [2/3]" and made.mean == 350
    assert np.isnan(made.interval).all()
    never = Cell(Sample(np.array([1000.0] * 3), scale, np.array([True] * 3)), 3, 3)
    assert never.text(column("steps_to_2.5"), 3) == ""
    always = Cell(Sample(np.array([300.0, 400.0]), scale, np.array([False, False])), 2, 2)
    assert always.text(column("steps_to_2.5"), 2).startswith("350 ±")


@pytest.mark.slow
@given(st.lists(st.floats(0, 100), max_size=7), st.integers(0, 3), st.integers(0, 2))
def test_numbers_of_a_cell_are_strict_json_within_their_limits(values, diverged, lacking):
    made = cell(
        *values, diverged=diverged, expected=6 * (len(values) + diverged + lacking), done=6 * (len(values) + diverged)
    )
    numbers = made.numbers(PERCENT)
    if numbers["low"] is not None:
        assert 0 <= numbers["low"] <= numbers["mean"] + 1e-9 and numbers["mean"] - 1e-9 <= numbers["high"] <= 100
        assert numbers["n"] > 1 and not lacking
    if made.n:
        assert numbers["solved"] == sum(x >= 90.4 for x in values)
        assert 0 <= numbers["solved_low"] <= numbers["solved"] / made.n <= numbers["solved_high"] <= 1
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


def test_a_cell_is_the_mean_over_seeds_and_its_interval():
    accuracies = [40.0, 44.0, 48.0, 43.0, 45.0]
    made = table(*({"seed": seed, "value": value} for seed, value in enumerate(accuracies)))
    found = made.cells["S"]["compression"]
    assert (found.mean, found.n, found.done, found.expected) == (44.0, 5, 30, 30)
    assert found.interval == pytest.approx(interval_of(np.mean(accuracies), [terms(accuracies)]))
    headings, (ours, published) = made.text_rows()
    assert headings == ["Label", "Compr.", "Budget", "n"]
    assert ours == ["S", "44.0 ±4.7", "0.990", "5"]
    assert published == ["  published", "35.2", "", ""]


def test_published_rows_below_a_profile_of_another_size_need_an_option():
    assert len(table({}).text_rows()[1]) == 2 and len(table({}, shows_published=False).text_rows()[1]) == 1


def test_the_caption_names_the_source_of_published_numbers_and_that_they_are_not_comparable():
    said = "Published: hypermlp, Table 1, one seed; not comparable, as sizes or training differ from ours."
    made = table({})
    assert said in made.caption and said in made.with_notes() and said in made.paper_caption
    for without in (table({}, shows_published=False), table({"label": "R-q"})):
        assert "Published" not in without.caption


def test_one_seed_has_no_spread():
    found = table({}).cells["S"]["compression"]
    assert (found.mean, found.n) == (50.0, 1) and found.numbers(PERCENT)["spread"] is None


def test_a_seed_without_runs_counts_as_missing_jobs_but_not_in_the_mean():
    found = table({}, {"seed": 1, "value": NAN, "done": 0}).cells["S"]["compression"]
    assert (found.mean, found.n, found.text(PERCENT)) == (50.0, 1, "50.0† (6/12)")


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_a_diverged_seed_counts_at_chance(seeds):
    rows = [{"seed": seed, "value": 40.0 + seed} for seed in range(1, seeds)]
    found = table(*rows, {"seed": 0} | DIVERGED).cells["S"]["compression"]
    texts = {1: "diverged", 2: "22.5 ±100.0‡", 3: "29.0 ±53.4‡"}
    assert found.text(PERCENT, seeds) == texts[seeds] and found.diverged == 6
    assert found.mean == pytest.approx((4 + sum(40 + seed for seed in range(1, seeds))) / seeds)


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
    assert ours[1] == "65.0 ±100.0" and ours[-1] == "2"
    only_begun = table(*begun, tasks=MAD_TASKS)
    assert only_begun.text_rows()[1][0][-3:] == ["-", "0.990", "1"]


def test_rows_keep_the_order_of_the_labels_and_published_rows_follow_theirs():
    made = table({"label": "S-p"}, {"label": "R-q"}, {"label": "S"})
    assert [row[0] for row in made.text_rows()[1]] == ["S-p", "  published", "R-q", "S", "  published"]


def test_records_hold_every_cell_and_are_strict_json():
    accuracies = [50.0, 54.0, 52.0, 52.0, 53.0]
    seeds = [{"seed": seed, "value": value} for seed, value in enumerate(accuracies)]
    made = table(*seeds, {"label": "R-q"} | DIVERGED)
    ours, other = made.json_rows()
    low, high = interval_of(np.mean(accuracies), [terms(accuracies)])
    assert ours == {
        "label": "S",
        "task": "compression",
        "mean": pytest.approx(52.2),
        "spread": pytest.approx(np.std(accuracies, ddof=1)),
        "budget_ratio": 0.99,
        "over_budget": False,
        "low": pytest.approx(low),
        "high": pytest.approx(high),
        "n": 5,
        "solved": 0,
        "solved_low": 0.0,
        "solved_high": pytest.approx(1 - 0.025**0.2),
        "diverged_high": pytest.approx(1 - 0.025**0.2),
        "mark": "",
        "done": 30,
        "expected": 30,
        "diverged": 0,
        "published": published_scores()["S"]["compression"],
    }
    assert (other["mean"], other["spread"], other["published"], other["diverged"]) == (4.0, None, None, 6)
    assert other["diverged_high"] == 1.0
    assert (other["low"], other["high"], other["mark"]) == (None, None, "")
    assert json.loads(json.dumps(made.json_rows(), allow_nan=False)) == [ours, other]


def test_csv_has_one_line_per_cell():
    made = table(*complete(), {"label": "R-q"}, tasks=MAD_TASKS)
    lines = list(csv.DictReader(io.StringIO(made.to_csv())))
    assert len(lines) == 8
    assert (lines[0]["label"], lines[0]["task"], float(lines[0]["mean"]), lines[0]["spread"]) == (
        "S", "compression", 50.0, "",
    )  # fmt: skip
    assert float(lines[0]["published"]) == 35.19 and lines[7]["published"] == ""


def test_markdown_has_a_rule_and_as_many_columns_in_every_row():
    text = table(*complete(), {"label": "R-12o!"}, tasks=MAD_TASKS, about="Mean | n.").to_markdown()
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert [row.count("|") for row in rows] == [11] * 6
    assert rows[1] == "| --- |" + " ---: |" * 9
    assert rows[3].startswith("| *published* | 35.2 |") and rows[4].startswith("| R-12o! | 50.0† |")
    assert (
        lines[-1].startswith("Accuracy in percent, mean over n seeds (profile quick)") and "†: single seed" in lines[-1]
    )
    assert "Mean | n." not in text
    noted = replace(table(*complete(), tasks=MAD_TASKS, about="Mean | n."), shows_notes=True).to_markdown()
    assert "Mean | n. " in noted and "†: single seed, not tested." in noted


@pytest.mark.parametrize(
    "shows, meaning", [("interval", "half-width of the 95% interval"), ("sd", "standard deviation")]
)
def test_notes_explain_every_sign_once(shows, meaning):
    rows = [*complete(), *complete(seed=1, accuracy=60.0)]
    made = replace(table(*rows, tasks=MAD_TASKS), shows=shows, shows_notes=True, other_code=frozenset({"S"}))
    for text in (made.below, result_page_table(made).note):
        for sign in ("±: ", "‡: ", "†: ", "¶: ", "(d/e): ", "‖: "):
            assert text.count(sign) == 1, sign
        assert f"±: {meaning}" in text and "mean over n seeds (profile" not in text
    assert "mean over n seeds (profile" in replace(made, shows_notes=False).below


def on_terminal(made: ResultTable, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(made.to_rich(width))
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    return text


def test_a_wide_terminal_shows_each_row_on_one_line():
    text = on_terminal(table(*complete(), *complete(seed=1, accuracy=60.0), tasks=MAD_TASKS), 120)
    lines = text.rstrip().splitlines()
    assert len(lines) == 4
    ours = "S 55.0 ±22.2 56.0 ±22.2 57.0 ±22.2 58.0 ±22.2 59.0 ±22.2 60.0 ±22.2 57.5 ±63.5 0.990 2"
    assert lines[2].split() == ours.split()
    assert lines[3].split() == "published 35.2 8.9 83.7 29.2 85.0 62.1 50.7".split()


def test_a_terminal_of_80_columns_shows_every_number_in_full():
    rows = complete("G-pcg-q-12o") + complete("G-pcg-q-12o", seed=1, accuracy=60.0)
    rows[2] |= {"done": 3}
    rows[4] |= DIVERGED
    text = on_terminal(table(*rows, tasks=MAD_TASKS), 80)
    assert set(text.split()) >= {"55.0", "±22.2", "(9/12)", "0.990", "2", "100.0", "74.8"}
    assert "…" not in text


def test_latex_escapes_special_characters():
    about = r"d_model 64 & 50%, {a: #1}, $x^2$ ~ C:\runs, <mean ±1>"
    made = replace(table(*complete(), {"label": "R-12o!"}, tasks=MAD_TASKS, about=about), shows_notes=True)
    text = made.to_latex()
    assert (
        r"d\_model 64 \& 50\%, \{a: \#1\}, \$x\textasciicircum{}2\$ \textasciitilde{} "
        r"C:\textbackslash{}runs, \textless{}mean $\pm$1\textgreater{} $\pm$: half-width of the 95\% interval "
    ) in text
    assert r"\label{tab:results}" in text
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    columns = re.search(r"\\begin\{tabular\}\{(l?r+)\}", text)[1]
    assert len(columns) == 10
    assert [row.count(" & ") for row in rows] == [9] * 5
    assert rows[1].startswith(r"\texttt{S} & 50.0$^\dagger$ &") and rows[2].startswith(r"\quad published & 35.2")
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 1
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}")
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("{") == unescaped.count("}")


def test_a_terminal_of_40_columns_shows_each_number_on_its_own_line():
    made = table(*complete(accuracy=70.0), *complete("R-c", accuracy=60.0), tasks=MAD_TASKS)
    console = Console(width=40, file=io.StringIO())
    console.print(made.to_rich(40))
    words = [line.split() for line in console.file.getvalue().splitlines()[2:]]
    assert [line for line in words if len(line) == 1] == [["S"], ["R-c"]]
    published = f"{published_scores()['R-c']['compression']:.1f}"
    assert words[11:13] == [["Compr.", "60.0†", published], ["Fuzzy", "recall", "61.0†", words[12][-1]]]
    assert ["MAD", "avg", "72.5†"] == words[7][:3] and ["Budget", "0.990"] in words


def seeds_of(label: str, task: str, *accuracies: float, **rest) -> list[dict]:
    return [{"label": label, "column": task, "seed": i, "value": x} | rest for i, x in enumerate(accuracies)]


def marks_of(made: ResultTable) -> dict[str, str]:
    return {label: cells["compression"].mark for label, cells in made.cells.items()}


def test_means_that_are_printed_alike_are_both_best():
    rows = [
        *seeds_of("S", "compression", 99.98, 100.0, 99.99),
        *seeds_of("R", "compression", 100.0, 100.0, 100.0),
    ]
    assert marks_of(table(*rows)) == {"S": "best", "R": "best"}


def test_the_best_and_labels_not_significantly_worse_are_marked():
    values = {"S": [50.0, 50.5, 51.0], "R": [50.2, 50.9, 51.0], "G": [20.0, 20.5, 21.0]}
    few, made = (
        table(*(row for label, of_label in values.items() for row in seeds_of(label, "compression", *of_label * times)))
        for times in (1, 3)
    )
    assert marks_of(few) == marks_of(made) == {"S": "within_noise", "R": "best", "G": ""}
    assert [record["mark"] for record in made.json_rows()] == ["within_noise", "best", ""]
    assert "bold: best; underlined: not significantly worse than the best (5%, Holm-corrected)" in made.caption
    assert "Bold: the best mean of its column, to the digits shown. Underlined: not significantly worse" in made.notes


def test_only_complete_labels_with_seeds_within_the_budget_can_be_best():
    rows = [
        *seeds_of("S", "compression", 50.0, 50.5, 51.0),
        *seeds_of("R", "compression", 50.2, 50.9, 51.0),
        *seeds_of("R-12o!", "compression", 90.0, 90.5, 91.0),
        *seeds_of("G-q", "compression", 92.0, 92.5, 93.0, budget_ratio=1.2),
        *seeds_of("G", "compression", 93.0, 93.0, 93.0, done=5),
        *seeds_of("S-p", "compression", 99.0),
        *seeds_of("S-c", "compression", 60.0, 60.0),
        {"label": "S-c", "seed": 2} | DIVERGED,
        *seeds_of("G-c", "compression", 99.0, 99.0),
    ]
    made = table(*rows)
    marked = {label for label, mark in marks_of(made).items() if mark}
    assert marked == {"S", "R", "S-c"}  # one diverged seed of three rules nothing out
    for words in (
        "‖: over budget (! or a ratio above 1.01); such labels do not compete.",
        "†: single seed",
        "(d/e): d of e jobs",
        "n=: fewer seeds than the row has.",
        "‡: some runs diverged; they count at chance.",
    ):
        assert words in made.notes


@pytest.mark.parametrize("rivals", [[], seeds_of("R", "compression", 10.0), seeds_of("R-1!", "compression", 9.0, 8.0)])
def test_one_label_alone_is_not_the_best_of_anything(rivals):
    made = table(*seeds_of("S", "compression", 50.0, 50.5, 51.0), *rivals)
    assert not any(marks_of(made).values()) and "Bold" not in made.caption


def test_intervals_in_records_stay_within_0_and_100():
    first, second = table(
        *seeds_of("S", "compression", 1.0, 17.0, 18.0, 2.0, 3.0),
        *seeds_of("R", "compression", 99.0, 99.9, 100.0),
    ).json_rows()
    assert first["low"] == 0.0 and 15 < first["high"] < 40
    assert second["high"] <= 100.0 and second["low"] == pytest.approx(92.6, abs=0.1)


def test_identical_seeds_still_have_an_interval():
    made = table(*seeds_of("S", "compression", 100.0, 100.0, 100.0))
    assert made.text_rows()[1][0][1] == "100.0 ±7.0" and made.json_rows()[0]["low"] == pytest.approx(93, abs=0.1)
    assert made.json_rows()[0]["solved_low"] ** 3 == pytest.approx(0.025)


@pytest.mark.parametrize("seeds, advice", [(4, " (train 5 seeds for a reliable mean)"), (5, "")])
def test_labels_whose_seeds_split_are_named_with_advice_to_train_five(seeds, advice):
    made = table(*seeds_of("S", "compression", *[99.0] * (seeds - 1), 20.0), *seeds_of("R", "compression", 50.0, 51.0))
    assert f"Solved by some seeds and not by others{advice}: Compr. (S)." in made.caption
    assert "Solved by some seeds and not by others: Compr. (S)." in made.paper_caption


def test_a_label_without_a_result_is_a_row():
    made = table({}, {"label": "R-q", "value": NAN, "done": 0})
    assert [row[:2] for row in made.text_rows()[1]] == [["S", "50.0†"], ["  published", "35.2"], ["R-q", "-"]]


def test_an_average_of_correlated_tasks_has_the_interval_of_its_own_seeds():
    made = table(*complete(), *complete(seed=1, accuracy=60.0), tasks=MAD_TASKS)
    assert made.text_rows()[1][0][7] == "57.5 ±63.5"
    three = table(*(row for seed in range(3) for row in complete(seed=seed, accuracy=50.0 + seed)), tasks=MAD_TASKS)
    assert three.text_rows()[1][0][7] == "53.5 ±2.3"


def test_no_label_is_best_on_a_task_that_none_has_learned():
    made = table(*seeds_of("S", "compression", 4.0, 4.1, 4.2), *seeds_of("R", "compression", 5.0, 5.1, 5.2))
    assert not any(marks_of(made).values())


def test_rows_are_sorted_best_first_and_rows_without_a_value_last():
    rows = [
        *seeds_of("S", "compression", 50.0, budget_ratio=0.9),
        {"label": "R", "column": "compression"} | DIVERGED,
        *seeds_of("G", "compression", 70.0, 71.0, budget_ratio=0.95),
    ]
    made = table(*rows)
    orders = {"compression": "G S R", "budget_ratio": "S G R", "n": "G S R", "label": "S R G"}
    assert {key: " ".join(made.sorted_by(key).rows) for key in orders} == orders
    with pytest.raises(ConfigError, match="--sort 'compresion': no such column; did you mean 'compression'?"):
        made.sorted_by("compresion")


def test_a_cell_of_fewer_seeds_than_its_row_shows_its_n():
    rows = [*seeds_of("S", "compression", 50.0, 51.0, 52.0), *seeds_of("S", "memorization", 50.0, 51.0)]
    made = table(*rows, tasks=["compression", "memorization"])
    assert made.text_rows()[1][0][1:] == ["51.0 ±7.0", "50.5 ±9.8 n=2", "0.990", "3"]
    more = [*seeds_of("S", "compression", *range(50, 57)), *seeds_of("S", "memorization", *range(50, 55))]
    made = table(*more, tasks=["compression", "memorization"])
    assert made.text_rows()[1][0][1:] == ["53.0 ±3.1", "52.0 ±4.3 n=5", "0.990", "7"]
