"""Repairs of the terminal size and the standard streams.

A stream may be closed, on a full disk, or unable to write all characters.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any

from madbench.analysis.marked_text import with_hyphens

LEAST_SIZES = {"COLUMNS": 20, "TERMINAL_WIDTH": 20, "LINES": 4}
"""The smallest plausible terminal sizes, by environment variable. Docker and CI set 0 or 1."""
MOST_DIGITS = 4
_IN_ITS_PLACE = "madbench.in_its_place"
"""The name of the error handler for characters that an encoding lacks. It writes '-' for a minus sign, else '?'."""
OUTPUT_ERRORS = (errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)


class ClosedOutput(io.StringIO):
    """A standard output in place of a closed one.

    If something was printed to it, :func:`finish_output` raises an error. ``stream`` is an open file that has the
    descriptor of the closed output, so that no other file gets this descriptor.
    """

    def __init__(self, stream: Any):
        super().__init__()
        self._stream = stream  # stays open, so that no other file gets its number


class LossyOutput:
    """A stream for messages that ignores every failure to write to ``stream``, such as a full disk."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def use_sound_terminal() -> None:
    """Repair the terminal size in the environment, and the standard streams.

    An implausible size is removed. A closed stream is replaced. Characters that the encoding lacks become '?', or '-'
    for a minus sign. Failures to write to stderr are ignored, and failures to write to stdout raise an error at the end
    (:func:`finish_output`).
    """
    for name, least in LEAST_SIZES.items():
        text = os.environ.get(name, str(least))
        is_number = text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
        if not is_number or int(text) < least:
            del os.environ[name]  # then the terminal is asked; without a terminal there are 80 columns
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed; our own files must not get its number
            stream = os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w", encoding="utf-8")
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, ClosedOutput(stream) if name == "stdout" else stream)
    for output in (sys.stdout, sys.stderr):
        if hasattr(output, "reconfigure"):
            output.reconfigure(errors=_IN_ITS_PLACE)
    if not isinstance(sys.stderr, LossyOutput):
        sys.stderr = LossyOutput(sys.stderr)


def _in_its_place(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = with_hyphens(error.object[error.start : error.end])
    return "".join(character if character.isascii() else "?" for character in text), error.end


codecs.register_error(_IN_ITS_PLACE, _in_its_place)


def finish_output() -> None:
    """Write what is left of the standard output. Raises ``OSError`` if a part of the output could not be written."""
    sys.stdout.flush()
    if isinstance(sys.stdout, ClosedOutput) and sys.stdout.getvalue():
        raise OSError(errno.EBADF, "it is closed")


def output_problem(error: OSError) -> str | None:
    """The message for an error of writing to the standard output. None for any other error."""
    if error.filename is not None or error.errno not in OUTPUT_ERRORS:
        return None
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    reason = "no space left where it goes" if is_full else (error.strerror or str(error)).lower()
    return f"the output cannot be written: {reason}"
