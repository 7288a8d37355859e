"""Jobs that train in a fraction of a second, and runs of them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from madbench.jobs import StopTraining
from madbench.models.shapes import ModelConfig
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job, train_job

SIZES = {"num_train_examples": 56, "num_validation_examples": 24, "num_test_examples": 24}
SETTINGS = {
    "in_context_recall": {"vocab_size": 8, "seq_len": 16},
    "compression": {"vocab_size": 8, "seq_len": 16},
    "memorization": {"vocab_size": 16, "seq_len": 16},
}

collect_ignore = ["torchrun_language.py"]  # a script of its own, which torchrun starts


@pytest.fixture(scope="session")
def make_job():
    """``make_job(task=..., label=..., seed=..., fidelity=..., **training)``: a job with 4 steps of 16 examples per
    epoch."""

    def make(task="in_context_recall", label="R-q-12o", seed=0, fidelity="corrected", **training):
        config = TrainingConfig(**{"learning_rate": 3e-3, "epochs": 3, "batch_size": 16} | training)
        mixer = {} if ":" in label else {"mix_rank": 2}
        shape = {"setting": SETTINGS[task] | SIZES, "model": ModelConfig(d_model=16), "mixer": mixer}
        return mad_job(label, task, seed, **shape, training=config, fidelity=fidelity)

    return make


@pytest.fixture
def train(tmp_path):
    """``train(job)``: train without reports in a separate folder."""
    return lambda job, report=lambda progress: None, **how: train_job(job, tmp_path, report, **how)


@pytest.fixture
def tiny(monkeypatch):
    """The module with the tiny corpus and its jobs, which other processes use too."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("tiny_language")


@pytest.fixture
def corpus(tiny, tmp_path):
    return tiny.make_corpus(tmp_path / "corpus")


@pytest.fixture
def train_language(corpus, tmp_path):
    """``train_language(job, report, **how)``: train in the folder ``train_language.work``, which all calls share.

    ``train_language.weights()`` returns the weights of the last run.
    """
    from madbench.training.checkpoints import load_model

    work = tmp_path / "work"
    work.mkdir()

    def train(job, report=lambda progress: None, corpus=corpus, **how):
        return train_job(job, work, report, corpora={job.setting["corpus"]: corpus}, **how)

    train.work = work
    train.weights = lambda: load_model(work / "keep" / "weights.safetensors")[0].state_dict()
    return train


@pytest.fixture(scope="session")
def without_times():
    """``without_times(curve)``: the rows of a language model's curve without times and speeds."""
    timings = {"seconds", "tokens_per_second", "memory_bytes"}
    return lambda curve: [{name: value for name, value in row.items() if name not in timings} for row in curve]


@pytest.fixture(scope="session")
def stop_at():
    """``stop_at(*steps)``: a report function that raises ``StopTraining`` at these steps, once each."""

    class StopAt:
        def __init__(self, *steps):
            self.steps, self.seen = list(steps), []

        def __call__(self, progress):
            self.seen.append(progress["step"])
            if progress["step"] in self.steps:
                self.steps.remove(progress["step"])
                raise StopTraining

    return StopAt
