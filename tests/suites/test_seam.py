"""All suites are treated alike: no code outside ``suites/`` and ``papers/`` names a suite."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import madbench
from madbench.suites import FORMER_MEMBERS, REGISTRY, _fault_of, suites, tokens
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad import suite as mad

PACKAGE = Path(madbench.__file__).parent
FOLDERS_THAT_MAY_NAME_SUITES = ("suites", "papers")
"""The folders that may name a suite."""
SUITES = {path.parent.name for path in PACKAGE.glob("suites/*/suite.py")} | {*REGISTRY.built_in}
_MODULE = re.compile(r"madbench\.(?:suites|papers)\.\w+")
CONSTANTS = {name.upper() for name in SUITES}


def names_of_suites(source: str) -> set[str]:
    """The places in a module that name a built-in suite: a module of it, its constant, or its name as a string.

    The attribute ``suite`` of a class is left out, by which a task states the suite that trains it.
    """
    named, tree = set(), ast.parse(source)
    own_suites = {
        part.value
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for part in node.body
        if (isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "suite")
        or (isinstance(part, ast.AnnAssign) and ast.unparse(part.target) == "suite")
    }
    for node in ast.walk(tree):
        if node in own_suites:
            continue
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            modules = _MODULE.findall(node.value)
            if node.value in SUITES:
                named.add(repr(node.value))
        else:
            modules = []
            name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
            if name in CONSTANTS:
                named.add(name)
        named |= {module for module in modules if _is_of_a_suite(module)}
    return named


def _is_of_a_suite(module: str) -> bool:
    parts = module.lstrip(".").split(".")
    return any(
        first in FOLDERS_THAT_MAY_NAME_SUITES and second in SUITES
        for first, second in zip(parts, parts[1:], strict=False)
    )


def offenders() -> dict[str, list[str]]:
    """The names of suites in code outside the allowed folders, by file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE)
        if file.parts[0] not in FOLDERS_THAT_MAY_NAME_SUITES and (
            named := names_of_suites(path.read_text(encoding="utf-8"))
        ):
            found[file.as_posix()] = sorted(named)
    return found


@pytest.mark.slow
def test_no_module_outside_suites_names_one():
    assert offenders() == {}


@pytest.mark.slow
def test_no_suite_is_built_on_another_one():
    """Modules that suites share stand beside their folders."""
    found = {}
    for path in sorted(PACKAGE.glob("suites/**/*.py")):
        own = path.relative_to(PACKAGE / "suites").parts
        others = {
            module.split(".")[2]
            for module in names_of_suites(path.read_text(encoding="utf-8"))
            if module.startswith("madbench.suites.")
        } - {own[0]}
        if others and own != ("published.py",):
            found["/".join(own)] = others
    assert found == {}


def test_a_token_suite_has_to_name_its_own_profiles():
    class Counting(tokens.TokenSuite):
        name, title, default = "counting", "Counting tasks", "small"

    assert _fault_of(Counting()) == "it has no Profile.folder, Profile.noun"
    assert _fault_of(mad.MAD) == ""
    assert _fault_of(Counting).startswith("it is a class; name an instance")


@pytest.mark.parametrize("former", ["key", "judged_by", "result", "schedule_warning", "shared_but_rates"])
def test_a_suite_with_a_former_member_is_refused_with_the_present_one(former):
    suite = type("Former", (mad.MadSuite,), {former: lambda self, job: ""})()
    assert repr(former) in _fault_of(suite) and repr(FORMER_MEMBERS[former]) in _fault_of(suite)


def test_no_former_member_of_suites_is_a_member_and_every_present_one_is():
    for suite in suites().values():
        assert not [name for name in FORMER_MEMBERS if hasattr(suite, name)]
        assert all(hasattr(suite, present) for present in FORMER_MEMBERS.values())


def test_names_of_a_suite_default_to_its_name():
    assert (mad.MAD.override_name, mad.MAD.short_name) == ("mad", "mad")
    assert (LANGUAGE.override_name, LANGUAGE.short_name) == ("language_model", "lm")


def test_the_built_in_suites_are_among_the_searched_names():
    assert {"mad", "language", "interactions"} <= SUITES


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("from madbench.suites.mad import suite", {"madbench.suites.mad", "madbench.suites.mad.suite"}),
        ("from madbench.suites import language", {"madbench.suites.language"}),
        ("import madbench.papers.interactions.suite as s", {"madbench.papers.interactions.suite"}),
        ("import_module('madbench.suites.mad.suite')", {"madbench.suites.mad"}),
        ("find_suite('language')", {"'language'"}),
        ("results.rows_of(MAD)", {"MAD"}),
        ("suite.LANGUAGE.scores", {"LANGUAGE"}),
        ("class Task:\n    suite = 'language'", set()),
        ("class Task:\n    title = 'language'", {"'language'"}),
        ("from madbench.suites import suites, main_suite", set()),
        ("from madbench.models import mad", set()),
        ("'''Tasks of mad.'''", set()),
    ],
)
def test_imports_and_names_of_suites_are_found_in_source(source, named):
    assert names_of_suites(source) == named
