"""The packages that madbench needs, and which of them are installed."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

import madbench


def requirements() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The packages madbench always needs and its extras, each with the installed versions."""
    project = _project()
    by_extra: dict[str, list[dict[str, Any]]] = {"": []}
    for line in _of_distribution() if project is None else _of_project(project):
        requirement = Requirement(line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", str(requirement.marker))
        if requirement.name != "madbench":  # an extra that includes another
            by_extra.setdefault(extra[1] if extra else "", []).append(_installed(requirement))
    install = "pip install 'madbench[{}]'" if project is None else "pip install -e '.[{}]'"
    return by_extra.pop(""), [
        {"extra": extra, "packages": packages, "installed": all(package["fits"] for package in packages)}
        | {"install_with": install.format(extra)}
        for extra, packages in by_extra.items()
    ]


def _project() -> dict[str, Any] | None:
    """The project table of the checkout that madbench runs from; None where it is installed."""
    path = Path(madbench.__file__).resolve().parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {}) if path.is_file() else {}
    return project if project.get("name") == "madbench" else None


def _of_project(project: dict[str, Any]) -> list[str]:
    """The project's requirements as the metadata of its distribution would have them."""
    extras = project.get("optional-dependencies", {}).items()
    return [*project["dependencies"], *(f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines)]


def _of_distribution() -> list[str]:
    try:
        return metadata.requires("madbench") or []
    except metadata.PackageNotFoundError:
        return []


def _installed(requirement: Requirement) -> dict[str, Any]:
    """The package that is required, as it is installed here."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        version = None
    fits = version is not None and requirement.specifier.contains(version, prereleases=True)
    return {"name": requirement.name, "version": version, "needs": str(requirement.specifier), "fits": fits}
