"""The code that a table of stored runs passes through."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import madbench
from madbench.identity.package import modules_reached
from madbench.store.archive import unpack
from madbench.store.runs import Store

PACKAGE = Path(madbench.__file__).parent
MEASURED = PACKAGE.parent / "results" / "measured"
MOST_FILES = 33
"""The largest number of files whose functions run. Lower it if possible: reading should plan nothing."""
MOST_CLIMBS = 4
"""Pairs of files with a call back up (:func:`climbs`). A number to lower.

Two call a function that a registry was made with (``plugins/registry.py``), two a method of a subclass: of a suite
and a table.
"""
TABLE = """
import importlib, json, sys
package, results, modules = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for name in modules:
    importlib.import_module(name)
from madbench.cli import main
calls = set()
def file_of(frame):
    name = frame.f_code.co_filename
    return name[len(package) + 1:] if name.startswith(package) else ""
def note(frame, event, argument):
    if event != "call" or not (called := file_of(frame)) or frame.f_code.co_name == "<module>":
        return
    frame = frame.f_back
    while frame and not file_of(frame):  # through generated code and other packages
        frame = frame.f_back
    calls.add((file_of(frame) if frame else "", called))
sys.argv = ["madbench", "table", "S", "-p", "evening", "-t", "memorization", "--results", results]
sys.setprofile(note)
try:
    main()
except SystemExit as ended:
    sys.setprofile(None)
    assert not ended.code
names = [name for name in sys.modules if name.startswith("madbench.")]
print(json.dumps([sorted(calls), names]), file=sys.stderr)
"""
Call = tuple[str, str]
"""The file of the caller and the file of the called function, relative to the package."""


def read_table(results: Path, modules: list[str]) -> tuple[list[Call], list[str]]:
    """The calls during the making of a table, without duplicates, and the modules that were loaded by then."""
    words = [sys.executable, "-c", TABLE, str(PACKAGE), str(results), json.dumps(modules)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    calls, names = json.loads(ended.stderr.splitlines()[-1])
    return [(caller, called) for caller, called in calls], names


def climbs(calls: Iterable[Call]) -> list[Call]:
    """The calls that go back up, sorted, without duplicates.

    Such a call leads to a file that imports the caller's file, directly or through other files, and is not imported by
    it. A reader who follows the imports of the caller's file does not find the called function: it is a callback, an
    entry of a registry, or a method of a subclass. Imports inside functions count as imports, imports for types only do
    not. A generator is called by the file that takes its next item.
    """

    @functools.cache
    def reached(file: str) -> set[str]:
        module = ".".join(["madbench", *Path(file).with_suffix("").parts]).removesuffix(".__init__")
        return modules_reached([module], ["madbench"])

    def is_above(file: str, other: str) -> bool:
        return reached(other) < reached(file)

    return sorted({(caller, called) for caller, called in calls if caller and is_above(called, caller)})


@pytest.fixture(scope="module")
def calls(tmp_path_factory) -> list[Call]:
    results = tmp_path_factory.mktemp("results")
    unpack(MEASURED / "evening-seeds.tar.xz", Store.open(results))
    _, modules = read_table(results, [])
    return read_table(results, modules)[0]


@pytest.mark.slow
def test_a_table_passes_through_few_files(calls):
    below = sorted({called for _, called in calls if not called.startswith("cli/")})
    assert "analysis/selection.py" in below and len(below) <= MOST_FILES, below
    planning = {
        "config/yaml_files.py",
        "experiment/experiment.py",
        "experiment/planner.py",
        "labels/registry.py",
        "mixers/__init__.py",
        "models/shapes.py",
        "plugins/paper_folders.py",
        "suites/code.py",
        "suites/overrides.py",
        "suites/profile.py",
        "suites/protocol.py",
        "suites/training.py",
        "tasks/base.py",
    }
    assert not planning & {*below}, "planned in order to read"
    assert not [file for file in below if file.startswith("mixers/")], "the label was parsed in order to read"


@pytest.mark.slow
def test_few_calls_of_a_table_go_up_the_import_order(calls):
    found = [(caller, called) for caller, called in climbs(calls) if not caller.startswith("cli/")]
    assert ("suites/columns.py", "suites/tokens.py") in found and len(found) <= MOST_CLIMBS, found


@pytest.mark.slow
def test_a_call_is_a_climb_only_against_the_import_order():
    down, up, across = (
        ("analysis/selection.py", "suites/__init__.py"),
        ("config.py", "suites/tokens.py"),
        ("analysis/query.py", "suites/mad/suite.py"),
    )
    assert climbs([down, up, across, up, ("", "cli/__init__.py"), ("config.py", "config.py")]) == [up]
