"""The targets of an evaluation are exactly the answers of a token task."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import generate, make_setting
from madbench.tasks.base import IGNORE


@pytest.mark.parametrize("vocab_size", [31, 32])
@pytest.mark.parametrize("task", MAD_TASKS)
def test_the_targets_of_an_evaluation_are_exactly_the_answers(task, vocab_size):
    setting = make_setting(task, {"vocab_size": vocab_size, "num_test_examples": 256}, "test")
    targets = generate(task, setting, "test", 0).targets
    assert len(np.unique(targets[targets != IGNORE])) == setting.num_answers
