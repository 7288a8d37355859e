"""bench/noise.py: a fit finds what made the seeds."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.analysis.noise_model import NoiseModel
from madbench.bench import noise
from madbench.errors import ConfigError
from quick_noise import QUICK_NOISE


def fitted(spread: float, share: float = 0.0, labels: int = 12, seeds: int = 10) -> dict[str, float]:
    rng = np.random.default_rng(0)
    centres = rng.uniform(30, 90, labels)
    cells = [rng.normal(centre, spread, seeds) - 20 * (rng.random(seeds) < share) for centre in centres]
    return noise.fit(cells, 10.0, 100.0, 0.1)


@pytest.mark.slow
def test_a_fit_finds_a_larger_spread_and_more_surprises_where_there_are():
    calm, loud, jumping = fitted(0.5), fitted(5.0), fitted(0.5, 0.2)
    assert calm["middle"] < loud["middle"] / 3
    assert calm["surprises"] < jumping["surprises"] and calm["lent"] > 2
    assert calm["reach"] < 10 and 30 < jumping["reach"] < 40


@pytest.mark.slow
def test_labels_of_three_seeds_are_enough_for_a_fit():
    calm, loud = fitted(0.5, seeds=3), fitted(5.0, seeds=3)
    assert fitted(5.0, seeds=3) == loud
    assert calm["middle"] < loud["middle"] / 3


def test_a_file_holds_what_was_fitted(tmp_path):
    model = QUICK_NOISE
    path = tmp_path / "again.yaml"
    path.write_text(noise.text(model.name, model.description, dict(model.columns)))
    assert NoiseModel.load(path).columns == model.columns


def test_what_no_model_can_be_made_of_is_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match="there is no such results folder"):
        noise.main([str(tmp_path / "absent"), "--name", "one-1"])
    with pytest.raises(ConfigError, match="needs 3 seeds of a label; the most here is 2"):
        noise.fit([np.array([1.0, 2.0])], 10.0, 100.0, 0.1)
