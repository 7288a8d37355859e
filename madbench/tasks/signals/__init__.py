"""Tasks on real numbers: images and series that come as rows of channels; numpy only."""

from __future__ import annotations

from madbench.tasks.signals.digits import Digits
from madbench.tasks.signals.series import Series

KINDS: dict[str, type[Digits | Series]] = {"digits": Digits, "forecasting": Series}
"""Settings by name of the task, in the order of their table."""
