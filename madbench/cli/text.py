"""Numbers as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``42 s``, ``3 min``, ``2.5 h``, ``4.1 days``."""
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (unit != "days" and seconds >= size):
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def quantity(value: float) -> str:
    """``950``, ``68.4 k``, ``1.2 M``, ``3.0 G``, ``4.5 T``."""
    if value < 1000:
        return f"{value:.0f}"
    for prefix in "kMGTPE":
        value /= 1000
        if value < 999.95 or prefix == "E":
            return f"{value:.1f} {prefix}"
    raise AssertionError
