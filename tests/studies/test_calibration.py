"""The calibration study uses the test of madbench, and the error rates stay within the bounds on the page."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from madbench.analysis.inference import Sample, Scale, difference, holm
from madbench.store.archive import unpack
from madbench.store.runs import Store

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(CHECKOUT / "studies"))
    yield importlib.import_module("calibration")
    sys.modules.pop("calibration", None)


@pytest.mark.slow
def test_vectorized_p_values_equal_those_of_single_samples(study):
    values = 60 + 8 * np.random.default_rng(0).standard_normal((4, 3, study.TASKS, 3))
    estimates, p_values = study.p_values(values[:, 0], values[:, 1:], "madbench")
    scale = Scale(limits=(0.0, 100.0), resolution=study.RESOLUTION)

    def sample(of_label: np.ndarray, column: int) -> Sample:
        parts = tuple(Sample(each, scale) for each in of_label)
        return parts[column] if column < study.TASKS else Sample(of_label.mean(axis=0), scale, parts=parts)

    for table in range(4):
        for rival, column in np.ndindex(2, study.TASKS + 1):
            found = difference(sample(values[table, 1 + rival], column), sample(values[table, 0], column))
            at = table, rival, column
            assert (estimates[at], p_values[at]) == (pytest.approx(found.estimate), pytest.approx(found.p))
    adjusted = study.adjusted(p_values)
    assert adjusted[0].ravel() == pytest.approx(holm(p_values[0].ravel().tolist()))


@pytest.mark.slow
def test_the_calibration_bounds_hold_on_thirty_real_seeds(study, tmp_path):
    unpack(CHECKOUT / "results" / "measured" / "evening-noise.tar.xz", Store.open(tmp_path / "noise"))
    labels = study.seeds_of(tmp_path / "noise")
    assert labels.shape == (8, 6, 30)
    assert study.failures(labels, tables=200, seed=0) == []
    assert study.power(labels, 3, 1, 20, "madbench", seed=0) > study.power(labels, 3, 1, 20, "Welch", seed=0)
