"""Tasks on real numbers, which need only numpy.

Images and time series are sequences of tokens with several channels.
"""

from __future__ import annotations

from madbench.tasks.signals.digits import Digits
from madbench.tasks.signals.series import Series

KINDS: dict[str, type[Digits | Series]] = {"digits": Digits, "forecasting": Series}
"""The settings class of each task, by name, in the order of the suite's table."""
