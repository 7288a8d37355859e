"""Terminals and streams as in Docker, CI and shells: everything is printed, or an error says that it is not."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import madbench
from madbench.cli.shared.terminal import LossyOutput

needs_full_device = pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")


@pytest.fixture
def shell(tmp_path):
    """``shell("madbench ls tasks >&-", COLUMNS="0")``: a command line of sh, and how it ended."""
    checkout = str(Path(madbench.__file__).resolve().parents[1])
    program = tmp_path / "madbench"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m madbench "$@"\n')
    program.chmod(0o755)

    def call(line, **variables):
        usual = {name: os.environ[name] for name in os.environ.keys() - {"COLUMNS", "LINES", "TERM"}}
        usual |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": checkout}
        return subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=usual | variables, capture_output=True, text=True, errors="replace"
        )

    return call


@pytest.mark.parametrize(
    "variables",
    [
        {"COLUMNS": "0"},
        {"COLUMNS": "1", "LINES": "1"},
        {"COLUMNS": "abc", "LINES": "0"},
        {"COLUMNS": "-5"},
        {"COLUMNS": "²"},
        {"COLUMNS": "9" * 5000},
        {"COLUMNS": "", "TERM": ""},
        {"TERM": "dumb", "NO_COLOR": "1"},
        {"TERMINAL_WIDTH": "abc"},
        {"TERMINAL_WIDTH": "0"},
    ],
)
def test_an_invalid_terminal_size_is_ignored(main, monkeypatch, variables):
    words = (["explain", "--cost", "S", "R-cg-q-12o"], ["ls", "tasks"], ["explain", "S-p"], ["ls", "--help"])
    for name in ("COLUMNS", "LINES", "TERM"):
        monkeypatch.delenv(name, raising=False)
    usual = [main(*line) for line in words]
    assert all(ended.code == 0 and len(ended.stdout) > 200 for ended in usual)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for line, expected in zip(words, usual):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert main(*line) == expected


def test_a_valid_terminal_size_is_used(main, monkeypatch):
    for columns in (70, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert max(map(len, main("ls", "tasks").stdout.splitlines())) <= columns
        assert os.environ["COLUMNS"] == str(columns)


@pytest.mark.slow
def test_a_shell_with_zero_columns_gets_the_full_output(shell):
    usual = shell("madbench ls tasks")
    assert usual.returncode == 0 and "selective_copying" in usual.stdout
    assert shell("madbench ls tasks", COLUMNS="0").stdout == usual.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["madbench explain --cost S >&-", "madbench ls --help >&- <&-", "madbench explain --cost S -f json >&-"]
)
def test_a_closed_standard_output_is_an_error(shell, line):
    ended = shell(line)
    assert (ended.returncode, ended.stderr) == (2, "the output cannot be written: it is closed\n")


@pytest.mark.slow
def test_an_error_is_not_printed_to_stdout_if_stderr_is_closed(shell):
    ended = shell("madbench explain S-zz 2>&-")
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.slow
def test_an_output_that_cannot_be_written_is_an_error(shell):
    ended = shell("madbench explain --cost S 1</dev/null")
    assert (ended.returncode, ended.stderr) == (2, "the output cannot be written: bad file descriptor\n")


@pytest.mark.slow
@needs_full_device
def test_a_full_disk_behind_stderr_does_not_change_the_exit_code(shell):
    ended = shell("madbench explain S-zz 2>/dev/full")
    assert (ended.returncode, ended.stdout) == (2, "")


def test_lossy_output_drops_unwritable_text_and_keeps_stream_attributes():
    class Full(io.StringIO):
        encoding = "latin-1"

        def write(self, text):
            raise OSError(errno.ENOSPC, "No space left on device")

    stream = LossyOutput(Full())
    print("lost", file=stream, flush=True)
    assert stream.encoding == "latin-1" and not stream.isatty()


@needs_full_device
@pytest.mark.slow
@pytest.mark.parametrize("streams", [">&- 2>&- <&-", ">/dev/full 2>/dev/full"])
def test_a_run_is_stored_if_its_messages_cannot_be_written(shell, tiny, tmp_path, streams):
    ended = shell(f"madbench run S -t compression --profile {tiny} --device cpu {streams}")
    assert ended.returncode == 2
    ended = shell(f"madbench run S -t compression --profile {tiny} --device cpu")
    assert ended.returncode == 0 and "already in the store" in ended.stderr


@pytest.mark.slow
def test_a_closed_pipe_prints_no_traceback(shell):
    ended = shell("madbench ls labels -f json | head -n 1")
    assert ended.stdout == "[\n" and ended.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["ls", "explain --cost S-p", "run --help"])
def test_an_ascii_output_has_all_lines(main, shell, verb, monkeypatch):
    for name in ("COLUMNS", "LINES", "TERM"):
        monkeypatch.delenv(name, raising=False)
    usual = main(*verb.split())
    assert not usual.stdout.isascii()
    poor = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ended = shell(f"madbench {verb}", **poor)
    assert ended.returncode == 0 and ended.stderr == "" and ended.stdout.isascii()
    assert len(ended.stdout.splitlines()) == len(usual.stdout.splitlines())
