"""Every label of the two families."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress

from madbench.errors import LabelError
from madbench.labels import family_of


@functools.cache
def all_labels_of(name, most_parts=None):
    """The labels of a family, found by trying every combination of letters.

    By default labels of ``hfa:`` have up to four parts and those of ``ha:`` one.
    """
    most_parts = most_parts or {"hfa": 4, "ha": 1}[name]
    digits = [itertools.combinations_with_replacement("123456789", n) for n in range(1, most_parts + 1)]
    numbers = ["+".join(parts) for parts in itertools.chain(*digits)]
    kinds = {"hfa": (numbers, ("", "w"), ("",)), "ha": (numbers, ("", "u"), ("", "s", "a"))}[name]
    tails = ("", "-p"), ("", "-q", "-v"), ("", "!")
    found = []
    for letters in itertools.product(("", "L", "C"), *kinds, *tails):
        with suppress(LabelError):
            found.append(family_of(f"{name}:").parse(f"{name}:{''.join(letters)}"))
    return found
