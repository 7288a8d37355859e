"""The examples of recall and noisy recall have the distribution of a reference that is written as loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from madbench.tasks import IGNORE
from madbench.tasks.in_context_recall import first_occurrence


def draw_by_loop(rng, vocab_size, seq_len, noise_ids=0, frac_noise=0.0):
    """Draw one sequence, pair by pair. Raises IndexError if every pair has noise, because no key can be asked for."""
    used = vocab_size - noise_ids
    num_pairs = seq_len // 2
    free = rng.randrange(num_pairs)
    value_of, tokens = {}, []
    for pair in range(num_pairs - 1):
        if pair != free and rng.random() < frac_noise:
            tokens += [rng.randrange(used, vocab_size), rng.randrange(used, vocab_size)]
            continue
        key = rng.randrange(used // 2)
        if key not in value_of:
            value_of[key] = rng.randrange(used // 2, used)
        tokens += [key, value_of[key]]
    key = rng.choice(list(value_of))
    return [*tokens, key, value_of[key]]


def statistics(tokens, vocab_size, noise_ids):
    """Statistics of one sequence: counts of keys, values and noise, places and count of the probe, sums of the ids."""
    used = vocab_size - noise_ids
    pairs = list(zip(tokens[0::2], tokens[1::2]))
    keys = [key for key, _ in pairs if key < used]
    values = {value for _, value in pairs if value < used}
    probe = keys[-1]
    counts = [len(keys) - len(set(keys)), len(set(keys)), len(values), len(pairs) - len(keys), keys.count(probe)]
    place = [key for key, _ in pairs].index(probe)
    return [*counts, place, probe, sum(keys), sum(a * b for a, b in pairs), sum(a for a, _ in pairs if a >= used)]


def asked_by_loop(tokens, used):
    """Evaluation targets by the position of the key, computed from the tokens alone."""
    seen, targets = {}, []
    for key, value in zip(tokens[0::2], tokens[1::2]):
        targets += [seen.get(key, IGNORE), IGNORE]
        if key < used:
            seen[key] = value
    return targets[:-1]


CASES = [
    ("in_context_recall", {"vocab_size": 16, "seq_len": 128}),
    ("in_context_recall", {"vocab_size": 65, "seq_len": 32}),
    ("noisy_in_context_recall", {"vocab_size": 32, "seq_len": 128, "frac_noise": 0.2}),
    ("noisy_in_context_recall", {"vocab_size": 20, "noise_vocab_size": 5, "seq_len": 8, "frac_noise": 0.8}),
]


@pytest.mark.parametrize(("task", "fields"), CASES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_sequences_are_distributed_as_in_the_loop_reference(task, fields, split, draw, rng, assert_same_means):
    setting, examples = draw(task, split, 2000, **fields)
    noise_ids = setting.num_noise_ids
    frac_noise = fields.get("frac_noise", 0.0)
    sequences = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).tolist()
    ours = [statistics(tokens, setting.vocab_size, noise_ids) for tokens in sequences]
    theirs = []
    while len(theirs) < 1000:
        try:
            tokens = draw_by_loop(rng, setting.vocab_size, setting.seq_len, noise_ids, frac_noise)
        except IndexError:
            continue
        theirs.append(statistics(tokens, setting.vocab_size, noise_ids))
    assert_same_means(ours, theirs)


@pytest.mark.parametrize(("task", "fields"), CASES)
def test_evaluation_targets_are_the_values_of_repeated_keys(task, fields, draw):
    setting, examples = draw(task, "test", 300, **fields)
    sequences = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).tolist()
    for tokens, targets in zip(sequences, examples.targets.tolist()):
        assert targets == asked_by_loop(tokens, setting.vocab_size - setting.num_noise_ids)
        assert targets[-1] != IGNORE


def test_targets_per_evaluation_sequence_equal_the_reference_implementation(draw):
    for task, expected in (("in_context_recall", 56.0), ("noisy_in_context_recall", 43.6)):
        _, examples = draw(task, "test", 2000)
        per_sequence = (examples.targets != IGNORE).sum(axis=1)
        tolerance = 4.5 * per_sequence.std() / np.sqrt(2000) + 0.05
        assert abs(per_sequence.mean() - expected) < tolerance


def test_noise_fills_whole_pairs_uniformly_and_never_the_last(draw, assert_uniform):
    setting, examples = draw("noisy_in_context_recall", "train", 1000, vocab_size=20, noise_vocab_size=4, seq_len=32)
    tokens = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).reshape(1000, 16, 2)
    noise = tokens >= 16
    assert np.array_equal(noise[..., 0], noise[..., 1]) and not noise[:, -1].any()
    first, second = tokens[noise[..., 0]].T - 16
    assert_uniform(np.bincount(first * 4 + second, minlength=16))
    assert setting.num_noise_ids == 4


def test_noise_patterns_are_as_likely_as_an_enumeration_says(draw):
    count, frac_noise = 40_000, 0.4
    _, examples = draw("noisy_in_context_recall", "train", count, seq_len=6, frac_noise=frac_noise)
    found = dict.fromkeys(product((False, True), repeat=2), 0)
    for pattern in (examples.inputs[:, 0:4:2] >= 16).tolist():
        found[tuple(pattern)] += 1
    likelihood = dict.fromkeys(found, 0.0)
    for free, pattern in product(range(3), found):
        if not (free < 2 and pattern[free]):
            others = [is_noise for pair, is_noise in enumerate(pattern) if pair != free]
            likelihood[pattern] += np.prod([frac_noise if is_noise else 1 - frac_noise for is_noise in others])
    likelihood[True, True] = 0.0
    for pattern, weight in likelihood.items():
        expected = weight / sum(likelihood.values())
        assert abs(found[pattern] / count - expected) <= 4.5 * np.sqrt(expected / count)


def test_a_sequence_of_noise_alone_keeps_one_pair_to_ask_for(draw):
    _, examples = draw("noisy_in_context_recall", "test", 200, frac_noise=1.0, seq_len=8)
    assert ((examples.inputs[:, 0:6:2] < 16).sum(axis=1) == 1).all()
    assert (examples.targets[:, -1] != IGNORE).all() and (examples.targets[:, :-1] == IGNORE).all()


@pytest.mark.parametrize(("columns", "codes"), [(1, 3), (7, 2), (64, 10), (65, 40), (130, 1 << 20), (5, 1 << 40)])
def test_first_occurrence_is_the_index_that_a_search_finds(columns, codes):
    rng = np.random.default_rng(columns)
    rows = rng.integers(codes, size=(50, columns))
    rows = np.where(rng.random(rows.shape) < 0.2, rows[:, :1], rows)
    assert first_occurrence(rows).tolist() == [[row.index(code) for code in row] for row in rows.tolist()]
