"""Every interval that madbench shows is that of a sample or of a difference of samples."""

from __future__ import annotations

import io
import json
import math
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.collections import LineCollection

from drawings import FIGURES
from madbench.analysis.attribution import Effect, attribution_table
from madbench.analysis.claims.testing import as_gain
from madbench.analysis.figures.registry import figure_frame
from madbench.analysis.inference import Difference, Sample, binomial_interval, combination, difference
from madbench.analysis.quantities import column, difference_text, interval_text
from madbench.analysis.references import gain_sign
from madbench.analysis.samples import samples_of
from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.jobs import Record
from madbench.papers.coefficients.figures import bar_frame
from madbench.report import page
from madbench.store.runs import Store
from madbench.suites.language.columns import LOSS, LOSSES
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS

ARCHIVE = Path(__file__).parents[2] / "results" / "measured" / "quick.tar.xz"
LANGUAGE_LABELS = {"S": 2.4, "S-p": 2.0, "S-c": 2.3, "R-c": 2.35, "R-cg-q": 2.3, "R-cg-q-12o": 2.1}
SIGNS = {2: (1.0, -1.0), 4: (1.0, -1.0, -1.0, 1.0)}
"""The signs of the labels in a pair and in a square."""
Number = float | None


@pytest.fixture(scope="module")
def folder(tmp_path_factory, language_run) -> Path:
    """A store with the shipped runs, language models, and runs of a task at other lengths. Some diverged."""
    root = tmp_path_factory.mktemp("measured")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    store = Store.open(root / "quick")
    for label, loss in LANGUAGE_LABELS.items():
        for seed in range(4):
            losses = [loss + 0.3, loss + 0.01 * (seed * len(label) % 5)]
            status = "diverged" if (label, seed) == ("S-c", 3) else "finished"
            run = language_run(label, losses, seed=seed, status=status)
            store.finish(run.job, run.record)
    selection = Selection(labels=["S-c", "R-c"], tasks=["compression"], profile="quick", results=store.root)
    for job in (job for row in selection.select().rows_of(MAD) for job in row.jobs):
        for length in (24, 48):
            accuracy = 0.2 + job.seed / 40 if job.seed or length == 24 else math.nan
            metrics = {"accuracy": accuracy, "selection_accuracy": accuracy, "ceiling": 1.0}
            record = Record("diverged" if math.isnan(accuracy) else "finished", {} if math.isnan(accuracy) else metrics)
            store.finish(replace(job, setting=job.setting | {"seq_len": length}), record)
    return store.root


@pytest.fixture(scope="module")
def results(folder) -> Results:
    return Selection(profile="quick", results=folder).select()


@pytest.fixture(scope="module")
def samples(results) -> dict[str, dict[str, Sample]]:
    return samples_of(results.scores)


@pytest.fixture(scope="module")
def effects(results) -> dict[tuple[str, str], Effect]:
    """The effects by name and quantity, in the order of the table."""
    return {(one.name, one.quantity): one for one in attribution_table(results.scores).rows}


