"""Tables in LaTeX: signs and hyphens, marks, indentation, and the width of a page."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from madbench.analysis.latex import latex, latex_table
from madbench.analysis.marked_text import BEST, WITHIN_NOISE, MarkedText
from madbench.errors import ConfigError

CELLS = ["100.0 ±12.3", "87.9 [4/5]", "+0.2 [-43, +44]", "28.5 ±1.0*", "(1/3)", "-", "1.000", ""]


def latex_of_table(columns: int, width=None, cells=CELLS, label: str = "tab:results") -> str:
    headings = ["Label", *(["Fuzzy recall", "Memor.", "p", "95% interval"] * columns)[:columns]]
    row = [MarkedText(text) for text in (cells * columns)[:columns]]
    lines = [[MarkedText("R-cg-q-12o"), *row], [MarkedText("  published"), *row]]
    return latex_table(headings, lines, "What it is: -0.5 of 3-5 seeds.", label, width=width)


def setting(text: str) -> tuple[str, str]:
    """Environment and size of a table."""
    return re.search(r"\\begin{(table\*?)}", text)[1], re.search(r"(\S*)\\setlength{\\tabcolsep}", text)[1]


def test_numbers_below_zero_have_a_true_minus_and_ranges_a_dash():
    assert latex("-21.3") == "$-$21.3"
    assert latex("+0.2 [−43, +44]") == "+0.2 [$-$43, +44]"
    assert latex("[-0.2,+2.6]") == "[$-$0.2,+2.6]"
    assert latex("gains of -.5 and (-3)") == "gains of $-$.5 and ($-$3)"
    assert latex("seeds 0-4") == "seeds 0--4"


def test_the_hyphens_of_an_option_are_no_dash():
    assert latex("with --force") == "with -{}-force"


def test_the_caption_has_a_distance_from_the_top_rule():
    text = latex_of_table(2)
    assert text.index(r"\setlength{\belowcaptionskip}{6pt}") < text.index(r"\caption{") < text.index(r"\toprule")


@pytest.mark.parametrize("label", ["R-cg-q-12o", "cd:id-0.95-sum-p", "hfa:2w-p-q", "R-12o!"])
def test_the_hyphens_of_a_label_stay_hyphens(label):
    assert latex(label) == label


def test_a_cell_has_its_mark_and_a_smaller_interval():
    lines = [[MarkedText("S"), MarkedText("1.0 ±0.5*", BEST)], [MarkedText("R"), MarkedText("0.9 [2/5]", WITHIN_NOISE)]]
    text = latex_table(["Label", "x"], lines, "", "tab:a")
    assert r"\texttt{S} & \textbf{1.0{\scriptsize\,$\pm$0.5}*} \\" in text
    assert r"\texttt{R} & \underline{0.9 [2/5]} \\" in text


def test_published_rows_are_indented_in_latex():
    assert "\n\\quad published & " in latex_of_table(2)


def test_a_wide_latex_table_gets_a_smaller_font_and_then_broken_cells():
    texts = [latex_of_table(columns, "single", ["1 ±5"]) for columns in range(1, 13)]
    forms = [(r"\stack{t}" in text, setting(text)[1]) for text in texts]
    sizes = ["", r"\small", r"\footnotesize", r"\scriptsize"]
    assert forms == sorted(forms, key=lambda form: (form[0], sizes.index(form[1])))
    assert {(False, ""), (False, r"\footnotesize"), (True, r"\scriptsize")} <= set(forms)
    assert {setting(text)[0] for text in texts} == {"table"}


def test_an_interval_in_brackets_is_broken_from_its_number_and_not_within():
    text = latex_of_table(7, "single")
    assert r"+0.2\\{[$-$43, +44]}" in text and r"28.5\\{\scriptsize $\pm$1.0}*" in text and r"87.9\\{[4/5]}" in text


def test_a_narrow_latex_table_fits_a_column_and_wide_ones_span_the_page():
    assert setting(latex_of_table(2))[0] == "table" and setting(latex_of_table(6))[0] == "table*"
    assert setting(latex_of_table(2, "double"))[0] == "table*"


def test_a_single_row_that_is_too_wide_for_a_column_has_a_line_per_column():
    headings = ["Label", "Solved", "Difference", "95% interval", "p", "Verdict"]
    row = [MarkedText(text) for text in ("  Compr.", "0/2:0/2", "+1.6", "[-79.2,+83.7]", "0.042", "not significant")]
    lines = [[MarkedText("R-c"), *[MarkedText("")] * 5], row]
    text = latex_table(headings, lines, "What it is.", "tab:a")
    assert setting(text) == ("table", "")
    assert r"\begin{tabular}{lr}" in text and "R-c\\\\Compr." in text
    assert "95\\%~interval & [$-$79.2,+83.7] \\\\" in text
    assert setting(latex_table(headings, lines, "", "tab:a", width="double"))[0] == "table*"
    assert setting(latex_table(headings, [*lines, row], "", "tab:a"))[0] == "table*"


@pytest.mark.parametrize("mark", ["", " ¶"])
def test_a_long_name_of_a_single_row_is_broken_into_lines_that_fit_a_column(mark):
    headings = ["Label", "Solved", "Difference", "95% interval", "p", "Verdict"]
    row = [MarkedText(text) for text in ("  Compr.", "0/2:0/2", "+1.6", "[-9,+3]", "0.042", "higher")]
    lines = [[MarkedText("my:my_package.mixers.experimental.GatedMean" + mark), *[MarkedText("")] * 5], row]
    text = latex_table(headings, lines, "What it is.", "tab:a")
    assert setting(text)[0] == "table" and setting(text)[1] != r"\scriptsize"
    assert "my:my\\_package.mixers." in text and "mixers.experimental" not in text
    wide = latex_table(headings, lines, "", "tab:a", width="double")
    assert "my:my\\_package.mixers.experimental.GatedMean" in wide


def test_text_is_aligned_left_and_numbers_right():
    lines = [[MarkedText("S"), MarkedText("<0.001"), MarkedText("not significant")]]
    assert r"\begin{tabular}{lrl}" in latex_table(["Label", "p", "Verdict"], lines, "", "tab:a")


def test_a_table_without_rows_has_its_headings():
    assert "Label & x" in latex_table(["Label", "x"], [], "", "tab:a")


def test_the_latex_label_is_the_given_one_and_invalid_ones_are_refused():
    assert r"\label{tab:ablation_2}" in latex_of_table(2, label="tab:ablation_2")
    for label in ("a b", "a%", "{a}", "\\a", "#1", ""):
        with pytest.raises(ConfigError, match="expected letters, digits"):
            latex_of_table(2, label=label)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_no_table_that_can_fit_is_scaled(tmp_path):
    fitting = [latex_of_table(columns) for columns in range(1, 12)] + [
        latex_of_table(columns, "single") for columns in range(1, 4)
    ]
    scaled = r"\renewcommand{\resizebox}[3]{\errmessage{scaled}}"
    head = rf"\documentclass[twocolumn]{{article}}\usepackage{{booktabs,graphicx}}{scaled}\begin{{document}}"
    (tmp_path / "table.tex").write_text("\n".join([head, *fitting, r"\end{document}"]), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "Overfull" not in done.stdout, done.stdout[-3000:]
