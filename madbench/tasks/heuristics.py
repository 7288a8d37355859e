"""The accuracy of the best answer that needs no context: from how often each answer was seen, whatever came after what.

Of MAD's tasks no other answer from these counts is right more often, so a model that scores as much has learned nothing
of what the task is for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from madbench.tasks.base import IGNORE

if TYPE_CHECKING:
    from madbench.tasks.base import TaskSetting

QUESTIONS = 100_000
"""Drawn at least."""
_TOKENS, _EXAMPLES = 1 << 17, 1000
"""Most that are drawn at a time."""
_CHOOSING, _LEAST = 5, 30
"""Such batches by which rules are chosen, and by which they are judged at least, as the questions of one are alike."""


def heuristic_accuracy(setting: TaskSetting, questions: int = QUESTIONS) -> float:
    """Share of test questions that get a right answer, of several that are as good as each other one at random.

    The answer is the one that was seen most often in the inputs up to the question, or in all of them where it is read
    off the last position; without the id just read, where that is better. At a position that asks for one id more often
    than the commonest one is right, it is that id. Which is better is decided on other questions.
    """
    batches = _batches(setting, np.random.default_rng(0))
    rules, right, asked = _Rules.of(setting, [*itertools.islice(batches, _CHOOSING)]), 0.0, 0
    for judged, (inputs, targets) in enumerate(batches):
        if asked >= questions and judged >= _LEAST:
            break
        right += float(rules.right(inputs, targets).sum())
        asked += int((targets != IGNORE).sum())
    return right / asked


def _batches(setting: TaskSetting, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    while True:
        yield setting.draw(rng, max(1, min(_EXAMPLES, _TOKENS // setting.input_len)), False)


@dataclass
class _Rules:
    """How the questions of each position (T,) are answered."""

    setting: TaskSetting
    answers: np.ndarray
    """Ids that are asked for, ascending; only at positions without a usual one."""
    usual: np.ndarray
    """The id that a position always gets; ``IGNORE`` where the commonest one is better."""
    is_another: bool = False
    """True if the commonest one is other than the id just read."""

    @classmethod
    def of(cls, setting: TaskSetting, batches: list[tuple[np.ndarray, np.ndarray]]) -> _Rules:
        """The best ones for some examples; a usual id has to be right three standard errors more often."""
        targets = np.concatenate([of_batch for _, of_batch in batches])
        asked = (targets != IGNORE).sum(axis=0)
        at = [ids[ids != IGNORE] for ids in targets.T]
        usual = np.array([np.bincount(ids).argmax() if len(ids) else IGNORE for ids in at])
        answers, never = np.unique(targets[targets != IGNORE]), np.full_like(usual, IGNORE)
        kinds = (False,) if setting.model == "autoencoder" else (False, True)  # which reads no id last
        candidates = [cls(setting, answers, never, is_another) for is_another in kinds]
        scores = [sum(rules.right(*batch) for batch in batches) for rules in candidates]
        is_another = bool(scores[-1].sum() > scores[0].sum())
        gain = ((targets == usual) & (targets != IGNORE)).sum(axis=0) - scores[is_another]
        usual = np.where(gain > 1.5 * np.sqrt(asked), usual, IGNORE)
        others = targets[:, usual == IGNORE]
        return cls(setting, np.unique(others[others != IGNORE]), usual, is_another)

    def right(self, inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """How many questions of each position get a right answer (T,); one of k as good as each other is 1 / k."""
        is_usual = self.usual != IGNORE
        right = np.where(is_usual, (targets == self.usual).sum(axis=0), 0.0)
        places = np.full(1 + max(inputs.max(), targets.max(), *self.answers), -1)
        places[self.answers] = np.arange(len(self.answers))
        seen = places[inputs]
        if (seen < 0).all():  # no answer can be seen
            return np.where(is_usual, right, (targets != IGNORE).sum(axis=0) / self.setting.num_answers)
        rows = np.arange(len(inputs))
        counts = np.zeros((len(inputs), len(self.answers) + 1), np.int32)  # in the last what is no answer
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
    """How many of the ``wanted`` answers (n,) are the commonest by ``counts`` (n, answers), one of k as 1 / k."""
    is_commonest = counts == counts.max(axis=1, keepdims=True)
    is_right = is_commonest[np.arange(len(wanted)), wanted] & (wanted >= 0)
    return float((is_right / is_commonest.sum(axis=1)).sum())
