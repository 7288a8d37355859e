"""Optional dependencies: the command that installs an extra, in a checkout or for an installed wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]


def project() -> dict[str, Any] | None:
    """The table ``project`` in the ``pyproject.toml`` of the checkout from which madbench runs.

    None if madbench is installed as a wheel.
    """
    path = CHECKOUT / "pyproject.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    return table if table.get("name") == "madbench" else None


def install_command(extra: str, is_checkout: bool) -> str:
    """The pip command that installs an extra.

    In a checkout (``is_checkout``) it must be run in the checkout's folder.
    """
    return f"pip install -e '.[{extra}]'" if is_checkout else f"pip install 'madbench[{extra}]'"


def how_to_install(extra: str) -> str:
    """The command that installs an extra for the running madbench, for error messages.

    In a checkout, the text also names the checkout's folder, unless that is the current folder.
    """
    is_checkout = project() is not None
    command = install_command(extra, is_checkout)
    return f"{command} in {CHECKOUT}" if is_checkout and Path.cwd() != CHECKOUT else command
