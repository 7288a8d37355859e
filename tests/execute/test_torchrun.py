"""Jobs under torchrun: the jobs of a group train one after another, and all processes stop together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from madbench.store.runs import Store

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def start(store, output, *arguments) -> subprocess.Popen:
    """Start two processes of ``torchrun_pairs.py``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "torchrun_pairs.py"), str(store.root), *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    with open(output, "w") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=file)


def results(store):
    return {run.job.seed: run.record for run in store.runs()}


def events(output) -> list[str]:
    kinds = ("started", "progress", "skipped", "finished", "failed")
    return [line for line in output.read_text().splitlines() if line.startswith(kinds)]


def test_members_of_a_group_finish_diverge_or_fail_independently(fake, store, tmp_path):
    jobs, output = [job for group in fake.pairs() for job in group], tmp_path / "output"
    with Store(store.root).lock(jobs[5]):
        assert start(store, output).wait(120) != 0
    stored = results(store)
    assert set(stored) == {0, 1, 2, 3, 4, 6, 7}
    for job in [*jobs[:5], jobs[6]]:
        assert stored[job.seed] == fake.expected(job)
    assert stored[7].error.endswith("ValueError: the loss has no gradient")
    kinds = [line for line in events(output) if not line.startswith("progress")]
    told = {seed: [line.split()[0] for line in kinds if line.split()[1] == str(seed)] for seed in range(8)}
    endings = {seed: ["started", "failed" if seed in (2, 7) else "finished"] for seed in range(8)}
    assert told == endings | {5: ["skipped"]}

    assert start(store, output).wait(120) != 0
    trained = [line.split()[1] for line in events(output) if line.startswith("started")]
    assert trained == ["2", "5", "7"] and results(store)[5] == fake.expected(jobs[5])


def test_a_signal_stops_all_processes_with_a_checkpoint_from_which_the_job_resumes(fake, store, tmp_path):
    output = tmp_path / "output"
    process = start(store, output, "60")
    deadline = time.monotonic() + 60
    second = fake.make_job(1, steps=60, pause=0.02).id  # the first one's checkpoint may outlive its record a moment
    while set(results(store)) != {0} or not (store.root / "work" / second / "checkpoint").exists():
        assert process.poll() is None and time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) != 0 and set(results(store)) == {0}

    assert start(store, output, "60").wait(120) == 0, output.read_text()
    assert int(next(line for line in events(output) if line.startswith("progress ")).split()[2]) >= 1
    for seed in range(2):
        assert results(store)[seed] == fake.expected(fake.make_job(seed, steps=60, pause=0.02))
