"""The registry of families of labels.

Built-in families are found by their folder or entry point, families of other packages by their entry point.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from madbench.config import from_mapping
from madbench.errors import LabelError, did_you_mean
from madbench.labels.diagnosis import SHOWN, escape, point_at
from madbench.labels.family import Label, LoadedFamily
from madbench.labels.family_checks import GuardedFamily, fault_of
from madbench.labels.patterns import OF_PATTERNS, is_pattern
from madbench.plugins.registry import Registry, entry_point_name, load_value

GROUP = "madbench.families"
WITHOUT_PREFIX = "srg"  # folder of the family whose labels have no prefix
OF_NAMES = "named"  # family whose labels have no prefix and begin with an operator's name in upper or lower case


def families() -> tuple[str, ...]:
    """The names of the built-in and the installed families, sorted. The name of S/R/G is ``""``.

    No family is imported.
    """
    return tuple(sorted(REGISTRY.names))


def loaded_families() -> dict[str, LoadedFamily]:
    """All families that can be loaded, by name. A package that fails to load is left out."""
    return dict(sorted(REGISTRY.loadable()))


def loadable_families() -> Iterator[LoadedFamily]:
    """Yield the families that can be loaded, in the order of :func:`families`. Import each when it is reached."""
    return (REGISTRY.load(name) for name in families() if not REGISTRY.problem(name))


def broken_families() -> dict[str, str]:
    """The reason why a family cannot be used, by name of the family. Families that can be used are left out."""
    return REGISTRY.broken()


def family_of(label: str | Label) -> LoadedFamily:
    """The family of a label. Raises ``LabelError`` if the family is unknown or cannot be loaded."""
    name = family_name(label)
    if name not in REGISTRY.names:
        if name in REGISTRY.refused:
            raise LabelError(REGISTRY.refused[name])
        hint = did_you_mean(name[:SHOWN], filter(None, families()), "madbench ls families")
        raise LabelError(point_at(str(label), 0, f"unknown family {escape(name[:SHOWN])!r} before the colon{hint}"))
    return REGISTRY.load(name)


def family_name(label: str | Label) -> str:
    """The name of a label's family, from the label's text alone. ``""`` for S/R/G. The family need not exist."""
    text = str(label)
    if is_pattern(text):
        return OF_PATTERNS
    name, colon, _ = text.partition(":")
    return name if colon else _family_without_prefix(text)


def family_identity(family: LoadedFamily) -> str:
    """A text that identifies the code of a family. It is part of a job.

    It is the version of the family. For an installed family, the version of its distribution and a hash of its code
    follow. An edited operator therefore counts as a different operator.
    """
    if family.name in REGISTRY.built_in:
        return family.version
    return f"{family.version}+{REGISTRY.identity(family.name)}"


def contrast_order() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of all factors, and the names of all levels, each in the order in which contrasts are listed.

    Only families that define ``factor_order`` or ``level_order`` contribute.
    """
    loaded = loaded_families().values()

    def names(order: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for family in loaded for name in getattr(family, order)))

    return names("factor_order"), names("level_order")


def mixer_names() -> tuple[str, ...]:
    """The names of mixers that are labels without a prefix, such as ``HyperGLU`` and ``KDA``.

    In labels, these names may be in upper or lower case.
    """
    return tuple(name for family in ("", OF_NAMES) for name in REGISTRY.load(family).mixers)


def _family_without_prefix(text: str) -> str:
    """The family's name for a label without a prefix.

    It is ``named`` if the label begins with the name of an operator of that family. Otherwise it is ``""`` (S/R/G).
    """
    match = re.match("[A-Za-z0-9-]*", text)
    return OF_NAMES if match and name_key(match[0]) in _operator_names() else ""


@functools.cache
def _operator_names() -> frozenset[str]:
    return frozenset() if REGISTRY.problem(OF_NAMES) else frozenset(map(name_key, REGISTRY.load(OF_NAMES).mixers))


def name_key(name: str) -> str:
    """The letters and digits of a mixer's name, in lower case. Two spellings with the same key are the same name."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _load(name: str, value: str) -> LoadedFamily:
    family: LoadedFamily = load_value("family", name, value, LabelError, "madbench.mixers.Family", _fault_of_family)
    if name in REGISTRY.built_in:
        return family
    return cast(LoadedFamily, GuardedFamily(family, entry_point_name("family", name, value)))


def _fault_of_family(family: Any) -> str:
    """The reason why an object cannot be used as a family, as a sentence. Empty if it can.

    Raises ``ConfigError`` if the default values of an installed family's settings are invalid.
    """
    if not (fault := fault_of(family)) and family.name not in REGISTRY.built_in:
        from_mapping(family.Settings, {}, "its Settings")
    return fault


def _built_in() -> dict[str, str]:
    """The entry points of the families below ``madbench/mixers/``, such as ``module:FAMILY``, by name of the family.

    Every folder there that has a ``family.py`` is a family.
    """
    home = Path(__file__).parents[1] / "mixers"
    folders = [file.parent.relative_to(home).parts for file in sorted(home.rglob("family.py"))]
    return {
        "" if parts[-1] == WITHOUT_PREFIX else parts[-1]: f"madbench.mixers.{'.'.join(parts)}.family:FAMILY"
        for parts in folders
    }


def fault_of_name(name: str) -> str:
    """The reason why ``name`` cannot be the name of a family, as a sentence. Empty if it can."""
    is_sound = re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name)
    return "" if is_sound else "a name has letters, digits, - and _ and begins with a letter, such as my_family"


REGISTRY: Registry[LoadedFamily] = Registry(
    GROUP, "family", fault_of_name=fault_of_name, load=_load, built_in=_built_in, error=LabelError
)
