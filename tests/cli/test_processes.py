"""Runs on several processes: a batch that they cannot share is refused."""

from __future__ import annotations

import pytest

TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_batch_that_processes_cannot_share_is_refused_before_anything_trains(more, main, monkeypatch, tmp_path):
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)
    changes = ["tasks.memorization.setting.num_train_examples=129", "training.batch_size=128"]
    ended = main("run", "S", "-p", "evening", "-t", "memorization", *changes, "--device", "cpu", *more)
    assert ended.code == 2 and "2 processes cannot share a batch of 1 example" in ended.stderr
    assert "Traceback" not in ended.stderr and not list(tmp_path.glob("results/runs/*"))
