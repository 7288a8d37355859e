"""Skip-trigrams: the number of phrases that one head completes equals that of an exhaustive search."""

from __future__ import annotations

import itertools

import pytest
import torch

from madbench.papers.interactions.theorems import trigrams
from madbench.papers.interactions.theorems.trigrams import Phrases, checks, most_completed


def test_most_completed_equals_an_exhaustive_search():
    words = 2  # every choice of a word for each token, and of the token that each phrase looks at
    best = 0
    for values in itertools.product(range(words), repeat=2 * words + 1):
        completed = 0
        for verb, preposition in itertools.product(range(words), repeat=2):
            right = (verb + preposition) % words
            completed += any(values[token] == right for token in (verb, words + preposition, 2 * words))
        best = max(best, completed)
    assert best == most_completed(2) == 4
    assert [most_completed(words) for words in (3, 4)] == [9, 12]


@pytest.mark.parametrize("has_pairs", [False, True])
def test_a_head_mixes_the_distributions_of_its_tokens_or_of_pairs(has_pairs):
    torch.manual_seed(0)
    head = Phrases(has_pairs, words=2)
    verb, preposition = 1, 0
    given = head(torch.tensor([[verb, preposition]]))[0]
    tokens, total, mixed = (verb, 4, 2 + preposition), 0.0, 0.0
    seen = [(a, b) for i, a in enumerate(tokens) for b in tokens[: i + 1]] if has_pairs else [(a,) for a in tokens]
    for index in seen:
        weight = head.scores[(preposition, *index)].exp()
        mixed, total = mixed + weight * head.values[index].softmax(-1), total + weight
    torch.testing.assert_close(given, mixed / total)


def test_the_skip_trigram_bug_is_contradicted_only_with_certain_predictions(monkeypatch):
    check = next(check for check in checks() if check.name == "skip-trigrams of the text")
    assert check.contradicts and check.holds(check.run())
    monkeypatch.setattr(trigrams, "CERTAIN", 1.0)
    assert 0.1 < check.run() < 1 and not check.holds(check.run())
