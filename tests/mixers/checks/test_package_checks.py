"""Checks that an installed package adds to labels of other families, and packages whose checks are broken."""

from __future__ import annotations

import pytest

from madbench.cli.shared.packages import KINDS
from madbench.errors import ConfigError
from madbench.labels import parse
from madbench.mixers.checks import run_checks
from madbench.mixers.checks.package_checks import package_checks
from madbench.suites import checks_of

SOURCE = """
from madbench.mixers import Check

number = 3

def theorems(label):
    if str(label) == "S-p":
        yield Check("theirs", "A half is small.", "Lemma 1", lambda: 0.5, 1.0)

def failing(label):
    yield Check("first", "A half is small.", "Lemma 2", lambda: 0.5, 1.0)
    raise RuntimeError("no more")
"""


@pytest.fixture
def outside(tmp_path, install_example):
    """``outside(name=function, ...)``: an installed package that declares these functions of its module."""

    def install(**functions):
        (tmp_path / "madbench_theorems").mkdir()
        (tmp_path / "madbench_theorems" / "__init__.py").write_text(SOURCE)
        points = "\n".join(f"{name} = 'madbench_theorems:{function}'" for name, function in functions.items())
        project = "[project]\nname = 'madbench-theorems'\nversion = '1'\n"
        (tmp_path / "pyproject.toml").write_text(f"{project}[project.entry-points.'madbench.checks']\n{points}\n")
        install_example(tmp_path)

    return install


def test_a_package_adds_checks_to_labels_of_another_family(outside):
    before = [check.name for check in checks_of(parse("S-p"))]
    outside(own="theorems")
    assert [check.name for check in checks_of(parse("S-p"))] == [*before, "theirs"]
    assert not [*package_checks("R")] and not KINDS["checks"].broken()
    (outcome,) = run_checks("S-p", package_checks, ["theirs"])
    assert outcome.verdict == "pass" and outcome.residual == 0.5


def test_a_package_whose_checks_cannot_be_loaded_adds_none_and_is_listed(outside):
    outside(own="theorems", absent="nothing", constant="number", coefficients="theorems")
    assert [check.name for check in package_checks("S-p")] == ["theirs"]
    broken = KINDS["checks"].broken()
    assert broken.keys() == {"absent", "constant", "coefficients"}
    assert "has no attribute 'nothing'" in broken["absent"] and "cannot be called" in broken["constant"]
    assert "has this name already" in broken["coefficients"]


def test_checks_that_raise_name_their_package(outside):
    outside(wrong="failing")
    with pytest.raises(
        ConfigError, match=r"checks 'wrong' \(madbench_theorems:failing\): of S-p: RuntimeError: no more"
    ):
        [*package_checks("S-p")]
    *_, last = run_checks("S-p", package_checks, ["first"])
    assert last.verdict == "fail" and "checks 'wrong'" in last.error
