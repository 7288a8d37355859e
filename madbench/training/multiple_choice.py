"""Multiple-choice questions on the validation text of a corpus: an evaluation that needs no other data.

Each question has a context of tokens and four continuations of equal length, one of which is true. A model answers with
the continuation to which it gives the highest probability. Scores are computed as in lm-evaluation-harness. ``acc``
uses the sum of log-probabilities of a continuation; ``acc_norm`` divides this sum by the continuation's length in
bytes. The questions depend only on the task, the corpus, the length and the number of questions, not on label or seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from madbench.errors import ConfigError
from madbench.models.likelihood import log_likelihoods
from madbench.suites.training import MICRO_BATCH_TOKENS
from madbench.text.corpus import Corpus, window_count

MEASUREMENT = "benchmark"
"""The name of a stored measurement on a text task, ours or lm-evaluation-harness's. Its settings have ``task`` and
``shots``.
"""
QUESTIONS = 200
CHOICES = 4
SHORTEST = 16  # tokens of a question


@dataclass(frozen=True)
class Questions:
    """N multiple-choice questions of one task, as token ids. Contexts have C tokens, and choices have L."""

    contexts: np.ndarray
    """Ids, shape (N, C)."""
    choices: np.ndarray
    """Ids, shape (N, CHOICES, L)."""
    answers: np.ndarray
    """Index of the true continuation, (N,)."""


def continuation(tokens: np.ndarray, starts: np.ndarray, seq_len: int, rng: np.random.Generator) -> Questions:
    """Make questions whose context is the first 7/8 of a window of text. The true choice is the last 1/8 of the window.

    The wrong choices are passages of the same length from random places of ``tokens``. Window i has ``seq_len`` tokens
    and begins at ``tokens[starts[i]]``.
    """
    length = seq_len // 8
    rows = np.lib.stride_tricks.sliding_window_view(tokens, seq_len)[starts].astype(np.int64)
    elsewhere = rng.integers(len(tokens) - length, size=(len(starts), CHOICES - 1))
    others = np.lib.stride_tricks.sliding_window_view(tokens, length)[elsewhere].astype(np.int64)
    return _mix_choices(rows[:, :-length], rows[:, -length:], others, rng)


def repetition(tokens: np.ndarray, starts: np.ndarray, seq_len: int, rng: np.random.Generator) -> Questions:
    """Make questions whose context is a passage of text, followed by the beginning of the same passage again.

    The true choice is the part of the passage that comes after the repeated beginning. The wrong choices are other
    parts of the passage. Context and choice together have ``seq_len`` tokens. Passage i begins at
    ``tokens[starts[i]]``.
    """
    length = seq_len // 8
    passage = 2 * (seq_len - length) // 3
    begun = seq_len - length - passage  # repeated tokens
    rows = np.lib.stride_tricks.sliding_window_view(tokens, passage)[starts].astype(np.int64)
    places: np.ndarray = np.delete(np.arange(passage - length + 1), begun)
    chosen = np.stack([rng.choice(places, CHOICES - 1, replace=False) for _ in starts])
    others = np.stack([np.stack([row[at : at + length] for at in of_row]) for row, of_row in zip(rows, chosen)])
    return _mix_choices(np.concatenate((rows, rows[:, :begun]), 1), rows[:, begun : begun + length], others, rng)


TASKS: dict[str, Callable[[np.ndarray, np.ndarray, int, np.random.Generator], Questions]] = {
    "continuation": continuation,
    "repetition": repetition,
}


def _mix_choices(contexts: np.ndarray, true: np.ndarray, others: np.ndarray, rng: np.random.Generator) -> Questions:
    """Make questions from ``contexts`` (N, C), ``true`` continuations (N, L) and wrong ones, ``others`` (N, 3, L).

    Each true continuation is inserted among the wrong ones at a random index from 0 to 3. Over all questions, each
    index occurs equally often, up to one question.
    """
    answers = rng.permutation(np.arange(len(true)) % CHOICES)
    choices = np.stack([np.insert(row, place, answer, axis=0) for row, place, answer in zip(others, answers, true)])
    return Questions(contexts, choices, answers)


def questions(task: str, corpus: Corpus, seq_len: int, count: int = QUESTIONS) -> Questions:
    """Make ``count`` questions of ``task`` from windows that are evenly spread over the validation text.

    A context and its true choice together have ``seq_len`` tokens. ``task`` is a key of ``TASKS``. Raises
    ``ConfigError`` if the text or ``seq_len`` is too short.
    """
    if seq_len < SHORTEST:
        raise ConfigError(f"seq_len {seq_len}: a question of {task} needs at least {SHORTEST} tokens")
    tokens = corpus.tokens("val")
    starts: np.ndarray = np.arange(count, dtype=np.int64) * window_count("val", len(tokens), seq_len) // count
    return TASKS[task](tokens, starts, seq_len, np.random.default_rng([seq_len, count]))


def score(
    model: nn.Module, asked: Questions, bytes_of_token: np.ndarray | None, device: str, autocast: Any
) -> dict[str, float]:
    """Let a language model answer questions. Return ``acc`` and ``acc_norm`` (0 to 1), and the standard error of each.

    The standard errors are ``acc_stderr`` and ``acc_norm_stderr``. ``model`` is a :class:`madbench.models.gpt.GPT` on
    ``device``. ``bytes_of_token``, with one entry per token of the vocabulary, has the length of each token in bytes.
    If it is None, ``acc_norm`` is left out.
    """
    count, _, length = asked.choices.shape
    pairs = [(context, choice) for context, of_one in zip(asked.contexts, asked.choices) for choice in of_one]
    requests = [(context.tolist(), choice.tolist()) for context, choice in pairs]
    memory = {"device": device, "autocast": autocast, "batch_tokens": MICRO_BATCH_TOKENS}
    sums = np.empty(len(requests))
    for place, answer in log_likelihoods(model, requests, seq_len=asked.contexts.shape[1] + length, **memory):
        sums[place] = answer.log_p
    scores = {"acc": sums.reshape(count, CHOICES)}
    if bytes_of_token is not None:
        scores["acc_norm"] = scores["acc"] / np.maximum(bytes_of_token[asked.choices].sum(-1, dtype=np.int64), 1)
    values: dict[str, float] = {}
    for name, likelihoods in scores.items():
        share = float((likelihoods.argmax(1) == asked.answers).mean())
        values |= {name: share, f"{name}_stderr": math.sqrt(share * (1 - share) / max(1, count - 1))}
    return values
