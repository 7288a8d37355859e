"""Tables of aligned text, for the command line and for the plans of Python functions."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

LEAST_WIDTH = 20
"""The smallest width to which a column is folded."""


def aligned_lines(rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None = None) -> list[str]:
    """The lines of a table of texts, with two spaces between columns.

    ``right`` has one value per column: True if its cells are aligned right.

    If the table is wider than ``width`` characters, the cells of its last column are folded, and if that is not enough,
    also those of the column before. Without ``width``, every row is one line.

    >>> aligned_lines([["label", "jobs"], ["S", "12"]], [False, True])
    ['label  jobs', 'S        12']
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows)]
    if width is not None:
        for i in range(-1, -1 - min(2, len(widths)), -1):
            others = sum(widths) - widths[i] + 2 * (len(widths) - 1)
            widths[i] = min(widths[i], max(LEAST_WIDTH, width - others))
        wrapped_rows = (
            [textwrap.wrap(cell, widest, break_on_hyphens=False) or [""] for cell, widest in zip(row, widths)]
            for row in rows
        )
        rows = [parts for cells in wrapped_rows for parts in itertools.zip_longest(*cells, fillvalue="")]
    lines = []
    for row in rows:
        gaps = [" " * (widest - cell_len(cell)) for widest, cell in zip(widths, row)]
        lines.append("  ".join(gap + cell if is_right else cell + gap for is_right, gap, cell in zip(right, gaps, row)))
    return lines
