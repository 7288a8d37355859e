"""``madbench validate`` of profiles, tasks, sets of labels and grids, with one message per mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from madbench.cli.validate import validate
from madbench.config import PAPERS, TASKS, VARIANTS
from madbench.papers.interactions.profile import InteractionProfile
from madbench.suites.signals.suite import SignalProfile


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def problems(invoke):
    """The problems of one file, without the path at their beginning."""

    def problems(path):
        result = invoke(validate, path, "-f", "json")
        (report,) = json.loads(result.stdout)
        assert report["ok"] == (not report["problems"]) == (result.exit_code == 0)
        return [problem.removeprefix(f"{path}: ") for problem in report["problems"]]

    return problems


SETTING = "vocab_size: 16, seq_len: 32, num_train_examples: 9, num_validation_examples: 9, num_test_examples: 9"
PROFILE = """
description: mine
comparable_with_paper: false
learning_rates: [1.0e-3]
weight_decays: [0.0]
difficulty: baseline
"""


@pytest.mark.slow
def test_all_shipped_files_validate(invoke):
    result = invoke(validate, "-f", "json")
    reports = json.loads(result.stdout)
    shipped = [
        *VARIANTS.glob("*.yaml"),
        *TASKS.glob("*.yaml"),
        *(TASKS / "mad").glob("*.yaml"),
        *(TASKS / "language").glob("*.yaml"),
    ]
    shipped += [*InteractionProfile.folder.glob("*.yaml"), *SignalProfile.folder.glob("*.yaml")]
    shipped += [*PAPERS.glob("*/variants/*.yaml"), *PAPERS.glob("*/profiles/*/*.yaml")]
    shipped.remove(TASKS / "heuristics.yaml")  # numbers that studies/heuristics.py makes
    assert result.exit_code == 0 and all(report["ok"] for report in reports)
    assert {Path(report["file"]).resolve() for report in reports} == set(shipped)


@pytest.mark.slow
def test_every_label_of_the_papers_table_has_a_budget_in_every_profile_of_that_paper(invoke):
    reports = json.loads(invoke(validate, "-f", "json").stdout)
    assert {Path(report["file"]).stem for report in reports if report["notes"]} <= {
        "coefficients",
        "coefficients-quick",
    }


def test_each_valid_file_gets_one_line(invoke, write):
    labels = write("mine.yaml", "description: x\nlabels: [S, '{R,G}-c']\n")
    profile = write("p.yaml", PROFILE)
    lines = invoke(validate, labels, profile).output.splitlines()
    assert lines == [
        f"ok     {labels}  variants: 3 labels",
        f"ok     {profile}  profile: 6 settings, 6 runs per label",
    ]


def test_every_wrong_suite_beside_a_profile_is_named(problems, write):
    found = problems(write("p.yaml", PROFILE + "beside: {langauge_model: tiny, signals: quikc, mad: quick}\n"))
    assert found == [
        "beside: no other suite 'langauge_model'; did you mean 'language_model'?",
        "beside: signals: signal profile 'quikc': no such signal profile or file; did you mean 'quick'?",
        "beside: mad has no effect: it is the suite of this profile",
    ]


def test_every_wrong_label_of_a_set_is_named(problems, write):
    write("other.yaml", "description: x\nlabels: [S-p]\n")
    found = problems(write("mine.yaml", 'labels: [S, S-x, "{S,R}-g", "@nope", S, "@other.yaml", 3]\ndesc: 3\n'))
    assert len(found) == 7
    assert found[0] == "labels[6]: expected text, got 3"
    assert found[1].startswith("unknown key 'desc'")
    assert found[2] == "key 'description' is missing"
    assert "^" in found[3] and found[3].endswith("labels[1]")
    assert "adds parameters" in found[4] and found[4].endswith("labels[2]")
    assert "no such set" in found[5] and found[5].endswith("labels[3]")
    assert found[6] == "labels[4]: 'S' is in the set already, as labels[0]"


def test_patterns_in_a_set_refer_to_sets_relative_to_its_folder(problems, write):
    write("folder/inner.yaml", "description: x\nlabels: [KDA, GDN]\n")
    assert problems(write("folder/outer.yaml", "description: y\nlabels: [2x@inner.yaml/S]\n")) == []
    (problem,) = problems(write("folder/gone.yaml", "description: y\nlabels: [2x@other.yaml/S]\n"))
    assert "no such file" in problem and "labels[0]" in problem


def test_a_set_refers_to_other_sets_relative_to_its_folder(problems, write):
    write("folder/other.yaml", "description: x\nlabels: [S-p]\n")
    assert problems(write("folder/mine.yaml", 'description: x\nlabels: ["@other.yaml", "{S,@other.yaml}"]\n')) == []
    assert "cannot contain itself" in problems(write("self.yaml", 'description: x\nlabels: ["@self.yaml"]\n'))[0]


def test_every_wrong_key_of_a_task_is_named(problems, write):
    text = f"""
