"""The tasks, profiles and average of the suite fit together, and drawn targets follow the rules of their task."""

from pathlib import Path

import madbench_counting
import numpy as np
import yaml
from madbench_counting import SUITE
from madbench_counting.tasks import Majority, Parity

FOLDER = Path(madbench_counting.__file__).parent
TASKS = {"parity": Parity, "majority": Majority}


def test_its_average_is_of_its_tasks():
    assert {task for average in SUITE.averages.values() for task in average.tasks} == set(TASKS)
    assert {cls.suite for cls in TASKS.values()} == {SUITE.name}


def test_its_profiles_are_read():
    assert SUITE.default in SUITE.Profile.names()
    for path in SUITE.Profile.folder.glob("*.yaml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8"))["suite"] == SUITE.name


def test_drawn_targets_are_those_that_the_rules_give():
    for task, cls in TASKS.items():
        content = yaml.safe_load((FOLDER / f"{task}.yaml").read_text(encoding="utf-8"))
        setting = cls(**content["baseline"])
        inputs, targets = setting.draw(np.random.default_rng(0), 50, False)
        for row, answers in zip(inputs.tolist(), targets.tolist()):
            assert content["task"] == task and setting.read(row, answers, False).targets == answers
