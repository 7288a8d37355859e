from __future__ import annotations

import numpy as np
import pytest

from madbench.suites.mad.suite import MAD_TASKS, MadProfile
from madbench.tasks import make_setting
from madbench.tasks.base import IGNORE
from madbench.tasks.heuristic import heuristic_accuracy

SIZES = {"num_train_examples": 8, "num_validation_examples": 8, "num_test_examples": 8}


def by_hand(task: str, changes: dict, examples: int) -> float:
    """The accuracy of the commonest answer before each question, the id just read apart, in plain Python."""
    setting = make_setting(task, SIZES | changes, "test")
    inputs, targets = setting.draw(np.random.Generator(np.random.PCG64(1)), examples, training=False)
    answers = sorted(set(targets[targets != IGNORE].tolist()))
    right = asked = 0
    for row, wanted in zip(inputs.tolist(), targets.tolist()):
        for t, target in enumerate(wanted):
            if target != IGNORE:
                right += max((one for one in answers if one != row[t]), key=row[:t].count) == target
                asked += 1
    return right / asked


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        ("in_context_recall", {"seq_len": 32}),
        ("noisy_in_context_recall", {"seq_len": 32}),
        ("fuzzy_in_context_recall", {"seq_len": 32, "max_key_size": 1, "max_value_size": 2}),
        ("selective_copying", {"seq_len": 32, "num_tokens_to_copy": 6}),
    ],
)
def test_the_heuristic_of_recall_is_the_commonest_answer_so_far(task, changes):
    found = heuristic_accuracy(make_setting(task, SIZES | changes, "test"))
    assert found == pytest.approx(by_hand(task, changes, 2000), abs=0.02)


def test_compression_has_a_last_token_that_is_always_the_same():
    found = heuristic_accuracy(make_setting("compression", SIZES | {"seq_len": 4, "vocab_size": 101}, "test"))
    assert found == pytest.approx((1 + 3 * (1 / 3)) / 4, abs=0.02)  # one of three nearly distinct ids, and the last


def test_memorization_has_no_answer_in_its_sequence():
    setting = make_setting("memorization", SIZES | {"seq_len": 32, "vocab_size": 65}, "test")
    assert heuristic_accuracy(setting) == pytest.approx(1 / setting.num_answers, abs=0.005)


def test_a_heuristic_is_at_least_a_guess_and_below_the_ceiling_and_does_not_change_from_call_to_call():
    profile = MadProfile.load("quick")
    for task in MAD_TASKS:
        setting = make_setting(task, profile.settings(task)[0], "test")
        found = heuristic_accuracy(setting)
        assert 1 / setting.num_answers - 0.005 <= found < 0.5
        assert found == heuristic_accuracy(setting)
