"""Parsing of the arguments in parentheses of a label, such as ``(beta=2,mode=fast)`` or ``(neg)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from madbench.errors import LabelError
from madbench.labels.diagnosis import point_at

V = TypeVar("V")


def read_words(text: str, start: int, end: int, read: Callable[[str], tuple[str, V]]) -> dict[str, V]:
    """Parse the arguments in ``text[start:end]``, which are separated by commas. Return their values by name.

    ``read`` maps the text of one argument to its name and value. For an invalid argument it raises ``ValueError`` with
    a message for the user. :func:`read_words` raises ``LabelError``, which points at an invalid or repeated argument.
    """
    values: dict[str, V] = {}
    position = start
    for word in text[start:end].split(",") if text[start:end].strip() else ():
        place = position + len(word) - len(word.lstrip())
        try:
            name, value = read(word.strip())
        except ValueError as error:
            raise LabelError(point_at(text, place, str(error))) from None
        if name in values:
            raise LabelError(point_at(text, place, f"the argument {name!r} stands twice"))
        values[name] = value
        position += len(word) + 1
    return values
