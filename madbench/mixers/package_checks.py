"""Checks that packages add to labels of any family, such as the theorems of a paper.

A package, installed or in ``madbench/papers/``, declares a function from a label to its checks as an entry point of the
group ``madbench.checks``. Labels that the checks are not about have none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from madbench.errors import ConfigError, MadbenchError
from madbench.labels import Label, as_label
from madbench.labels.plugins import (
    Installed,
    entry_point_name,
    find_installed,
    load_value,
    shipped_entry_points,
    wrap_errors,
)
from madbench.mixers import Check

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "madbench.checks"


def package_checks(label: str | Label) -> Iterator[Check]:
    """The checks that packages add to a label. A package that cannot be loaded adds none (:func:`broken_checks`)."""
    label = as_label(label)
    for name, value in _values().items():
        checks = _load(name)
        if not isinstance(checks, ConfigError):
            where = f"{entry_point_name('checks', name, value)}: of {label}"
            with wrap_errors(where, ConfigError, (MadbenchError, MemoryError, GeneratorExit)):
                yield from checks(label)


def installed_checks() -> Mapping[str, EntryPoint]:
    """The entry points of installed packages, by name."""
    return _installed().points


def broken_checks() -> dict[str, str]:
    """The reasons why the checks of a package cannot be used, by name."""
    failed = {name: str(error) for name in _values() if isinstance(error := _load(name), ConfigError)}
    return dict(sorted((failed | _installed().refused).items()))


def check_names() -> tuple[str, ...]:
    """The names of all entry points, shipped and installed."""
    return tuple(_values())


def fault_of_name(name: str) -> str:
    """The fault of an entry point's name; empty if it is valid."""
    return "" if name.isidentifier() else "a name is a word of letters, digits and _"


@functools.cache
def _load(name: str) -> Any:
    """The function, or the error of loading it."""
    return load_value("checks", name, _values()[name], ConfigError, "function from a label to its checks", _fault_of)


def _fault_of(checks: Any) -> str:
    return "" if callable(checks) else "it cannot be called"


@functools.cache
def _values() -> dict[str, str]:
    installed = {name: point.value for name, point in _installed().points.items()}
    return shipped_entry_points(GROUP) | installed


@functools.cache
def _installed() -> Installed:
    return find_installed(GROUP, "checks", shipped_entry_points(GROUP), fault_of_name)
