"""``--costs``: a table of costs below a table of results."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from html import unescape
from typing import get_args

import pytest
import torch

import madbench
from installed import forget_installed
from madbench.errors import ConfigError
from madbench.jobs import PRECISIONS, Precision
from madbench.labels import trust
from madbench.mixers import solve

TASKS = "compression,in_context_recall"
TIMED_DETAILS = {"seconds": 2.0, "steps": 100}


def costs_of(main, *words, suite="mad"):
    """The costs by row and column."""
    shown = main("table", "-t", TASKS, *words, "--costs", "-f", "json")
    assert shown.code == 0, shown.stderr
    content = json.loads(shown.stdout)["costs"][suite]
    return {(cell["label"], cell["task"]): cell for cell in content["cells"]}, content


@pytest.mark.slow
def test_costs_are_counted_at_the_longest_length_with_ratios_to_the_first_row(main, fill, tiny):
    fill(["S-p", "R-c", "KDA"], details=TIMED_DETAILS)
    cells, content = costs_of(main, "-p", tiny, "S-p", "KDA", "R-c")
    for label in ("S-p", "R-c", "KDA"):
        one = solve(label, 16, 2, 16)
        expected = {"parameters": one.total, "flops_per_token": one.flops_per_token(16), "state": one.state(16)}
        expected["state_bytes"] = 4 * one.state(16)
        for name, value in expected.items():
            cell, first = cells[label, name], cells["S-p", name]["mean"]
            assert (cell["mean"], cell["baseline"]) == (2 * value, "S-p")
            assert cell["ratio"] == pytest.approx(2 * value / first)
        assert cells[label, "step_ms"]["mean"] == 20
    assert "at 16 tokens" in content["caption"] and "on an abacus" in content["caption"]
    full, _ = costs_of(main, "-p", tiny, "S-p", "KDA", "--full-square")
    added = full["S-p", "flops_per_token"]["mean"] - cells["S-p", "flops_per_token"]["mean"]
    assert added == 2 * 4 * 16 * (16 - 17 / 2)
    assert full["KDA", "flops_per_token"]["mean"] == cells["KDA", "flops_per_token"]["mean"]


@pytest.mark.slow
def test_the_bytes_of_a_state_follow_the_precision_of_the_runs(main, fill, tiny):
    fill("S-p", precision="bfloat16")
    cells, _ = costs_of(main, "-p", tiny, "precision=bfloat16")
    assert cells["S-p", "state_bytes"]["mean"] == 2 * cells["S-p", "state"]["mean"]


def test_every_precision_of_a_run_has_its_bytes_per_number():
    assert {name: getattr(torch, name).itemsize for name in get_args(Precision)} == {
        name: facts.number_bytes for name, facts in PRECISIONS.items()
    }


@pytest.mark.slow
def test_times_from_different_kinds_of_device_are_not_shown(main, fill, tiny):
    fill("S-p", details=TIMED_DETAILS)
    fill("R-c", details=TIMED_DETAILS | {"device": "a slide rule"})
    cells, content = costs_of(main, "-p", tiny)
    assert {name for _, name in cells} == {"parameters", "flops_per_token", "state", "state_bytes"}
    assert "No times: runs of 2 kinds of device cannot be compared: an abacus" in content["caption"]


@pytest.mark.slow
def test_a_run_that_shared_its_steps_has_no_time(main, fill, tiny):
    fill("S-p", details=TIMED_DETAILS)
    fill("R-c", details=TIMED_DETAILS | {"group": 2})
    cells, _ = costs_of(main, "-p", tiny)
    assert cells["R-c", "step_ms"]["mean"] is None and cells["S-p", "step_ms"]["mean"] == 20


@pytest.mark.slow
def test_every_format_has_the_costs(main, fill, tiny, monkeypatch):
    fill(["S-p", "R-c"], details=TIMED_DETAILS)
    words = ("table", "-t", TASKS, "-p", tiny, "--costs")
    shown = {name: main(*words, "-f", name).stdout for name in ("markdown", "latex", "csv", "html")}
    assert shown["html"].count("<table") == 2 and shown["html"].rstrip().endswith("</html>")
    assert shown["latex"].count(r"\begin{table") == 2 and r"\label{tab:results-costs}" in shown["latex"]
    assert "| Label | Parameters | FLOPs/token | State | State bytes | Step ms |" in shown["markdown"]
    rows = {(row["label"], row["task"]): row for row in csv.DictReader(io.StringIO(shown["csv"]))}
    assert float(rows["S-p", "compression"]["mean"]) == 50 and float(rows["S-p", "state"]["mean"]) == 2 * 16 * 32
    monkeypatch.setenv("COLUMNS", "80")
    narrow = main(*words, "--notes").stdout
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert "State: all numbers that decoding carries" in " ".join(narrow.split())


@pytest.mark.slow
def test_compare_has_costs_and_full_square_is_refused_without_costs(main, fill, tiny):
    fill(["S-p", "R-c"])
    compared = json.loads(main("compare", "S-p", "R-c", "-t", TASKS, "-p", tiny, "--costs", "-f", "json").stdout)
    assert {cell["label"] for cell in compared["costs"]["mad"]["cells"]} == {"S-p", "R-c"}
    refused = main("table", "-t", TASKS, "-p", tiny, "--full-square")
    assert refused.code and "--full-square has no effect without --costs" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["table", "compare"])
def test_table_and_compare_in_python_return_the_cost_rows_of_the_command(main, fill, tiny, store, verb):
    fill(["S-p", "R-c"], details=TIMED_DETAILS)
    function, how = getattr(madbench, verb), {"profile": tiny, "tasks": "compression", "results": store.root}
    shown = main(verb, "S-p", "R-c", "-t", "compression", "-p", tiny, "--costs", "--full-square", "-f", "json")
    added = json.loads(shown.stdout)["costs"]["mad"]
    frame, plain = (function(["S-p", "R-c"], **how, **costs) for costs in ({"costs": True, "full_square": True}, {}))
    costs = frame[frame.ratio.notna()]
    assert costs[[*added["cells"][0]]].to_dict("records") == added["cells"] and len(costs) == 10
    assert len(frame) == len(plain) + len(costs) and frame._repr_html_().count("<table") == 2
    shown, shown_plain = (unescape(re.sub("<.*?>", "", made._repr_html_())) for made in (frame, plain))
    assert added["caption"] in shown and added["caption"] not in shown_plain
    renamed = function(["S-p", "R-c"], costs=True, rename={"S-p": "Attention"}, **how)
    assert set(renamed.baseline.dropna()) == {"Attention"}
    with pytest.raises(ConfigError, match="full_square=True has no effect without costs=True"):
        function(["S-p", "R-c"], full_square=True, **how)


MODULE = """
from torch import nn


