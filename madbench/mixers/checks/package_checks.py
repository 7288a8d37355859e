"""Checks that packages add to labels of any family, such as the theorems of a paper.

A package, installed or in ``madbench/papers/``, declares a function from a label to its checks as an entry point of the
group ``madbench.checks``. The function returns nothing for labels to which its checks do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from madbench.errors import ConfigError, MadbenchError
from madbench.labels import Label, as_label
from madbench.mixers import Check
from madbench.plugins.registry import Registry, load_value, wrap_errors

GROUP = "madbench.checks"
Checks = Callable[[Label], Iterable[Check]]


def package_checks(label: str | Label) -> Iterator[Check]:
    """Yield the checks of a label that installed packages add. Raises ``ConfigError`` if a package's function fails.

    A package that cannot be loaded is skipped; ``REGISTRY.broken()`` gives the reason.
    """
    label = as_label(label)
    for name, checks in REGISTRY.loadable():
        where = f"{REGISTRY.where(name)}: of {label}"
        with wrap_errors(where, ConfigError, (MadbenchError, MemoryError, GeneratorExit)):
            yield from checks(label)


def fault_of_name(name: str) -> str:
    """The reason why an entry point of the group ``madbench.checks`` cannot have this name.

    Empty if the name is valid.
    """
    return "" if name.isidentifier() else "a name is a word of letters, digits and _"


def _load(name: str, value: str) -> Checks:
    checks: Checks = load_value("checks", name, value, ConfigError, "function from a label to its checks", _fault_of)
    return checks


def _fault_of(checks: Any) -> str:
    return "" if callable(checks) else "it cannot be called"


REGISTRY: Registry[Checks] = Registry(GROUP, "checks", fault_of_name=fault_of_name, load=_load, texts=())
