"""The caches in which madbench keeps installed packages."""

from __future__ import annotations

import sys

ALWAYS_TRUE = ("madbench.mixers.srg.grammar", "field_docs", "_fields")
"""Names of modules and functions whose caches do not depend on installed packages."""


def forget_installed() -> None:
    """Empty madbench's caches, which depend on the packages that were installed when they were filled."""
    for name, module in list(sys.modules.items()):
        for value in list(vars(module).values()) if name.startswith("madbench.") else ():
            kept = {getattr(value, "__module__", ""), getattr(value, "__name__", "")} & {*ALWAYS_TRUE}
            if hasattr(value, "cache_clear") and not (kept or isinstance(value, type)):
                value.cache_clear()
