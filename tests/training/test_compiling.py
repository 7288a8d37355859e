"""Models are compiled always, never, or if the remaining steps repay the compilation."""

from __future__ import annotations

import pytest

from madbench.errors import ConfigError
from madbench.execute.options import RunOptions
from madbench.experiment import ExperimentOptions, prepare
from madbench.rows import Grid, Row
from madbench.training import measured as module
from madbench.training.measured import is_compiled
from madbench.training.member import GroupMember


@pytest.fixture
def member(make_job, tmp_path):
    """A job of 12 steps."""
    return GroupMember(make_job(label="S"), tmp_path / "work", lambda _: None)


@pytest.fixture
def times(monkeypatch):
    """``times(alone, compiled)``: set the measured seconds of a step. Returns a list of the measured variants."""

    def set_times(alone, compiled):
        measured = []

        def seconds_of(members, make_step):
            measured.append("compiled" if getattr(make_step, "keywords", {}).get("compile") else "alone")
            return compiled if measured[-1] == "compiled" else alone

        monkeypatch.setattr(module, "seconds_of", seconds_of)
        return measured

    monkeypatch.setattr(module, "has_compiler", lambda: True)
    return set_times


def make_step(members, compile=False):
    raise AssertionError("nothing is trained here")


def test_always_and_never_measure_nothing(member, times, tmp_path):
    measured = times(100.0, 1.0)
    assert is_compiled("always", member, make_step, tmp_path) and not is_compiled("never", member, make_step, tmp_path)
    assert measured == []


def test_auto_compiles_long_training_where_that_is_faster_and_remembers_it(member, times, tmp_path):
    measured = times(30.0, 10.0)  # six minutes are left
    assert is_compiled("auto", member, make_step, tmp_path)
    assert measured == ["alone", "compiled"]
    assert is_compiled("auto", member, make_step, tmp_path)
    assert measured == ["alone", "compiled", "alone"]


def test_auto_does_not_compile_short_training_or_what_is_not_faster(member, times, tmp_path):
    measured = times(20.0, 1.0)  # four minutes
    assert not is_compiled("auto", member, make_step, tmp_path) and measured == ["alone"]
    times(30.0, 29.5)
    assert not is_compiled("auto", member, make_step, tmp_path)


def test_without_a_compiler_auto_stays_eager_and_always_is_an_error(member, times, tmp_path, monkeypatch):
    times(30.0, 10.0)
    monkeypatch.setattr(module, "has_compiler", lambda: False)
    assert not is_compiled("auto", member, make_step, tmp_path)
    experiment = prepare(Grid((Row("S"),), tasks=("compression",)), ExperimentOptions(device="cpu", results=tmp_path))
    with pytest.raises(ConfigError, match="--compile always: there is no C\\+\\+ compiler"):
        experiment.execute(options=RunOptions(compile="always"))


def test_the_compiler_is_looked_for_by_name(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert not module.has_compiler()
