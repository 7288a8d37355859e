"""The accuracy of the best rule that answers from counts alone: how often each id was seen, but not where.

On MAD's tasks no other rule that uses these counts is right more often. A model with only this accuracy has not learned
what the task tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from madbench.tasks.base import IGNORE

if TYPE_CHECKING:
    from madbench.tasks.base import TaskSetting

QUESTIONS = 100_000
"""The smallest number of questions that are drawn."""
_TOKENS, _EXAMPLES = 1 << 17, 1000
"""The largest number of tokens, and the largest number of examples, that are drawn at a time."""
_CHOOSING, _LEAST = 5, 30
"""The number of batches for choosing rules, and the smallest number for scoring them.

One batch is not enough, because the questions in a batch are alike."""


def heuristic_accuracy(setting: TaskSetting, questions: int = QUESTIONS) -> float:
    """The share of test questions that the best rule from counts answers correctly.

    The rule answers with the id that was seen most often in the inputs up to the question. For an autoencoder, it is
    the id that was seen most often in the whole input. Among equally common ids, one is drawn at random. The rule is
    changed in two ways where this improves its accuracy: it never answers with the id just read, and it gives a fixed
    answer at some positions. The changes are chosen on some examples. The rule is then scored on other examples, with
    at least ``questions`` questions.

    NaN if the first batches of examples have no question. Such a setting may never ask any.
    """
    batches = _batches(setting, np.random.default_rng(0))
    rules, right, asked = _Rules.from_batches(setting, [*itertools.islice(batches, _CHOOSING)]), 0.0, 0
    for judged, (inputs, targets) in enumerate(batches):
        if asked >= questions and judged >= _LEAST:
            break
        if not asked and judged >= _LEAST:
            return math.nan
        right += float(rules.right(inputs, targets).sum())
        asked += int((targets != IGNORE).sum())
    return right / asked


def _batches(setting: TaskSetting, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    while True:
        yield setting.draw(rng, max(1, min(_EXAMPLES, _TOKENS // setting.input_len)), False)


@dataclass
class _Rules:
    """A rule that answers the questions at each of T positions, with a fixed answer or with the most common id."""

    setting: TaskSetting
    answers: np.ndarray
    """The ids that are targets at positions without a fixed answer, in ascending order."""
    usual: np.ndarray
    """The fixed answer of each position; ``IGNORE`` if the most common id is better."""
    is_another: bool = False
    """True if the rule takes the most common id other than the id just read."""

    @classmethod
    def from_batches(cls, setting: TaskSetting, batches: list[tuple[np.ndarray, np.ndarray]]) -> _Rules:
        """Choose the best rule for some batches. Each batch has inputs and targets, (N, T).

        A position with n questions gets a fixed answer if this answer is right more often than the most common id, by
        over 1.5 sqrt(n) questions. This is at least three standard errors of a number of right answers.
        """
        targets = np.concatenate([of_batch for _, of_batch in batches])
        asked = (targets != IGNORE).sum(axis=0)
        at = [ids[ids != IGNORE] for ids in targets.T]
        usual = np.array([np.bincount(ids).argmax() if len(ids) else IGNORE for ids in at])
        answers, never = np.unique(targets[targets != IGNORE]), np.full_like(usual, IGNORE)
        kinds = (False,) if setting.model == "autoencoder" else (False, True)  # an autoencoder has no id just read
        candidates = [cls(setting, answers, never, is_another) for is_another in kinds]
        scores = [cast(np.ndarray, sum(rules.right(*batch) for batch in batches)) for rules in candidates]
        is_another = bool(scores[-1].sum() > scores[0].sum())
        gain = ((targets == usual) & (targets != IGNORE)).sum(axis=0) - scores[is_another]
        usual = np.where(gain > 1.5 * np.sqrt(asked), usual, IGNORE)
        others = targets[:, usual == IGNORE]
        return cls(setting, np.unique(others[others != IGNORE]), usual, is_another)

    def right(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """The expected number of questions that the rule answers correctly at each position, (T,).

        If the most common id is one of k equally common ids, a question that has one of them as its answer counts
        1 / k. If the inputs show none of ``answers``, every question without a fixed answer counts 1 / ``num_answers``.
        """
        is_usual = self.usual != IGNORE
        right = np.where(is_usual, (targets == self.usual).sum(axis=0), 0.0)
        places = np.full(1 + max(inputs.max(), targets.max(), *self.answers), -1)
        places[self.answers] = np.arange(len(self.answers))
        seen = places[inputs]
        if (seen < 0).all():  # inputs never show an answer
            return np.where(is_usual, right, (targets != IGNORE).sum(axis=0) / self.setting.num_answers)
        rows = np.arange(len(inputs))
        # the last column counts ids that are no answer
        counts: np.ndarray = np.zeros((len(inputs), len(self.answers) + 1), np.int32)
        if is_whole := self.setting.model == "autoencoder":
            np.add.at(counts, (rows[:, None], seen), 1)
        for t in range(inputs.shape[1]):
            if not is_whole:
                counts[rows, seen[:, t]] += 1
            if not is_usual[t] and len(asked := np.flatnonzero(targets[:, t] != IGNORE)):
                of_asked, read = counts[asked, :-1], seen[asked, t]
                if self.is_another:
                    of_asked[np.flatnonzero(read >= 0), read[read >= 0]] = -1
                right[t] = _hits(of_asked, places[targets[asked, t]])
        return right


def _hits(counts: np.ndarray, wanted: np.ndarray) -> float:
    """The expected number of questions that the most common id answers, if a tie is broken at random.

    ``counts`` (n, answers) has one row per question, and ``wanted`` (n,) the index of its correct answer, or a negative
    number if that is not among the answers.
    """
    is_commonest = counts == counts.max(axis=1, keepdims=True)
    is_right = is_commonest[np.arange(len(wanted)), wanted] & (wanted >= 0)
    return float((is_right / is_commonest.sum(axis=1)).sum())
