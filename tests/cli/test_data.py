"""``madbench data``: the list of tasks, examples with roles and targets, and checks of generated data."""

from __future__ import annotations

import json
import re

import pytest

from madbench.cli.data import DataError, data
from madbench.jobs import Job
from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import IGNORE, generate, load_task, make_setting, settings_class
from madbench.tasks.compression import Compression


def shown_positions(text):
    """(token, letter, target) of each position of the first example, parsed from the screen."""
    lines = [line for line in text.splitlines() if re.match(r" *\d* +(token|role|target)( |$)", line)]
    positions, block = [], []
    for line in [*lines, "          token"]:
        if line.split()[0 if line.startswith("      ") else 1] == "token" and block:
            ends = [i for i in range(11, len(block[0])) if (block[0] + " ")[i + 1] == " " and block[0][i] != " "]
            for start, end in zip([10, *ends], ends):
                token, letter, *target = ((row[start + 1 : end + 1]).strip() for row in block)
                positions.append((int(token), letter, int(target[0]) if target and target[0] else None))
            block = []
        block.append(line)
    return positions


def test_data_without_a_task_lists_all_six_with_their_descriptions(invoke):
    text = invoke(data).output
    for task in MAD_TASKS:
        assert f"{task}\n  {load_task(task).description}" in text


@pytest.mark.parametrize("profile, heuristic", [("quick", 25.24), ("evening", 36.81)])
def test_data_shows_the_heuristic_and_chance_of_a_task(invoke, profile, heuristic):
    """(E + 1) / T for compression, with E the mean count of the commonest of T - 1 of 15 ids."""
    options = ("--profile", profile)
    text = " ".join(invoke(data, "compression", *options).output.split())
    assert f"without learning the task: {heuristic}% (the best answer that ignores the context" in text
    assert "chance: 6.25%" in text
    content = json.loads(invoke(data, "compression", *options, "-f", "json").output)
    assert (content["chance"], content["heuristic"]) == (1 / 16, pytest.approx(heuristic / 100, abs=1e-4))
    rows = {row["task"]: row for row in json.loads(invoke(data, *options, "-f", "json").output)}
    assert rows["compression"]["heuristic"] == content["heuristic"]
    listed = invoke(data, *options).output
    assert f"  {rows['in_context_recall']['heuristic']:.1%} without context, " in listed


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--check", "--split", "test")])
def test_tasks_of_suites_without_the_profile_are_left_out(invoke, refuse, install_example, words):
    install_example("suite")
    mad, counting = set(MAD_TASKS), {"majority", "parity"}
    for profile, listed in (("quick", mad), ("small", counting)):
        content = json.loads(invoke(data, *words, "--profile", profile, "-f", "json").output)
        tasks = {row["task"] for row in (content["checked"] if "--check" in words else content)}
        assert tasks & (mad | counting) == listed
    assert refuse(data, *words, "--profile", "quickk").startswith("profile 'quickk': no such profile")


@pytest.mark.parametrize(
    "line, problem", [("beside: {langage: tiny}", "beside: no other"), ("suite: signals", "suite:")]
)
def test_the_suites_that_a_profile_file_names_are_checked(refuse, tmp_path, line, problem):
    path = tmp_path / "mine.yaml"
    path.write_text(f"like: quick\ndescription: Mine.\n{line}\n", encoding="utf-8")
    for words in ([], ["memorization"]):
        assert refuse(data, *words, "--profile", path).startswith(f"{path}: {problem}")


@pytest.mark.parametrize(
    "task, suite", [("digits", "signals"), ("hunters", "interactions"), ("language_model", "language")]
)
def test_a_task_without_generated_tokens_is_refused(refuse, task, suite):
    for words in ([], ["--check"], ["--profile", "quick"], ["-f", "json"]):
        message = refuse(data, task, *words)
        assert message.startswith(f"{task} is a task of the suite {suite}, but madbench data shows only generated")
        assert "madbench data lists their tasks" in message and f"madbench ls tasks describes {task}" in message


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_data_in_json_equals_that_of_a_run_with_the_seed(invoke, split):
    content = json.loads(invoke(data, "selective_copying", "--split", split, "--seed", 3, "-f", "json").output)
    setting = make_setting("selective_copying", content["setting"], "test")
    job = Job("mad", "selective_copying", "S", "", content["setting"], None, {}, None, seed=3)
    expected = generate("selective_copying", setting, split, job.derived_seed("data"))
    assert [example["index"] for example in content["examples"]] == [0, 1]
    for example in content["examples"]:
        positions = example["positions"]
        targets = [IGNORE if position["target"] is None else position["target"] for position in positions]
        assert [position["token_id"] for position in positions] == expected.inputs[example["index"]].tolist()
        assert targets == expected.targets[example["index"]].tolist()
    assert content["targets_per_sequence"] == {"mean": 8.0, "fewest": 8, "most": 8}
    assert content["ceiling"] == 1.0


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("task", MAD_TASKS)
def test_the_screen_shows_every_token_role_and_target_without_color(invoke, task, columns):
    words = (task, "--examples", 1)
    text = invoke(data, *words, columns=columns).output
    assert max(map(len, text.splitlines())) <= columns and "\x1b" not in text
    (example,) = json.loads(invoke(data, *words, "-f", "json").output)["examples"]
    letters = [settings_class(task).roles[position["role"]] for position in example["positions"]]
    expected = [(p["token_id"], letter, p["target"]) for p, letter in zip(example["positions"], letters)]
    assert shown_positions(text) == expected
    legend = " ".join(text.split("roles: ")[1].split("\n\n")[0].split())
    for position, letter in zip(example["positions"], letters):
        assert f"{letter} {position['role']}" in legend


