"""The part ``costs`` of the benchmark, and hybrids in the part ``mixers``."""

from __future__ import annotations

import pytest

from madbench.bench import costs, mixer
from madbench.bench.parts import BenchSetup, BenchTable
from madbench.bench.timing import TimingLimits
from madbench.mixers import solve

LABELS = ["my:mean", "S-p", "KDA", "3xKDA/S-p"]
SETUP = BenchSetup(LABELS, "cpu", "float32", TimingLimits(2), "quick", (20,), 2, 16)


@pytest.mark.slow
def test_costs_are_means_per_layer_with_ratios_to_the_first_label():
    rows = {row["label"]: row for row in costs.measure_costs(SETUP)}
    softmax, kda = (solve(label, 16, 2, 20) for label in ("S-p", "KDA"))
    assert rows["KDA"]["state"] == kda.state(20) and rows["S-p"]["state"] == softmax.state(20)
    assert rows["3xKDA/S-p"]["state"] == (3 * kda.state(20) + softmax.state(20)) / 4
    assert rows["3xKDA/S-p"]["flops_per_token"] == (3 * kda.flops_per_token(20) + softmax.flops_per_token(20)) / 4
    assert rows["my:mean"]["state"] is None and "state_ratio" not in rows["S-p"]
    for row in rows.values():
        assert row["parameters_ratio"] == row["parameters"] / rows["my:mean"]["parameters"]
        assert min(row[name] for name in ("step_ms", "prefill_ms", "token_ms", "kept_mib")) > 0
    table = BenchTable(costs.COSTS_PART, list(rows.values()), "")
    headings, lines = table.text_rows()
    assert "(" not in lines[1][headings.index("State")] and "(" in lines[1][headings.index("FLOPs")]


@pytest.mark.slow
def test_a_hybrid_is_timed_as_one_period_of_its_pattern():
    setup = BenchSetup(["3xKDA/S-p"], "cpu", "float32", TimingLimits(2), "quick", (16,), 2, 16)
    (row,) = mixer.measure_paths(setup)
    layers = [solve(label, 16, 2, 16, "paper") for label in ("KDA", "KDA", "KDA", "S-p")]
    assert row["gflop"] == pytest.approx(3 * 2 * 16 * sum(each.flops_per_token(16) for each in layers) / 1e9)
    assert row["step_ms"] > 0 and row["path"].count(",") == 1
