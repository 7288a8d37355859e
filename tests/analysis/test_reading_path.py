"""The code that a table of stored runs passes through."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import madbench
from madbench.store.archive import unpack
from madbench.store.runs import Store

PACKAGE = Path(madbench.__file__).parent
MEASURED = PACKAGE.parent / "results" / "measured"
MOST_FILES = 57
"""Files of which a function runs. A number to lower: nothing may be planned in order to read."""
TABLE = """
import importlib, json, sys
package, results, modules = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
for name in modules:
    importlib.import_module(name)
from madbench.cli import main
files = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package) and code.co_name != "<module>":
        files.add(code.co_filename[len(package) + 1:])
sys.argv = ["madbench", "table", "S", "-p", "evening", "-t", "memorization", "--results", results]
sys.setprofile(note)
try:
    main()
except SystemExit as ended:
    sys.setprofile(None)
    assert not ended.code
names = [name for name in sys.modules if name.startswith("madbench.")]
print(json.dumps([sorted(files), names]), file=sys.stderr)
"""


def read_table(results: Path, modules: list[str]) -> tuple[list[str], list[str]]:
    """The files of which a function ran for a table, and the modules that were loaded by then."""
    words = [sys.executable, "-c", TABLE, str(PACKAGE), str(results), json.dumps(modules)]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(ended.stderr.splitlines()[-1])


@pytest.mark.slow
def test_a_table_passes_through_few_files(tmp_path):
    unpack(MEASURED / "evening-seeds.tar.xz", Store.open(tmp_path))
    _, modules = read_table(tmp_path, [])
    files, _ = read_table(tmp_path, modules)
    below = [name for name in files if not name.startswith("cli/")]
    assert "analysis/stored.py" in below and len(below) <= MOST_FILES, below
    planning = {
        "mixers/srg/budget.py",
        "mixers/__init__.py",
        "suites/overrides.py",
        "suites/protocol.py",
        "experiment/__init__.py",
    }
    assert not planning & {*below}, "planned in order to read"
