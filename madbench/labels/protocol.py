"""What a value has to have to be a family of mixers: seen when it is loaded, before a label of it is read."""

from __future__ import annotations

import dataclasses
from typing import Any

from madbench.errors import did_you_mean

TEXTS = ("name", "version")
METHODS = ("parse", "factors", "neighbours", "explain", "solve", "build", "checks")
OPTIONAL_METHODS = ("traits", "effective", "levels", "labels", "factors_of_other", "text_of", "identity")


def fault_of(family: Any) -> str:
    """What keeps a value from being a family, of :class:`madbench.mixers.Family`, in a sentence; empty for nothing."""
    given = [name for name in dir(family) if not name.startswith("_")]
    for name in (*TEXTS, "Settings", *METHODS):
        if name not in given:
            hint = did_you_mean(name, set(given) - {*TEXTS, "Settings", *METHODS, *OPTIONAL_METHODS})
            return f"it has no {name!r}, which every family has{hint if 'did you mean' in hint else ''}"
    for name in TEXTS:
        if not isinstance(getattr(family, name), str):
            return f"its {name!r} is no text but {getattr(family, name)!r}"
    for name in (*METHODS, *OPTIONAL_METHODS):
        if name in given and not callable(getattr(family, name)):
            return f"its {name!r} is no method but {getattr(family, name)!r}"
    if not isinstance(getattr(family, "is_bidirectional", False), bool):
        return f"its 'is_bidirectional' is neither true nor false but {family.is_bidirectional!r}"
    return _fault_of_settings(family.Settings)


def _fault_of_settings(settings: Any) -> str:
    if not (isinstance(settings, type) and dataclasses.is_dataclass(settings) and settings.__dataclass_params__.frozen):
        return f"its 'Settings' is no frozen dataclass but {settings!r}"
    missing = dataclasses.MISSING
    without = [one.name for one in dataclasses.fields(settings) if one.default is one.default_factory is missing]
    return f"its 'Settings' have no default for {without[0]!r}" if without else ""
