"""Digests of this package's own code: the files that each part reads, and what changes a digest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import madbench
from madbench.identity import package
from madbench.labels import own_modules
from madbench.suites.code import PARTS, package_modules

MEMORIZATION = ("mad", "memorization", "")


@pytest.fixture
def package_copy(tmp_path):
    """A copy of the package. Digests are computed from the copy."""
    home = tmp_path / "madbench"
    shutil.copytree(Path(madbench.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    with package.files_of(home):
        yield home


def digests(job):
    return {name: package.package_digest(*where) for name, where in package_modules(job[0], job[1], [job[2]]).items()}


def changed_parts(job, edit):
    """The parts of a job's code that an edit changes."""
    before = digests(job)
    edit()
    after = digests(job)
    return {name for name in PARTS if before[name] != after[name]}


def with_replaced_text(file, old, new):
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
def test_an_edit_changes_only_digests_of_parts_that_import_the_file(package_copy, place, parts, others):
    def edit():
        with (package_copy / place).open("a") as file:
            file.write("\nADDED = 1\n")

    unchanged = digests(others) if others else None
    assert changed_parts(MEMORIZATION, edit) == parts
    assert others is None or digests(others) == unchanged


@pytest.mark.slow
def test_an_edited_operator_changes_the_labels_that_have_it(package_copy):
    def family_digest(*labels):
        own = [name for label in labels for name in own_modules(label)]
        return package.package_digest(*package_modules("mad", "memorization", ["named"], own)["family"])

    labels = [("KDA",), ("GDN",), ("GDN(neg)",), ("S-p", "KDA"), ("Mamba-2",)]
    before = {label: family_digest(*label) for label in labels}
    assert before["GDN",] == before["GDN(neg)",] and len({*before.values()}) == 3
    with (package_copy / "mixers/named/operators/kda.py").open("a") as file:
        file.write("\nADDED = 1\n")
    with (package_copy / "mixers/named/operators/__init__.py").open("a") as file:
        file.write("\nADDED = 1\n")
    assert {label[-1] for label in labels if family_digest(*label) != before[label]} == {"KDA"}
    with (package_copy / "mixers/named/delta_rule.py").open("a") as file:
        file.write("\nADDED = 1\n")
    assert [label for label in labels if family_digest(*label) == before[label]] == [("Mamba-2",)]


@pytest.mark.slow
def test_comments_and_docstrings_change_nothing(package_copy):
    file = package_copy / "tasks/memorization.py"

    def edit():
        file.write_text(f'"""Another docstring."""\n\n# a comment\n{file.read_text().partition(chr(10))[2]}')

    assert changed_parts(MEMORIZATION, edit) == set()


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
def test_every_job_has_a_digest_for_each_part(job):
    assert all(digests(job).values()) and list(digests(job)) == list(PARTS)


def replace_once(file, old, new):
    """Replace the first ``old`` in the text of a file, which must contain it."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "old", "new", "part"),
    [
        ("mixers/sequence.py", "n_head: int = 2", "n_head: int = 3", "family"),
        ("mixers/sequence.py", "n_head: int = 2", "n_head: float = 2", "family"),
        ("tasks/memorization.py", "    roles: ClassVar", "    roles: ClassVar[dict]", "task"),
        ("tasks/memorization.py", "from madbench.tasks.base", "from madbench.tasks.basis", "task"),
    ],
)
def test_code_annotations_and_imports_change_a_digest(package_copy, place, old, new, part):
    assert changed_parts(MEMORIZATION, lambda: replace_once(package_copy / place, old, new)) == {part}


@pytest.mark.parametrize(
    ("part", "one", "other", "is_equal"),
    [
        ("task", "a", "c", True),
        ("task", "a", "d", False),
        ("model", "a", "c", False),
        ("model", "x", "x", True),
    ],
)
def test_digests_in_one_list_of_known_equal_give_equal_bits(tmp_path, part, one, other, is_equal):
    (path := tmp_path / "equal.json").write_text(json.dumps({"task": [["a", "b", "c"], ["d", "e"]]}))
    assert package.gives_equal_bits(part, one, other, path) == is_equal


def test_no_digest_is_in_two_lists_of_known_equal():
    for lists in package.equal_digests().values():
        digests = [digest for equal in lists for digest in equal]
        assert len({*digests}) == len(digests)
