"""The examples of fuzzy recall have the distribution of a reference that is written as loops."""

from __future__ import annotations

import functools
import random
from itertools import groupby, permutations

import numpy as np
import pytest

from madbench.tasks import IGNORE
from madbench.tasks.fuzzy_in_context_recall import distinct_ids


def draw_by_loop(rng, vocab_size, seq_len, max_key, max_value, training):
    """Draw one sequence of T + 1 tokens and its evaluation targets, before the shift, pair by pair."""
    num_keys = (vocab_size - 1) // 2

    def draw_key():
        return tuple(rng.sample(range(num_keys), rng.randint(1, max_key) if training else max_key))

    def draw_value():
        return tuple(rng.sample(range(num_keys, vocab_size - 1), rng.randint(1, max_value)))

    probe, probe_value = draw_key(), draw_value()
    probe_len = len(probe) + len(probe_value)
    insertion = rng.randint(0, seq_len - 2 * probe_len - 1)
    value_of, shown = {probe: probe_value}, set()
    tokens, targets = [], []

    def append(key, is_asked):
        tokens.extend(key + value_of[key])
        targets.extend([IGNORE] * len(key))
        targets.extend(value_of[key] if is_asked else [IGNORE] * len(value_of[key]))
        shown.add(key)

    while len(tokens) < seq_len - probe_len - (max_key + max_value):
        key = probe if len(tokens) >= insertion and probe not in shown else draw_key()
        if key not in value_of:
            value_of[key] = draw_value()
        append(key, key in shown)
    append(probe, True)
    padding = seq_len + 1 - len(tokens)
    return [vocab_size - 1] * padding + tokens, [IGNORE] * padding + targets


def motifs_of(tokens, vocab_size):
    """The keys and values of a sequence, and the length of its padding. Runs of key ids and value ids alternate."""
    num_keys = (vocab_size - 1) // 2
    padding = tokens.count(vocab_size - 1)
    runs = [tuple(run) for _, run in groupby(tokens[padding:], lambda token: token < num_keys)]
    return runs[0::2], runs[1::2], padding


def statistics(tokens, vocab_size):
    keys, values, padding = motifs_of(tokens, vocab_size)
    context, probe = keys[:-1], keys[-1]
    repeats = len(context) - len(set(context))
    place = context.index(probe) / len(context) if probe in context else 1.0
    return [
        *[len(keys), repeats, padding, padding**2, context.count(probe), place, place**2, probe not in context],
        *[sum(len(key) == size for key in keys) for size in (1, 2)],
        *[sum(len(value) == size for value in values) for size in (1, 2)],
        *[len(values[-1]), sum(map(sum, keys)), sum(map(sum, values)), keys[0][0], values[0][-1]],
    ]


CASES = [
    {"vocab_size": 16, "seq_len": 128},
    {"vocab_size": 12, "seq_len": 41},
    {"vocab_size": 7, "seq_len": 13},
    {"vocab_size": 16, "seq_len": 40, "max_key_size": 2, "max_value_size": 4},
]


@functools.cache
def sequences_by_loop(setting, training):
    """Sequences and targets from the loop reference, with Python's own random numbers."""
    rng, sizes = random.Random(20240317), (setting.max_key_size, setting.max_value_size)
    return [draw_by_loop(rng, setting.vocab_size, setting.seq_len, *sizes, training) for _ in range(1500)]


