"""Error messages about a rejected text: the text on one line, and a caret below the character at fault."""

from __future__ import annotations

SHOWN = 60  # characters of a rejected text that a message repeats


def point_at(text: str, position: int, problem: str, what: str = "label") -> str:
    """Return a message of two lines: ``what`` and the quoted ``text``, then a caret and ``problem``.

    The caret is below the character at ``position`` of ``text``. At most 60 characters around this position are quoted.
    Control characters and characters outside ASCII are escaped.
    """
    start = max(0, position - SHOWN // 2) if len(text) > SHOWN else 0
    opening = f"{what} '{'...' if start > 0 else ''}"
    closing = "...'" if start + SHOWN < len(text) else "'"
    column = len(opening + escape(text[start:position]))
    return f"{opening}{escape(text[start : start + SHOWN])}{closing}\n{' ' * column}^ {problem}"


def escape(text: str) -> str:
    """Return ``text`` with backslashes, control characters and characters outside ASCII escaped as in Python."""
    return text.encode("unicode_escape").decode()


def quoted_choices(options: list[str] | str) -> str:
    """Return one or more options joined for a message, such as ``'a', 'b' or 'c'`` or ``fast or slow``.

    Only single characters are quoted. If ``options`` is a text, each of its characters is an option.
    """
    options = [repr(option) if len(option) == 1 else option for option in options]
    return " or ".join(filter(None, (", ".join(options[:-1]), options[-1])))
