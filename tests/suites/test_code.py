"""The code that a record lists, and workers whose code differs from that of the plan."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import madbench
from madbench.errors import TrainingError
from madbench.identity.package import file_of, imports_within, modules_reached
from madbench.suites import suites
from madbench.suites.code import NO_NUMBERS, affects_no_number, check_planned_code, code_details, package_modules
from sample_jobs import mad_job


def test_a_record_of_a_built_in_label_has_only_digests_of_its_code():
    details = code_details(mad_job())
    assert set(details) == {"package_code"}
    assert {len(digest) for digest in details["package_code"].values()} == {16}


def test_a_record_of_a_users_module_lists_its_files():
    details = code_details(dataclasses.replace(mad_job(), label="my:madbench.mixers.my.sample.GatedMean"))
    assert list(details["code"]["mixer"]["files"]) == ["madbench/mixers/my/sample.py"]


@pytest.mark.slow
def test_a_run_whose_code_changed_after_it_was_planned_is_refused():
    from madbench.labels import label_identity

    label = "my:madbench.mixers.my.sample.GatedMean"
    job = dataclasses.replace(mad_job(), label=label, family=label_identity(label))
    check_planned_code(job)
    with pytest.raises(TrainingError, match="changed after this run was planned"):
        check_planned_code(dataclasses.replace(job, family="1+code1-00"))


@pytest.mark.parametrize("family", ["", "cd", "hfa", "ha", "my", "named", "hybrid"])
def test_the_digest_of_a_family_leaves_out_modules_of_checks(family):
    read = modules_reached(*package_modules("mad", "compression", [family])["family"])
    assert "madbench.mixers" in read
    assert not {name for name in read if "check" in name or "residual" in name}


def test_modules_that_affect_no_number_are_listed_or_are_checks_of_a_family():
    assert all(file_of(name) and affects_no_number(name) for name in NO_NUMBERS)
    assert affects_no_number("madbench.mixers.mine.checks") and affects_no_number("madbench.papers.mine.checks")
    assert affects_no_number("madbench.mixers.checks.path_checks")
    others = (
        "madbench.mixers.mine.operators",
        "madbench.mixers.cost",
        "madbench.training.checks",
        "madbench.text.code",
    )
    assert not any(map(affects_no_number, others))


IMPORTS_LEFT_OUT = {
    "mixers.my.measures": ["mixers.my.sources"],
    "mixers.my.operator": ["mixers.my.sources"],
    "papers.interactions.mixers.base": ["papers.interactions.mixers.checks"],
    "tasks": ["tasks.heuristics"],
    "training.loop": ["training.measured"],
    "training.member": ["suites.code"],
}
"""Modules whose code trains and that import modules that the digests leave out, besides the
families, and the named operators, which import the loops of their reference."""


def test_code_that_trains_imports_no_module_that_the_digests_leave_out():
    operators = Path(madbench.__file__).parent / "mixers" / "named" / "operators"
    own = [f"madbench.mixers.named.operators.{path.stem}" for path in operators.glob("[a-z]*.py")]
    found = {}
    for suite in suites().values():
        for family in ("", "cd", "hfa", "ha", "my", "named", "hybrid"):
            parts = package_modules(suite.name, suite.tasks()[0], [family], own if family == "named" else ())
            for name in {name for part in parts.values() for name in modules_reached(*part)}:
                if left_out := sorted(filter(affects_no_number, imports_within(name, ["madbench"]))):
                    found[name.removeprefix("madbench.")] = [each.removeprefix("madbench.") for each in left_out]
    operators_with_loops = {name for name, names in found.items() if names == ["mixers.named.loops"]}
    assert all(name.startswith("mixers.named.operators.") for name in operators_with_loops)
    others = {name: names for name, names in found.items() if name not in operators_with_loops}
    assert {name: names for name, names in others.items() if not name.endswith(".family")} == IMPORTS_LEFT_OUT
