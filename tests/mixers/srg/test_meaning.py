"""Explanations, differences and neighborhoods."""

from __future__ import annotations

import pytest

from madbench.labels import differing_factors, every_label, explain, factor_names, factors, family_of, levels, parse
from madbench.mixers.srg.family import LEVELS
from madbench.mixers.srg.grammar import FACTORS, LETTERS
from madbench.mixers.srg.listing import all_parsed_labels
from srg_letters import BASES, FEATURES, sample_of_labels, with_features_changed

MOST_APART = 4  # characters that only one of two labels has, if these differ in one factor


@pytest.mark.parametrize(
    ("a", "b", "factors"),
    [
        ("S", "R", ("base",)),
        ("S", "S-p", ("rope",)),
        ("S-c", "S-c-q", ("rank",)),
        ("G-cg-q-12o", "G-cg-12o!", ("budget",)),
        ("G-cg-q-12o", "G-cg-q-12", ("layout",)),
        ("R-cg-q", "R-cg-q-12o", ("mix1", "mix2")),
        ("R-cg-q", "R-cg-q-1o", ("mix1",)),
        ("R-c", "R-cg!", ("gates", "budget")),
        ("S-p", "D-p", ("base",)),
        ("R-cg-q-12o", "R-cgka-q-12o", ("registers", "adapter")),
        ("S-g-q", "S-g-v", ("rank",)),
        ("S-g-q-1o", "G-pcg-v-2", ("base", "rope", "conv", "rank", "mix1", "mix2", "layout")),
    ],
)
def test_differing_factors_are_symmetric(a, b, factors):
    assert differing_factors(parse(a), parse(b)) == differing_factors(parse(b), parse(a)) == factors


@pytest.mark.slow
def test_only_the_label_itself_differs_in_nothing():
    labels = all_parsed_labels()
    for a in labels[::29]:
        assert [b for b in labels if not differing_factors(a, b)] == [a]


@pytest.mark.slow
def test_neighbors_are_the_labels_that_differ_in_one_factor():
    for a in (*all_parsed_labels()[::101], *map(parse, ("D-p", "R-cgk-q-12o", "G-ka!"))):
        near = family_of(a).neighbors(a)
        assert len(set(near)) == len(near)
        few = [label for label in every_label() if len({*label} ^ {*str(a)}) <= MOST_APART]
        assert set(near) == {b for b in map(parse, few) if len(differing_factors(a, b)) == 1}
        assert a in family_of(near[0]).neighbors(near[0])


def test_neighborhood_of_hyperglu_by_hand():
    other_bases = [f"{base}-cg-q-12o" for base in BASES if base != "G"]
    other_features = [f"G-{features}-q-12o" for features in with_features_changed("cg", "G")]
    others = "G-cg-v-12o G-cg-q-2o G-cg-q-1o G-cg-q-12 G-cg-12o!".split()
    found = family_of("HyperGLU").neighbors(parse("HyperGLU"))
    assert [*map(str, found)] == [*other_bases, *other_features, *others]
    assert {"S-cg-q-12o", "G-pcg-q-12o", "G-g-q-12o", "G-cgk-q-12o"} <= {*map(str, found)}


def test_factors_come_in_a_fixed_order():
    for a in all_parsed_labels()[::50]:
        for b in all_parsed_labels()[::11]:
            assert list(differing_factors(a, b)) == sorted(differing_factors(a, b), key=FACTORS.index)


def test_explain_has_a_row_for_every_letter_in_the_order_of_the_label():
    for label in map(parse, sample_of_labels(500)):
        rows = explain(label)
        assert "".join(row.letter for row in rows) == str(label).replace("-", "")
        assert all(row.name and row.what and row.equation and row.source for row in rows)


def test_explain_names_labels_without_positions():
    blind = {str(v) for v in all_parsed_labels() if any(row.name == "no positions" for row in explain(v))}
    assert blind == {f"{base}{rest}" for base in "SRG" for rest in ("", "-q", "-v", "-g-q", "-g-v", "-g!")}


def test_explain_says_relative_positions_for_rope_only_if_no_gate_follows():
    claims = {str(v) for v in all_parsed_labels() for row in explain(v) if "only through the distance" in row.what}
    assert claims == {str(v) for v in all_parsed_labels() if v.rope and not v.gates}


def test_explain_says_when_mixing_lacks_the_lag_layout():
    assert "position layout" in [row.name for row in explain(parse("R-12!"))]
    assert "position layout" not in [row.name for row in explain(parse("R-12o!"))]


def test_factors_that_do_not_apply_to_a_label_are_left_out():
    features = {row.field: "" for row in LETTERS if row.segment == "features"} | {"conv": "c"}
    others = {"rank": "", "mix1": "", "mix2": "", "budget": "matched"}
    assert dict(factors(parse("S-c"))) == {"base": "S", **features, **others}
    assert set(FACTORS) - set(factors(parse("G-cg-12o!"))) == {"rank"}


def test_levels_of_mixing_include_the_layout_and_of_budget_the_paying_side():
    found = levels(parse("R-cg-q-2o"))
    assert (found["mix1"], found["mix2"], found["layout"], found["budget"]) == ("", "2o", "o", "q")
    assert levels(parse("R-1!"))["budget"] == "!" and levels(parse("R-1!"))["layout"] == ""


def test_the_levels_of_contrasts_have_one_order():
    assert LEVELS == ("", *BASES, *FEATURES, "v", "q", "1", "1o", "2", "2o", "o", "!")
    assert {level for label in sample_of_labels(500) for level in levels(parse(label)).values()} == set(LEVELS)


def test_factors_have_display_names_without_underscores():
    names = factor_names("S-p")
    assert names["mix1"] == "R(1)" and names["head_gate"] == "gate per head"
    assert not [name for name in FACTORS if "_" in names.get(name, name)]
