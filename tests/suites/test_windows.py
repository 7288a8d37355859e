"""Windows of text for training and evaluation: determinism, coverage and errors."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.errors import ConfigError
from madbench.suites.language.trial import evaluation_starts, training_starts, windows

TOKENS = np.random.default_rng(0).integers(0, 1000, 5000, dtype=np.uint16)


def test_windows_are_slices_and_targets_the_next_tokens(tmp_path):
    TOKENS.tofile(tmp_path / "train.bin")
    mapped = np.memmap(tmp_path / "train.bin", dtype="<u2", mode="r")
    starts = np.array([0, 17, 17, len(TOKENS) - 65])
    inputs, targets = windows(mapped, starts, 64)
    assert inputs.dtype == targets.dtype == np.int64
    assert inputs.shape == targets.shape == (4, 64)
    for row, start in enumerate(starts):
        assert inputs[row].tolist() == TOKENS[start : start + 64].tolist()
        assert targets[row].tolist() == TOKENS[start + 1 : start + 65].tolist()


def test_training_windows_are_a_function_of_seed_and_step():
    first = training_starts(2**62 + 5, 7, 40, 10**10, 1024)
    assert np.array_equal(first, training_starts(2**62 + 5, 7, 40, 10**10, 1024))
    assert not np.array_equal(first, training_starts(2**62 + 5, 8, 40, 10**10, 1024))
    assert not np.array_equal(first, training_starts(2**62 + 6, 7, 40, 10**10, 1024))
    assert first.max() > 2**32


def test_every_window_of_a_split_can_be_drawn_and_none_beyond_it():
    starts = training_starts(0, 0, 1000, n_tokens=12, seq_len=8)
    assert set(starts) == {0, 1, 2, 3}
    windows(TOKENS[:12], starts, 8)


def test_validation_windows_are_the_same_every_time_and_evenly_spread():
    starts = evaluation_starts("val", 1, 10, n_tokens=1008, seq_len=8)
    assert starts.tolist() == list(range(0, 1000, 100))
    assert np.array_equal(starts, evaluation_starts("val", 2, 10, n_tokens=1008, seq_len=8))


def test_validation_windows_stay_within_a_short_split():
    assert set(evaluation_starts("val", 1, 100, n_tokens=12, seq_len=8)) == {0, 1, 2, 3}


def test_training_evaluations_use_windows_unlike_earlier_ones_and_the_steps():
    first, second = (evaluation_starts("train", number, 40, 10**6, 128) for number in (1, 2))
    assert np.array_equal(first, evaluation_starts("train", 1, 40, 10**6, 128))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, training_starts(0, 1, 40, 10**6, 128))
    assert not np.array_equal(first, training_starts(1, 0, 40, 10**6, 128))


def test_a_split_without_a_window_is_an_error_that_says_what_it_needs():
    assert training_starts(0, 0, 2, n_tokens=9, seq_len=8).tolist() == [0, 0]
    for starts in (lambda: training_starts(0, 0, 2, 8, 8), lambda: evaluation_starts("train", 1, 2, 8, 8)):
        with pytest.raises(ConfigError, match="the train split has 8 tokens; seq_len 8 needs at least 9"):
            starts()
    with pytest.raises(ConfigError, match="the val split has 0 tokens"):
        evaluation_starts("val", 1, 2, 0, 8)


def test_evaluations_on_training_windows_are_drawn_from_the_whole_split():
    starts = evaluation_starts("train", 1, 1000, n_tokens=10_008, seq_len=8)
    assert np.histogram(starts, bins=4, range=(0, 10_000))[0].min() > 200
    assert evaluation_starts("val", 1, 4, n_tokens=1008, seq_len=8).max() == 750
