"""The stored error of a failed run: the whole traceback, and a last line that alone says what went wrong."""

from __future__ import annotations

import traceback

from madbench.jobs import Record

_LONGEST = 200  # characters of the last line


def failure_text(error: BaseException) -> str:
    """The traceback of ``error``; where its end says little or too much, a short last line follows."""
    text = "".join(traceback.format_exception(error)).rstrip()
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    short = ": ".join([type(error).__name__, *said[:1]])
    if type(error).__name__ == "OutOfMemoryError":  # torch's, which tells the whole state of the allocator
        wanted = ". ".join(short.split(". ")[:2]).removesuffix(".")
        short = f"{wanted}; fewer jobs at a time (--slots) or a smaller model need less"
    if len(short) > _LONGEST:
        short = f"{short[: _LONGEST - 3]}..."
    return text if text.splitlines()[-1].endswith(short) else f"{text}\n{short}"


def reason(record: Record) -> str:
    """The last line of a record's error."""
    return record.error.strip().splitlines()[-1] if record.error.strip() else "no reason given"