task: compression
descr: x
foo: 1
baseline: {{{SETTING.replace("seq_len: 32", "seq_len: a").replace("num_train_examples", "num_train")}}}
vary:
  vocab: [1]
  seq_len: 3
"""
    assert [problem.partition(";")[0] for problem in problems(write("t.yaml", text))] == [
        "unknown key 'descr'",
        "unknown key 'foo'",
        "key 'description' is missing",
        "baseline: seq_len: expected a whole number, got 'a'",
        "baseline: unknown key 'num_train'",
        "baseline: key 'num_train_examples' is missing",
        "vary: unknown key 'vocab'",
        "vary: seq_len: expected a list of values, got 3",
    ]


def test_every_wrong_change_of_a_task_is_named(problems, write):
    vary = "{vocab_size: [1, 2, x, 32, 32, 16], seq_len: [64]}"
    found = problems(write("t.yaml", f"task: compression\ndescription: x\nbaseline: {{{SETTING}}}\nvary: {vary}\n"))
    assert [problem.rpartition(", got ")[2] for problem in found[:3]] == ["1", "2", "'x'"]
    assert [problem.split(": ")[2] for problem in found[3:]] == [
        "32 gives a setting that the file has already",
        "16 gives a setting that the file has already",
    ]


def test_every_wrong_value_of_a_profile_is_named(problems, write):
    text = """
learning_rates: [a, 1.0e-3, b]
difficulty: hard
model: {d_modl: 3, n_head: x}
training: {epochs: 1.5, learning_rate: 3}
tasks:
  compresion: {setting: {}}
  memorization: {setings: {}, training: {batch: 3}}
