"""The digests of code cover the paper's package, part by part."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import madbench
from madbench.identity import package
from madbench.suites.code import PARTS, package_modules

AGENTS, TOKENS = ("interactions", "hunters", ["ha"]), ("mad", "memorization", [""])


@pytest.fixture
def package_copy(tmp_path):
    """A copy of the package. Digests are computed from the copy."""
    home = tmp_path / "madbench"
    shutil.copytree(Path(madbench.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    with package.files_of(home):
        yield home / "papers" / "interactions"


def digests(job):
    return {name: package.package_digest(*where) for name, where in package_modules(*job).items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("mixers/mixer.py", "family"),
        ("worlds/agents.py", "task"),
        ("suite.py", "suite"),
        ("model.py", "suite"),
        ("mixers/checks.py", ""),
        ("theorems/lemmas.py", ""),
        ("measure.py", ""),
    ],
)
def test_an_edit_changes_only_the_digest_of_the_part_that_uses_the_file(package_copy, place, part):
    before, others = digests(AGENTS), digests(TOKENS)
    with (package_copy / place).open("a") as file:
        file.write("\nADDED = 1\n")
    assert {name for name in PARTS if digests(AGENTS)[name] != before[name]} == {*filter(None, [part])}
    assert all(before.values()) and digests(TOKENS) == others
