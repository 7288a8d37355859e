"""Ctrl-C at any moment while the command line starts: no traceback, and exit code 130."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["madbench"]
MODULE, FUNCTION = SCRIPT.split(":")
PROGRAMS = {
    "checkout": [str(CHECKOUT / "cli.py")],
    "module": ["-m", "madbench"],
    "installed": ["-c", f"from {MODULE} import {FUNCTION}; {FUNCTION}()"],
}


LATE_IMPORTS = [
    *((program, "typing") for program in PROGRAMS),
    ("module", "numpy"),
    ("checkout", "torch"),
    ("installed", "torch"),
]
"""Pairs of a program and a module that it imports late: typing, and libraries of verbs."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "imported"),
    [*((program, library) for program in PROGRAMS for library in ("typer", "rich")), *LATE_IMPORTS],
)
def test_ctrl_c_while_the_program_imports_prints_no_traceback(program, imported, tmp_path):
    (tmp_path / f"{imported}.py").write_text(
        "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(CHECKOUT)])}
    command = [sys.executable, *PROGRAMS[program], "verify", "S"]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
