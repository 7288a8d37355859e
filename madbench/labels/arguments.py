"""Arguments in parentheses in a label, such as ``(beta=2,mode=fast)`` or ``(neg)``, read as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from madbench.errors import LabelError
from madbench.labels.diagnosis import point_at

V = TypeVar("V")


def read_words(text: str, start: int, end: int, read: Callable[[str], tuple[str, V]]) -> dict[str, V]:
    """The arguments by name that stand between two positions of a label, separated by commas.

    ``read`` returns the name and the value of one argument, and raises ``ValueError`` with a hint. Raises
    ``LabelError`` that points at the argument with the error.
    """
    found: dict[str, V] = {}
    position = start
    for word in text[start:end].split(",") if text[start:end].strip() else ():
        at = position + len(word) - len(word.lstrip())
        try:
            name, value = read(word.strip())
        except ValueError as error:
            raise LabelError(point_at(text, at, str(error))) from None
        if name in found:
            raise LabelError(point_at(text, at, f"the argument {name!r} stands twice"))
        found[name] = value
        position += len(word) + 1
    return found