"""
    assert {problem.partition(";")[0] for problem in problems(write("p.yaml", text))} == {
        "learning_rates[0]: expected a number, got 'a'",
        "learning_rates[2]: expected a number, got 'b'",
        "difficulty: 'hard' is not allowed",
        "keys 'description', 'weight_decays' are missing",
        "model: unknown key 'd_modl'",
        "model: n_head: expected a whole number, got 'x'",
        "training: epochs: expected a whole number, got 1.5",
        "training: 'learning_rate' has no effect here",
        "tasks: unknown task 'compresion'",
        "tasks: memorization: unknown key 'setings'",
        "tasks: memorization: training: unknown key 'batch'",
    }


def test_a_profile_with_like_is_checked_with_the_settings_of_its_base(problems, write):
    assert problems(TASKS / "mad" / "evening-4.yaml") == []
    assert problems(write("mine.yaml", "like: evening\nmodel: {n_layer: 4}\n")) == []


def test_a_profile_with_like_belongs_to_the_suite_of_its_base(problems, write):
    text = "like: {}\nmodel: {{n_layer: 4, d_model: 96}}\ntasks: {{memorization: {{training: {{epochs: 9}}}}}}\n"
    assert problems(write("mine.yaml", text.format("evening"))) == []
    assert problems(write("mine.yaml", text.format("quick"))) == []
    (problem,) = problems(write("mine.yaml", "like: quick\ntasks: {hunters: {training: {epochs: 3}}}\n"))
    assert "training of hunters: unknown key 'epochs'" in problem


def test_a_grid_is_checked_with_its_settings(invoke, problems, write):
    grid = "labels: [S-p, G-p]\nvary: {model.n_layer: [1, 2]}\n"
    assert invoke(validate, write("grid.yaml", grid)).output.endswith("grid: 4 rows\n")
    assert problems(write("grid.yaml", "labels: [S-p]\ntasks: [memorization]\n")) == []
    wrong = problems(write("grid.yaml", grid.replace("n_layer", "n_layerz") + "seed: 1\n"))
    assert "unknown key 'seed'; did you mean 'seeds'?" in wrong[0] and "did you mean 'n_layer'?" in wrong[1]


def test_each_mistake_of_a_grid_is_named_once_with_its_remedy(problems, write):
    found = problems(write("grid.yaml", "labels: [S]\nset: {1: 2, training: {epochs: 3}}\n"))
    assert len(found) == 2 and "set: 1 is no key" in found[0] and "write training.epochs: ..." in found[1]
    (problem,) = problems(write("grid.yaml", "labels: [S]\nvary: {model.d_model: [32, 32]}\n"))
    assert "write model.d_model: 32 under set" in problem
    found = problems(write("grid.yaml", "labels: [S]\nmode: list\nrows: [{label: S}, {label: R, 1: 2}]\n"))
    assert len(found) == 2 and found[0].startswith("labels has no effect in mode list")
    assert found[1].startswith("rows[1]: ")


def test_the_caret_of_a_problem_is_below_the_wrong_letter(problems, write):
    (problem,) = problems(write("grid.yaml", "labels: [S-zz]\nset: {}\n"))
    label, caret, where = problem.splitlines()
    assert label[caret.index("^")] == "z" and where == f"in {write('grid.yaml', '')}"


@pytest.mark.parametrize("more", ["", "training: {epochs: 3}\n", "learning_rates: [1.0e-3]\n"])
def test_a_profile_with_an_unknown_base_is_refused_with_the_nearest(problems, write, more):
    assert "did you mean 'quick'?" in problems(write("mine.yaml", f"like: qick\n{more}"))[0]
    assert "such as like: quick, got ['quick']" in problems(write("mine.yaml", f"like: [quick]\n{more}"))[0]
    assert "expected the name of one shipped profile" in problems(write("mine.yaml", f"like:\n{more}"))[0]


def test_a_wrong_key_of_a_profile_with_like_is_named(problems, write):
    (problem,) = problems(write("mine.yaml", "like: evening\nmodel: {n_layers: 4}\n"))
    assert "did you mean 'n_layer'" in problem
    (problem,) = problems(write("profiles/mine.yaml", "like: nothing\n"))
    assert "like: 'nothing': no such profile" in problem


def test_settings_that_a_profile_cannot_have_are_named(problems, write):
    tasks = "tasks: {memorization: {setting: {seq_len: 3}}, compression: {setting: {vocab: 3}}}"
    found = sorted(problems(write("p.yaml", PROFILE + tasks)))
    assert len(found) == 2
    assert "compression" in found[0] and "did you mean 'vocab_size'" in found[0]
    assert "memorization" in found[1] and "must be even" in found[1]


def test_a_profile_too_narrow_for_the_papers_labels_is_noted_and_allowed(invoke, write):
    path = write("p.yaml", PROFILE + "model: {d_model: 16}\n")
    result = invoke(validate, path)
    assert result.exit_code == 0 and result.output.startswith("ok")
    assert "note: no ranks at seq_len 256 under the strict budget: R-cg-q-12o" in result.output


def test_the_kind_of_a_file_follows_from_its_content_or_else_its_folder(problems, write):
    assert problems(write("a.yaml", "x: 1\n"))[0].startswith("cannot tell what this is")
    assert "key 'task' is missing" in problems(write("tasks/a.yaml", "x: 1\n"))
    assert "keys 'description', 'labels' are missing" in problems(write("variants/a.yaml", "x: 1\n"))
    assert any("'difficulty' are missing" in problem for problem in problems(write("profiles/a.yaml", "x: 1\n")))
    assert problems(write("tasks/set.yaml", "description: x\nlabels: [S]\n")) == []


@pytest.mark.parametrize("text", ["x: [", "- a\n- b\n", "a: 1\na: 2\n"])
def test_a_file_that_is_no_mapping_is_named(problems, write, text):
    assert len(problems(write("a.yaml", text))) == 1


def test_the_error_counts_problems_and_files(refuse, write, tmp_path):
    sound = write("a.yaml", "description: x\nlabels: [S]\n")
    assert refuse(validate, tmp_path / "nowhere.yaml", sound) == "1 problem in 1 of 2 files"


@pytest.mark.slow
def test_validate_checks_the_file_of_an_installed_task(invoke, install_example):
    file = install_example("task") / "madbench_prefix_sum" / "prefix_sum.yaml"
    assert f"ok     {file}  task: prefix_sum, 5 settings" in invoke(validate).output
    file.write_text(file.read_text().replace("seq_len: 32", "seq_len: 1"))
    assert "seq_len must be at least 2" in invoke(validate, file).output


def test_a_repeated_learning_rate_is_one_problem(problems, write):
    text = PROFILE.replace("learning_rates: [1.0e-3]", "learning_rates: [1.0e-3, 2.0e-3, 1e-3]")
    assert problems(write("p.yaml", text)) == ["learning_rates: 0.001 appears twice; leave one out"]


def test_validate_names_all_problems_of_a_profile_even_if_some_repeat(problems, write):
    text = "learning_rates: [a, a, a]\nweight_decays: []\nbeside: {language_model: 3}\n"
    assert [
        problem.partition(",")[0]
        for problem in problems(write("p.yaml", PROFILE.partition("learning_rates")[0] + text))
    ] == [
        "learning_rates[0]: expected a number",
        "learning_rates[1]: expected a number",
        "learning_rates[2]: expected a number",
        "beside: language_model: expected text",
        "key 'difficulty' is missing",
        "weight_decays: give at least one value",
    ]


def test_a_folder_and_an_archive_are_answered_by_the_command_that_checks_them(invoke, tmp_path):
    archive = tmp_path / "runs.tar.xz"
    archive.write_bytes(b"\xfd7zXZ")
    output = invoke(validate, tmp_path, archive).output
    assert f"madbench validate --store --results {tmp_path}" in output
    assert f"madbench import {archive}" in output
