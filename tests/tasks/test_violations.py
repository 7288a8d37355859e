"""The checks of examples accept every task setting of the protocol and find every broken rule."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import IGNORE, SPLITS, find_violations, generate, load_task
from madbench.tasks.base import Examples


@pytest.mark.parametrize("task", MAD_TASKS)
def test_data_of_every_setting_of_the_protocol_have_no_violation(task):
    for setting in load_task(task).settings:
        setting = dataclasses.replace(setting, num_train_examples=8, num_validation_examples=8, num_test_examples=8)
        for split in SPLITS:
            assert find_violations(setting, generate(task, setting, split, 0), split) == []


@pytest.mark.parametrize("task", MAD_TASKS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_any_wrong_target_is_found(task, split, draw, with_one_number_changed):
    setting, examples = draw(task, split, 5)
    picker = random.Random(0)
    for _ in range(40):
        row, column = picker.randrange(5), picker.randrange(setting.input_len - 1)
        value = (max(examples.targets[row, column], 0) + 1) % setting.vocab_size
        violations = find_violations(setting, with_one_number_changed(examples, "targets", row, column, value), split)
        wrong = f"example {row}: position {column}: target {value}, expected {examples.targets[row, column]}"
        assert violations == [wrong]


@pytest.mark.parametrize("task", ["in_context_recall", "memorization", "selective_copying", "compression"])
def test_an_input_that_does_not_fit_its_target_is_found(task, draw, with_one_number_changed):
    setting, examples = draw(task, "test", 5)
    column = int(np.flatnonzero(examples.targets[2] != IGNORE)[-1])
    value = (examples.inputs[2, column] + 1) % (setting.vocab_size - 1)
    assert find_violations(setting, with_one_number_changed(examples, "inputs", 2, column, value), "test")


@pytest.mark.parametrize(
    ("task", "column", "value", "message"),
    [
        ("compression", 3, 15, "the compression id 15 has to be the last token and nowhere else"),
        ("memorization", 1, 3, "position 0: "),
        ("memorization", 4, 200, "position 4: 200 255, expected a key"),
        ("selective_copying", -1, 3, "expected the copy id 15 once"),
        ("selective_copying", -18, 14, "a blank stands between"),
        ("in_context_recall", 0, 9, "is neither a pair nor noise"),
        ("noisy_in_context_recall", -1, 30, "is neither a pair nor noise"),
        ("fuzzy_in_context_recall", 0, 3, "0 padding tokens"),
        ("fuzzy_in_context_recall", 60, 15, "do not alternate"),
        ("compression", 0, 16, "ids [16] are outside 0..15"),
        ("compression", 0, IGNORE, "ids [-100] are outside 0..15"),
    ],
)
def test_a_broken_rule_is_named(task, column, value, message, draw, with_one_number_changed):
    setting, examples = draw(task, "test", 2)
    violations = find_violations(setting, with_one_number_changed(examples, "inputs", 1, column, value), "test")
    assert violations and all(violation.startswith("example 1: ") for violation in violations)
    assert any(message in violation for violation in violations)


def fuzzy_example(*pairs, padding=2):
    """One evaluation sequence of the pairs, with targets only for its last pair."""
    tokens = [15] * padding + [token for pair in pairs for motif in pair for token in motif]
    targets = [IGNORE] * (len(tokens) - len(pairs[-1][1])) + list(pairs[-1][1])
    return Examples(np.array([tokens[:-1]]), np.array([targets[1:]]))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([((0, 1, 2), (8,)), ((3, 1, 2), (9, 10)), ((0, 1, 2), (8,))], None),
        ([((0, 1, 2), (8,)), ((3, 1, 2), (9, 10)), ((0, 1, 2), (9,))], "key (0, 1, 2) had the value (8,), now (9,)"),
        ([((0, 1, 1), (8,)), ((3, 1, 2), (9, 10)), ((3, 1, 2), (9, 10))], "motif (0, 1, 1) repeats an id"),
        ([((0, 1, 2), (8,)), ((3, 1), (9, 10, 11)), ((0, 1, 2), (8,))], "key (3, 1) has not the evaluation size 3"),
        ([((0, 1, 2), (8, 9, 10, 11)), ((3, 1, 2), (9,)), ((3, 1, 2), (9,))], "is longer than 3"),
    ],
)
def test_violations_of_fuzzy_recall_are_found_by_motif(pairs, message):
    examples = fuzzy_example(*pairs)
    setting = dataclasses.replace(
        load_task("fuzzy_in_context_recall").baseline, seq_len=examples.inputs.shape[1], num_test_examples=1
    )
    violations = find_violations(setting, examples, "test")
    assert violations == [] if message is None else any(message in violation for violation in violations)


def test_a_wrong_shape_is_found(draw):
    setting, examples = draw("compression", "test", 5)
    shorter = Examples(examples.inputs[:, 1:], examples.targets[:, 1:])
    assert "expected (5, 32)" in find_violations(setting, shorter, "test")[0]


@pytest.mark.parametrize(
    ("task", "roles"),
    [
        ("compression", {"token", "compress"}),
        ("fuzzy_in_context_recall", {"pad", "key", "value", "probe key", "probe value"}),
        ("in_context_recall", {"key", "value", "probe key"}),
        ("memorization", {"key", "insert"}),
        ("noisy_in_context_recall", {"key", "value", "noise", "probe key"}),
        ("selective_copying", {"token", "blank", "copy"}),
    ],
)
def test_reading_an_example_gives_the_role_of_each_token(task, roles, draw):
    setting, examples = draw(task, "test", 30)
    seen = set()
    for index in range(30):
        reading = setting.read(examples.inputs[index].tolist(), examples.targets[index].tolist(), False)
        assert reading.targets == examples.targets[index].tolist()
        seen |= set(reading.roles)
    assert seen == roles <= set(setting.roles)
    assert len(set(setting.roles.values())) == len(setting.roles)
