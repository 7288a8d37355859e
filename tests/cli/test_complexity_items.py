"""Items on complexity: measured exponents that differ from the table contradict it."""

from __future__ import annotations

import functools
import json

import pytest
import torch

from madbench.bench.timing import peak_bytes
from madbench.mixers import build
from madbench.papers import complexity, load_paper
from madbench.papers.complexity import exponent_verdict, slope
from madbench.papers.hypermlp.complexity import Table3Measure as HyperMLPTable
from madbench.papers.interactions.complexity import Table3Measure as InteractionsTable
from madbench.papers.making import Request, state_of_verdicts

TABLES = {"interactions": InteractionsTable, "hypermlp": HyperMLPTable}


def test_the_fitted_exponent_uses_the_upper_half_of_lengths():
    assert slope((1, 2, 4, 8, 16), [7, 1, 16, 64, 256]) == pytest.approx(2)
    assert [exponent_verdict(actual, 2) for actual in (1.7, 2.5, 3)] == ["reproduced", "not decided", "contradicted"]


@pytest.fixture
def fast(monkeypatch):
    """Replace measured times by times with exactly the exponent of each path."""
    power = {"dense": 0, "chunked": 0, "tiled": 2, "linear_time": 1}  # 0: the degree of the label

    def seconds(name, passes, device):
        mixer = next(iter(passes.values())).func
        exponent = power[mixer.path] or getattr(mixer.allocation.label, "degree", 2)
        return [float(length) ** exponent for length in passes]

    monkeypatch.setattr(complexity, "pass_seconds", seconds)
    monkeypatch.setattr(complexity, "peak_bytes", lambda run, device: 1)
    return power


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_the_complexity_item_compares_measured_exponents_with_the_table(name, fast):
    paper = load_paper(name)
    request = Request(paper, paper.item("table3_measured"), device="cpu")
    assert state_of_verdicts(TABLES[name]().decide(request, None).verdicts) == "reproduced"
    fast["linear_time"], fast["tiled"] = 2, 3
    made = TABLES[name]().decide(request, None)
    assert state_of_verdicts(made.verdicts) == "contradicted" and "contradicted" in made.verdicts.values()
    assert torch.get_num_threads() > 0


def test_the_item_takes_no_settings_of_training(main):
    refused = main("paper", "hypermlp", "table3_measured", "--seeds", "0")
    assert refused.code == 2 and "--seeds has no effect on table3_measured" in refused.stderr


@pytest.mark.slow
def test_the_command_line_reproduces_the_complexity_item(fast, main, tmp_path):
    made = main("paper", "hypermlp", "table3_measured", "--results", tmp_path, "-f", "json")
    assert made.code == 0 and {*json.loads(made.stdout)["verdicts"].values()} == {"reproduced"}, made.stderr


@pytest.mark.parametrize("label", ["hfa:L1", "hfa:L2"])
def test_memory_of_running_sums_of_pairs_does_not_grow_with_the_square_of_length(label):
    of_length = {}
    for length in (1024, 4096):
        mixer, x = build(label, 16, length, path="linear_time").eval(), torch.randn(1, length, 16)
        with torch.inference_mode():
            of_length[length] = peak_bytes(lambda mixer=mixer, x=x: mixer(x), "cpu")
    assert of_length[4096] < 4.5 * of_length[1024]


def test_running_sums_of_several_blocks_are_those_of_all_pairs():
    mixer, x = build("hfa:L2-p", 16, 600).double().eval(), torch.randn(2, 600, 16).double()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.normal_(std=0.3)
        mixer.path = "linear_time"
        assert mixer.rows_of_block(2, 600, "linear_time") == 256
        rows = mixer(x)
        mixer.path = "dense"
        torch.testing.assert_close(rows, mixer(x))


def test_passes_are_timed_in_turns_without_the_first_of_each(monkeypatch):
    calls = []
    spent = iter([9.0, 9.0, *(t for i in range(complexity.REPEATS) for t in (5.0 - i, 20.0 + i))])
    monkeypatch.setattr(complexity, "own_seconds", lambda run: (run(), next(spent))[1])
    passes = {length: functools.partial(calls.append, length) for length in (8, 16)}
    assert complexity.pass_seconds("S", passes, "cpu") == [5.0 - complexity.REPEATS + 1, 20.0]
    assert calls == [8, 16] * (1 + complexity.REPEATS)