class Shift(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model, bias=False)

    def state(self, seq_len):
        return self.out.in_features

    def forward(self, x):
        return self.out(x)
"""


@pytest.mark.slow
def test_costs_of_a_module_are_counted_only_if_its_label_is_typed(main, fill, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"shift_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    label = f"my:{name}.Shift"
    trust.allow([label])
    fill(["S-p", label, f"{label}/S-p"], details={"mixer_parameters": 7})
    typed, content = costs_of(main, "-p", tiny, "S-p", label, f"{label}/S-p")
    assert typed[label, "flops_per_token"]["mean"] == 2 * 2 * 16 * 16
    assert typed[label, "state"]["mean"] == 2 * 16 and "Not counted" not in content["caption"]
    assert typed[f"{label}/S-p", "state"]["mean"] == 16 + 2 * 16 * 16
    without_runs = main("table", "-t", TASKS, "-p", tiny, "S-p", f"3x{label}/S-p")
    assert f"3x{label}/S-p is left out; it has no run under" in without_runs.stderr
    untyped, content = costs_of(main, "-p", tiny)
    assert untyped[label, "parameters"]["mean"] == 14 and untyped[label, "state"]["mean"] is None
    assert f"Not counted: {label}, {label}/S-p: name it in the command" in content["caption"]
    (tmp_path / f"{name}.py").write_text(MODULE.replace("bias=False", "bias=True"))
    del sys.modules[name]
    forget_installed()
    _, content = costs_of(main, "-p", tiny, "S-p", label)
    assert "its code was edited after the run" in content["caption"]


@pytest.mark.slow
def test_language_models_have_their_peak_memory(main, store, language_run):
    for label, memory in (("S-p", 2), ("R-c", 1)):
        run = language_run(label, details=TIMED_DETAILS)
        for row in run.record.curve:
            row["memory_bytes"] = memory * 2**20
        store.finish(run.job, run.record)
    shown = main("table", "-t", "language_model", "--costs", "-f", "json")
    assert shown.code == 0, shown.stderr
    cells = json.loads(shown.stdout)["costs"]["language"]["cells"]
    costs = {(cell["label"], cell["task"]): cell for cell in cells}
    assert (costs["R-c", "memory_mib"]["mean"], costs["R-c", "memory_mib"]["ratio"]) == (1, 0.5)
    assert costs["S-p", "step_ms"]["mean"] == 20 and costs["S-p", "state"]["mean"] == 2 * 16 * 16
