"""Runs on several processes: what cannot be shared is refused, and runs of unequal weights are named."""

from __future__ import annotations

import pytest

from madbench.jobs import Record
from madbench.suites.signals.suite import SIGNALS, SignalProfile

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_batch_that_processes_cannot_share_is_refused_before_anything_trains(more, main, monkeypatch, tmp_path):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    changes = ["tasks.memorization.setting.num_train_examples=129", "training.batch_size=128"]
    ended = main("run", "S", "-p", "evening", "-t", "memorization", *changes, "--device", "cpu", *more)
    assert ended.code == 2 and "2 processes cannot share a batch of 1 example" in ended.stderr
    assert "Traceback" not in ended.stderr and not list(tmp_path.glob("results/runs/*"))


@pytest.fixture
def fill_signals(store):
    """Stores a run of R on digits with these details; batches have 32 examples, the last of an epoch fewer."""

    def call(seed: int, **details) -> str:
        [job] = SIGNALS.jobs(["R"], SignalProfile.load("quick"), tasks=["digits"], seeds=(seed,))
        metrics = {"score": 0.9, "test_score": 0.9, "ceiling": 1.0}
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0, "validation_score": 0.9}]
        store.finish(job, Record("finished", metrics, curve, {"device": "an abacus", "budget_ratio": 1.0} | details))
        return job.id

    return call


@pytest.mark.slow
def test_runs_that_weighed_examples_unequally_are_named_and_marked(fill_signals, main):
    for seed in range(3):
        fill_signals(seed, world_size=2, equal_shares=True)
    assert "\N{SECTION SIGN}" not in main("table", "-t", "digits").stdout
    assert "unequal" not in main("validate", "--store").stdout
    odd = fill_signals(3, world_size=7)
    table = " ".join(main("table", "-t", "digits").stdout.split())
    assert "\N{SECTION SIGN}" in table and "unequally in runs of R on digits" in table
    ended = main("validate", "--store")
    assert ended.code == 0 and odd in ended.stdout and "7 processes" in ended.stdout
