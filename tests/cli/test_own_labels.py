"""The labels that a suite trains if no label is named, and their plan."""

from __future__ import annotations

import json

import pytest

from madbench.suites import suites


def dry_run(main, *words):
    shown = main("run", *words, "--dry-run", "-f", "json")
    assert shown.code == 0, shown.stderr
    return json.loads(shown.stdout)


def test_a_task_whose_profile_lists_labels_runs_without_naming_them(main):
    cells = dry_run(main, "-t", "alliances")["cells"]
    assert [cell["label"] for cell in cells] == ["ha:C3", "hfa:C1"]
    assert all(cell["estimated_seconds"] > 0 for cell in cells)


def test_named_labels_replace_those_of_the_profile(main):
    assert {cell["label"] for cell in dry_run(main, "ha:C3", "-t", "alliances")["cells"]} == {"ha:C3"}


@pytest.mark.slow
def test_a_suite_named_as_a_task_plans_its_usual_tasks(main):
    cells = dry_run(main, "S", "-t", "mad")["cells"]
    assert [cell["task"] for cell in cells] == list(suites()["mad"].usual_tasks())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-t", "interactions"], ["name labels, or one task", "hunters: hfa:C3 hfa:C1", "alliances: ha:C3 hfa:C1"]),
        (["-t", "colliding,compression"], ["compression: none of its own", "colliding: hfa:C1"]),
        (["-t", "mad"], ["nothing to train: give at least one label"]),
        ([], ["nothing to train: give at least one label"]),
    ],
)
def test_a_run_without_labels_is_an_error_that_lists_the_profiles_labels(main, words, says):
    refused = main("run", *words)
    assert (refused.code, refused.stdout) == (2, "")
    for part in says:
        assert part in refused.stderr


@pytest.mark.slow
def test_the_plan_of_a_task_on_agents_states_its_memory(main):
    ended = main("run", "-t", "colliding", "--dry-run", "--details", "-f", "json")
    assert ended.code == 0, ended.stderr
    (cell,) = json.loads(ended.stdout)["cells"]
    assert cell["memory_bytes"] > 600 * 8 * 4  # weights, gradients and two moments in float64
