"""The program of a Slurm job: ``python -m madbench.execute.slurm_worker FOLDER DIGEST...``.

``FOLDER`` is ``<results>/slurm``. ``DIGEST`` is the SHA-256 digest of the Slurm job's ``call.json``. A job array has
one digest per array task.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from madbench.errors import StoreError
from madbench.execute.base import failure_text
from madbench.execute.messages import JobResult, WorkerResult
from madbench.execute.slurm_folder import SlurmFolder, assignment_of, content_digest
from madbench.execute.worker import throttle, work_remotely
from madbench.files import explain_os_errors
from madbench.jobs import Job, Progress, StopTraining
from madbench.suites import job_from_dict

REPORT_SECONDS = 5.0
CALL_SECONDS = 120.0  # seconds that a job waits for ``call.json``, which a killed driver may not write
MOST_TIMEOUTS = 10  # wall times that a job may use up before it fails


def main(parent: str, *digests: str) -> None:
    """Train the jobs in the ``call.json`` of the Slurm job in which this process runs.

    ``parent`` is the folder ``<results>/slurm``. Raises ``StoreError`` if there is no ``call.json``, or if its digest
    differs from that in ``digests``: it is then not the file that the driver wrote.
    """
    if os.environ.get("SLURM_PROCID", "0") != "0":
        return
    array, index = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    folder = SlurmFolder(Path(parent), f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"])
    content = _wait_for(folder.call)
    if content_digest(content) != digests[int(index or 0) if array else 0]:
        raise StoreError(f"{folder.call}: changed since the driver wrote it; nothing in it is run")
    _SlurmRun(folder, json.loads(content)).run()


def _wait_for(path: Path) -> bytes:
    """Wait for a file that another machine writes, and return its content.

    Raises ``StoreError`` if the file does not exist after ``CALL_SECONDS`` seconds.
    """
    deadline = time.monotonic() + CALL_SECONDS
    while True:
        with suppress(OSError):
            os.listdir(path.parent)  # refreshes NFS
        if path.exists():
            with explain_os_errors(path):
                return path.read_bytes()
        if time.monotonic() > deadline:
            raise StoreError(f"{path}: not there after {CALL_SECONDS:.0f} s; the driver that queued this job is gone")
        time.sleep(0.5)


class _SlurmRun:
    """The work of a Slurm job from one start to its end. Slurm starts the job again each time that it is requeued."""

    def __init__(self, folder: SlurmFolder, call: Mapping[str, Any]):
        self.folder, self.call = folder, call
        self.began = time.monotonic()
        self.start = f"{os.environ.get('SLURM_JOB_ID', '')}-{os.getpid()}-{time.time()}"  # identifies this start
        timeouts = folder.read_news().get("timeouts")
        self.timeouts = timeouts if type(timeouts) is int else 0  # wall times used up, including earlier starts
        self.is_requeued = False

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGCONT):  # Slurm sends these before the signal to requeue
            signal.signal(number, lambda number, _: print(f"going on after {signal.Signals(number).name}", flush=True))
        signal.signal(signal.SIGUSR2, self.requeue)
        self.tell(start=self.start)
        tell_sometimes = throttle(REPORT_SECONDS, lambda news: self.tell(start=self.start, progress=news))

        def send(job_id: str, progress: Progress) -> None:
            if self.is_requeued or self.has_given_up:
                raise StopTraining
            tell_sometimes(job_id, progress)

        packed = self.call["version"], self.call
        try:
            outcome = work_remotely(packed, send, self.call["needs_gpu"], self.hand_in, unpack=assignment_of)
        except StopTraining:
            outcome = WorkerResult(error=f"the job used up its wall time {self.timeouts} times")
        except Exception as error:
            outcome = WorkerResult(error=failure_text(error))
        if self.is_requeued:
            self.tell()
            sys.exit(-1)
        self.folder.write_outcome([self.job(job_id) for job_id in self.call["jobs"]], outcome)

    @property
    def has_given_up(self) -> bool:
        return self.timeouts > MOST_TIMEOUTS

    def job(self, job_id: str) -> Job:
        return job_from_dict(self.call["jobs"][job_id])

    def tell(self, **news: Any) -> None:
        self.folder.write_news({"timeouts": self.timeouts, **news})

    def hand_in(self, result: JobResult) -> None:
        """Write the record of a job that ended before the rest of its group. Errors of the disk are ignored."""
        with suppress(StoreError):
            self.folder.write_record(self.job(result.job_id), result.record)

    def requeue(self, *_: Any) -> None:
        """Ask Slurm to put this Slurm job back into the queue.

        Called on the signal that Slurm sends before it stops a job. After the request, training stops at its next
        report. If the request fails, training goes on until Slurm stops the job. A Slurm job that has used up its wall
        time more than ``MOST_TIMEOUTS`` times is not requeued: its training stops, and its unfinished jobs fail.
        """
        wall_time, elapsed = 60 * self.call["asked"]["timeout_min"], time.monotonic() - self.began
        if elapsed >= min(0.8 * wall_time, wall_time - 600):  # otherwise it is preempted
            self.timeouts += 1
        self.tell()
        if self.has_given_up:
            return
        try:
            subprocess.run(["scontrol", "requeue", self.folder.slurm_id], check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"not queued again: {error}", file=sys.stderr, flush=True)
        else:
            self.is_requeued = True


if __name__ == "__main__":
    main(*sys.argv[1:])
