"""The paper loads, and its items, labels, claims and published numbers fit together."""

import csv

from madbench_positions import PAPER
from madbench_positions.theorems import order

from madbench.analysis.claims import load_claims
from madbench.labels import expand, parse


def test_every_item_is_made_here_or_says_why_not():
    assert PAPER.items and all(item.is_made_here or item.needs for item in PAPER.items)


def test_published_numbers_are_of_the_labels_and_columns_of_their_item():
    for item in PAPER.items:
        if item.published:
            with open(PAPER.file(item.published), newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            assert {row["label"] for row in rows} <= set(expand(item.labels))
            assert set(item.columns.values()) <= set(rows[0])


def test_claims_are_about_labels_that_the_items_train():
    trained = {label for item in PAPER.items for label in expand(item.labels)}
    for claim in load_claims(PAPER.claims_file):
        assert {label for pair in claim.pairs for label in pair} <= trained


def test_the_theorem_holds():
    for label in order.WORKED_OUT:
        [check] = order.checks(parse(label))
        assert check.holds(check.run()), label


def test_the_theorem_fails_for_a_mixer_of_the_other_kind():
    for label, other in [("S", "S-p"), ("S", "S-c"), ("S-p", "S"), ("S-c", "S")]:
        [check] = order.checks(parse(label))
        assert not check.holds(order.change_of_last_row(other)), (label, other)


def test_the_theorem_says_nothing_about_other_labels():
    assert not list(order.checks(parse("R")))


def test_items_name_checks_that_the_package_has():
    for item in PAPER.items:
        for label in expand(item.labels) if item.checks else ():
            assert set(item.checks) <= {check.name for check in order.checks(parse(label))}
