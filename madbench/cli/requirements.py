"""What madbench needs installed, and what of that is here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import madbench


def requirements() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What madbench depends on, with the versions that are here: always, and by extra."""
    by_extra: dict[str, list[dict[str, Any]]] = {"": []}
    for requirement, extra in _declared():
        if not requirement.startswith("madbench["):  # an extra that includes another
            by_extra.setdefault(extra, []).append(_installed(requirement))
    packages = by_extra.pop("")
    install = "pip install -e '.[{}]'" if _project() else "pip install 'madbench[{}]'"
    return packages, [
        {
            "extra": extra,
            "packages": needed,
            "installed": all(package["fits"] for package in needed),
            "install_with": install.format(extra),
        }
        for extra, needed in by_extra.items()
    ]


def _project() -> dict[str, Any] | None:
    """The project table of the checkout that madbench runs from; None where it is installed."""
    path = Path(madbench.__file__).resolve().parents[1] / "pyproject.toml"
    if not path.is_file():
        return None
    project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    return project if project.get("name") == "madbench" else None


def _declared() -> Iterator[tuple[str, str]]:
    """Each requirement and its extra, ``""`` for none: of the checkout, else of the installed distribution."""
    project = _project()
    if project is not None:
        yield from ((requirement, "") for requirement in project["dependencies"])
        for extra, requirements in project.get("optional-dependencies", {}).items():
            yield from ((requirement, extra) for requirement in requirements)
        return
    try:
        lines = metadata.requires("madbench") or ()
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        requirement, _, condition = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", condition)
        yield requirement.strip(), extra[1] if extra else ""


def _installed(requirement: str) -> dict[str, Any]:
    """The package of ``NAME>=VERSION`` as it is here; other bounds are not looked at."""
    name = re.match(r"[\w.-]+", requirement)[0]
    least = re.search(r">=\s*([\w.]+)", requirement)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    fits = version is not None and (least is None or _numbers(version) >= _numbers(least[1]))
    return {"name": name, "version": version, "needs": requirement[len(name) :].strip(), "fits": fits}


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.match(r"\d+(\.\d+)*", version)[0].split(".")]
