"""The heuristic, the best answer without context: its accuracy equals exact counts or counts in plain Python."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest

from heuristics import shipped_settings
from madbench.config import read_yaml
from madbench.suites import main_suite
from madbench.tasks import HEURISTICS, heuristic, load_task, make_setting, questions_text
from madbench.tasks.base import IGNORE, TaskSetting
from madbench.tasks.heuristics import heuristic_accuracy

SIZES = {"vocab_size": 4, "seq_len": 3, "num_train_examples": 1, "num_validation_examples": 1, "num_test_examples": 1}


@dataclass(frozen=True)
class Echo(TaskSetting):
    """A task that shows two of the ids 2 and 3 and then asks for one of the shown. Other ids are never answers."""

    heading, title = "Echo", "echo"
    roles: ClassVar = {}
    share: float = 1.0

    @property
    def num_answers(self):
        return 2

    def draw(self, rng, count, training):
        shown = rng.integers(2, 4, size=(count, 2))
        inputs = np.concatenate([shown, np.zeros((count, 1), int)], axis=1)
        targets = np.full((count, 3), IGNORE)
        targets[:, 2] = np.where(rng.random(count) < self.share, shown[:, 0], 5 - shown[:, 0])
        return inputs, targets

    def read(self, inputs, targets, training):
        raise NotImplementedError


@dataclass(frozen=True)
class Whole(Echo):
    """The same task with one question at the first position, about the whole input."""

    model = "autoencoder"

    def draw(self, rng, count, training):
        inputs, targets = super().draw(rng, count, training)
        return inputs, targets[:, ::-1]


@dataclass(frozen=True)
class Never(Echo):
    """A task that shows one of the ids 2 and 3 and asks for the other one."""

    def draw(self, rng, count, training):
        inputs = rng.integers(2, 4, size=(count, 3))
        targets = np.full((count, 3), IGNORE)
        targets[:, 2] = 5 - inputs[:, 2]
        return inputs, targets


@dataclass(frozen=True)
class Usual(Echo):
    """The same task. After the first id, the answer is always id 1."""

    def draw(self, rng, count, training):
        inputs, targets = super().draw(rng, count, training)
        targets[:, 0] = 1
        return inputs, targets


@pytest.mark.parametrize("kind", [Echo, Whole])
def test_the_heuristic_answers_the_commonest_id_and_splits_ties(kind):
    """In half the examples both shown ids are equal and are the answer. Otherwise it is a tie."""
    assert heuristic_accuracy(kind(**SIZES)) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("kind", [Echo, Whole])
def test_the_usual_answer_is_the_heuristic_if_the_commonest_is_mostly_wrong(kind):
    """The commonest id is right in a quarter of the examples, one fixed id in half of them."""
    assert heuristic_accuracy(kind(**SIZES, share=0.0)) == pytest.approx(0.5, abs=0.01)


def test_before_any_answer_was_seen_all_answers_are_equally_likely():
    first = type("First", (Echo,), {"draw": lambda self, *a: (lambda x, y: (x[:, 2:], y[:, 2:]))(*Echo.draw(self, *a))})
    assert heuristic_accuracy(first(**SIZES)) == pytest.approx(0.5, abs=0.01)


def test_an_id_that_is_never_its_own_answer_is_excluded_after_itself():
    assert heuristic_accuracy(Never(**SIZES)) == 1


def test_a_position_that_always_asks_for_one_id_gets_it():
    """Each example has two questions. The first answer is always right, the second in three of four examples."""
    assert heuristic_accuracy(Usual(**SIZES)) == pytest.approx((1 + 0.75) / 2, abs=0.01)


def test_a_setting_that_draws_no_question_has_no_heuristic_accuracy():
    silent = type(
        "Silent", (Echo,), {"draw": lambda self, *a: (lambda x, y: (x, y * 0 + IGNORE))(*Echo.draw(self, *a))}
    )
    assert math.isnan(heuristic_accuracy(silent(**SIZES)))


def test_the_heuristic_accuracy_is_equal_in_two_calls():
    assert heuristic_accuracy(Echo(**SIZES), 1000) == heuristic_accuracy(Echo(**SIZES), 1000)


def expected_most(n: int, ids: int) -> float:
    """The mean count of the most frequent of ``n`` uniform ids, of a multinomial distribution, by generating
    functions."""

    def share(most: int) -> float:  # of the sequences in which none is there more often
        once = [1 / math.factorial(k) for k in range(most + 1)]
        product = np.ones(1)
        for _ in range(ids):
            product = np.convolve(product, once)[: n + 1]
        return product[n] * math.factorial(n) / ids**n if len(product) > n else 0.0

    return sum(1 - share(most) for most in range(n))


@pytest.mark.parametrize("profile", ["quick", "evening"])
def test_compression_is_known_exactly(profile):
    """The heuristic answers the commonest token except at the last position, which always asks for the compression
    id."""
    setting = of_profile("compression", profile)
    n, ids = setting.seq_len - 1, setting.vocab_size - 1
    assert heuristic("compression", setting) == pytest.approx((expected_most(n, ids) + 1) / (n + 1), abs=0.0015)


@pytest.mark.parametrize("profile", ["quick", "evening"])
def test_selective_copying_is_known_exactly(profile):
    setting = of_profile("selective_copying", profile)
    n = setting.num_tokens_to_copy
    exact = expected_most(n, setting.vocab_size - 2) / n
    assert heuristic("selective_copying", setting) == pytest.approx(exact, abs=0.0015)


@pytest.mark.parametrize("profile", ["quick", "evening"])
def test_memorization_has_no_better_answer_than_a_guess(profile):
    setting = of_profile("memorization", profile)
    assert heuristic("memorization", setting) == pytest.approx(1 / setting.num_answers, abs=1e-6)


def test_the_heuristic_of_in_context_recall_equals_an_exhaustive_count():
    """With two keys, two values and three pairs, all maps and keys are enumerated.

    The last key is one of those shown.
    """
    setting = make_setting("in_context_recall", {**SIZES, "seq_len": 6}, "test")
    right, asked = Fraction(0), Fraction(0)
    for *values, first, second in itertools.product((2, 3), (2, 3), (0, 1), (0, 1)):
        shown = sorted({first, second})
        for last in shown:
            weight, seen = Fraction(1, len(shown)), Counter()
            for place, key in enumerate((first, second, last)):
                if key in (first, second, last)[:place]:
                    commonest = [value for value in (2, 3) if seen[value] == max(seen.values())]
                    right += weight * Fraction(values[key] in commonest, len(commonest))
                    asked += weight
                seen[values[key]] += 1
    assert heuristic_accuracy(setting) == pytest.approx(float(right / asked), abs=0.003)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["quick", "evening"])
@pytest.mark.parametrize("task", ["fuzzy_in_context_recall", "in_context_recall", "noisy_in_context_recall"])
def test_heuristics_of_recall_tasks_equal_a_count_in_plain_python(task, profile):
    """The heuristic is the commonest value so far, except the id just read, because no motif repeats an id."""
    setting = of_profile(task, profile)
    inputs, targets = setting.draw(np.random.default_rng(7), 3000, False)
    answers = set(np.unique(targets[targets != IGNORE]).tolist())
    right = asked = 0
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        seen = Counter()
        for token, target in zip(tokens, wanted, strict=True):
            seen[token] += token in answers
            if target != IGNORE:
                counts = {answer: seen[answer] for answer in answers if answer != token}
                commonest = [answer for answer, count in counts.items() if count == max(counts.values())]
                right += (target in commonest) / len(commonest)
                asked += 1
    assert heuristic(task, setting) == pytest.approx(right / asked, abs=0.01)


def test_stored_heuristics_of_shipped_settings_equal_computed_ones():
    ours = [
        make_setting("selective_copying", each, "")
        for each in main_suite().Profile.load("quick").settings("selective_copying")
    ]
    assert [heuristic("selective_copying", one) for one in ours] == [round(heuristic_accuracy(one), 6) for one in ours]


@pytest.mark.slow
def test_stored_heuristics_of_shipped_settings_equal_recomputed_ones():
    for task, setting in list(shipped_settings())[::3]:
        assert heuristic(task, setting) == round(heuristic_accuracy(setting), 6), (task, questions_text(setting))


def test_every_shipped_setting_has_a_stored_heuristic():
    shipped = read_yaml(HEURISTICS)
    for task, setting in shipped_settings():
        assert 0 < heuristic(task, setting) == shipped[task][questions_text(setting)] < 1


def test_heuristics_do_not_depend_on_the_numbers_of_examples():
    baseline = load_task("compression").baseline
    fewer = make_setting("compression", {"num_train_examples": 7}, "test")
    assert questions_text(fewer) == questions_text(baseline) != questions_text(of_profile("compression", "quick"))


def of_profile(task: str, profile: str) -> TaskSetting:
    return make_setting(task, main_suite().Profile.load(profile).settings(task)[0], "test")
