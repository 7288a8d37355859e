"""Measurements of a probe equal those computed row by row with sets and sums."""

from __future__ import annotations

import math

import pytest
import torch

from madbench.analysis.figures.inspection import inspection_figures
from madbench.analysis.inspection import inspect, means_by_lag
from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.probe import Probe

B, H, T = 3, 2, 12


class Mixer(torch.nn.Module):
    """A mixer that returns a given probe."""

    def __init__(self, *probes):
        super().__init__()
        self.probes = list(probes)

    def forward(self, x):
        return x

    def probe(self, x):
        return self.probes.pop(0)


@pytest.fixture(scope="module")
def random():
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_sizes_and_overlaps_of_active_slots_equal_those_of_python_sets(random):
    active, moved = ((random(B, H, T, T) > 0.3).tril() for _ in range(2))
    found = inspect(Mixer(Probe(active=active), Probe(active=moved)), torch.zeros(B, T, 4)).tables["active"]
    for head, row in enumerate(found):
        rows = [(b, t) for b in range(B) for t in range(1, T)]
        sets = {(b, t): {lag for lag in range(t + 1) if active[b, head, t, lag]} for b in range(B) for t in range(T)}
        other = {(b, t): {lag for lag in range(t + 1) if moved[b, head, t, lag]} for b, t in rows}
        assert row["slots"] == pytest.approx(mean(len(sets[at]) for at in rows))
        assert row["share"] == pytest.approx(mean(len(sets[b, t]) / (t + 1) for b, t in rows))
        assert row["share_recent"] == pytest.approx(
            mean(len({lag for lag in sets[b, t] if lag < 8}) / min(8, t + 1) for b, t in rows)
        )
        assert row["share_older"] == pytest.approx(
            mean(len({lag for lag in sets[b, t] if lag >= 8}) / (t - 7) for b, t in rows if t >= 8)
        )
        assert row["flips"] == pytest.approx(mean(len(sets[b, t] ^ other[b, t]) / (t + 1) for b, t in rows))
        same_lags, same_slots = [], []
        for b, t in rows:
            before = sets[b, t - 1]
            same_lags.append(jaccard(sets[b, t] - {t}, before))
            same_slots.append(jaccard({lag - 1 for lag in sets[b, t] if lag}, before))
        assert row["same_lags"] == pytest.approx(mean(same_lags))
        assert row["same_slots"] == pytest.approx(mean(same_slots))


def test_independent_sets_overlap_as_chance_says(random):
    active = (random(200, 1, 40, 40) > 0).tril()
    (row,) = inspect(Mixer(Probe(active=active), Probe(active=active)), torch.zeros(200, 40, 4)).tables["active"]
    assert row["same_lags"] == pytest.approx(row["chance"], abs=0.01) == pytest.approx(row["same_slots"], abs=0.02)
    assert row["flips"] == 0


def test_statistics_of_weights_equal_those_counted_row_by_row(random):
    weights = (random(B, H, T, T).clamp(min=-0.2) * (random(B, H, T, T) > 0)).tril()
    found = inspect(Mixer(Probe(weights=weights)), torch.zeros(B, T, 4)).tables["weights"]
    for head, row in enumerate(found):
        rows = [weights[b, head, t, : t + 1].tolist() for b in range(B) for t in range(1, T)]
        filled = [w for w in rows if any(w)]
        assert row["keys"] == pytest.approx(mean(sum(map(abs, w)) ** 2 / sum(x * x for x in w) for w in filled))
        assert row["near_zero"] == pytest.approx(mean(sum(abs(x) <= 0.001 for x in w) / len(w) for w in rows))
        assert row["near_one"] == pytest.approx(mean(sum(0.9 <= x <= 1 for x in w) / len(w) for w in rows))
        assert row["negative"] == pytest.approx(mean(sum(x < 0 for x in w) / len(w) for w in rows))
        assert row["1"] == pytest.approx(mean(abs(w[1]) / sum(map(abs, w)) for w in filled))
        assert row["8-31"] == pytest.approx(mean(sum(map(abs, w[8:32])) / sum(map(abs, w)) for w in filled))
    by_lag = means_by_lag(Probe(weights=weights))["weights"]
    shares = [
        abs(weights[b, 1, t, 3]) / max(float(weights[b, 1, t].abs().sum()), 1e-30)
        for b in range(B)
        for t in range(3, T)
    ]
    assert float(by_lag[1, 3]) == pytest.approx(mean(map(float, shares)))


def test_the_effective_number_of_keys_of_uniform_softmax_is_the_row_length():
    weights = torch.ones(T, T).tril() / torch.arange(1, T + 1)[:, None]
    (row,) = inspect(Mixer(Probe(weights=weights[None, None])), torch.zeros(1, T, 4)).tables["weights"]
    assert row["keys"] == pytest.approx(mean(range(2, T + 1))) and row["near_zero"] == row["negative"] == 0


def test_gates_and_matrices_are_described_by_layer():
    gates = {"QK": torch.tensor([0.0, 1.0, 0.5, 0.5]).view(1, 4, 1)}
    matrix = torch.tensor([[[0.0, 1.0], [-1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])
    found = inspect(Mixer(Probe(gates=gates, matrices={"W": matrix})), torch.zeros(1, 4, 4)).tables
    (gate,) = found["gates"]
    assert gate["closed"] == gate["open"] == 0.25 and gate["mean"] == 0.5
    assert [(row["symmetric"], row["diagonal"]) for row in found["matrices"]] == [(0, 0), (1, 1)]
    assert [row["rank"] for row in found["matrices"]] == pytest.approx([2, 2])


@pytest.mark.slow
def test_inspection_of_a_hybrid_keeps_the_layer_numbers():
    blocks = [build(label, 8, T, budget="paper") for label in ("KDA", "R", "KDA", "MLA")]
    found = inspect(torch.nn.Sequential(*blocks), torch.randn(2, T, 8))
    assert found.layers == [2, 4] == sorted({row["layer"] for row in found.tables["weights"]})
    assert {row["layer"] for row in found.tables["active"]} == {2}
    by_name = dict(inspection_figures({"hybrid": found}))
    titles = [axes.get_title() for axes in by_name["lags"].axes if axes.axison]
    assert titles and {title[:7] for title in titles} == {"layer 2", "layer 4"}


def test_a_model_without_probes_is_an_error():
    with pytest.raises(TrainingError, match="no 'probe'"):
        inspect(torch.nn.Linear(2, 2), torch.zeros(1, 2))


def jaccard(one: set, other: set) -> float:
    return len(one & other) / len(one | other) if one | other else math.nan


def mean(values) -> float:
    known = [value for value in values if value == value]
    return sum(known) / len(known)
