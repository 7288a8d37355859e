"""A dry run needs neither the GPU that a label trains on nor the corpus of a profile."""

from __future__ import annotations

import json

import pytest

from madbench.errors import TrainingError
from madbench.experiment import ExperimentOptions, prepare
from madbench.mixers.named.family import NamedFamily
from madbench.rows import Grid, Row
from madbench.suites.language.suite import LanguageProfile


@pytest.fixture
def pretend_no_gpu(monkeypatch):
    """Named operators need a GPU, like those of an installed family may, and there is none."""

    def build(family, allocation, settings, path="auto"):
        raise TrainingError(f"{allocation.label} runs on a CUDA GPU only, and there is none here")

    monkeypatch.setattr(NamedFamily, "needs", "a CUDA GPU", raising=False)
    monkeypatch.setattr(NamedFamily, "build", build)


@pytest.mark.slow
def test_a_label_that_needs_a_gpu_is_counted_without_one(pretend_no_gpu, main, monkeypatch):
    monkeypatch.setattr("madbench.training.cost.seconds_per_flop", lambda jobs, **_: {job.task: 1e-12 for job in jobs})
    words = ("lm", "GLA", "S-p", "--profile", "fineweb-1.3b", "--dry-run", "--device", "cpu")
    ended = main(*words, "-f", "json")
    assert ended.code == 0, ended.stderr
    plan = json.loads(ended.stdout)
    library, softmax = plan["cells"]
    assert library["estimated_seconds"] is None and 0.9 < library["flops"] / softmax["flops"] < 1.1
    assert plan["estimated_seconds"] == pytest.approx(1e-12 * softmax["flops"])
    assert [*plan["untimed"]] == ["GLA"] and "GPU" in plan["untimed"]["GLA"]
    assert "32,000 ids" in " ".join(plan["notes"])
    shown = main(*words)
    assert shown.code == 0 and "not timed here: GLA" in shown.stdout
    alone = main("lm", "GLA", *words[3:])
    assert alone.code == 0 and "0.0 s on cpu" not in alone.stdout and "8 x NVIDIA H100" in alone.stdout


@pytest.mark.parametrize("profile", LanguageProfile.names())
def test_every_profile_can_be_planned_without_a_corpus(profile, tmp_path):
    """Without a corpus, the published vocabulary size is used, and a message says so."""
    loaded = LanguageProfile.load(profile)
    if loaded.corpus:
        return
    grid = Grid((Row("S"),), profile=profile, tasks=("language_model",))
    planned = prepare(grid, ExperimentOptions(is_plan=True, device="cpu", results=tmp_path))
    assert planned.jobs and any(f"{loaded.vocab_size:,} ids" in note for note in planned.notes)
