"""Iteration over pandas frames. The names and the types of their columns are known at run time only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pandas as pd


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield each row of ``frame`` as a named tuple, whose attributes are the columns."""
    yield from frame.itertuples()


def groups_of(frame: pd.DataFrame, by: str | Sequence[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield each value of the column ``by``, or each tuple of values of several columns, with its rows.

    The order is that of the first rows.
    """
    yield from frame.groupby(by if isinstance(by, str) else list(by), sort=False)


def records_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of ``frame`` as dictionaries, column to value."""
    return cast("list[dict[str, Any]]", frame.to_dict("records"))