@pytest.mark.slow
def test_an_installed_task_is_listed_shown_and_checked(invoke, install_example):
    install_example("task")
    assert "prefix_sum\n  Say at each position" in invoke(data).output
    positions = shown_positions(invoke(data, "prefix_sum", "seq_len=12", "--examples", 1).output)
    assert {letter for _, letter, _ in positions} == {"d"}
    total = 0
    for token, _, target in positions:
        total = (total + token) % 2
        assert target == total
    result = invoke(data, "prefix_sum", "--check", "--profile", "full", "--split", "test")
    assert result.exit_code == 0 and "6,400" in result.output


def test_the_task_setting_comes_from_the_profile_and_overrides(invoke):
    def setting(*words):
        return json.loads(invoke(data, "in_context_recall", "--examples", 1, "-f", "json", *words).output)["setting"]

    assert setting("--profile", "full")["seq_len"] == load_task("in_context_recall").baseline.seq_len
    changed = setting("seq_len=8", "vocab_size=10", "num_test_examples=2")
    assert (changed["seq_len"], changed["vocab_size"], changed["num_test_examples"]) == (8, 10, 2)


def test_a_split_with_a_single_example_is_shown(invoke):
    content = json.loads(invoke(data, "compression", "num_test_examples=1", "-f", "json").output)
    assert len(content["examples"]) == 1


def test_check_counts_examples_and_targets_of_every_split(invoke):
    counts = ("num_train_examples=30", "num_validation_examples=20", "num_test_examples=10")
    rows = json.loads(invoke(data, "compression", "seq_len=8", *counts, "--check", "-f", "json").output)["checked"]
    assert [(row["split"], row["examples"], row["targets"], row["violations"]) for row in rows] == [
        ("train", 30, 240, 0),
        ("validation", 20, 160, 0),
        ("test", 10, 80, 0),
    ]


def test_check_without_a_task_checks_all_and_fits_80_columns(invoke):
    result = invoke(data, "--check", "--split", "validation")
    assert result.exit_code == 0
    assert all(task in result.output for task in MAD_TASKS)
    assert "…" not in result.output and max(map(len, result.output.splitlines())) <= 80


def test_check_lists_violations_of_the_task_rules(invoke, monkeypatch):
    def draw(self, rng, count, training):
        tokens = rng.integers(self.vocab_size - 1, size=(count, self.seq_len))
        return tokens, tokens

    monkeypatch.setattr(Compression, "draw", draw)
    words = ("compression", "seq_len=8", "num_test_examples=20", "--check", "--split", "test")
    result = invoke(data, *words)
    assert isinstance(result.exception, DataError)
    assert "20 violations" in str(result.exception) and "and 15 more" in str(result.exception)
    assert "compression (seq_len 8" in str(result.exception)
    assert "example 0: the compression id" in str(result.exception)
    content = json.loads(invoke(data, *words, "-f", "json").stdout)
    assert content["checked"][0]["violations"] == len(content["violations"]) == 20


def test_a_setting_that_draws_no_question_is_refused_and_listed_as_such(invoke, refuse, monkeypatch, tmp_path):
    original = Compression.draw

    def draw(self, rng, count, training):
        inputs, targets = original(self, rng, count, training)
        return inputs, targets * 0 + IGNORE

    monkeypatch.setattr(Compression, "draw", draw)
    message = refuse(data, "compression", "seq_len=37")
    assert "seq_len 37" in message and "the setting draws no question" in message
    profile = tmp_path / "mine.yaml"
    profile.write_text("like: quick\ndescription: Mine.\ntasks: {compression: {setting: {seq_len: 38}}}\n")
    assert "\n  the setting draws no question\n" in invoke(data, "--profile", profile).output


def test_progress_of_a_check_is_for_terminals_and_leaves_the_table_alone(invoke, monkeypatch):
    words = ("compression", "seq_len=8", "--check", "--split", "test")
    assert invoke(data, *words).stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = invoke(data, *words)
    assert "\u2501" in result.stderr and "\u2501" not in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compresion"], "did you mean 'compression'"),
        (["compression", "memorization"], "one task at a time"),
        (["compression", "seq_le=4"], "did you mean 'seq_len'"),
        (["compression", "seq_len=[a"], "is not a value"),
        (["compression", "--split", "tests"], "did you mean 'test'"),
        (["compression", "--examples", "3", "--check"], "--examples has no effect"),
        (["compression", "seq_len=8", "seq_len=9"], "'seq_len' is given twice"),
        (["compression", "--examples", "9999"], "the test split of compression has"),
        (["seq_len=4"], "seq_len=4 has no effect without a task"),
        (["seq_len=4", "--check"], "seq_len=4 has no effect without a task"),
        (["--split", "test"], "--split has no effect without a task"),
        (["--seed", "3"], "--seed has no effect without a task"),
        (["compression", "--profile", "quik"], "did you mean 'quick'"),
    ],
)
def test_data_refuses_wrong_arguments(refuse, words, message):
    assert message in refuse(data, *words)
