"""bench/noise.py and bench/measured.py: a fit finds what made the seeds, tables of one label are read by all verbs."""

from __future__ import annotations

import numpy as np
import pytest

from madbench.analysis.noise_model import NoiseModel
from madbench.bench import measured, noise
from madbench.bench.inference import TASKS
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


@pytest.mark.slow
def test_tables_of_one_label_have_no_difference_and_tight_cells_hold_their_mean():
    rng = np.random.default_rng(0)
    cells = {task: rng.normal(60, 1, 30) for task in TASKS}
    found = measured.simulate(cells, 3, 5, dict(QUICK_NOISE.columns), stores=1)
    assert found["cells"].total == 33 * 7 and found["cells"].share > 0.93
    assert found["differences"].total == 32 * 7 and found["differences"].share > 0.93
    assert [found[name].total for name in ("compare 1", "compare 32", "attribute", "findings", "marks")] == [1] * 5


def test_labels_of_few_measured_seeds_are_not_all_the_same_seeds():
    cells = dict.fromkeys(TASKS, np.arange(5.0))
    scores = measured.table_of(cells, ["S", "R", "R-c"], [5, 5, 5], {}, np.random.default_rng(0))
    assert scores.groupby(["label", "column"]).value.mean().nunique() > 5


def test_a_planted_difference_is_counted_as_false():
    rng = np.random.default_rng(0)
    cells = {task: rng.normal(60, 1, 30) for task in TASKS}
    scores = measured.table_of(cells, ["S", "R"], [5, 5], {}, rng)
    scores.loc[scores.label == "R", "value"] += 15
    found = {name: measured.Counts() for name in measured.COUNTED}
    measured.read(found, scores, ["S", "R"], dict.fromkeys([*TASKS, measured.AVERAGE], 60.0))
    assert found["compare 1"].share == 1.0 and found["cells"].share == pytest.approx(0.5, abs=0.1)


def test_of_two_labels_with_disjoint_seeds_no_seed_is_in_both_and_differences_are_rarely_found(monkeypatch):
    rng, drawn = np.random.default_rng(0), []
    make = measured.frame_of
    monkeypatch.setattr(measured, "frame_of", lambda values: drawn.append(values) or make(values))
    cells = {task: rng.normal(60, 1, 8) for task in TASKS}
    found = measured.split(cells, 3, 5, dict(QUICK_NOISE.columns), stores=5)
    assert {name: counts.total for name, counts in found.items()} == {"differences": 5 * 7, "compare 1": 5}
    assert found["differences"].share > 0.9 and found["compare 1"].share < 0.5
    for values in drawn:
        for task in TASKS:
            (first, _), (second, _) = values["S", task], values["R", task]
            assert (len(first), len(second)) == (3, 5) and {*first, *second} == {*cells[task]}
