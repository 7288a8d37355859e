"""The folder of the paper uses only what any package may use: outside of madbench it works unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import madbench

PACKAGE = Path(madbench.__file__).parent
OURS = "madbench.papers.interactions"
PROGRAM = """
import madbench
from madbench.labels import families, family_identity, family_of
from madbench.papers import loaded_papers
from madbench.suites import broken_suites, checks_of, find_suite, suites

print({"interactions"} & {*suites(), *loaded_papers()[0]}, {"ha", "hfa"} & {*families()}, broken_suites())
if "interactions" in suites():
    suite = find_suite("interactions")
    profile = suite.Profile.load("quick", ["training.steps=2"])
    job = suite.jobs(["hfa:C3"], profile, tasks=["hunters"], seeds=(0,))[0]
    print(type(suite).__module__, job.family.partition("+")[0], "+" in job.family)
    print(len(list(checks_of("hfa:C1"))), madbench.build("ha:3", 16, 8).__class__.__module__)
"""


def run(site: Path) -> list[str]:
    env = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=site, env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.slow
def test_the_interactions_package_works_as_an_installed_one_and_is_optional(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__", "interactions")
    shutil.copytree(PACKAGE, tmp_path / "madbench", ignore=ignored)
    for folder in ("tasks", "variants"):
        shutil.copytree(PACKAGE.parent / folder, tmp_path / folder)
    assert run(tmp_path) == ["set() set() {}"]

    package = shutil.copytree(PACKAGE / "papers" / "interactions", tmp_path / "hyperattention")
    for path in (*package.rglob("*.py"), *package.rglob("*.txt")):
        path.write_text(path.read_text(encoding="utf-8").replace(OURS, "hyperattention"), encoding="utf-8")
    info = tmp_path / "hyperattention-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: hyperattention\nVersion: 1.0\n")
    (package / "entry_points.txt").rename(info / "entry_points.txt")
    found, job, built = run(tmp_path)
    assert found == "{'interactions'} {'ha', 'hfa'} {}" or found == "{'interactions'} {'hfa', 'ha'} {}"
    assert job == "hyperattention.suite 1 True"  # outside, the code is part of a run's id
    assert built.endswith(" hyperattention.mixers.ha.operator") and int(built.split()[0]) > 20
