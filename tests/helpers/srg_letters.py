"""Letters of the S/R/G grammar for tests, from the family's table, so that a new letter edits no test."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable

from madbench.labels import every_label, factors, parse
from madbench.mixers.srg.grammar import LETTERS

BASES, FEATURES = ("".join(row.letter for row in LETTERS if row.segment == segment) for segment in ("base", "features"))
FEATURES_BEYOND_TABLE1 = [row.letter for row in LETTERS if row.segment == "features" and not row.is_in_table1]
FREE_FEATURES = [row.letter for row in LETTERS if row.segment == "features" and not row.is_paid]
ALL_LETTERS = "".join(row.letter for row in LETTERS)
END = "the end"


def text_of_choices(choices: Iterable[str]) -> str:
    """The choices as a message lists them: ``'g', 'k' or the end``."""
    *first, last = (choice if choice == END else f"'{choice}'" for choice in choices)
    return f"{', '.join(first)} or {last}" if first else last


def features_of(base: str) -> str:
    """The features that labels of a base can have."""
    rows = (row for row in LETTERS if row.segment == "features")
    return "".join(row.letter for row in rows if not row.needs or base in row.needs)


def features_after(letter: str, *others: str, base: str = "S") -> str:
    """The features that may follow ``letter`` and ``others``, as a message lists them. All if ``letter`` is empty."""
    features = features_of(base)
    return text_of_choices([*features[features.index(letter) + 1 if letter else 0 :], *others])


def with_features_changed(features: str, base: str) -> list[str]:
    """``features`` with one letter added or removed, for each letter of the base in order."""
    every = features_of(base)
    return ["".join(one for one in every if (one in features) != (one == letter)) for letter in every]


@functools.cache
def sample_of_labels(count: int) -> tuple[str, ...]:
    """``count`` random labels of the grammar, equal in every call."""
    return tuple(random.Random(0).sample(every_label(), count))


@functools.cache
def labels_of_all_pairs() -> tuple[str, ...]:
    """A few labels with every pair of levels of two factors that occurs in a sample of the grammar."""
    bits: dict[tuple, int] = {}
    pairs: dict[str, int] = {}
    few = [label for label in every_label() if sum(letter in FEATURES for letter in label) <= 1]
    for label in dict.fromkeys((*few, *sample_of_labels(2000))):
        found = itertools.combinations(factors(parse(label)).items(), 2)
        pairs[label] = sum(1 << bits.setdefault(pair, len(bits)) for pair in found)
    chosen, missing = [], (1 << len(bits)) - 1
    while missing:
        chosen.append(max(pairs, key=lambda label: (pairs[label] & missing).bit_count()))
        missing &= ~pairs[chosen[-1]]
    return tuple(sorted(chosen))