@pytest.fixture(scope="module")
def report(results) -> str:
    """The report page without its figures, which are tested separately."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "figure_names", lambda suites: [])
        return page.report_page(results).render("", "").decode()


def ends(found: Sample | Difference) -> list[Number]:
    """The ends of the interval. None if there is no interval."""
    low, high = found.interval if isinstance(found, Sample) else (found.low, found.high)
    return [None if math.isnan(end) else end for end in (low, high)]


def same(found: list[float | None], expected: list[Number]) -> bool:
    known = [None if one is None or math.isnan(one) else one for one in found]
    return known == (expected if None in expected else pytest.approx(expected, abs=1e-8))


def of_effect(samples, quantity: str, cases) -> Difference:
    """The effect as a combination of samples: the mean over pairs, or over squares."""
    of_quantity = samples[quantity]
    return combination(
        [(sign / len(cases), of_quantity[label]) for case in cases for sign, label in zip(SIGNS[len(case)], case)]
    )


def in_scores(row, samples, effects) -> Sample | None:
    return samples[row.task][row.label] if row.mark == "mean" and not row.state else None


def in_effects(row, samples, effects) -> Difference:
    if row.kind == "pair":
        return difference(*(samples[row.quantity][label] for label in (row.given, row.without)))
    found = effects.get((row.row, row.quantity)) or effects[f"{row.row} vs. none", row.quantity]
    return of_effect(samples, row.quantity, list(found.cases))


def in_budget(row, samples, effects) -> Sample | None:
    if row.label:
        return samples[row.quantity][row.label]
    of_tasks = next(iter(samples[row.quantity].values())).parts  # the best answer without context has no seeds
    assert row.mean == pytest.approx(sum(part.scale.heuristic for part in of_tasks) / len(of_tasks))
    assert row.n == 0 and same([row.low, row.high], [None, None])
    return None


def in_difficulty(row, samples, effects) -> Sample:
    """The sample of a point of the difficulty figure: that of the table at the profile's length, otherwise that of the
    values stored above."""
    measured = samples[row.task][row.label]
    if row.value not in (24, 48):
        return measured
    values = measured.values.copy()
    values[:] = [20.0 + 2.5 * seed for seed in range(5)]
    if row.value == 48:
        values[0] = measured.scale.chance
    return replace(measured, values=values, diverged=(values == measured.scale.chance))


SAMPLE_OF_ROW: dict[str, Callable] = {
    "scores": in_scores,
    "effects": in_effects,
    "budget": in_budget,
    "difficulty": in_difficulty,
}
"""For each figure: the function that gives the sample or difference behind a row of its frame."""


def test_every_figure_with_intervals_is_tested_here():
    assert set(SAMPLE_OF_ROW) == {name for name, one in FIGURES.items() if {"low", "high"} & set(one.columns)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE_OF_ROW)
def test_intervals_of_a_figure_equal_those_of_the_samples(name, results, samples, effects):
    frame = figure_frame(name, results)
    known = 0
    for row in frame.itertuples():
        expected = SAMPLE_OF_ROW[name](row, samples, effects)
        if expected is not None:
            assert same([row.low, row.high], ends(expected)), row
            known += None not in ends(expected)
    assert known >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scores", "effects", "budget"])
def test_error_bars_are_the_intervals_clipped_at_the_axis(name, results):
    frame = figure_frame(name, results)
    figure = FIGURES[name].draw(frame)
    axis = int(name == "budget")  # the budget's bars are vertical
    bars = []
    for axes in figure.axes:
        for lines in axes.collections:
            for segment in lines.get_segments() if isinstance(lines, LineCollection) else ():
                bars.append((*(axes.get_ylim() if axis else axes.get_xlim()), *sorted(segment[:, axis])))
    rows = frame[frame.low.notna()]
    for row in rows[rows.kind != "pair"].itertuples() if name == "effects" else rows.itertuples():
        clipped = ((max(row.low, first), min(row.high, last), low, high) for first, last, low, high in bars)
        assert any(math.isclose(a, c) and math.isclose(b, d) for a, b, c, d in clipped), row


@pytest.mark.slow
def test_the_budget_figure_has_intervals_of_average_and_loss(results, samples):
    frame = figure_frame("budget", results).set_index(["quantity", "label"])
    assert {quantity for quantity, _ in frame.index} == {MAD_AVERAGE, LOSS}
    row = frame.loc[MAD_AVERAGE, "R-pc"]
    assert (round(row.low, 1), round(row.high, 1)) == (84.8, 87.6)
    assert len(samples[MAD_AVERAGE]["R-pc"].parts) == len(MAD_TASKS)


@pytest.mark.slow
def test_bars_of_principles_have_the_intervals_of_the_samples(results, samples):
    scores = results.scores[results.scores.label.isin(["S", "R"])]
    scores = scores[scores.column.isin(MAD_TASKS)].replace({"label": {"S": "cd:exp-sum-p", "R": "cd:relu-sum-p"}})
    bars = bar_frame(scores, "p")
    means = bars[bars.mark == "mean"]
    assert len(means) == 2 * len(MAD_TASKS) and means.low.notna().any()
    for row in means.itertuples():
        label = "S" if row.group == "exp" else "R"
        assert same([row.low, row.high], ends(samples[row.task][label])), row


# The verbs, in every format


@pytest.fixture
def shown(main, folder):
    """``shown(*words)``: the output of a verb on the store."""

    def call(*words: str) -> str:
        ended = main(*words, "--results", str(folder))
        assert ended.code == 0, ended.stderr
        return ended.stdout

    return call


QUICK_LABELS = ("S", "S-c", "S-p", "S-pc", "R", "R-c", "R-pc", "R-cg-q", "R-cg-q-12o", "G-cg-q-12o")
"""A few labels, whose rows take less time than all of them."""


@pytest.mark.slow
def test_numbers_of_a_table_in_json_and_csv_equal_those_of_the_samples(shown, samples):
    of_json = json.loads(shown("table", "--format", "json"))["cells"]
    of_csv = pd.read_csv(io.StringIO(shown("table", *QUICK_LABELS, "--format", "csv"))).to_dict("records")
    for records, fewest in ((of_json, 100), (of_csv, 35)):
        known = 0
        for row in records:
            if row["task"] in (*MAD_TASKS, MAD_AVERAGE, LOSS):
                expected = ends(samples[row["task"]][row["label"]])
                assert same([row["low"], row["high"]], expected), row
                known += None not in expected
                sample = samples[row["task"]][row["label"]]
                of_solved = [*binomial_interval(sample.solved, sample.n)] if sample.has_threshold else [None, None]
                assert same([row["solved_low"], row["solved_high"]], of_solved), row
                of_diverged = binomial_interval(sample.diverged_count, sample.n)[1]
                assert same([row["diverged_high"]], [of_diverged]), row
        assert known > fewest


@pytest.mark.slow
def test_numbers_of_the_language_table_equal_those_of_the_samples(shown, samples):
    records = json.loads(shown("table", "-t", "language_model", "--format", "json"))["cells"]
    compared = [row for row in records if row["task"] in samples]
    assert {row["task"] for row in compared} >= set(LOSSES)
    for row in compared:
        assert same([row["low"], row["high"]], ends(samples[row["task"]][row["label"]])), row


def rows_of(html: str) -> list[list[str]]:
    """The cells of every row of every table, as text."""
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    cells = [re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL) for row in rows]
    return [[" ".join(re.sub(r"<[^>]*>", "", cell).split()) for cell in row] for row in cells]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["table", "report"])
def test_half_widths_on_the_report_page_equal_those_of_the_samples(verb, shown, samples, report):
    html = (
        shown("table", *QUICK_LABELS, "--format", "html") if verb == "table" else report.partition('id="comparison"')[0]
    )
    (headings, *_) = [row for row in rows_of(html) if {"Label", "Compr."} <= set(row)]
    names = dict(zip((column(name).heading for name in (*MAD_TASKS, MAD_AVERAGE)), (*MAD_TASKS, MAD_AVERAGE)))
    known = 0
    for row in rows_of(html):
        if len(row) != len(headings) or row[0] not in samples[MAD_AVERAGE]:
            continue
        for heading, text in zip(headings, row):
            if heading in names:
                half = samples[names[heading]][row[0]].half_width
                assert re.findall(r"±([\d.]+)", text) == [f"{half:.1f}"], (row[0], text)
                known += 1
    assert known > (35 if verb == "table" else 50)


@pytest.mark.slow
def test_numbers_of_a_comparison_are_differences_of_the_samples(shown, samples):
    words = ("compare", "R-cg-q", "R-cg-q-12o", "S-c", "R-pc")
    records = json.loads(shown(*words, "--format", "json"))["cells"]
    text = shown(*words, "--format", "markdown")
    assert {row["quantity"] for row in records} >= {*MAD_TASKS, MAD_AVERAGE, LOSS}
    for row in records:
        if row["quantity"] in samples:
            expected = difference(*(samples[row["quantity"]][label] for label in (row["label"], "R-cg-q")))
            assert same([row["low"], row["high"]], ends(expected)), row
            assert interval_text(expected, row["quantity"]) in text


@pytest.mark.slow
def test_numbers_of_effects_are_combinations_of_the_samples(shown, samples, effects, report):
    records = json.loads(shown("attribute", "--pairs", "--format", "json"))["cells"]
    text = shown("attribute", "--pairs", "--format", "markdown")
    in_turn, kinds = iter(effects.values()), set()
    for row in records:
        quantity = row["quantity"]
        if row["kind"] == "pair":
            expected = difference(*(samples[quantity][row[side]] for side in ("given", "without")))
        else:
            expected = of_effect(samples, quantity, list(next(in_turn).cases))
        assert same([row["low"], row["high"]], ends(expected)), row
        kinds.add(row["kind"])
        if row["kind"] != "interaction":
            assert difference_text(expected, quantity) in text
            assert json.dumps(difference_text(expected, quantity))[1:-1] in report
    assert kinds == {"effect", "pair", "interaction"}


@pytest.mark.slow
def test_numbers_of_findings_are_combinations_of_the_samples(shown, samples):
    from hypermlp_claims import CLAIMS

    by_name = {claim.name: claim for claim in CLAIMS}
    records = json.loads(shown("findings", "--format", "json"))["cells"]
    known = 0
    for row in records:
        claim, quantity = by_name[row["name"]], row["quantity"]
        pairs = [tuple(pair.split(" - ")) for pair in row["pairs"].split(", ") if pair]
        if not pairs:
            assert row["low"] is None
            continue
        gains = [
            as_gain(combination([(weight, samples[quantity][label]) for weight, label in terms]), quantity)
            for terms in claim.gains([claim.pairs.index(pair) for pair in pairs], quantity).values()
        ]
        expected = min(gains, key=lambda gain: gain.estimate)
        assert same([row["low"], row["high"]], ends(expected)), row
        assert row["estimate"] == pytest.approx(expected.estimate, abs=1e-8) and gain_sign(quantity)
        known += None not in ends(expected)
    assert known > 5
