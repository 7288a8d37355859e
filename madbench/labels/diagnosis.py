"""What every message about a rejected text has: the text on one line, a caret at the character at fault."""

from __future__ import annotations

SHOWN = 60  # characters of a rejected text that a message repeats


def point_at(text: str, position: int, problem: str, what: str = "label") -> str:
    """``problem`` under a caret at one character of ``text``, shown on one line with all but ASCII escaped."""
    start = max(0, position - SHOWN // 2) if len(text) > SHOWN else 0
    opening = f"{what} '" + "..." * (start > 0)
    closing = "..." * (start + SHOWN < len(text)) + "'"
    column = len(opening + show(text[start:position]))
    return f"{opening}{show(text[start : start + SHOWN])}{closing}\n{' ' * column}^ {problem}"


def show(text: str) -> str:
    """``text`` with every character escaped that is not printable ASCII."""
    return text.encode("unicode_escape").decode()


def either(options: list[str] | str) -> str:
    """``'a', 'b' or 'c'``."""
    options = [repr(option) if len(option) == 1 else option for option in options]
    return " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))
