"""Jobs that train in a fraction of a second, and a run of them."""

from __future__ import annotations

import dataclasses

import pytest

from madbench.jobs import Job, ModelConfig, TrainingConfig
from madbench.tasks import make_setting

SIZES = dict(num_train_examples=56, num_validation_examples=24, num_test_examples=24)
SETTINGS = {
    "in_context_recall": dict(vocab_size=8, seq_len=16),
    "compression": dict(vocab_size=8, seq_len=16),
    "memorization": dict(vocab_size=16, seq_len=16),
}

collect_ignore = ["torchrun_language.py"]  # a script of its own, which torchrun starts


@pytest.fixture(scope="session")
def make_job():
    """``make_job(task=..., label=..., seed=..., fidelity=..., **training)``; 4 steps of 16 examples an epoch."""

    def make(task="in_context_recall", label="R-q-12o", seed=0, fidelity="corrected", **training):
        setting = dataclasses.asdict(make_setting(task, SETTINGS[task] | SIZES, "test"))
        config = TrainingConfig(**dict(learning_rate=3e-3, epochs=3, batch_size=16) | training)
        model = ModelConfig(d_model=16, mix_rank=2)
        return Job(label, task, setting, model, config, seed, fidelity)

    return make


@pytest.fixture
def train(tmp_path):
    """``train(job)`` without reports in a folder of its own."""
    from madbench.training.loop import train_job

    return lambda job, report=lambda progress: None: train_job(job, tmp_path, report)
