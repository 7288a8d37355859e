"""Negative numbers have a minus sign in output for people and a hyphen in output for programs."""

from __future__ import annotations

import csv
import io
import json
import re

import matplotlib
import pytest
from matplotlib.figure import Figure

from madbench.analysis.figures.style import style
from madbench.analysis.inference import Difference
from madbench.analysis.marked_text import MINUS, with_minus
from madbench.analysis.quantities import difference_text, signed_text
from madbench.analysis.rendering import without_nan

HYPHEN = re.compile(r"(?<![\w)\]-])-(?=\.?\d)")
"""A hyphen in the place of a minus sign."""
VERBS = {
    "compare": ["R-cg-q", "R-cg-q-12o"],
    "attribute": ["--pairs"],
    "findings": ["--notes"],
    "findings --explain compression": [],
    "findings --power": ["--claim", "compression"],
}
"""Verbs that show a difference, with arguments."""
FORMATS = {
    "compare": ["terminal", "markdown", "html", "latex"],
    "attribute": ["terminal", "latex"],
    "findings": ["terminal", "html"],
    "findings --explain compression": ["terminal"],
    "findings --power": ["terminal", "markdown"],
}
"""The checked formats of each verb. Every verb writes its own text on the screen; other formats share their code."""


@pytest.fixture
def losses(fill, tiny) -> list[str]:
    """Options for a store in which the labels that should gain lose."""
    for seed in range(8):
        for worse, better in (("R-cg-q-12o", "R-cg-q"), ("S-c", "S")):
            fill(better, 0.6 + seed / 1000, [seed], tasks=["compression"])
            fill(worse, 0.2 + seed / 1000, [seed], tasks=["compression"])
    return ["--profile", tiny, "-t", "compression"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_formatted_output_uses_the_minus_sign(main, losses, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = [*verb.split(), *VERBS[verb], *losses]
    for format in FORMATS[verb]:
        ended = main(*words, *(["--format", format] if "--explain" not in words else []))
        shown = re.sub(r"<style>.*?</style>", "", ended.stdout, flags=re.DOTALL)
        assert ended.code == 0, ended.stderr
        assert ("$-$4" if format == "latex" else f"{MINUS}4") in shown, (format, shown)
        assert not HYPHEN.search(shown.replace("$-$", "")), (format, HYPHEN.search(shown))


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_json_and_csv_use_a_hyphen_for_minus(main, losses, verb):
    words = [*verb.split(), *VERBS[verb], *losses]
    shown = main(*words, "-f", "json").stdout
    content = json.loads(shown)
    assert r"\u2212" not in shown and re.search(r": -[34]\d\.", shown)
    assert content
    if "--explain" not in words:
        lines = main(*words, "--format", "csv").stdout
        cells = [cell for row in csv.reader(io.StringIO(lines)) for cell in row]
        assert MINUS not in lines and any(cell.startswith("-4") for cell in cells)


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_report_has_a_true_minus(main, losses, store):
    assert main("report", *losses).code == 0
    page = re.sub(r"<script.*?</script>", "", (store.root / "report.html").read_text(), flags=re.DOTALL)
    assert f"{MINUS}40.0" in page and not re.search(r"-40\.0\b", page)


@pytest.mark.slow
def test_an_ascii_output_has_hyphens_in_place_of_minus_signs(main, start, finish, losses, tmp_path, monkeypatch):
    words = ("compare", *VERBS["compare"], *losses)
    usual = main(*words).stdout
    assert f" {MINUS}40.0" in usual
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    poor = finish(start(tmp_path, *words)).stdout
    assert poor.isascii()
    interval = re.search(rf"\[{MINUS}[\d.]+,{MINUS}[\d.]+\]", usual)[0]
    for number in (f" {MINUS}40.0 ", interval):
        assert number in usual and poor.count(number.replace(MINUS, "-")) == usual.count(number)


def test_a_number_rounded_to_zero_has_no_minus():
    assert signed_text(-0.04, "compression") == "+0.0" and signed_text(-0.06, "compression") == f"{MINUS}0.1"
    narrow = Difference(10.0, -0.4, 30.0, 0.1, "exact", "", 5)
    assert difference_text(narrow, "compression") == "+10.0 [+0, +30]"


def test_axes_use_the_minus_sign_whatever_the_users_matplotlib_settings():
    with matplotlib.rc_context({"axes.unicode_minus": False}), style():
        figure = Figure()
        axes = figure.add_subplot()
        axes.plot([-2, 2], [-1, 1])
        figure.draw_without_rendering()
        texts = [text.get_text() for axis in (axes.xaxis, axes.yaxis) for text in axis.get_ticklabels()]
    assert any(text.startswith(MINUS) for text in texts) and not any("-" in text for text in texts)


def test_records_for_programs_have_hyphens_in_their_sentences():
    record = without_nan({"reason": f"The gain is above {with_minus('-3.6')}.", "n": 3, "low": float("nan")})
    assert record == {"reason": "The gain is above -3.6.", "n": 3, "low": None}
