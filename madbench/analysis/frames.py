"""Iteration over pandas frames, typed as ``Any`` because the types of columns are known only at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pandas as pd


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield each row of ``frame`` as a named tuple, whose attributes are ``Index`` and the names of the columns."""
    yield from frame.itertuples()


def groups_of(frame: pd.DataFrame, by: str | Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each value of the column ``by`` with the rows that have it, or each tuple of values of several columns.

    Groups are in the order of their first rows. Rows with a missing value in ``by`` are left out.
    """
    yield from frame.groupby(by if isinstance(by, str) else list(by), sort=False)


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of ``frame`` as dictionaries from the name of a column to its value."""
    return cast("list[dict[str, Any]]", frame.to_dict("records"))
