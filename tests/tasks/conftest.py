"""Fixtures for tasks: random generators, drawn examples, and statistical comparisons of samples."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from madbench.tasks import generate, make_setting


@pytest.fixture
def rng() -> random.Random:
    """The random generator of the loop references: Python's own, independent of the generators under test."""
    return random.Random(20240317)


@pytest.fixture
def draw():
    """``draw(task, split, count, seed=0, **fields)``: a setting with ``count`` examples per split, and one split."""

    def draw(task, split, count, seed=0, **fields):
        counts = {f"num_{name}_examples": count for name in ("train", "validation", "test")}
        setting = make_setting(task, {**counts, **fields}, "test")
        return setting, generate(task, setting, split, seed)

    return draw


@pytest.fixture
def assert_same_means():
    """Assert that two samples of statistics, (N, S), have equal means within 4.5 standard errors."""

    def assert_same_means(ours, theirs):
        ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
        error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
        difference = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
        assert (difference <= 4.5 * error).all(), (ours.mean(axis=0), theirs.mean(axis=0), error)

    return assert_same_means


@pytest.fixture
def assert_uniform():
    """Assert that counts are uniform, by a chi-squared test with about 1 false alarm in 10^5."""

    def assert_uniform(counts):
        counts = np.asarray(counts, float)
        expected = counts.sum() / counts.size
        freedom = counts.size - 1
        chi2 = ((counts - expected) ** 2 / expected).sum()
        assert chi2 < freedom + 4.3 * np.sqrt(2 * freedom) + 12, (chi2, freedom)

    return assert_uniform


@pytest.fixture
def with_one_number_changed():
    """``with_one_number_changed(examples, name, row, column, value)``: the examples with one number changed."""

    def with_one_number_changed(examples, name, row, column, value):
        array = getattr(examples, name).copy()
        assert array[row, column] != value
        array[row, column] = value
        return dataclasses.replace(examples, **{name: array})

    return with_one_number_changed
