"""Data frames that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

import pandas as pd

from madbench.analysis.rendering import TextTable


class ShownFrame(pd.DataFrame):
    """A data frame with the JSON rows of a table. A notebook shows the frame as this table, with marks and caption.

    The attribute ``shown`` is the table, for example for ``shown.to_latex()``. Operations on this frame return plain
    data frames, except :meth:`with_columns`.
    """

    _metadata = ["shown", "html"]
    shown: TextTable
    html: str

    @classmethod
    def from_table(cls, table: TextTable, tables_below: Iterable[TextTable] = ()) -> Self:
        """The frame with the JSON rows of ``table``, followed by those of ``tables_below``.

        A notebook shows ``table``, and ``tables_below`` below it.
        """
        tables = table, *tables_below
        frame = cls([json_row for shown_table in tables for json_row in shown_table.json_rows()])
        frame.shown = table
        frame.html = "\n<br>\n".join(
            shown_table._repr_html_() for shown_table in tables
        )  # keeps the display names that apply now
        return frame

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def with_columns(self, **columns: pd.Series) -> Self:
        """A copy of the frame with columns replaced or added. A notebook shows the table of the original frame."""
        frame = type(self)(self.assign(**columns))
        frame.shown, frame.html = self.shown, self.html
        return frame

    def _repr_html_(self) -> str:
        return self.html
