"""``madbench inspect``: the description of one run, figures, and the comparison of two runs."""

from __future__ import annotations

import json

import pytest
import torch

from madbench.cli.inspect import inspect
from madbench.jobs import KEEP, WEIGHTS, Record
from madbench.papers.interactions.profile import InteractionProfile
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites import suite_of
from madbench.suites.mad.suite import MAD
from madbench.training.checkpoints import save_weights


@pytest.fixture
def keep(store, tiny):
    """Store runs with untrained weights large enough to matter, and return their ids."""

    def call(*labels, tasks=("in_context_recall",), seed=0, overrides=(), with_weights=True):
        jobs = MAD.jobs(labels, MAD.Profile.load(tiny, overrides), tasks=tasks, seeds=(seed,))
        for job in jobs:
            model = suite_of(job).Trial.build(job)
            for parameter in model.parameters():
                torch.nn.init.normal_(parameter, std=0.3, generator=torch.Generator().manual_seed(seed))
            with store.lock(job) as work:
                if with_weights:
                    (work / KEEP).mkdir()
                    save_weights(work / KEEP / WEIGHTS, model, job)
                store.finish(job, Record("finished", {"accuracy": 0.5}))
        return [job.id for job in jobs]

    return call


@pytest.mark.slow
def test_inspect_describes_a_run_on_one_page_that_is_equal_in_two_calls(keep, invoke):
    (run,) = keep("R-cg-12o!")
    shown = invoke(inspect, "R-cg-12o!", "--no-figures").output
    assert all(f"\n{table}" in shown for table in ("Active", "Weights", "Gate", "Kernel"))
    assert (
        max(map(len, shown.splitlines())) <= 80 and run in shown and "32 inputs of 15 tokens" in " ".join(shown.split())
    )
    assert invoke(inspect, run[:6], "--no-figures").output == shown


@pytest.mark.slow
def test_inspect_writes_only_figures_that_the_model_has_data_for(keep, invoke, tmp_path):
    (run,) = keep("S", overrides=["model.n_layer=1", "model.n_head=1"])
    shown = invoke(inspect, run, "-o", "pictures").output
    assert {path.name for path in (tmp_path / "pictures").iterdir()} == {"lags.png", "lags.pdf", "maps.png", "maps.pdf"}
    assert shown.endswith("figures: pictures/ lags, maps\n")


@pytest.mark.slow
def test_inspect_draws_equal_figures_in_two_calls(keep, invoke, tmp_path):
    keep("R-cg-12o!")
    drawn = []
    for _ in range(2):
        invoke(inspect, "R-cg-12o!", "-o", "pictures")
        drawn.append({path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()})
    names = ("lags", "maps", "kernels", "gates")
    assert set(drawn[0]) == {f"{name}.{ending}" for name in names for ending in ("png", "pdf")} and drawn[0] == drawn[1]


@pytest.mark.slow
def test_two_runs_are_compared_measure_by_measure(keep, invoke):
    keep("R-cg-12o!", "S")
    shown = invoke(inspect, "S", "R-cg-12o!", "--no-figures", columns=100).output
    (line,) = (line.split() for line in shown.splitlines() if line.startswith("active slots"))
    assert line[3] == "-" and len(line) == 7  # softmax has no active sets
    rows = json.loads(invoke(inspect, "S", "R-cg-12o!", "--no-figures", "-f", "json").output)["runs"]
    keys = [sum(row["keys"] for row in run["weights"]) / len(run["weights"]) for run in rows]
    (line,) = (line.split() for line in shown.splitlines() if line.startswith("effective keys"))
    assert float(line[-1].replace("−", "-")) == pytest.approx(keys[1] - keys[0], abs=0.006)
    assert [run["label"] for run in rows] == ["S", "R-cg-12o!"] and "active" not in rows[0]


@pytest.mark.slow
def test_inspect_refuses_ambiguous_and_missing_runs_with_advice(keep, fill, refuse):
    fill("R")
    assert "--keep-weights --force" in refuse(inspect, "R", "-t", "compression")
    assert "no finished run 'G'" in refuse(inspect, "G")
    first, second = keep("S", tasks=("compression", "in_context_recall"))
    assert first in refuse(inspect, "S") and second in refuse(inspect, "S")
    assert "same run" in refuse(inspect, first, first[:8], "--no-figures")
    assert "has no effect on task compression" in refuse(inspect, first, "--corpus", "x")
    for words in (("-o", "pictures"), ("--no-title",)):
        assert "has no effect with --no-figures" in refuse(inspect, first, "--no-figures", *words)


@pytest.mark.slow
def test_inspect_finds_a_run_by_suite_or_by_task(keep, invoke, refuse):
    (run,) = keep("S", tasks=("compression",))
    usual = invoke(inspect, run, "--no-figures").output
    assert f"run {run}" in " ".join(usual.split())
    for tasks in (("compression",), ("mad",), ("mad/compression",), ("language_model,mad",), ("hunters", "mad")):
        words = [word for task in tasks for word in ("-t", task)]
        assert invoke(inspect, "S", "--no-figures", *words).output == usual
    assert "no finished run 'S'" in refuse(inspect, "S", "-t", "interactions")
    (other,) = keep("S", tasks=("in_context_recall",))
    assert run in refuse(inspect, "S", "-t", "mad") and other in refuse(inspect, "S", "-t", "mad")
    assert "unknown task 'compresion'; did you mean 'compression'?" in refuse(inspect, "S", "-t", "compresion")


@pytest.mark.slow
def test_inspect_refuses_models_of_interacting_agents_with_the_right_command(refuse, store):
    profile = InteractionProfile.load("quick")
    job = INTERACTIONS.jobs((), profile, tasks=["alliances"])[0]
    with store.lock(job) as work:
        (work / KEEP).mkdir()
        save_weights(work / KEEP / WEIGHTS, suite_of(job).Trial.build(job), job)
        store.finish(job, Record("finished", {"mse": 0.5}))
    assert "madbench paper interactions draws the learned effects" in refuse(inspect, job.id)
