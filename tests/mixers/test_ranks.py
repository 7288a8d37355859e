"""One solver chooses the ranks of every family, and the ranks of every shipped label stay as they are."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path

import pytest

import madbench
from madbench.errors import BudgetError
from madbench.labels import as_label, expand, family_of
from madbench.labels.sets import available_sets
from madbench.mixers import Size
from madbench.mixers.ranks import Payment, Side, last_that_fits, match_budget

SETS = [*(f"@{name}" for name in available_sets()), "~G-cg-q-12o", "~R-c-v", "~D-p", "~cd:gdn", "~ha:3-p"]
SIZES = [(16, 2, 8), (64, 4, 128), (96, 3, 256), (256, 4, 64), (300, 5, 77), (768, 12, 1024), (8, 8, 4)]
DIGESTS = {"": "f9032b920f1b02a3", "cd": "bc07de6771ff68d9", "ha": "c5e26526e9a250d6", "hfa": "762aa070ef89cfb9"}
"""A digest, by family, of the ranks (or errors) of every label of ``SETS`` at every size under both budgets.

Editing a set changes a digest. The ranks of a label must never change, because runs are stored under its name.
"""


def outcome(label: str, size: Size) -> list[object]:
    """Ranks, parameters and budget of a label at a size, or the error message."""
    family = family_of(label)
    try:
        solved = family.solve(as_label(label), size, family.Settings())
    except BudgetError as error:
        return [str(error)]
    return [sorted(solved.ranks.items()), solved.total, solved.target]


@pytest.mark.slow
def test_the_ranks_of_every_label_have_the_recorded_digests():
    found: dict[str, list[object]] = {name: [] for name in DIGESTS}
    for label in expand(SETS):
        name = label.partition(":")[0] if ":" in label else ""
        sizes = [Size(*size, budget) for size in SIZES for budget in ("strict", "paper")]
        found[name] += [[label, *outcome(label, size)] for size in sizes]
    digests = {name: hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] for name, rows in found.items()}
    assert digests == DIGESTS


@pytest.mark.parametrize(
    ("label", "size", "ranks"),
    [
        ("S-p", (128, 2, 128), {"qk": 128, "vo": 128, "mix": 0}),
        ("G-cg-q-12o", (128, 2, 128), {"qk": 16, "vo": 128, "mix": 4}),
        ("R-c-v", (300, 5, 77), {"qk": 560, "vo": 40, "mix": 0}),
        ("cd:gdn", (256, 4, 64), {"qk": 248, "vo": 256}),
        ("cd:softmax-pcg", (96, 3, 256), {"qk": 42, "vo": 99}),
        ("ha:3-p", (128, 2, 128), {"qk": 128, "vo": 128}),
    ],
)
def test_ranks_at_given_sizes_have_the_expected_values(label, size, ranks):
    family = family_of(label)
    assert family.solve(as_label(label), Size(*size), family.Settings()).ranks == ranks


@pytest.mark.slow
def test_no_family_compares_budget_names_or_has_its_own_solver():
    """A new budget is a rule (:mod:`madbench.labels.budgets`) that no family has to know."""
    package = Path(madbench.__file__).parent
    files = [*package.glob("mixers/**/*.py"), *package.glob("papers/*/mixers/**/*.py")]
    asking = re.compile(r"budget\b *[!=]= *['\"]")
    assert len(files) > 100
    assert not [file for file in files if asking.search(file.read_text(encoding="utf-8"))]
    solvers = {file.relative_to(package).as_posix() for file in files if "bisect_right(candidates" in file.read_text()}
    assert solvers == {"mixers/ranks.py"}


@pytest.mark.parametrize(("budget", "last"), [(0, None), (1, 1), (4, 3), (99, 9)])
def test_the_widest_candidate_that_fits_is_chosen(budget, last):
    assert last_that_fits([1, 3, 5, 9], lambda candidate: budget - candidate) == last


def test_families_share_one_solver():
    solved = []

    def note(frame, event, _):
        if event == "call" and frame.f_code is match_budget.__code__:
            solved.append(label)

    labels = ["G-cg-q-12o", "cd:gdn", "ha:3-p", "hfa:4"]
    for label in labels:
        sys.setprofile(note)
        try:
            outcome(label, Size(128, 2, 128))
        finally:
            sys.setprofile(None)
    assert solved == labels


@pytest.mark.parametrize(
    ("budget", "ranks"),
    [
        (100, {"a": 8, "b": 38}),  # fits, and b takes what is left
        (46, {"a": 8, "b": 10}),
        (35, {"a": 6, "b": 8}),  # a pays first, no more than needed
        (30, {"a": 4, "b": 8}),
        (26, {"a": 4, "b": 6}),  # then b
        (20, {"a": 2, "b": 6}),  # then a again
        (1, {"a": 2, "b": 6}),  # nothing fits: the smallest ranks
    ],
)
def test_ranks_are_reduced_in_order_and_only_as_far_as_needed(budget, ranks):
    sides, payments = {"a": Side(2), "b": Side(2)}, [Payment("a", 4), Payment("b", 6), Payment("a", 2)]
    found = match_budget(lambda r: budget - 3 * r["a"] - 2 * r["b"], {"a": 8, "b": 8}, sides, payments, "b")
    assert found == ranks


def test_ranks_of_a_side_are_multiples_of_a_step_or_the_full_width():
    side = Side.of_heads(20, 2, step=8, multiple=1)
    assert side == Side(16, 20, 2)
    assert [side.floor(rank) for rank in (1, 16, 19, 20, 31, 32)] == [16, 16, 16, 20, 20, 32]
    assert [side.ceil(rank) for rank in (0, 16, 17, 21)] == [16, 16, 20, 32]
    assert Side.of_heads(21, 2, step=8, multiple=1).whole == 0
