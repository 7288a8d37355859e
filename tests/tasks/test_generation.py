"""Generated examples depend only on task setting, split and seed, on every machine."""

from __future__ import annotations

import dataclasses
import hashlib
import random

import numpy as np
import pytest

from madbench.errors import ConfigError
from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import IGNORE, SPLITS, TOKENS_PER_CHUNK, generate, load_task, stream

# Other data for the same job: raise SCHEMA in madbench/jobs.py together with these.
FINGERPRINTS = {
    "compression": "1a5bb7dfec81e25a",
    "fuzzy_in_context_recall": "070cea19d86e173b",
    "in_context_recall": "eabcc3a347630ae0",
    "memorization": "e081eeeb2dab8309",
    "noisy_in_context_recall": "b5206775bbb0a66e",
    "selective_copying": "c6694dc93efb7447",
}


@pytest.mark.parametrize("task", MAD_TASKS)
@pytest.mark.parametrize("split", SPLITS)
def test_the_same_arguments_give_the_same_examples(task, split, draw):
    setting, examples = draw(task, split, 20, seed=7)
    again = generate(task, setting, split, 7)
    assert np.array_equal(examples.inputs, again.inputs) and np.array_equal(examples.targets, again.targets)
    assert examples.inputs.dtype == examples.targets.dtype == np.int64
    assert examples.inputs.shape == examples.targets.shape == (20, setting.input_len)
    assert examples.inputs.min() >= 0 and examples.inputs.max() < setting.vocab_size
    asked = examples.targets[examples.targets != IGNORE]
    assert asked.size and asked.min() >= 0 and asked.max() < setting.vocab_size


@pytest.mark.parametrize("task", MAD_TASKS)
def test_examples_are_the_same_on_every_machine(task, draw):
    digest = hashlib.sha256()
    for split in ("train", "test"):
        _, examples = draw(task, split, 50, seed=3)
        digest.update(examples.inputs.astype("<i8").tobytes() + examples.targets.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == FINGERPRINTS[task]


def test_no_two_settings_splits_or_seeds_share_a_stream():
    states = [
        stream(task, setting, split, seed).bit_generator.state["state"]["state"]
        for task in MAD_TASKS
        for setting in load_task(task).settings
        for split in SPLITS
        for seed in (0, 1, -1)
    ]
    assert len(set(states)) == len(states) == 66 * 3 * 3


@pytest.mark.parametrize("task", MAD_TASKS)
def test_splits_and_seeds_have_different_examples(task, draw):
    seen = [draw(task, split, 20, seed)[1].inputs.tolist() for split in SPLITS for seed in (0, 1)]
    rows = [tuple(row) for inputs in seen for row in inputs]
    assert len(set(rows)) == len(rows) == 120


def test_a_split_larger_than_a_chunk_repeats_no_example(draw):
    rows = TOKENS_PER_CHUNK // 1024
    setting, examples = draw("compression", "test", 2 * rows + 3, seq_len=1024)
    assert len(np.unique(examples.inputs, axis=0)) == 2 * rows + 3
    assert (examples.inputs[:, -1] == setting.vocab_size - 1).all()


@pytest.mark.parametrize("task", MAD_TASKS)
def test_global_random_states_are_neither_read_nor_changed(task, draw):
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()
    draw(task, "train", 5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before


def test_training_targets_of_recall_tasks_are_all_next_tokens(draw):
    for task in ("in_context_recall", "noisy_in_context_recall", "fuzzy_in_context_recall"):
        _, examples = draw(task, "train", 50)
        assert np.array_equal(examples.targets[:, :-1], examples.inputs[:, 1:])


def test_a_wrong_split_or_setting_is_refused():
    setting = load_task("compression").baseline
    with pytest.raises(ConfigError, match="unknown split 'valid'; did you mean 'validation'"):
        generate("compression", setting, "valid", 0)
    with pytest.raises(TypeError, match="needs a Memorization, got a Compression"):
        generate("memorization", setting, "test", 0)
    with pytest.raises(ConfigError, match="unknown task"):
        generate("compress", setting, "test", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setting.vocab_size = 3
