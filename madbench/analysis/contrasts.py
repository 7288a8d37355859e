"""Which labels isolate what: pairs that differ in one factor, squares that differ in two."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from madbench.errors import LabelError
from madbench.labels import contrast_order, factor_names, factors_in, factors_of_text, family_of, levels, parse

Pair = tuple[str, str]
"""A label with what a contrast gives, and its partner without."""
Square = tuple[str, str, str, str]
"""Labels with both of two contrasts, with the second alone, with the first alone, with neither."""


@dataclass(frozen=True, order=True)
class Contrast:
    """What the labels of a pair differ in. The effect of a contrast is a number with ``given`` less one without.

    Of S/R/G, sequence mixing in lag order and in forward order are contrasts of their own, and so is ``!`` against
    either of the ranks that it restores; the first mixing of a label brings its layout. So no label is in two pairs of
    one contrast. Contrasts sort by family, factor, and levels in the order of the grammar.
    """

    prefix: str  # of the family's labels, ``lin:``; empty for S/R/G
    position: tuple[int, int, int]  # what sorts it within the family
    factor: str
    given: str  # level of the first label (madbench.labels.levels)
    against: str  # level of the second one; empty where it has none

    @property
    def name(self) -> str:
        """``conv: c vs. none``."""
        factor = factor_names(self.prefix).get(self.factor, self.factor)
        return f"{self.prefix}{factor}: {self.given} vs. {self.against or 'none'}"

    @property
    def short_name(self) -> str:
        """``c``, ``G/R``."""
        return self.prefix + (f"{self.given}/{self.against}" if self.against else self.given)


def find_pairs(labels: Iterable[str]) -> dict[Contrast, list[Pair]]:
    """The pairs of ``labels`` that differ in exactly one factor (:func:`madbench.labels.diff`), by contrast.

    Contrasts are sorted, pairs in the order of ``labels``. Labels of two families make a pair where one of the families
    has a place for the other's label. A label that cannot be read here, whose runs are shown as they are stored, is in
    no pair.
    """
    every = []
    for label in labels:
        with suppress(LabelError):
            every.append(parse(label))
    factor_order, level_order = contrast_order()
    place = functools.partial(_place, {level: i for i, level in enumerate(level_order)})
    pairs: dict[Contrast, list[Pair]] = {}
    for family in dict.fromkeys(map(family_of, every)):
        prefix = f"{family.name}:" if family.name else ""
        in_family = [(variant, factors_in(family, variant)) for variant in every]
        variants, factors = zip(*(pair for pair in in_family if pair[1] is not None))
        own = [family_of(variant) is family for variant in variants]
        by_variant = [levels(variant) if is_own else others for variant, is_own, others in zip(variants, own, factors)]
        order = list(dict.fromkeys([*factor_order, *(factor for by_factor in by_variant for factor in by_factor)]))
        for i, j, factor in _one_difference(factors):
            if not (own[i] or own[j]):
                continue
            without, with_level = sorted((i, j), key=lambda k: place(by_variant[k][factor]))
            lacks, gives = by_variant[without][factor], by_variant[with_level][factor]
            position = order.index(factor), place(lacks)[0], place(gives)[0]
            contrast = Contrast(prefix, position, factor, gives, lacks)
            pairs.setdefault(contrast, []).append((str(variants[with_level]), str(variants[without])))
    return {contrast: pairs[contrast] for contrast in sorted(pairs)}


def find_squares(pairs: Mapping[Contrast, Sequence[Pair]]) -> dict[tuple[Contrast, Contrast], list[Square]]:
    """For every two contrasts, the labels of ``pairs`` of which all four combinations are there."""
    partners = {contrast: dict(of_contrast) for contrast, of_contrast in pairs.items()}
    squares: dict[tuple[Contrast, Contrast], list[Square]] = {}
    for first, second in itertools.combinations(pairs, 2):
        without_second = partners[second]
        for both, second_alone in pairs[first]:
            first_alone, neither = without_second.get(both), without_second.get(second_alone)
            if first_alone and neither and partners[first].get(first_alone) == neither:
                squares.setdefault((first, second), []).append((both, second_alone, first_alone, neither))
    return squares


def _one_difference(labels: Sequence[Mapping[str, str]]) -> Iterator[tuple[int, int, str]]:
    """Every two labels that differ in exactly one of the factors that both have, and this factor."""
    names = list(dict.fromkeys(name for label in labels for name in label))
    values = np.array([[label.get(name) for name in names] for label in labels], dtype=object).reshape(-1, len(names))
    has = values != None  # noqa: E711, elementwise
    for i in range(len(labels) - 1):
        differs = (values[i + 1 :] != values[i]) & has[i + 1 :] & has[i]
        for j in np.flatnonzero(differs.sum(axis=1) == 1):
            yield i, i + 1 + int(j), names[int(differs[j].argmax())]


def _place(places: Mapping[str, int], level: str) -> tuple[int, str]:
    """Where a level stands among those that have a place; others come after and by name."""
    return places.get(level, len(places)), level


MOST_BUDGET = 1.01
"""Ratio of parameters to softmax attention's above which a label does not compete."""


def is_over_budget(label: str, budget_ratio: float) -> bool:
    """True if the label has more parameters than the others may have, by its family's word or by its count."""
    return budget_ratio > MOST_BUDGET or factors_of_text(label).get("budget") == "over"
