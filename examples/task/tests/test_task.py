"""Drawn targets follow the rules of the task, at every setting of its file."""

from pathlib import Path

import madbench_prefix_sum
import numpy as np
import yaml
from madbench_prefix_sum import PrefixSum

from madbench.tasks.base import SPLITS

CONTENT = yaml.safe_load(Path(madbench_prefix_sum.__file__).with_name("prefix_sum.yaml").read_text(encoding="utf-8"))
CHANGES = [{}] + [{name: value} for name, values in CONTENT["vary"].items() for value in values]


def test_drawn_targets_are_those_that_the_rules_give():
    for change in CHANGES:
        setting = PrefixSum(**CONTENT["baseline"] | change)
        for split in SPLITS:
            inputs, targets = setting.draw(np.random.default_rng(0), 20, split == "train")
            assert inputs.shape == targets.shape == (20, setting.input_len)
            assert 0 <= inputs.min() and inputs.max() < setting.vocab_size
            for row, answers in zip(inputs.tolist(), targets.tolist()):
                reading = setting.read(row, answers, split == "train")
                assert reading.targets == answers and not reading.problems
                assert set(reading.roles) <= set(PrefixSum.roles)


def test_every_answer_is_asked_for():
    setting = PrefixSum(**CONTENT["baseline"])
    _, targets = setting.draw(np.random.default_rng(0), 200, False)
    assert len(np.unique(targets)) == setting.num_answers
