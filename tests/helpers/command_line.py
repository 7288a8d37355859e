"""Fixtures for tests of commands: a store in an empty folder, and the command line in this process."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from typer.testing import CliRunner, Result

import madbench.cli
from madbench.cli.shared.parameters import with_groups
from madbench.errors import MadbenchError
from madbench.store.runs import Store

tree_of = functools.cache(typer.main.get_command)
"""The commands and options of a typer app. They are cached, because making them takes most of a short command's time.
"""


class Ended(NamedTuple):
    code: str | int
    """The exit code. A text counts as 1."""
    stdout: str
    stderr: str


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store in the folder ``results`` of an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return Store.open(tmp_path / "results")


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    """``main(*arguments)``: run ``madbench ARGUMENTS`` in this process, in an empty working folder.

    The call returns the exit code, and the texts on stdout and stderr.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(typer.main, "get_command", tree_of)

    def call(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["madbench", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            madbench.cli.main()
        code = ended.value.code
        return Ended(0 if code is None else code, *capfd.readouterr())

    return call


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """``invoke(verb, *words, columns=80)``: run one command in this process, and return typer's result.

    ``verb`` is the function of the command, and ``columns`` the width of the terminal. A ``MadbenchError`` is in the
    result. Other errors are raised.
    """

    def invoke(verb: Callable[..., None], *words: object, columns: int = 80) -> Result:
        app = typer.Typer()
        app.callback()(lambda: None)
        app.command("verb")(with_groups(verb))
        result = CliRunner().invoke(app, ["verb", *map(str, words)], env={"COLUMNS": str(columns), "NO_COLOR": "1"})
        if result.exception and not isinstance(result.exception, (MadbenchError, SystemExit)):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def refuse(invoke: Callable[..., Result]) -> Callable[..., str]:
    """``refuse(verb, *words)``: run one command that must end in a ``MadbenchError``, and return its message."""

    def refuse(verb: Callable[..., None], *words: object) -> str:
        result = invoke(verb, *words)
        assert isinstance(result.exception, MadbenchError), result.output
        return str(result.exception)

    return refuse
