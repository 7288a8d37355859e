"""Where the shipped YAML files and published tables are: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent

VARIANTS = _ROOT / "variants"
TASKS = _ROOT / "tasks"
PROFILES = TASKS / "profiles"
PRESETS = TASKS / "presets"
PUBLISHED = _ROOT / "results" / "published"
