"""Multiple-choice questions on a corpus, and shares of right answers."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from torch import nn

from madbench.errors import ConfigError
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare
from madbench.training.multiple_choice import CHOICES, TASKS, questions, score

SEQ_LEN, COUNT = 48, 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    (folder / "text.txt").write_text("".join(rng.choice(list("abcdefghij "), 4000)))
    return prepare([str(folder / "text.txt")], folder / "corpus", PrepareOptions(validation=0.5))


@pytest.fixture(params=TASKS)
def asked(request, corpus):
    return questions(request.param, corpus, SEQ_LEN, COUNT)


def test_answers_of_questions_are_evenly_spread_over_the_choices(asked):
    assert asked.contexts.shape == (COUNT, SEQ_LEN - SEQ_LEN // 8)
    assert asked.choices.shape == (COUNT, CHOICES, SEQ_LEN // 8)
    assert np.bincount(asked.answers, minlength=CHOICES).tolist() == [COUNT // CHOICES] * CHOICES


def test_questions_are_reproducible_and_depend_on_the_length(corpus, asked):
    for task in TASKS:
        first, second = (questions(task, corpus, SEQ_LEN, COUNT) for _ in range(2))
        assert all((getattr(first, name) == getattr(second, name)).all() for name in vars(first))


def test_the_right_choice_of_continuation_is_the_next_text_of_the_corpus(corpus):
    asked, text = questions("continuation", corpus, SEQ_LEN, COUNT), corpus.tokens("val").tobytes()
    for context, choices, answer in zip(asked.contexts, asked.choices, asked.answers):
        whole = np.concatenate((context, choices[answer])).astype("<u2").tobytes()
        assert whole in text


def test_the_right_answer_of_a_repetition_follows_what_is_repeated_in_the_passage(corpus):
    asked = questions("repetition", corpus, SEQ_LEN, COUNT)
    length = SEQ_LEN // 8
    passage = 2 * (SEQ_LEN - length) // 3
    begun = SEQ_LEN - length - passage
    for context, choices, answer in zip(asked.contexts, asked.choices, asked.answers):
        assert (context[passage:] == context[:begun]).all()
        assert (choices[answer] == context[begun : begun + length]).all()
        assert len({tuple(choice) for choice in choices}) == CHOICES


class Copier(nn.Module):
    """A model that knows the answers: the logit of the next token of the answer is large."""

    def __init__(self, asked, vocab_size: int, strength: float):
        super().__init__()
        whole = np.concatenate((asked.contexts, asked.choices[np.arange(COUNT), asked.answers]), 1)
        self.known = {tuple(row[: asked.contexts.shape[1]]): row for row in whole}
        self.vocab_size, self.strength, self.width = vocab_size, strength, asked.contexts.shape[1]

    def hidden(self, inputs):
        rows = []
        for row in inputs.tolist():
            target = torch.tensor(self.known[tuple(row[: self.width])][1:])
            rows.append(self.strength * nn.functional.one_hot(target, self.vocab_size).float())
        return torch.stack(rows)

    @property
    def readout(self):
        return torch.eye(self.vocab_size), None


@pytest.mark.parametrize(("strength", "share"), [(5.0, 1.0), (-5.0, 0.0)])
def test_a_model_that_prefers_the_answers_scores_one_and_its_opposite_zero(corpus, asked, strength, share):
    model, of_token = Copier(asked, corpus.padded_vocab_size, strength), corpus.token_bytes()
    found = score(model, asked, of_token, "cpu", contextlib.nullcontext())
    assert found["acc"] == found["acc_norm"] == share and found["acc_stderr"] == 0
    assert set(score(model, asked, None, "cpu", contextlib.nullcontext())) == {"acc", "acc_stderr"}


def test_a_length_too_short_for_a_question_is_refused(corpus):
    with pytest.raises(ConfigError, match="at least 16 tokens"):
        questions("continuation", corpus, 8)
    with pytest.raises(ConfigError, match="the val split has"):
        questions("repetition", corpus, 4000)
