"""Tasks on real numbers: images and series as rows of channels. Needs only numpy."""

from __future__ import annotations

from madbench.tasks.signals.digits import Digits
from madbench.tasks.signals.series import Series

KINDS: dict[str, type[Digits | Series]] = {"digits": Digits, "forecasting": Series}
"""The settings class of each task, in the order of the table."""
