"""Which labels isolate what: pairs that differ in one factor, squares that differ in two."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from madbench.labels import FACTORS, Variant, diff, parse

Pair = tuple[str, str]
"""A label with what a contrast gives, and its partner without."""
Square = tuple[str, str, str, str]
"""Labels with both of two contrasts, with the second alone, with the first alone, with neither."""

# what a label may have of a factor; a contrast gives the later one of two
_LEVELS = ("", "S", "R", "G", "p", "c", "g", "v", "q", "1", "1o", "2", "2o", "o", "!")
_NAMES = {"mix1": "R(1)", "mix2": "R(2)"}


@dataclass(frozen=True)
class Contrast:
    """What the labels of a pair differ in. The effect of a contrast is a number with ``given`` less one without.

    Sequence mixing in lag order and in forward order are contrasts of their own, and so is ``!`` against either of the
    ranks that it restores. So no label is in two pairs of one contrast. The first mixing of a label brings its layout.
    """

    factor: str
    """One of :data:`madbench.labels.FACTORS`."""
    given: str
    """Letters of the first label."""
    against: str
    """Letters of the second one in their place; empty where it has none."""

    @property
    def name(self) -> str:
        """``conv: c against none``."""
        return f"{_NAMES.get(self.factor, self.factor)}: {self.given} against {self.against or 'none'}"

    @property
    def short_name(self) -> str:
        """``c``, ``G/R``."""
        return f"{self.given}/{self.against}" if self.against else self.given

    def __lt__(self, other: Contrast) -> bool:
        """By factor in the order of ``FACTORS``, then by letters in that of the grammar."""
        return self._position < other._position

    @property
    def _position(self) -> tuple[int, int, int]:
        return FACTORS.index(self.factor), _LEVELS.index(self.against), _LEVELS.index(self.given)


def find_pairs(labels: Iterable[str]) -> dict[Contrast, list[Pair]]:
    """The pairs of ``labels`` that differ in exactly one factor (:func:`madbench.labels.diff`), by contrast.

    Contrasts are in the order of ``FACTORS``, pairs in that of ``labels``. Labels of other families have no factors.
    """
    variants = [variant for variant in map(parse, labels) if isinstance(variant, Variant)]
    pairs: dict[Contrast, list[Pair]] = {}
    for one, other in itertools.combinations(variants, 2):
        factors = diff(one, other)
        if len(factors) == 1:
            without, given = sorted((one, other), key=lambda variant: _LEVELS.index(_level(variant, factors[0])))
            contrast = Contrast(factors[0], _level(given, factors[0]), _level(without, factors[0]))
            pairs.setdefault(contrast, []).append((str(given), str(without)))
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


def _level(variant: Variant, factor: str) -> str:
    if factor in ("base", "rank"):
        return getattr(variant, factor)
    if factor in ("mix1", "mix2"):
        return (factor[-1] + "o" * variant.lag) * getattr(variant, factor)
    if factor == "budget":
        return "!" if variant.over else variant.rank
    letters = {"rope": "p", "conv": "c", "gates": "g", "layout": "o"}
    return letters[factor] * getattr(variant, "lag" if factor == "layout" else factor)
