"""``madbench explain``: letters, equations and differences of labels, as text and as JSON."""

from __future__ import annotations

import json

import pytest

from madbench.cli.explain import explain
from madbench.labels import explain as explanations
from madbench.labels import parse


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_explain_fits_every_letter_and_equation_into_the_width(invoke, columns):
    text = invoke(explain, "R-pcg-q-12o", columns=columns).output
    assert max(map(len, text.splitlines())) <= columns
    joined = "".join(text.split())
    for row in explanations(parse("R-pcg-q-12o")):
        for part in (row.name, row.what, row.equation, row.source):
            assert "".join(part.split()) in joined


def test_later_labels_say_how_they_differ_from_the_first(invoke):
    text = invoke(explain, "R-cg-q", "R-cg-q-12o", "G-cg-q").output
    assert "differs from R-cg-q in: R(1) (1o vs. none), R(2) (2o vs. none)" in text
    assert "differs from R-cg-q in: base (G vs. R)" in text
    assert text.count("differs from") == 2


def test_explain_of_a_second_label_shows_only_its_differences(invoke):
    text = invoke(explain, "R-cg-q", "G-c-q-1o").output
    assert len(text.splitlines()) < len(invoke(explain, "R-cg-q").output.splitlines()) + 10
    letters = [line.split()[:2] for line in text.splitlines() if line.lstrip()[:2] in ("+ ", "- ")]
    assert [" ".join(pair) for pair in letters] == ["+ G", "+ 1", "+ o", "- R", "- g"]
    for row in explanations(parse("G-c-q-1o")):
        assert (" ".join(row.what.split())[:30] in " ".join(text.split())) == (row.letter in "G1o")
    assert "shares: c " in text and "q QK compressed" in text


def test_explain_all_shows_every_letter_of_every_label(invoke):
    text = invoke(explain, "R-cg-q", "R-cg-q-12o", "--all").output
    alone = invoke(explain, "R-cg-q-12o").output
    assert text.startswith(invoke(explain, "R-cg-q").output) and alone in text
    assert text.count("differs from") == 1


def test_explain_of_two_families_shows_all_of_both(invoke):
    text = invoke(explain, "S", "cd:id-sm-bd").output
    assert "- S" in text and "+ id" in text and "+ sm" in text


@pytest.mark.parametrize("words", [("S", "--all"), ("S", "R", "--all", "-f", "json")])
def test_all_without_effect_is_an_error(refuse, words):
    assert "--all has no effect" in refuse(explain, *words)


def test_json_has_the_letters_and_the_differences(invoke):
    content = json.loads(invoke(explain, "HyperGLU", "G-cg-12o!", "-f", "json").output)
    assert [entry["label"] for entry in content] == ["G-cg-q-12o", "G-cg-12o!"]
    assert [letter["letter"] for letter in content[0]["letters"]] == list("Gcgq12o")
    assert [entry["differs_from_first_in"] for entry in content] == [[], ["budget"]]


def test_a_bad_label_is_shown_with_a_caret(refuse):
    assert "^" in refuse(explain, "R-cq-z")


@pytest.mark.slow
def test_an_installed_family_explains_its_own_letters(invoke, install_example):
    install_example("plugin")
    text = invoke(explain, "lin:elu", "lin:elu-g", "S").output
    assert "feature map" in text and "elu(x) + 1" in text
    assert "differs from lin:elu in: gate (g vs. none)" in text and "differs from lin:elu in: family" in text
