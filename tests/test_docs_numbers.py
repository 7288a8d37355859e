"""The check of numbers and verdicts in pages, and the generated blocks.

``tests/cli/test_measured.py`` applies it to the pages.
"""

from __future__ import annotations

import numpy as np
import pytest

from docs_folder import load_script
from madbench.analysis.inference import VarianceTerms, terms_of_mean

filled, checked = load_script("filled"), load_script("checked")
PAGES = {page.relative_to(filled.ROOT).as_posix(): page.read_text(encoding="utf-8") for page in filled.pages()}
PRINTED = """Label   Sel. copy    Why
S-p     85.94 ±1.7
  on Memor.  +3.20   p 0.038
R-cg-q  26.7 ±0.4    contradicted
1,440 runs, largest error 2.3e-13
"""


def unprinted(sentence: str, mark: str = "madbench x") -> list[str]:
    """The numbers and verdicts of a sentence that do not occur in the text :data:`PRINTED`."""
    found = checked.unprinted(f"{sentence} <!-- numbers: {mark} -->", lambda command, form: PRINTED)
    return [message.partition(":")[0] for message in found]


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("It gains 3.2 points (p 0.038) and is contradicted.", []),
        ("It gains +3.2 points, 86 on copying, 1,440 runs, 2.3e-13.", []),
        ("It gains 3.3 points.", ["3.3"]),
        ("It gains -3.2 points.", ["-3.2"]),
        ("It has 85 there.", ["85"]),
        ("It has 26.70 there.", ["26.70"]),  # more decimals than the command prints
        ("The error is 2e-13.", ["2e-13"]),
        ("It is supported.", ["supported"]),
        ("It is not contradicted here, in `3.3` words of Table 7.", []),
    ],
)
def test_a_number_has_to_be_printed_as_it_is_or_rounded(sentence, wrong):
    assert unprinted(sentence) == wrong


def test_rows_of_a_mark_limit_the_checked_output_to_these_rows():
    assert unprinted("It has 85.9 there, +3.2 and p 0.038.", 'madbench x; rows "S-p"') == []
    assert unprinted("It has 26.7 there.", 'madbench x; rows "S-p"') == ["26.7"]
    with pytest.raises(SystemExit, match="no line has 'cg-q'"):
        unprinted("It has 26.7 there.", 'madbench x; rows "cg-q"')


def test_a_mark_covers_the_text_back_to_the_last_mark_blank_line_or_list_item():
    mark = "<!-- numbers: madbench x -->"
    text = f"It has 7.7.\n\nIt has 85.9. {mark} It has 9.9.\n- It has 85.9\n  there. {mark}\n"
    assert checked.unprinted(text, lambda command, form: PRINTED) == []
    assert checked.unprinted(f"It has 9.9.\n  {mark}\n", lambda command, form: PRINTED) == ["9.9: It has 9.9."]


@pytest.mark.parametrize("page", PAGES)
def test_every_interval_and_p_value_in_running_text_names_its_command(page):
    assert checked.unchecked(PAGES[page]) == []


@pytest.mark.parametrize(
    "result", ["5 ± 8", "±8.7", "p 0.044", "p below 0.001", "p <.01", "+0.41", "0.71 [+.41, +.89]"]
)
def test_unchecked_finds_results_without_a_mark(result):
    text = f"Text.\n\n- One item with {result} in it\n- Another.\n"
    assert checked.unchecked(text) == [f"- One item with {result} in it"]
    assert checked.unchecked(text.replace(" in it", ' <!-- numbers: madbench x; rows "S" -->')) == []
    assert checked.unchecked(text.replace(" in it", " <!-- not checked: measured elsewhere -->")) == []
    assert checked.unchecked(f"| {result} |\n\n```text\n{result}\n```\n") == []


def test_the_page_on_the_method_states_the_intervals_of_seeds_that_agree():
    terms = [terms_of_mean(np.full(n, 50.0), 100.0) for n in (3, 5, 10)]
    one, two = (
        [f"±{pair.half_width:.1f}" for pair in pairs]
        for pairs in (terms, [VarianceTerms.sum_of([t, t]) for t in terms])
    )
    text = " ".join(PAGES["docs/pages/method.md"].split())
    assert f"interval of {one[0]} points, five {one[1]}, ten {one[2]}." in text
    assert f"two such labels has {two[0]}, {two[1]} and {two[2]}." in text


def test_a_marked_table_and_a_block_of_verdicts_are_made_again():
    text = """<!-- made: madbench x; table 2; columns "Label" "n" -->
| old |

<!-- verdicts: madbench x -->
```text
old
```
"""
    tables = "| a |\n| - |\n\nText.\n\n| Label | Mean | n |\n| --- | ---: | ---: |\n| S \\| R | 5 | 3 |\n"
    plain = "Label  n\nS      3\n\nA caption: it explains.\n\nsupported: S, loss\n    p 0.01\nx table: reproduced\n"
    new = filled.rewritten(text, lambda command, form: plain if form == checked.PLAIN else tables)
    assert "| Label | n |\n| --- | ---: |\n| S \\| R | 3 |\n" in new
    assert "```text\nsupported: S, loss\n    p 0.01\nx table: reproduced\n```\n" in new


@pytest.mark.parametrize(("old", "new"), [("S", "S ¶"), ("S ¶ | 1 |\n| R", "S ¶ | 1 |\n| R ¶")])
def test_a_table_is_not_written_if_it_gains_a_mark_of_other_code(old, new):
    mark, other = "<!-- made: madbench x -->\n", "<!-- made: madbench y -->\n"
    page = f"{mark}| {old} | 1 |\n\n{other}| S ¶ | 1 |\n"
    made = {"madbench x": f"| {new} | 1 |\n", "madbench y": "| S | 1 |\n"}
    with pytest.raises(SystemExit, match=r"^madbench x: not written.* studies/equal_code\.py .*known_equal\.json"):
        filled.rewritten(page, lambda command, form: made[command])
    assert filled.rewritten(f"{mark}| {new} | 1 |\n", lambda command, form: f"| {old} | 1 |\n")


@pytest.mark.parametrize("option", [[], ["--check"]])
def test_only_the_named_pages_are_filled(option, monkeypatch, capsys):
    """A command of another page would fail this test. The page of labels has no command."""
    monkeypatch.setattr(filled, "run", lambda *_, **__: pytest.fail("a command was run"))
    monkeypatch.setattr(filled.sys, "argv", ["filled.py", *option, "docs/pages/labels.md"])
    filled.main()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("word", ["docs/pages/label.md", "--chek"])
def test_an_unknown_page_is_refused(word):
    hint = "; did you mean 'docs/pages/labels.md'" if word.endswith(".md") else ""
    with pytest.raises(SystemExit, match=f"^{word}: not a page{hint}"):
        filled.chosen_pages([word])


def test_the_table_of_letters_is_that_of_the_grammar():
    page = PAGES["docs/pages/labels.md"]
    assert filled.rewritten(page, lambda command, form: pytest.fail("no command makes it")) == page
    assert "| n | QK norm: " in page and "| S and D | `2 d_qk`, on both sides of the budget |" in page
    old = page.replace("| n | QK norm: ", "| n | ")
    assert filled.rewritten(old, lambda command, form: "") == page
