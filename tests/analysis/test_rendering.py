"""A table as terminal text, plain text, Markdown, LaTeX and HTML, with marks for best and near-best values."""

from __future__ import annotations

import io
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from rich.console import Console

from madbench.analysis.marked_text import BEST, WITHIN_NOISE
from madbench.analysis.rendering import PUBLISHED, Listing, TextTable


class Marked(TextTable):
    caption = r"50%_#&~^\{}±†<>| <script>"
    notes = ""

    def __init__(self, columns: int = 3):
        self.count = columns

    def text_rows(self):
        headings = ["Label", *(f"Heading {i}" for i in range(self.count))]
        return headings, [
            ["S<b>", "1.0 ±0.5", *["2.0†"] * (self.count - 1)],
            [PUBLISHED, *["3.0"] * self.count],
            ["G_12o!", "100.0 ±10.25", *["41.5 ±14.0 (12/18)"] * (self.count - 1)],
        ]

    def json_rows(self):
        return []

    def marks(self):
        return {("S<b>", 1): BEST, ("G_12o!", 1): WITHIN_NOISE}


def on_terminal(made: TextTable, width: int, has_styles: bool = True, **options) -> str:
    console = Console(width=width, file=io.StringIO(), **options)
    console.print(made.to_rich(width, has_styles))
    return console.file.getvalue()


@pytest.mark.parametrize("width", [120, 40, 30])
def test_marks_are_bold_and_underlined_on_a_terminal_of_any_width(width):
    text = on_terminal(Marked(), width, force_terminal=True, color_system="standard")
    assert "\x1b[1m1.0" in text and "\x1b[4m100.0" in text and "\x1b[4m " not in text


@pytest.mark.parametrize("width", [120, 40, 30])
def test_plain_text_marks_cells_with_a_star_or_tilde(width):
    words = on_terminal(Marked(), width, has_styles=False).split()
    assert "±0.5*" in words and "±10.25~" in words and "S<b>" in words


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (34, ["Label  95% interval  Verdict", "S  [-1.0, +2.0]  neither of it"]),
        (32, ["Label 95% interval Verdict", "S [-1.0, +2.0] neither of it"]),
        (26, ["95%", "Label interval Verdict", "S [-1.0, +2.0] neither", "of", "it"]),
        (22, ["95%", "Label interval Verdict", "S [-1.0, neither", "+2.0] of", "it"]),
    ],
)
def test_a_narrow_terminal_breaks_headings_then_words_then_numbers(width, expected):
    listing = Listing(
        [], ["Label", "95% interval", "Verdict"], [["S", "[-1.0, +2.0]", "neither of it"]], [], "", "", ""
    )
    shown = [line.split() for line in on_terminal(listing, width).splitlines() if "─" not in line]
    assert shown == [line.split() for line in expected]


def test_print_shows_the_cells_and_the_caption_as_plain_text(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    lines = str(Marked()).splitlines()
    assert "±0.5*" in lines[2] and "±10.25~" in lines[4]
    assert lines[5:] == ["", f"{Marked.caption} In plain text * is bold and ~ is underlined."]


def test_the_repr_of_a_table_is_its_class_and_its_shape():
    assert repr(Marked()) == "<Marked of 3 rows and 4 columns>"
    listing = Listing([object()], ["Label", "n"], [["S", "1"]], [{}], "", "", "")
    assert repr(listing) == "<Listing of 1 row and 2 columns>"


def test_a_table_without_marks_is_rendered_plain():
    class Unmarked(Marked):
        marks = TextTable.marks

    assert "±0.5*" not in on_terminal(Unmarked(), 120, has_styles=False) and "**" not in Unmarked().to_markdown()


def test_markdown_marks_cells_with_bold_and_u_tags():
    lines = Marked().to_markdown().splitlines()
    assert lines[2] == r"| S\<b> | **1.0 ±0.5** | 2.0† | 2.0† |"
    assert lines[4] == "| G_12o! | <u>100.0 ±10.25</u> | 41.5 ±14.0 (12/18) | 41.5 ±14.0 (12/18) |"


def test_latex_names_its_packages_and_has_marks_and_a_label():
    text = Marked().to_latex()
    assert text.startswith("% \\usepackage{booktabs,graphicx}\n\\begin{table")
    assert r"\textbf{1.0" in text and r"\underline{100.0" in text and r"\label{tab:results}" in text
    assert r"\label{tab:mine}" in Marked().to_latex("tab:mine") and r"\begin{table*}" in Marked().to_latex("", "double")


class Read(HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_html_is_well_formed_and_escaped_with_scopes_on_header_cells():
    made = Marked()
    read = Read(made.to_html())
    at = [tag for tag, _ in read.tags].index("table")
    assert read.open == [] and read.tags[at : at + 2] == [("table", {"class": "results"}), ("caption", {})]
    scopes = [attributes["scope"] for tag, attributes in read.tags if tag == "th"]
    assert scopes == ["col"] * 4 + ["row"] * 3
    assert made.caption in read.text and "S<b>" in read.text and "script" not in dict(read.tags)
    assert '<td class="best"><strong>1.0 ±0.5</strong></td>' in made.to_html()
    assert '<td class="within-noise"><u>100.0 ±10.25</u></td>' in made.to_html()
    assert '<tr class="published"><th scope="row">published</th>' in made.to_html()


def test_an_html_page_loads_no_other_files():
    text = Marked().to_html()
    assert text.startswith("<!DOCTYPE html>")
    assert "http" not in text and "src=" not in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("columns", [3, 9, 17])
@pytest.mark.parametrize("layout", ["", "twocolumn"])
def test_latex_compiles_and_fits_the_page(tmp_path, columns, layout):
    head = rf"\documentclass[{layout}]{{article}}\usepackage{{booktabs,graphicx}}\begin{{document}}"
    (tmp_path / "table.tex").write_text(head + "\n" + Marked(columns).to_latex() + r"\end{document}", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout, done.stdout
