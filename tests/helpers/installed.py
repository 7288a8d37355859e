"""The caches in which madbench keeps installed packages."""

from __future__ import annotations

import sys

ALWAYS_TRUE = ("madbench.mixers.srg.grammar", "field_docs", "_fields")
"""Modules and functions whose caches no installation changes: of the built-in grammar, and of classes."""


def forget_installed() -> None:
    """Empty madbench's caches, which hold what was installed when they were filled."""
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith("madbench.") else ():
            kept = {getattr(value, "__module__", ""), getattr(value, "__name__", "")} & {*ALWAYS_TRUE}
            if hasattr(value, "cache_clear") and not (kept or isinstance(value, type)):
                value.cache_clear()
