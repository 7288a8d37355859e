"""A dry run needs neither the GPU that a label trains on nor the corpus of a profile."""

from __future__ import annotations

import json

import pytest

from madbench.experiment import prepare
from madbench.grid import Grid, Row
from madbench.mixers.fla import budget, operator
from madbench.suites.language.suite import LanguageProfile
from made_up_fla import LIBRARY, forget_library


@pytest.fixture
def no_gpu(monkeypatch):
    """The library is here, and no device that it computes on."""
    monkeypatch.setattr(budget, "library", lambda: LIBRARY)
    monkeypatch.setattr(operator, "DEVICE", "mps")
    forget_library()
    yield
    forget_library()


@pytest.mark.slow
def test_a_label_that_needs_a_gpu_is_counted_without_one(no_gpu, main, monkeypatch):
    monkeypatch.setattr("madbench.training.cost.seconds_per_flop", lambda jobs, **_: {job.task: 1e-12 for job in jobs})
    monkeypatch.setattr("madbench.cli.plan._details", lambda job, micro_batch: {})
    words = ("lm", "fla:gla", "S-p", "--profile", "fineweb-1.3b", "--dry-run", "--device", "cpu")
    ended = main(*words, "-f", "json")
    assert ended.code == 0, ended.stderr
    plan = json.loads(ended.stdout)
    library, softmax = plan["cells"]
    assert library["estimated_seconds"] is None and 0.9 < library["flops"] / softmax["flops"] < 1.1
    assert plan["estimated_seconds"] == pytest.approx(1e-12 * softmax["flops"])
    assert [*plan["untimed"]] == ["fla:gla"] and "GPU" in plan["untimed"]["fla:gla"]
    assert "32,000 ids" in " ".join(plan["notes"])
    shown = main(*words)
    assert shown.code == 0 and "not timed here: fla:gla" in shown.stdout
    alone = main("lm", "fla:gla", *words[3:])
    assert alone.code == 0 and "0.0 s on cpu" not in alone.stdout and "8 x NVIDIA H100" in alone.stdout


@pytest.mark.parametrize("profile", LanguageProfile.names())
def test_every_profile_can_be_planned_without_a_corpus(profile, tmp_path):
    """Profiles without a corpus of their own count with the published number of ids, and say so."""
    loaded = LanguageProfile.load(profile)
    if loaded.corpus:
        return
    grid = Grid((Row("S"),), profile=profile, tasks=("language_model",))
    planned = prepare(grid, is_plan=True, device="cpu", results=tmp_path)
    assert planned.jobs and any(f"{loaded.vocab_size:,} ids" in note for note in planned.notes)
