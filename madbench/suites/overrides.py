"""Changes to a profile or preset as the words KEY=VALUE of a command, and as settings by key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from madbench.errors import ConfigError

LANGUAGE_MODEL = "language_model."
"""How an override of the language model's preset begins."""
LANGUAGE_MODELS = (LANGUAGE_MODEL, "language_model=")
"""How an override that does not concern the MAD tasks begins."""


def key_of(change: str) -> str:
    """``"model.mix_rank=4"`` -> ``"model.mix_rank"``."""
    return change.partition("=")[0]


def override_of(key: str, value: Any, where: str) -> str:
    """``KEY=VALUE``, the value in YAML on one line."""
    import yaml

    if isinstance(value, Mapping):
        inner = f"{key}.{next(iter(value), 'KEY')}"
        raise ConfigError(f"{where}: {key}: expected a value, got a mapping; write {inner}: ...")
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, allow_unicode=True)
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"


def settings_of(overrides: Sequence[str]) -> dict[str, Any]:
    """``["model.mix_rank=4"]`` -> ``{"model.mix_rank": 4}``; raises ``ConfigError`` for a key given twice."""
    import yaml

    settings: dict[str, Any] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        if key in settings:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        try:
            settings[key] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date such as 2024-13-45
            raise ConfigError(f"override {override[:99]!r}: {text[:99]!r} is not a value") from None
    return settings
