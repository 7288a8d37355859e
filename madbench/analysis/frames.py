"""The CSV of what a figure draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.errors import ConfigError
from madbench.files import explain_os_errors, write_atomically

if TYPE_CHECKING:
    import pandas as pd


class NothingToDrawError(ConfigError):
    """There are no data for a kind of figure; the message says what is missing."""


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Writes what a figure draws as CSV; :func:`read_frame` gives the very same back."""
    with explain_os_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, frame.to_csv(index=False, lineterminator="\n").encode())


def read_frame(path: Path, types: Mapping[str, type], what: str, optional: Mapping[str, type] = {}) -> pd.DataFrame:
    """The frame of a CSV file with the columns of ``types``, and those of ``optional`` that it has.

    An empty cell is NaN, of a column of text the empty text.

    Raises ``ConfigError`` where the file is none that :func:`write_frame` wrote, calling it ``what``.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str, encoding="utf-8", keep_default_na=False)
        missing = [name for name in types if name not in frame]
        if missing:
            raise ConfigError(f"{path}: no {what}: without column {missing[0]!r}")
        types = {**types, **{name: kind for name, kind in optional.items() if name in frame}}
        frame = frame[list(types)]
        numbers = [name for name, kind in types.items() if kind is not str]
        frame[numbers] = frame[numbers].replace("", "nan")
        return frame.astype(types)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # pandas' parser errors, undecodable bytes and cells that are no numbers
        raise ConfigError(f"{path}: no {what}: {str(error).strip()}") from error
