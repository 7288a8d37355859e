"""Checks of the paper's theorems, on the functions that labels represent and learn in small worlds of agents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from madbench.mixers import Check
from madbench.papers.interactions.mixers.tuples import ALL
from madbench.papers.interactions.theorems import appendix_b, lemmas, limits, representation, training, trigrams


def checks(label: Any) -> Iterator[Check]:
    """The checks of theorems that belong to a label. Empty for labels without theorems.

    Labels with checks are ``hfa:2``, ``ha:3``, and the labels that begin with ``hfa:C`` or ``ha:C3``.
    """
    if str(label) == "hfa:C1":
        yield from representation.representation()
        yield from lemmas.of_waves()
        yield from limits.approximations()
        yield from limits.parameters()
        yield from representation.constructions()
        yield from appendix_b.policies()
        yield from appendix_b.pixels()
        yield from lemmas.of_descent()
        yield from training.training()
        yield from training.generalization()
        yield from lemmas.of_rank()
    if str(label).startswith("hfa:C"):
        yield from representation.features()
        yield from limits.layers()
        yield from lemmas.of_features()
    if str(label).startswith("ha:C3"):
        yield from training.triples()
        yield from lemmas.of_triples(label.tuples == ALL)
    if str(label) == "ha:3":
        yield from trigrams.checks()
    if str(label) == "hfa:2":
        yield from lemmas.of_cost()
