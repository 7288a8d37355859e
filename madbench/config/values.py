"""Conversion of users' values to Python's own types, and to text for error messages."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any


def plain_values(value: Any) -> Any:
    """Convert numbers and arrays of NumPy, torch and pandas to Python's own types, also inside lists and mappings.

    An iterator, such as a generator, becomes a list. The public functions convert their arguments with it, so that no
    other code meets types of other libraries, or a value that can be read only once.
    """
    if isinstance(value, Mapping):
        return {plain_values(key): plain_values(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_values, value))
    if isinstance(value, Iterator):
        return [*map(plain_values, value)]
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    return value


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings in one mapping, with names joined by dots, such as ``training.steps``.

    All names begin with ``prefix``.
    """
    by_name: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            by_name |= flatten(value, f"{prefix}{name}.")
        else:
            by_name[f"{prefix}{name}"] = value
    return by_name


def short_repr(value: Any) -> str:
    """The ``repr`` of ``value`` for an error message, shortened in the middle to about 100 characters.

    ``None`` is shown as "nothing", because YAML reads a missing value as ``None``.
    """
    return "nothing" if value is None else _SHORT.repr(value)


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """The number as text. If it has 1,000 or more digits: how many it has, approximately.

        Python refuses to print numbers with thousands of digits. YAML can read such a number from a text like
        ``1:1:1:...``.
        """
        digits = round(x.bit_length() * math.log10(2))
        return super().repr_int(x, level) if digits < 1_000 else f"a number of about {digits} digits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 100, 100
