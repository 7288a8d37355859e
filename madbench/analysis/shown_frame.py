"""Data frames that notebooks show as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import pandas as pd

from madbench.analysis.rendering import TextTable


class ShownFrame(pd.DataFrame):
    """A frame of the records of a table. A notebook shows it as the table, with intervals, marks and caption.

    ``shown`` is the table, for example for ``shown.to_latex()``. Frames computed from this one are plain frames.
    """

    _metadata = ["shown", "html"]

    @classmethod
    def of(cls, table: TextTable) -> Self:
        frame = cls(table.records())
        frame.shown, frame.html = table, table._repr_html_()  # now, while the display names of this call are set
        return frame

    @property
    def _constructor(self) -> Callable[..., pd.DataFrame]:
        return pd.DataFrame

    def renamed(self, **columns: pd.Series) -> Self:
        """The frame with replaced columns, which is shown as before."""
        frame = type(self)(self.assign(**columns))
        frame.shown, frame.html = self.shown, self.html
        return frame

    def _repr_html_(self) -> str:
        return self.html
