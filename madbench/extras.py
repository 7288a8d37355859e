"""Optional packages: the project that madbench runs from, and how to install an extra of it here."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


def project() -> dict[str, Any] | None:
    """The project table of the checkout that madbench runs from; None where it is installed as a wheel."""
    path = CHECKOUT / "pyproject.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    return table if table.get("name") == "madbench" else None


def install_command(extra: str, is_checkout: bool) -> str:
    """The command that adds an extra, in the folder of a checkout; pip adds it to an installed madbench by name."""
    return f"pip install -e '.[{extra}]'" if is_checkout else f"pip install 'madbench[{extra}]'"


def how_to_install(extra: str) -> str:
    """:func:`install_command` for this madbench, and in which folder unless that is the current one."""
    is_checkout = project() is not None
    elsewhere = is_checkout and Path.cwd() != CHECKOUT
    return install_command(extra, is_checkout) + f" in {CHECKOUT}" * elsewhere
