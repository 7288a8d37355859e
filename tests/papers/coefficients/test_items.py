"""The items of the paper on coefficients: studies, sizes, commands, and ``madbench paper``."""

import dataclasses
import json
import math

import pytest

from coefficient_results import results_of
from madbench.experiment import ExperimentOptions, prepare
from madbench.papers import load_paper
from madbench.papers.coefficients import FULL, QUICK
from madbench.papers.coefficients.measure import PrincipleMeasure, rows_of, study_of
from madbench.papers.coefficients.studies import FIGURES, PRINCIPLES, principle
from madbench.papers.making import Request, jobs_of
from madbench.rows import Grid


@pytest.mark.slow
@pytest.mark.parametrize("profile", [FULL, QUICK])
def test_the_studies_of_all_principles_can_be_planned(profile, tmp_path):
    for one in PRINCIPLES:
        study = one.study(profile)
        if not study.tasks:
            continue
        grid = Grid(rows_of(study), profile=profile, tasks=study.tasks, overrides=study.overrides, budget="paper")
        experiment = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path))
        trained = {row.label for row in experiment.grid.rows}
        assert {job.task for job in experiment.jobs} == set(study.tasks)
        assert {label for one in study.contrasts for label in (one.better, one.worse)} <= trained


def test_the_studies_at_full_size_have_the_papers_number_of_runs():
    runs = {one.number: len(one.study(FULL).labels) * len(one.study(FULL).tasks) * 10 for one in PRINCIPLES}
    assert (runs["3"], runs["6"]) == (120, 90)


@pytest.mark.slow
def test_the_verb_lists_principles_and_names_what_is_unknown(main):
    listed = main("paper", "coefficients")
    assert listed.code == 0 and all(f"principle{one.number}  {one.title}" in listed.stdout for one in PRINCIPLES)
    wrong = main("paper", "coefficients", "principle7")
    assert wrong.code == 2 and "no item 'principle7'" in wrong.stderr
    assert "madbench paper coefficients" in main("principles", "3").stderr


def test_the_introduction_of_an_item_states_its_rule_and_other_quick_tasks():
    paper = load_paper("coefficients")
    for item in (item for item in paper.items if item.measure.endswith(":PrincipleMeasure")):
        request = Request(paper, item)
        introduction = PrincipleMeasure().introduction(request)
        assert item.rule and f"Rule: {item.rule}" in introduction
        own = study_of(dataclasses.replace(request, profile="full"))
        if set(own.tasks) != set(study_of(request).tasks):
            assert any("Quick:" in line for line in introduction)
            assert item.kind == "claim" or item.note.startswith("Quick ")


def test_every_principle_is_an_item_of_its_own():
    paper = load_paper("coefficients")
    for one in PRINCIPLES:
        item = paper.item(f"principle{one.number}")
        assert (item.title, item.place) == (one.title, one.source)


@pytest.mark.slow
def test_every_figure_with_data_is_an_item_of_its_own():
    paper = load_paper("coefficients")
    figures = {item.id for item in paper.items if item.measure.endswith(":PrincipleMeasure")} & {*FIGURES}
    assert {f"figure{n}" for n in range(1, 13)} <= {item.id for item in paper.items if item.is_made_here}
    assert figures == set(FIGURES) == {f"figure{n}" for n in (1, 2, 3, *range(5, 12))}
    for name in figures - {"figure5"}:
        request = Request(paper, paper.item(name))
        assert {job.task for job in jobs_of(request)} == set(study_of(request).tasks)
    assert study_of(Request(paper, paper.item("figure6"))).tasks == ("memorization",)


def test_kernels_of_figure_5_are_causal_attention_and_ssd_needs_a_gpu():
    import torch

    from madbench.papers.coefficients import timing

    torch.manual_seed(0)
    given = timing.kernel_runner(timing.FLASH, 6, "cpu")()
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, timing.HEADS, 6, timing.WIDTH // timing.HEADS)
    scores = (q @ k.mT * k.shape[-1] ** -0.5).masked_fill(~torch.ones(6, 6).tril().bool(), -math.inf)
    torch.testing.assert_close(given, scores.softmax(-1) @ v)
    assert not timing.has_ssd("cpu")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "0-4"), "--seeds has no effect without an item"),
        (("training.epochs=3",), "training.epochs=3 has no effect without an item"),
        (("principle1", "--profile", "full"), "--profile has no effect on principle 1: it trains nothing"),
        (("principle1", "--dry-run"), "--dry-run has no effect on principle1: it trains nothing"),
        (("principle3", "S"), "S has no effect on principle 3, which has its labels"),
    ],
)
def test_options_without_effect_on_a_list_or_a_timing_of_a_paper_are_refused(main, words, message):
    ended = main("paper", "coefficients", *words)
    assert (ended.code, ended.stderr) == (2, f"{message}\n")


@pytest.mark.slow
def test_the_verb_reports_stored_runs_without_training_and_remembers_the_verdict(main, tmp_path):
    results_of("6", tmp_path, lambda label: 0.7 if label.endswith(("sum-p", "pow-p")) else 0.4)
    found = main("paper", "coefficients", "principle6", "--seeds", "0-2", "--results", str(tmp_path), "-f", "json")
    assert found.code == 0, found.stderr
    report = json.loads(found.stdout)
    assert report["verdicts"].keys() == {"exp", "softplus", "relu"} and report["rows"] and report["cells"]
    assert report["claim"] == principle("6").claim
    assert (tmp_path / "plots" / "principle_6.png").is_file()
    listed = json.loads(main("paper", "coefficients", "--results", str(tmp_path), "-f", "json").stdout)
    rows = {row["item"]: row for row in listed["items"]}
    assert rows["principle6"]["state"].endswith("(quick)") and not rows["principle6"]["is_shipped"]
    assert rows["principle3"]["is_shipped"]


@pytest.mark.slow
def test_a_users_override_replaces_that_of_the_study(main):
    planned = main(
        "paper", "coefficients", "principle6", "learning_rates=[3.0e-3]", "--dry-run", "-f", "json", "--seeds", "0"
    )
    assert planned.code == 0, planned.stderr
    assert "given twice" not in planned.stderr
