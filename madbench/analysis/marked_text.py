"""The text of a cell with its mark, as every format of a table sets it."""

from __future__ import annotations

from typing import Literal, NamedTuple

BEST, WITHIN_NOISE = "best", "within_noise"
"""Marks of a cell: the best of its column, and what may be the best as well."""


Width = Literal["single", "double"]
"""Width of a table or a figure in a paper: one column of a two-column page, or both."""


class MarkedText(NamedTuple):
    """A cell as text with its mark."""

    text: str
    mark: str = ""
