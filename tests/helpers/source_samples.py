"""The one source that a name stands for, and why it cannot be read, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from madbench.errors import ConfigError
from madbench.text.sources import Source, find_sources


def only(path: Path | str, key: str = "text") -> Source:
    (source,) = find_sources([str(path)], key)
    return source


def error_of(path: Path | str, key: str = "text") -> str:
    with pytest.raises(ConfigError) as caught:
        list(only(path, key).documents())
    return str(caught.value)