@pytest.mark.slow
@pytest.mark.parametrize("fields", CASES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_sequences_are_distributed_as_in_the_loop_reference(fields, split, draw, assert_same_means):
    setting, examples = draw("fuzzy_in_context_recall", split, 2500, **fields)
    sequences = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).tolist()
    ours = [statistics(tokens, setting.vocab_size) for tokens in sequences]
    theirs = [statistics(tokens, setting.vocab_size) for tokens, _ in sequences_by_loop(setting, split == "train")]
    assert_same_means(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("fields", CASES)
def test_targets_per_sequence_are_distributed_as_in_the_loop_reference(fields, draw, assert_same_means):
    setting, examples = draw("fuzzy_in_context_recall", "test", 2500, **fields)
    asked = [[np.count_nonzero(targets != IGNORE), targets[-1]] for targets in examples.targets]
    theirs = [
        [sum(target != IGNORE for target in targets), targets[-1]] for _, targets in sequences_by_loop(setting, False)
    ]
    assert_same_means(asked, theirs)


@pytest.mark.parametrize("fields", CASES)
def test_evaluation_targets_are_values_of_repeated_keys_and_of_the_probe(fields, draw):
    setting, examples = draw("fuzzy_in_context_recall", "validation", 300, **fields)
    sequences = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).tolist()
    for tokens, targets in zip(sequences, examples.targets.tolist()):
        keys, values, padding = motifs_of(tokens, setting.vocab_size)
        value_of, expected = {}, [IGNORE] * padding
        for index, (key, value) in enumerate(zip(keys, values)):
            assert value_of.get(key, value) == value
            assert len(key) == setting.max_key_size
            is_asked = key in value_of or index == len(keys) - 1
            expected += [IGNORE] * len(key) + (list(value) if is_asked else [IGNORE] * len(value))
            value_of[key] = value
        assert targets == expected[1:]


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "test"])
def test_baseline_figures_equal_the_reference_implementation(split, draw):
    count = 4000
    setting, examples = draw("fuzzy_in_context_recall", split, count)
    sequences = np.concatenate([examples.inputs, examples.targets[:, -1:]], axis=1).tolist()
    motifs = [motifs_of(tokens, setting.vocab_size) for tokens in sequences]
    pairs = np.array([len(keys) for keys, _, _ in motifs])
    repeats = np.array([len(keys) - 1 - len(set(keys[:-1])) for keys, _, _ in motifs])
    unshown = np.array([keys[-1] not in keys[:-1] for keys, _, _ in motifs])
    figures = {"train": (31.0, 0.196), "test": (24.8, 0.050)}[split]
    assert abs(pairs.mean() - figures[0]) < 0.25
    assert abs(repeats.sum() / (pairs - 1).sum() - figures[1]) < 0.005
    assert {padding for _, _, padding in motifs} == {2, 3, 4, 5, 6, 7}
    if split == "test":
        per_sequence = (examples.targets != IGNORE).sum(axis=1)
        assert abs(per_sequence.mean() - 4.39) < 4.5 * per_sequence.std() / np.sqrt(count)
        assert abs(unshown.mean() - 0.022) < 4.5 * np.sqrt(0.022 / count)


def test_motifs_of_a_size_are_equally_likely(draw, assert_uniform):
    setting, examples = draw("fuzzy_in_context_recall", "test", 3000, vocab_size=9, seq_len=13)
    counts = {}
    for tokens in examples.inputs.tolist():
        key = motifs_of(tokens, setting.vocab_size)[0][0]
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 4 * 3 * 2
    assert_uniform(list(counts.values()))


def test_large_vocabularies_and_long_sequences_stay_sound(draw):
    setting, examples = draw("fuzzy_in_context_recall", "train", 20, vocab_size=128, seq_len=1024)
    for inputs, targets in zip(examples.inputs.tolist(), examples.targets.tolist()):
        assert setting.read(inputs, targets, training=True).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(("n", "size"), [(4, 3), (5, 2), (3, 3), (4, 1), (5, 4)])
def test_distinct_ids_draws_every_ordered_choice_equally_often(n, size, assert_uniform):
    choices = distinct_ids(np.random.default_rng(0), n, (100, 60), size).reshape(-1, size)
    counts = dict.fromkeys(permutations(range(n), size), 0)
    for choice in choices.tolist():
        counts[tuple(choice)] += 1
    assert_uniform(list(counts.values()))
