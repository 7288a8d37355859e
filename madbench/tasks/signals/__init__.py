"""Tasks on real numbers. An image or a time series is a sequence of tokens with several channels. Needs only numpy."""

from __future__ import annotations

from madbench.tasks.signals.digits import Digits
from madbench.tasks.signals.series import Series

KINDS: dict[str, type[Digits | Series]] = {"digits": Digits, "forecasting": Series}
"""The settings class of each task, by name, in the order of the suite's table."""
