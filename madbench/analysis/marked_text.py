"""Text that people read, as every format of a table sets it: cells with their marks, and the sign of a number."""

from __future__ import annotations

from typing import Literal, NamedTuple

MINUS = "\N{MINUS SIGN}"
"""Stands before a number that people read; programs read a hyphen."""
BEST, WITHIN_NOISE = "best", "within_noise"
"""Marks of a cell: the best of its column, and what may be the best as well."""


Width = Literal["single", "double"]
"""Width of a table or a figure in a paper: one column of a two-column page, or both."""


class MarkedText(NamedTuple):
    """A cell as text with its mark."""

    text: str
    mark: str = ""


def with_minus(number: str) -> str:
    """A number as people read it: with a true minus."""
    return number.replace("-", MINUS)


def with_hyphens(text: str) -> str:
    """Text as programs read it: numbers in it have a hyphen for a minus."""
    return text.replace(MINUS, "-")
