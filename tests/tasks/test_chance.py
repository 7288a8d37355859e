from __future__ import annotations

import dataclasses

import pytest

from madbench.tasks import make_setting
from madbench.tasks.chance import chance


@pytest.mark.parametrize(
    "task, changes, ids",
    [
        ("in_context_recall", {}, 8),  # the values: the upper half of 16 ids
        ("noisy_in_context_recall", {}, 8),  # of 32 ids 16 are noise
        ("memorization", {"vocab_size": 64}, 31),  # one id is the place to fill
    ],
)
def test_a_guess_is_among_the_ids_that_can_be_asked_for(task, changes, ids):
    setting = make_setting(task, changes, "test")
    assert chance(task, setting) == 1 / ids
    assert chance(task, dataclasses.replace(setting, num_test_examples=1)) == 1 / ids
