"""The study of core-seconds times both commits in turns and divides the medians."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    yield importlib.import_module("core_seconds")
    for name in ("core_seconds", "golden"):
        sys.modules.pop(name, None)


def test_both_sides_are_timed_in_turns_and_the_ratio_is_of_medians(study, monkeypatch, capsys):
    sides = [study.Side("old", Path("old")), study.Side("new", Path("new"))]
    taken, seconds = [], iter([10.0, 6.0, 3.0, 30.0, 12.0, 5.0])

    def core_seconds(side, label, tasks, seeds):
        taken.append((side.name, label, tasks, seeds))
        return next(seconds)

    monkeypatch.setattr(study, "core_seconds", core_seconds)
    measured = study.measure(sides, [("S", "a,b")], "0-2", repeats=3)
    assert [name for name, *_ in taken] == ["old", "new", "new", "old", "old", "new"]
    assert measured == {("S", "a,b"): [[10.0, 30.0, 12.0], [6.0, 3.0, 5.0]]}
    study.print_table(sides, measured)
    _, row, total = capsys.readouterr().out.splitlines()
    assert row.split() == ["S", "2", "tasks", "12.0", "5.0", "0.42"]
    assert total.split() == ["all", "12.0", "5.0", "0.42"]


@pytest.mark.slow
def test_the_time_of_a_command_includes_its_workers(study, monkeypatch, tmp_path):
    busy = "import time\nwhile time.process_time() < 0.5: pass\n"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    side = study.Side("here", tmp_path)
    start = study.Side.start
    monkeypatch.setattr(study.Side, "start", lambda self, *words, **pipes: start(self, "-c", script, **pipes))
    assert study.core_seconds(side, "S", "compression", "0") > 0.5


@pytest.mark.slow
def test_a_command_that_fails_ends_the_study_with_its_error(study, monkeypatch, tmp_path):
    side = study.Side("here", tmp_path)
    start = study.Side.start
    monkeypatch.setattr(study.Side, "start", lambda self, *_, **pipes: start(self, "-c", "raise KeyError(7)", **pipes))
    with pytest.raises(SystemExit, match="here: python -m madbench run S .* failed:(.|\n)*KeyError: 7"):
        study.core_seconds(side, "S", "compression", "0")
