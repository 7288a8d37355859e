"""Two processes of torchrun give the numbers of one, and stop, fail and resume together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from madbench.errors import ConfigError
from madbench.store.runs import Store
from madbench.training import distributed, processes
from madbench.training.checkpoints import load_model
from sample_jobs import train_job

HERE = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@contextmanager
def torchrun(tmp_path, mode: str) -> Iterator[subprocess.Popen]:
    """Start two processes of ``torchrun_language.py``, which write their events to ``results/events-RANK.json``."""
    command = [*TORCHRUN, str(HERE / "torchrun_language.py"), str(tmp_path / "corpus"), str(tmp_path / "results"), mode]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    with open(tmp_path / "output", "w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process
        process.wait(60)
    finally:
        process.terminate()
        process.wait(60)


def run(tmp_path) -> None:
    with torchrun(tmp_path, "run") as process:
        pass
    assert process.returncode == 0, (tmp_path / "output").read_text()


def alone(job, corpus, work):
    work.mkdir()
    record = train_job(job, work, lambda progress: None, corpora={corpus.digest: corpus})
    return record, load_model(work / "keep" / "weights.safetensors")[0].state_dict()


def events(tmp_path, rank: int) -> list[list[str]]:
    return json.loads((tmp_path / "results" / f"events-{rank}.json").read_text())


def assert_same_run(stored, record, weights):
    for row, other in zip(stored.record.curve, record.curve, strict=True):
        assert row.keys() == other.keys()
        for name in row.keys() - {"seconds", "tokens_per_second", "memory_bytes"}:
            assert row[name] == pytest.approx(other[name], rel=1e-4)
    found = load_model(stored.folder / "weights.safetensors")[0].state_dict()
    for name, tensor in weights.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_two_processes_give_the_run_of_one(tiny, corpus, tmp_path):
    """Each process has two micro-batches, the first without synchronization. A stored job is not trained again."""
    run(tmp_path)
    job = tiny.make_job(corpus)
    record, weights = alone(job, corpus, tmp_path / "alone")
    store = Store.open(tmp_path / "results", create=False)
    together = store.read(job.id)
    assert together.record.details["world_size"] == 2 and together.record.details["micro_batch"] == 2
    assert_same_run(together, record, weights)
    kinds = [kind for kind, _ in events(tmp_path, 0) if kind != "progress"]
    assert kinds == ["started", "finished", "skipped"]
    assert events(tmp_path, 1) == []
    assert not list((tmp_path / "results" / "work").iterdir())


@pytest.mark.slow
def test_a_signal_stops_both_with_a_checkpoint_from_which_they_resume(tiny, corpus, tmp_path):
    with torchrun(tmp_path, "wait") as process:
        while not (tmp_path / "results" / "at-step-7").exists():
            assert process.poll() is None, (tmp_path / "output").read_text()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
    assert process.returncode != 0
    assert (tmp_path / "output").read_text().count("stopped by request") == 2
    job = tiny.make_job(corpus)
    assert (tmp_path / "results" / "work" / job.id / "checkpoint.pt").exists()

    run(tmp_path)
    steps = [step for kind, step in events(tmp_path, 0) if kind == "progress"]
    assert steps[0] > 7
    record, weights = alone(job, corpus, tmp_path / "alone")
    assert_same_run(Store.open(tmp_path / "results", create=False).read(job.id), record, weights)


@pytest.mark.slow
def test_the_failure_of_the_second_process_ends_both_and_is_stored(tiny, corpus, tmp_path):
    with torchrun(tmp_path, "fail-1") as process:
        pass
    assert process.returncode != 0
    assert "a process breaks" in (tmp_path / "output").read_text()
    store = Store.open(tmp_path / "results", create=False)
    assert store.read(tiny.make_job(corpus).id).record.status == "failed"


def test_distributed_functions_are_trivial_with_one_process(monkeypatch):
    assert not processes.is_distributed() and processes.is_first()
    assert processes.planned_size() == distributed.size() == 1
    items, values = np.arange(5), torch.tensor([1.0, 2.0])
    assert distributed.share(items) is items
    assert distributed.total(values) is values and values.tolist() == [1.0, 2.0]
    assert (distributed.agree(True), distributed.agree(False), distributed.from_first("x")) == (True, False, "x")


@pytest.mark.parametrize(
    "device, message",
    [
        ("cuda", "process 3 of this machine has no GPU: there are 2"),
        ("cuda:1", "'cuda:1' has no effect under torchrun"),
    ],
)
def test_processes_without_a_gpu_of_their_own_are_refused(device, message, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ConfigError, match=message), distributed.process_group(device):
        pass
