"""Digests of this package's own code: the files that each part reads, and what changes a digest."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import madbench
from madbench.identity import package
from madbench.labels import own_modules
from madbench.suites.code import PARTS, package_modules

MEMORIZATION = ("mad", "memorization", "")


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the package, which digests are of."""
    home = tmp_path / "madbench"
    shutil.copytree(Path(madbench.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(package, "_HOME", home)
    return home


def digests(job):
    return {name: package.package_digest(*where) for name, where in package_modules(job[0], job[1], [job[2]]).items()}


def changed(job, edit):
    """The parts of a job's code that an edit changes."""
    before = digests(job)
    edit()
    after = digests(job)
    return {name for name in PARTS if before[name] != after[name]}


def replaced(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "parts", "others"),
    [
        ("tasks/memorization.py", {"task"}, ("mad", "compression", "cd")),
        ("tasks/base.py", {"task"}, ("language", "language_model", "")),
        ("mixers/srg/dynamic_mlp.py", {"family"}, ("mad", "memorization", "cd")),
        ("mixers/srg/checks.py", set(), ("mad", "memorization", "cd")),
        ("mixers/sequence.py", {"family"}, None),
        ("models/mad.py", {"model"}, ("language", "language_model", "")),
        ("models/blocks.py", {"model"}, None),
        ("suites/token_trial.py", {"suite"}, ("language", "language_model", "")),
        ("suites/training.py", {"suite"}, None),
        ("suites/scoring.py", set(), None),
        ("training/optimizer.py", {"training"}, None),
        ("cli/table.py", set(), None),
    ],
)
def test_an_edit_changes_the_parts_that_have_it_and_no_others(copied, place, parts, others):
    def edit():
        with (copied / place).open("a") as file:
            file.write("\nADDED = 1\n")

    unchanged = digests(others) if others else None
    assert changed(MEMORIZATION, edit) == parts
    assert others is None or digests(others) == unchanged


@pytest.mark.slow
def test_an_edited_operator_changes_the_labels_that_have_it(copied):
    def family_digest(*labels):
        own = [name for label in labels for name in own_modules(label)]
        return package.package_digest(*package_modules("mad", "memorization", ["named"], own)["family"])

    labels = [("KDA",), ("GDN",), ("GDN(neg)",), ("S-p", "KDA"), ("Mamba-2",)]
    before = {label: family_digest(*label) for label in labels}
    assert before["GDN",] == before["GDN(neg)",] and len({*before.values()}) == 3
    with (copied / "mixers/named/operators/kda.py").open("a") as file:
        file.write("\nADDED = 1\n")
    with (copied / "mixers/named/operators/__init__.py").open("a") as file:
        file.write("\nADDED = 1\n")
    assert {label[-1] for label in labels if family_digest(*label) != before[label]} == {"KDA"}
    with (copied / "mixers/named/delta_rule.py").open("a") as file:
        file.write("\nADDED = 1\n")
    assert [label for label in labels if family_digest(*label) == before[label]] == [("Mamba-2",)]


@pytest.mark.slow
def test_comments_and_docstrings_change_nothing(copied):
    file = copied / "tasks/memorization.py"

    def edit():
        file.write_text(f'"""Another docstring."""\n\n# a comment\n{file.read_text().partition(chr(10))[2]}')

    assert changed(MEMORIZATION, edit) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "job",
    [
        MEMORIZATION,
        ("language", "language_model", "named"),
        ("interactions", "hunters", "ha"),
        ("signals", "digits", "my"),
    ],
)
def test_every_part_of_every_suite_has_files(job):
    assert all(digests(job).values()) and list(digests(job)) == list(PARTS)
