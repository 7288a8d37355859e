"""Sentences below a figure: how many seeds there are, and what the bars and the hollow marks mean."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd


def seeds_note(counts: Iterable[float]) -> str:
    """The number of seeds, or its range; empty where there is none.

    >>> seeds_note([3, 1, 0])
    'n = 1 to 3 seeds.'
    """
    known = sorted({int(count) for count in counts if count})
    if not known:
        return ""
    n = " to ".join(str(count) for count in dict.fromkeys((known[0], known[-1])))
    return f"n = {n} seed{'s' if known[-1] > 1 else ''}."


def interval_notes(counts: pd.Series, low: pd.Series, spread: str = "") -> list[str]:
    """The meaning of bars and hollow marks, and why a mean of several seeds may have no bar.

    Args:
        counts: seeds of each mean drawn.
        low: lower end of its interval, NaN where it has none.
        spread: ``; of L5 with the spread pooled``, whose standard deviation the interval uses.
    """
    notes = []
    if low.notna().any():
        notes.append(f"Bars: 95% intervals of the mean, Student's t over seeds{spread}.")
    if ((counts > 1) & low.isna()).any():
        notes.append("No bar: all seeds agree exactly (zero variance; no interval).")
    if (counts == 1).any():
        notes.append("Hollow: a single seed, without an interval.")
    return notes
