"""Imports go one way, from rooms that know more to those that know less; none is hidden in a function to go back."""

from __future__ import annotations

import ast
from pathlib import Path

import madbench

PACKAGE = Path(madbench.__file__).parent
ROOMS = [
    {"extras"},
    {"errors"},
    {"config", "files"},
    {"jobs"},
    {"labels"},
    {"tasks", "text"},
    {"mixers"},
    {"models"},
    {"suites"},
    {"training"},
    {"store"},
    {"execute", "trackers"},
    {"grid"},
    {"experiment"},
    {"analysis"},
    {"bench"},
    {"papers"},
    {"report"},
    {"cli"},
]
"""Each may import itself and those before it."""
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported(path: Path) -> set[str]:
    """The rooms that a module imports from, those of its functions included, and not those for annotations alone."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "madbench":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {room_of(name) for name in (names if node.module == "madbench" else [node.module])}
        elif isinstance(node, ast.Import):
            found |= {room_of(alias.name) for alias in node.names if alias.name.startswith("madbench.")}
    return found & LEVEL.keys()


def test_no_room_imports_one_that_knows_more():
    upward = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        above = {other for other in imported(path) if room in LEVEL and LEVEL[other] > LEVEL[room]}
        if above:
            upward[str(path.relative_to(PACKAGE))] = above
    assert not upward


def test_every_room_has_its_place():
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert rooms - {"py.typed"} == set(LEVEL)
    assert len(list(PACKAGE.glob("*.py"))) <= 9
