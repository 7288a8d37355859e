"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def duration(seconds: float) -> str:
    """``42 s``, ``3.0 min``, ``2.5 h``, ``4.1 days``; days from 48 h on."""
    for unit, size, least in (("days", 86400, 47.95 * 3600), ("h", 3600, 59.95 * 60), ("min", 60, 59.5)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def count_of_jobs(count: int) -> str:
    """``1 job``, ``2 jobs``."""
    return f"{count} job{'s' * (count != 1)}"


def first_of(lines: Sequence[str], most: int, more: str) -> list[str]:
    """The first ``most`` lines, and behind them ``more`` with the number of the others, where there are any."""
    return [*lines[:most], *[more.format(len(lines) - most)] * (len(lines) > most)]


def quantity(value: float) -> str:
    """``950``, ``68.4 k``, ``1.2 M``, ``3.0 G``, ``4.5 T``."""
    if value < 999.5:
        return f"{value:.0f}"
    for prefix in "kMGTPE":
        value /= 1000
        if value < 999.95 or prefix == "E":
            return f"{value:.1f} {prefix}"
    raise AssertionError
