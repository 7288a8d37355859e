"""The folders of the files that come with madbench."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_ROOT = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent

VARIANTS = _ROOT / "variants"
TASKS = _ROOT / "tasks"
PAPERS = _PACKAGE / "papers"
EXAMPLES = _ROOT / "examples"
