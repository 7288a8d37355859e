"""A stand-in for the executor of this machine, and an experiment of both suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import TINY
from madbench.experiment import ExperimentOptions, prepare
from madbench.grid import load_grid
from madbench.text.options import CorpusOptions


@pytest.fixture
def both(tmp_path, monkeypatch):
    """Make experiments of both suites in a folder with a profile and a corpus."""
    from madbench.text.options import PrepareOptions
    from madbench.text.prepare import prepare as prepare_text

    monkeypatch.chdir(tmp_path)
    Path("profile.yaml").write_text(
        "description: A few steps.\ncomparable_with_paper: false\nprecision: float32\n"
        "model: {d_model: 16, n_layer: 1, seq_len: 16, mix_rank: 2}\n"
        "training: {steps: 8, tokens_per_step: 64, eval_every: 4, eval_sequences: 4, warmup_steps: 2}\n"
    )
    Path("hen.txt").write_text("The brown hen sat by the mill and counted every grain. " * 40)
    prepare_text(["hen.txt"], tmp_path / "hens", PrepareOptions(validation=0.2))

    def call(**keys):
        usual = {"tasks": ["compression", "language_model"], "set": TINY | {"language_model": "profile.yaml"}}
        if keys.get("tasks") == ["language_model"]:
            usual["set"] = {"language_model": "profile.yaml"}
        return prepare(
            load_grid(keys.pop("labels", ["S", "R"]), usual | keys),
            ExperimentOptions(device="cpu", data=CorpusOptions(corpus="hens")),
        )

    return call
