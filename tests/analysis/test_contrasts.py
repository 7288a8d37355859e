"""Pairs of labels that differ in one factor, and squares of four labels that differ in two."""

from __future__ import annotations

import itertools
import random

import pytest

from madbench.analysis.contrasts import find_pairs, find_squares
from madbench.labels import differing_factors, expand, parse
from madbench.mixers.srg.grammar import FACTORS, spell
from madbench.mixers.srg.listing import all_labels
from srg_letters import FEATURES_BEYOND_TABLE1


def pairs_by_contrast(labels: list[str]) -> dict[str, list[tuple[str, str]]]:
    return {contrast.name: pairs for contrast, pairs in find_pairs(labels).items()}


@pytest.mark.parametrize(
    "given, without, name, short_name",
    [
        ("R", "S", "base: R vs. S", "R/S"),
        ("G-c", "S-c", "base: G vs. S", "G/S"),
        ("G", "R", "base: G vs. R", "G/R"),
        ("S-p", "S", "rope: p vs. none", "p"),
        ("S-pc", "S-p", "conv: c vs. none", "c"),
        ("R-g-q", "R-q", "gates: g vs. none", "g"),
        ("R-q", "R", "rank: q vs. none", "q"),
        ("R-v", "R", "rank: v vs. none", "v"),
        ("R-q", "R-v", "rank: q vs. v", "q/v"),
        ("R-q-1", "R-q", "R(1): 1 vs. none", "1"),
        ("R-q-12o", "R-q-2o", "R(1): 1o vs. none", "1o"),
        ("R-q-12", "R-q-1", "R(2): 2 vs. none", "2"),
        ("R-q-2o", "R-q", "R(2): 2o vs. none", "2o"),
        ("G-12o!", "G-12!", "layout: o vs. none", "o"),
        ("G-12o!", "G-q-12o", "budget: ! vs. q", "!/q"),
        ("G-g!", "G-g-v", "budget: ! vs. v", "!/v"),
    ],
)
def test_the_label_with_the_factor_is_first_in_a_contrast_for_any_order(given, without, name, short_name):
    assert pairs_by_contrast([given, without]) == pairs_by_contrast([without, given]) == {name: [(given, without)]}
    assert next(iter(find_pairs([given, without]))).short_name == short_name


@pytest.mark.slow
def test_every_pair_that_differs_in_one_factor_is_found_once():
    labels = [*random.Random(0).sample(all_labels(), 150), "D-p"]
    others = ["S-c-q", *(spell({"S", "c", "q", letter}) for letter in FEATURES_BEYOND_TABLE1)]
    labels += [label for label in ("S-p", "R-c-q", *others) if label not in labels]
    pairs = find_pairs(labels)
    found = [frozenset(pair) for of_contrast in pairs.values() for pair in of_contrast]
    expected = {
        frozenset(pair) for pair in itertools.combinations(labels, 2) if len(differing_factors(*map(parse, pair))) == 1
    }
    assert len(found) == len(expected) and set(found) == expected
    assert list(pairs) == sorted(pairs) and len({contrast.factor for contrast in pairs}) == len(FACTORS)


def test_no_label_is_in_two_pairs_of_a_contrast():
    for of_contrast in find_pairs(all_labels()).values():
        labels = [label for pair in of_contrast for label in pair]
        assert len(labels) == len(set(labels))


def test_labels_that_differ_in_two_factors_are_not_paired():
    assert pairs_by_contrast(["S", "R-p", "S-c-q"]) == {}
    assert pairs_by_contrast([]) == {}


@pytest.mark.slow
def test_four_labels_are_a_square_if_every_side_is_a_pair():
    labels = expand(["{S,R}{,-p,-c,-pc}", "R-cg-q-{1o,2o,12o}", "R-cg-q", "R-c-q"])
    squares = find_squares(find_pairs(labels))
    found = [frozenset(square) for of_contrasts in squares.values() for square in of_contrasts]

    def is_square(four: tuple[str, ...]) -> bool:
        """True if each of four labels has one neighbor in each of two contrasts."""
        sides = find_pairs(four)
        return len(sides) == 2 and all(len(of_contrast) == 2 for of_contrast in sides.values())

    expected = {frozenset(four) for four in itertools.combinations(labels, 4) if is_square(four)}
    assert len(found) == len(expected) and set(found) == expected and len(found) > 5


def test_labels_of_a_square_are_ordered_from_both_factors_to_neither():
    squares = find_squares(find_pairs(["S", "S-c", "S-pc", "S-p"]))
    (((first, second), of_contrasts),) = squares.items()
    assert (first.short_name, second.short_name) == ("p", "c")
    assert of_contrasts == [("S-pc", "S-c", "S-p", "S")]


def test_three_of_four_labels_do_not_form_a_square():
    assert find_squares(find_pairs(["S-c", "S-pc", "S-p"])) == {}


def test_the_factor_of_a_contrast_is_the_differing_factor_of_its_pairs():
    for contrast, of_contrast in find_pairs(expand(["@table1"])).items():
        for given, without in of_contrast:
            assert differing_factors(parse(given), parse(without)) == (contrast.factor,)


def test_labels_that_generalize_softmax_attention_are_paired_with_it():
    assert pairs_by_contrast(["S", "hfa:2"]) == {"hfa:orders: 2 vs. 1": [("hfa:2", "S")]}
    assert pairs_by_contrast(["ha:3-p", "S-p", "S"]) == {
        "rope: p vs. none": [("S-p", "S")],
        "ha:degree: 3 vs. 2": [("ha:3-p", "S-p")],
    }
    assert pairs_by_contrast(["R", "ha:3", "hfa:2"]) == {}
