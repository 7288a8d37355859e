"""Data frames that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Self

import pandas as pd

from madbench.analysis.rendering import TextTable


class ShownFrame(pd.DataFrame):
    """A frame of the records of a table. A notebook shows it as the table, with intervals, marks and caption.

    ``shown`` is the table, for example for ``shown.to_latex()``. ``below`` are the tables that stand below it, whose
    records follow. Frames computed from this one are plain frames.
    """

    _metadata = ["shown", "below", "html"]

    @classmethod
    def of(cls, table: TextTable, below: Iterable[TextTable] = ()) -> Self:
        tables = table, *below
        frame = cls([record for each in tables for record in each.records()])
        frame.shown, frame.below = table, tables[1:]
        frame.html = "\n<br>\n".join(each._repr_html_() for each in tables)  # with the display names of this call
        return frame

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def renamed(self, **columns: pd.Series) -> Self:
        """The frame with replaced columns, which is shown as before."""
        frame = type(self)(self.assign(**columns))
        frame.shown, frame.below, frame.html = self.shown, self.below, self.html
        return frame

    def _repr_html_(self) -> str:
        return self.html
