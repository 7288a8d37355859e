"""Text as UTF-8 can hold it."""

from __future__ import annotations


def valid_unicode(text: str) -> str:
    """``text`` with U+FFFD for every lone surrogate, which JSON escapes and odd file names bring and UTF-8 forbids."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
