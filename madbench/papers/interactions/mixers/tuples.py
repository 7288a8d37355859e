"""The tuples J = (j1, .., j_(n-1)) of tokens that a row sees, where j1 is the newest token, and their number.

Kinds of tuples, by their letter in a label: ``""`` ordered, j1 >= j2 >= ..; ``"s"`` strict, j1 > j2 > .. (Remark G.2);
``"a"`` all (eq. 42), where each order of the same tokens is a separate tuple.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

ORDERED, STRICT, ALL = "", "s", "a"


def visible_tuples(tokens: int, slots: int, tuples: str) -> Iterator[tuple[int, ...]]:
    """The tuples of ``slots`` positions of tokens that a row sees if it sees the tokens 0 to ``tokens - 1``.

    ``tuples`` is the kind of tuples: ``ORDERED``, ``STRICT`` or ``ALL``. The docstring of this module describes the
    kinds. Tuples with newer tokens come first.
    """
    newest_first = range(tokens - 1, -1, -1)
    if tuples == STRICT:
        return itertools.combinations(newest_first, slots)
    if tuples == ALL:
        return itertools.product(newest_first, repeat=slots)
    return itertools.combinations_with_replacement(newest_first, slots)


def count_tuples(tokens: int, slots: int, tuples: str) -> int:
    """The number of tuples that :func:`visible_tuples` gives for the same arguments."""
    if tuples == ALL:
        count: int = tokens**slots
        return count
    return math.comb(tokens if tuples == STRICT else tokens + slots - 1, slots)
