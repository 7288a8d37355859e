"""The accuracy of answers that need no learning of the task: the commonest answer so far, or always the same one."""

from __future__ import annotations

import numpy as np

from madbench.tasks.base import IGNORE, TaskSetting

QUESTIONS = 100_000
"""Drawn at least: the standard error is at most 0.16 points."""
_EXAMPLES = 256  # drawn at a time


def heuristic_accuracy(setting: TaskSetting) -> float:
    """Share of test targets that the better of two heuristics gets right, the better one at each position.

    One answers with the id that was seen most often, of those that are answers and other than the one just read, the
    lowest of several; an autoencoder sees the whole sequence. The other answers with what a position asks for most
    often in other examples. Estimated on :data:`QUESTIONS` questions of a fixed seed.
    """
    rng = np.random.Generator(np.random.PCG64(0))
    _, others = setting.draw(rng, _EXAMPLES, training=False)
    is_answer = np.zeros(setting.vocab_size, bool)
    is_answer[others[others != IGNORE]] = True
    usual = np.array([np.bincount(at[at != IGNORE], minlength=1).argmax() for at in others.T])
    asked, by_count, by_position = (np.zeros(others.shape[1], int) for _ in range(3))
    while asked.sum() < QUESTIONS:
        inputs, targets = setting.draw(rng, _EXAMPLES, training=False)
        asked += (targets != IGNORE).sum(axis=0)
        by_count += (targets == _commonest(inputs, is_answer, setting.model == "autoencoder")).sum(axis=0)
        by_position += ((targets == usual) & (targets != IGNORE)).sum(axis=0)
    return float(np.maximum(by_count, by_position).sum() / asked.sum())


def _commonest(inputs: np.ndarray, is_answer: np.ndarray, sees_all: bool) -> np.ndarray:
    """The commonest answer (N, T) before each position, the id of the position itself apart; or of all positions."""
    rows, length = np.arange(len(inputs)), inputs.shape[1]
    never = -length - 1
    counts = np.where(is_answer, 0, never)[None].repeat(len(inputs), axis=0)
    if sees_all:
        np.add.at(counts, (rows[:, None], inputs), 1)
        return counts.argmax(axis=1)[:, None].repeat(length, axis=1)
    found = np.empty(inputs.shape, int)
    for t, ids in enumerate(inputs.T):
        before = counts[rows, ids]
        counts[rows, ids] = never
        found[:, t] = counts.argmax(axis=1)
        counts[rows, ids] = before + 1
    return found
