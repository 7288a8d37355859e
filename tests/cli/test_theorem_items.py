"""The label of a paper's theorem has the checks that the theorem is about."""

from __future__ import annotations

import pytest

from madbench.labels import expand, family_of, parse
from madbench.papers import load_paper

SUBJECTS = {
    "theorem2.1": {"dynamic MLP", "extension", "routing", "straight boundaries", "bent boundaries"},
    "theorem2.3": {"extension", "truncation"},
    "proposition2.4": {"routing"},
    "theorem2.5": {"update subspace", "null directions"},
    "proposition2.6": {"update subspace", "null directions", "adapters", "VO gate", "linear readout", "registers"},
}


def measured(command: str) -> dict[str, set[str]]:
    """The names of the checks that run, by label of a command ``verify LABEL...``."""
    return {
        label: {check.name for check in family_of(label).checks(parse(label)) if check.run is not None}
        for label in expand(command.split()[1:])
    }


@pytest.mark.parametrize("item", SUBJECTS)
def test_a_theorem_of_hypermlp_is_checked_on_a_label_that_has_what_it_is_about(item):
    by_label = measured(load_paper("hypermlp").item(item).command)
    assert SUBJECTS[item] <= set().union(*by_label.values())


def test_every_theorem_of_hypermlp_that_is_verified_is_here():
    theorems = {item.id for item in load_paper("hypermlp").items if item.command.startswith("verify ")}
    assert theorems == SUBJECTS.keys()


def test_the_context_wide_slots_are_those_of_the_papers_own_operator():
    """Theorem 2.1 is of ReLU after L2Norm, in token-wise and context-wide form."""
    (label,) = measured(load_paper("hypermlp").item("theorem2.1").command)
    assert label.startswith("R-")
