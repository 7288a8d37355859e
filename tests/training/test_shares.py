"""Any number of processes that train one run weights its examples equally, in every suite."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.models.shapes import ModelConfig
from madbench.papers.interactions.profile import InteractionProfile
from madbench.papers.interactions.suite import INTERACTIONS
from madbench.suites import suite_of, suites
from madbench.suites.signals.suite import SIGNALS, SignalProfile
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job

SIGNAL_SIZES = ("num_train_examples=45", "num_validation_examples=8", "num_test_examples=8")
WORLD_SIZES = ("cells=2", "length=4", "test_lengths=[2,4]", "samples=60", "test_samples=10")


def mad(**training) -> Job:
    setting = {"vocab_size": 8, "seq_len": 16, "num_train_examples": 45}
    training = {"batch_size": 16, "epochs": 1, **training}
    return mad_job(
        "S", "in_context_recall", setting=setting, model=ModelConfig(16), training=TrainingConfig(**training)
    )


def signals(task: str) -> Job:
    changes = [f"tasks.{task}.setting.{change}" for change in SIGNAL_SIZES]
    [job] = SIGNALS.jobs(["R"], SignalProfile.load("quick", changes), tasks=[task], seeds=(0,))
    return replace(job, training=replace(job.training, batch_size=16))


def interactions() -> Job:
    changes = [f"tasks.hunters.setting.{change}" for change in WORLD_SIZES]
    [job] = INTERACTIONS.jobs(["hfa:C3"], InteractionProfile.load("quick", changes), tasks=["hunters"], seeds=(0,))
    return replace(job, training=replace(job.training, batch_size=16))


def gradient(job: Job, step: int, processes: int, micro_batch: int | None = None, corpora=None) -> torch.Tensor:
    """The gradient of a step as the training loop computes it: a mean over emulated processes."""
    parts = []
    for rank in range(processes):
        world = SimpleNamespace(
            size=lambda: processes, share=lambda items, rank=rank: np.array_split(items, processes)[rank]
        )
        trial = suite_of(job).Trial(job, "cpu", world, corpora, micro_batch)
        for batch, share in trial.micro_batches(step):
            (trial.loss(*batch) * share).backward()
        parts.append(torch.cat([p.grad.flatten() for p in trial.model.parameters() if p.grad is not None]))
    return torch.stack(parts).double().mean(0)


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize(
    "name, processes",
    [("mad", 3), ("mad", 7), ("digits", 3), ("digits", 7), ("forecasting", 7), ("interactions", 7), ("language", 4)],
)
def test_the_gradient_is_the_same_for_any_number_of_processes(name, processes, micro_batch, tiny, corpus):
    make = {"mad": mad, "interactions": interactions, "language": lambda: tiny.make_job(corpus)}
    job = make[name]() if name in make else signals(name)
    step = 0 if name in ("interactions", "language") else 2  # the last batch of an epoch, of 13 examples
    how = {"corpora": {corpus.digest: corpus}}
    whole = gradient(job, step, 1, **how)
    shared = gradient(job, step, processes, micro_batch, **how)
    assert whole.abs().max() > 1e-5
    assert (shared - whole).abs().max() < 1e-6 * whole.abs().max() + 1e-8


def test_the_trial_of_every_suite_is_among_those_whose_gradients_are_compared():
    compared = ("mad", "signals", "interactions", "language")
    assert {suite.Trial for suite in suites().values()} == {suites()[name].Trial for name in compared}


@pytest.mark.parametrize("make", [mad, lambda: signals("digits")])
def test_more_processes_than_examples_of_a_batch_are_refused(make):
    job = make()
    suite = suite_of(job)
    assert suite.batch_sizes(job) == (16, 13)
    suite.check_processes(job, 13)
    with pytest.raises(ConfigError, match="14 processes cannot share a batch of 13"):
        suite.check_processes(job, 14)
