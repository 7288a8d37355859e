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
    """The choices as the message of an error lists them, such as ``'g', 'k' or the end``."""
    *first, last = (choice if choice == END else f"'{choice}'" for choice in choices)
    return f"{', '.join(first)} or {last}" if first else last


def features_of(base: str) -> str:
    """The letters of the features that labels with the base ``base`` can have, in the order of the grammar."""
    rows = (row for row in LETTERS if row.segment == "features")
    return "".join(row.letter for row in rows if not row.needs or base in row.needs)


def features_after(letter: str, *others: str, base: str = "S") -> str:
    """The choices after the feature ``letter``, as the message of an error lists them.

    They are the later features of the base, or all features if ``letter`` is empty, and then ``others``.
    """
    features = features_of(base)
    return text_of_choices([*features[features.index(letter) + 1 if letter else 0 :], *others])


def with_features_changed(features: str, base: str) -> list[str]:
    """For each feature that ``base`` can have: ``features`` with its letter added or, if present, removed."""
    every = features_of(base)
    return ["".join(one for one in every if (one in features) != (one == letter)) for letter in every]


@functools.cache
def sample_of_labels(count: int) -> tuple[str, ...]:
    """A random sample of ``count`` labels of the S/R/G grammar, the same in every call."""
    return tuple(random.Random(0).sample(every_label(), count))


@functools.cache
def labels_of_all_pairs() -> tuple[str, ...]:
    """A few S/R/G labels that together have every pair of levels of two factors.

    The pairs are those that occur in labels with at most one feature, and in a random sample of 2000 labels.
    """
    bits: dict[tuple[tuple[str, str], ...], int] = {}
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
