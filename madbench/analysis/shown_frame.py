"""Frames that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import pandas as pd

from madbench.analysis.rendering import TextTable


class ShownFrame(pd.DataFrame):
    """The records of a table, which a notebook shows as the table itself, with intervals, marks and caption.

    ``shown`` is the table, for ``shown.to_latex()`` and the like. What is computed from the frame is a plain frame.
    """

    _metadata = ["shown", "html"]

    @classmethod
    def of(cls, table: TextTable) -> Self:
        frame = cls(table.records())
        frame.shown, frame.html = table, table._repr_html_()  # while the names of this call hold
        return frame

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def renamed(self, **columns: pd.Series) -> Self:
        """The frame with these columns replaced, shown as before."""
        frame = type(self)(self.assign(**columns))
        frame.shown, frame.html = self.shown, self.html
        return frame

    def _repr_html_(self) -> str:
        return self.html
