"""Values that users give: as Python's own types, and as text in error messages."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any


def plain_values(value: Any) -> Any:
    """Converts numbers and arrays of NumPy, torch and pandas to Python's, also inside lists and mappings.

    The public functions convert their arguments once with this, so that the code behind them meets no other type.
    """
    if isinstance(value, Mapping):
        return {plain_values(key): plain_values(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_values, value))
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    return value


def shown(value: Any) -> str:
    """The text of ``value`` for an error message, in at most one line. None is "nothing", as an empty value in YAML."""
    return "nothing" if value is None else _SHORT.repr(value)


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Avoids printing numbers of thousands of digits, such as YAML's ``1:1:1:...``: Python refuses to do so."""
        digits = round(x.bit_length() * math.log10(2))
        return super().repr_int(x, level) if digits < 1_000 else f"a number of about {digits} digits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60
