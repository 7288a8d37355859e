"""Versions, pins and addresses are the same in all files of the repository."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import madbench

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "uv.lock").read_text(encoding="utf-8")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def locked() -> dict[str, dict]:
    return {package["name"]: package for package in tomllib.loads(LOCK)["package"]}


def test_changelog_and_citation_have_the_version():
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *_ = re.findall(r"^## \[(.+?)\] - (?:unreleased|\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert first == citation["version"] == madbench.__version__
    assert citation["license"] == PROJECT["license"] and citation["cff-version"] == "1.2.0"


def test_the_lock_has_the_versions_of_the_constraints(locked):
    pins = re.findall(r"^([^#\s]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert len(pins) > 50
    other = {name: (pin, locked.get(normal(name), {}).get("version")) for name, pin in pins}
    assert not {name: versions for name, versions in other.items() if versions[0] != versions[1]}


def test_the_lock_file_has_the_declared_dependencies(locked):
    """``.ci/lock`` makes the lock file again."""

    def split(requirement: str) -> tuple[str, str]:
        name, extras, rest = re.match(r"([\w.-]+)(\[.*?\])?(.*)", requirement.partition(";")[0].strip()).groups()
        return normal(name), rest

    declared = {split(one) for one in PROJECT["dependencies"]}
    declared |= {split(one) for extra in PROJECT["optional-dependencies"].values() for one in extra}
    declared = {(name, spec) for name, spec in declared if name != "madbench"}  # extras of other extras
    metadata = locked["madbench"]["metadata"]
    recorded = {(one["name"], one.get("specifier", "")) for one in metadata["requires-dist"]}
    assert {name for name, _ in recorded} == {name for name, _ in declared}
    parts = {name: {tuple(sorted(spec.split(","))) for own, spec in recorded if own == name} for name, _ in recorded}
    assert all(tuple(sorted(spec.split(","))) in parts[name] for name, spec in declared)
    assert sorted(metadata["provides-extras"]) == sorted(PROJECT["optional-dependencies"])


def test_the_lock_names_public_addresses_alone():
    assert set(re.findall(r"https?://[^/\"]+", LOCK)) == {"https://pypi.org", "https://files.pythonhosted.org"}
    assert "file:" not in LOCK and "+cpu" not in LOCK


def test_templates_and_hooks_are_yaml():
    for path in [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")]:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"repos", "body"} & content.keys(), path
