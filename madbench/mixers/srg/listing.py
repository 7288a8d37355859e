"""Lists of S/R/G labels, and the neighbors of a label, which differ from it in one factor."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

from madbench.errors import LabelError
from madbench.mixers.srg.grammar import FIELDS, LETTERS, SrgLabel, from_letters

_LISTED = [
    name
    for segments in (("base",), ("features",), ("mixing",), ("rank", "budget"))
    for name in reversed(dict.fromkeys(row.field for row in LETTERS if row.segment in segments))
]
"""Fields of a label, from the one that varies slowest in the order of :func:`every_label` to the one that varies
fastest."""
_BEYOND_TABLE1 = {row.letter for row in LETTERS if not row.is_in_table1}


@functools.cache
def every_label() -> tuple[str, ...]:
    """All labels of the grammar, ordered by base, then features, then mixing, then the letter q, v or ``!``.

    The labels are joined from the texts of their segments, because building 100,000 labels would take seconds.
    """
    budgets = {False: [*_segment("rank", "")], True: [(letter, True) for letter in (*_letters_of("rank"), "!")]}
    labels = []
    for base in _letters_of("base"):
        for (features, pays), (mixing, mixing_pays) in itertools.product(
            _segment("features", base), _segment("mixing", base)
        ):
            for place, _ in budgets[pays or mixing_pays]:
                rank, over = ("", place) if place == "!" else (place, "")
                labels.append("-".join(filter(None, (base, features, rank, mixing))) + over)
    return tuple(labels)


def _letters_of(segment: str) -> list[str]:
    return [row.letter for row in LETTERS if row.segment == segment]


def _segment(segment: str, base: str) -> list[tuple[str, bool]]:
    """All texts of a segment in labels of this base, as (text, needs_budget), in the order of :func:`every_label`.

    ``needs_budget`` is true if the text adds parameters, so that the label needs q, v or ``!``.
    """
    fields = [name for name in _LISTED if any(row.field == name for row in LETTERS if row.segment == segment)]
    texts = []
    for values in itertools.product(*(FIELDS[name] for name in fields)):
        rows = [row for row in LETTERS if row.segment == segment and (row.field, row.value) in zip(fields, values)]
        letters = {base, *(row.letter for row in rows)}
        if all(not row.needs or letters.intersection(row.needs) for row in rows):
            texts.append(("".join(row.letter for row in rows), any(row.is_paid for row in rows)))
    return texts


def listing_key(label: SrgLabel) -> tuple[int, ...]:
    """The sort key that puts labels into the order of :func:`every_label`."""
    return tuple(FIELDS[name].index(getattr(label, name)) for name in _LISTED)


def neighbors(label: SrgLabel) -> list[SrgLabel]:
    """All labels that differ from ``label`` in one factor, and some others, which the caller must drop.

    The others are ``label`` itself and labels that differ in several factors. The order is that of ``every_label``.

    Rank, layout and budget depend on each other and on the letters that add parameters. Every combination of their
    values is therefore tried with every change of another field.
    """
    dependent = ("rank", "layout", "over")
    changes: list[dict[str, Any]] = [{}]
    changes += [{name: value} for name in FIELDS if name not in dependent for value in FIELDS[name]]
    found: dict[SrgLabel, None] = {}
    for change, values in itertools.product(changes, itertools.product(*(FIELDS[name] for name in dependent))):
        with suppress(LabelError):
            found[replace(label, **change, **dict(zip(dependent, values)))] = None
    return sorted(found, key=listing_key)


@functools.cache
def all_labels() -> tuple[str, ...]:
    """The 504 labels whose letters are all in the paper's Table 1, in the order of ``every_label``."""
    return tuple(label for label in every_label() if not _BEYOND_TABLE1.intersection(label))


@functools.cache
def all_parsed_labels() -> tuple[SrgLabel, ...]:
    """The parsed labels of :func:`all_labels`."""
    return tuple(map(from_letters, all_labels()))
