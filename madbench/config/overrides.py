"""Overrides: changes of settings, written ``path.to.key=value`` with the value in YAML."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from madbench.config.values import shown
from madbench.config.yaml_files import UnclearNumber, dumper, loader, quotes_missing_in
from madbench.errors import ConfigError


def parse_override(override: str) -> tuple[str, Any]:
    """Splits ``"model.d_model=64"`` into ``("model.d_model", 64)``. The value is read as YAML.

    Raises ``ConfigError`` if there is no key or no ``=``, or if the value is not valid YAML.
    """
    import yaml

    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r}: expected KEY=VALUE, such as model.d_model=64")
    try:
        return key, yaml.load(text, loader())
    except UnclearNumber as error:
        raise ConfigError(f"override {override[:99]!r}: {error}") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date such as 2024-13-45
        advice = quotes_missing_in(text[:99])
        raise ConfigError(f"override {override[:99]!r}: {text[:99]!r} is not a value{advice}") from None


def key_of(override: str) -> str:
    """The key of an override: ``"model.d_model"`` for ``"model.d_model=64"``."""
    return override.partition("=")[0]


def override_of(key: str, value: Any, where: str) -> str:
    """Writes the override ``KEY=VALUE``, with the value as YAML on one line.

    Raises ``ConfigError`` for a mapping, and for a value that YAML cannot write. The message begins with ``where``.
    """
    import yaml

    if isinstance(value, Mapping):
        inner = f"{key}.{next(iter(value), 'KEY')}"
        raise ConfigError(f"{where}: {key}: expected a value, got a mapping; write {inner}: ...")
    try:
        text = yaml.dump(value, Dumper=dumper(), default_flow_style=True, width=float("inf"), allow_unicode=True)
    except yaml.representer.RepresenterError:
        kind = type(value).__name__
        raise ConfigError(f"{where}: {key}: expected a number, text or a list of them, got a {kind}") from None
    except (RecursionError, ValueError):  # thousands of digits or levels
        raise ConfigError(f"{where}: {key}: {shown(value)} is too large to be written") from None
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"


def settings_of(overrides: Iterable[str]) -> dict[str, Any]:
    """Converts ``["model.mix_rank=4"]`` to ``{"model.mix_rank": 4}``. Raises ``ConfigError`` for a repeated key."""
    settings: dict[str, Any] = {}
    for key, value in map(parse_override, overrides):
        if key in settings:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        settings[key] = value
    return settings


def apply_override(mapping: Mapping[str, Any], override: str) -> dict[str, Any]:
    """Returns a copy of ``mapping`` with one change, written ``path.to.key=value`` with the value in YAML."""
    key, value = parse_override(override)
    changed = copy.deepcopy(dict(mapping))
    node, names = changed, key.split(".")
    for name in names[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {name!r} holds a value, not keys")
    node[names[-1]] = value
    return changed
