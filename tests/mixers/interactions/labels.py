"""Every label of the two families."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress

from madbench.errors import LabelError
from madbench.labels import family_of


@functools.cache
def all_labels_of(name):
    """By trying every combination of letters."""
    orders = ["+".join(parts) for n in range(1, 5) for parts in itertools.combinations_with_replacement("123456789", n)]
    kinds = {"hfa": (orders, ("", "w"), ("",)), "ha": ("123456789", ("", "u"), ("", "s", "a"))}[name]
    tails = ("", "-p"), ("", "-q", "-v"), ("", "!")
    found = []
    for letters in itertools.product(("", "L", "C"), *kinds, *tails):
        with suppress(LabelError):
            found.append(family_of(f"{name}:").parse(f"{name}:{''.join(letters)}"))
    return found
