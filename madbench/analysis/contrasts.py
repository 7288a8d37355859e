"""Pairs of labels that differ in one factor, and squares of four labels for two factors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from madbench.errors import LabelError
from madbench.labels import contrast_order, factor_names, factors_in, family_of, levels, parse

LabelPair = tuple[str, str]
"""Two labels that differ in one factor: the label with the level ``given`` of a contrast, and the other label."""
Square = tuple[str, str, str, str]
"""Four labels for two contrasts: with the level ``given`` of both, of the second only, of the first only, of neither.

A label without the level ``given`` of a contrast has its level ``against``.
"""


@dataclass(frozen=True, order=True)
class Contrast:
    """A comparison of two levels, ``given`` and ``against``, of one factor. A factor is a part of a label.

    No label is in two pairs of one contrast. Therefore the S/R/G family splits some levels: mixing over lags (``1o``)
    and over positions (``1``) are two levels, and ``!`` is compared separately with rank q and with rank v. Contrasts
    are sorted by family, factor, and levels in the order of the grammar.
    """

    prefix: str
    """Prefix of the family, such as ``lin:``. Empty for S/R/G."""
    position: tuple[int, int, int]
    """Sort key among the contrasts of the family: the positions of the factor, of ``against`` and of ``given``."""
    factor: str
    given: str
    """Level of the factor in the first label of a pair (:func:`madbench.labels.levels`)."""
    against: str
    """Level of the factor in the second label of a pair. Empty if the second label lacks the factor, as in ``c vs.
    none``."""

    @property
    def name(self) -> str:
        """The name in tables, such as ``conv: c vs. none``."""
        factor = factor_names(self.prefix).get(self.factor, self.factor)
        return f"{self.prefix}{factor}: {self.given} vs. {self.against or 'none'}"

    @property
    def short_name(self) -> str:
        """The name of the contrast as a part of an interaction's name: ``c`` for c vs. none, or ``G/R`` for G vs. R."""
        return self.prefix + (f"{self.given}/{self.against}" if self.against else self.given)


def find_pairs(labels: Iterable[str]) -> dict[Contrast, list[LabelPair]]:
    """The pairs of ``labels`` that differ in exactly one factor, by contrast.

    Contrasts are sorted; the pairs of a contrast are in the order of ``labels``. The first label of a pair has the
    level ``given`` of the contrast, the second label the level ``against``. Two labels of different families can be a
    pair if one of the families can describe both labels by its own factors. A label that no installed family can parse
    is in no pair.
    """
    all_pairs = []
    for label in labels:
        with suppress(LabelError):
            all_pairs.append(parse(label))
    factor_order, level_order = contrast_order()
    sort_order = functools.partial(_sort_order, {level: i for i, level in enumerate(level_order)})
    pairs: dict[Contrast, list[LabelPair]] = {}
    for family in dict.fromkeys(map(family_of, all_pairs)):
        prefix = f"{family.name}:" if family.name else ""
        in_family = [(label, factors_in(family, label)) for label in all_pairs]
        family_labels, factors = zip(*(pair for pair in in_family if pair[1] is not None))
        of_family = [family_of(label) is family for label in family_labels]
        levels_by_label = [
            levels(label) if is_own else others for label, is_own, others in zip(family_labels, of_family, factors)
        ]
        order = list(dict.fromkeys([*factor_order, *(factor for by_factor in levels_by_label for factor in by_factor)]))
        for i, j, factor in _one_difference(factors):
            if not (of_family[i] or of_family[j]):
                continue
            without_level, with_level = sorted((i, j), key=lambda k: sort_order(levels_by_label[k][factor]))
            lacks, gives = levels_by_label[without_level][factor], levels_by_label[with_level][factor]
            position = order.index(factor), sort_order(lacks)[0], sort_order(gives)[0]
            contrast = Contrast(prefix, position, factor, gives, lacks)
            pairs.setdefault(contrast, []).append((str(family_labels[with_level]), str(family_labels[without_level])))
    return {contrast: pairs[contrast] for contrast in sorted(pairs)}


def find_squares(pairs: Mapping[Contrast, Sequence[LabelPair]]) -> dict[tuple[Contrast, Contrast], list[Square]]:
    """The squares of labels (:data:`Square`) for every two contrasts in ``pairs``.

    Two contrasts without a square are left out. ``pairs`` has the pairs of labels of each contrast, as
    :func:`find_pairs` returns them.
    """
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
    """Yield ``(i, j, factor)`` for labels with indices i < j that differ in exactly one of the factors that both have.

    ``labels`` has a mapping from factor to level for each label.
    """
    names = list(dict.fromkeys(name for label in labels for name in label))
    values = np.array([[label.get(name) for name in names] for label in labels], dtype=object).reshape(-1, len(names))
    has = values != None  # noqa: E711, elementwise
    for i in range(len(labels) - 1):
        differs = (values[i + 1 :] != values[i]) & has[i + 1 :] & has[i]
        for j in np.flatnonzero(differs.sum(axis=1) == 1):
            yield i, i + 1 + int(j), names[int(differs[j].argmax())]


def _sort_order(positions: Mapping[str, int], level: str) -> tuple[int, str]:
    """The key that sorts levels by their ``positions``. Levels without a position come last, sorted by name."""
    return positions.get(level, len(positions)), level
