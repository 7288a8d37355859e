"""The source of text that a path names, and the error from reading it, for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from madbench.errors import ConfigError
from madbench.text.documents import Source
from madbench.text.sources import find_sources


def only_source(path: Path | str, key: str = "text") -> Source:
    (source,) = find_sources([str(path)], key)
    return source


def reading_error(path: Path | str, key: str = "text") -> str:
    with pytest.raises(ConfigError) as caught:
        list(only_source(path, key).documents())
    return str(caught.value)
