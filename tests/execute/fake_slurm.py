"""A fake of sbatch, srun, sacct, scancel and scontrol with one node and no queue, with the parts that submitit uses.

The first argument chooses the command. ``FAKE_SLURM`` is the folder of jobs. A job has one folder per task, with the
file ``pid`` of its process group, ``requeue`` if it has to start again, and ``state`` if it has ended. If there is a
file ``hold``, jobs do not start and have the state in this file. If there is a file ``refusal``, sbatch fails with its
text. If there is a file ``limit``, sbatch fails if more jobs than its number have not ended.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

JOBS = Path(os.environ["FAKE_SLURM"])


def sbatch():
    text = sys.stdin.read()
    job_id = str(1000 + len(list(JOBS.glob("script-*"))))
    array = re.search(r"^#SBATCH --array=0-(\d+)", text, re.MULTILINE)
    tasks = [f"{job_id}_{index}" for index in range(int(array[1]) + 1)] if array else [job_id]
    with open(JOBS / "submissions", "a") as file:
        file.write(f"{len(tasks)}\n")
    refusal, limit = JOBS / "refusal", JOBS / "limit"
    if refusal.exists():
        sys.exit(f"sbatch: error: {refusal.read_text()}")
    if limit.exists() and len(tasks) + sum(map(is_alive, JOBS.glob("*/name"))) > int(limit.read_text()):
        sys.exit("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates")
    copy = JOBS / f"script-{job_id}"
    copy.write_text(text)
    for task in tasks:
        (JOBS / task).mkdir()
        note(task, "name", re.search(r"^#SBATCH --job-name=(.+)", text, re.MULTILINE)[1])
        if (JOBS / "hold").exists():
            note(task, "state", (JOBS / "hold").read_text())
            continue
        command = [sys.executable, __file__, "run", task, str(copy)]
        none = subprocess.DEVNULL
        subprocess.Popen(command, start_new_session=True, stdin=none, stdout=none, stderr=none)
    print(f"Submitted batch job {job_id}")


def is_alive(name):
    state = name.with_name("state")
    return not state.exists() or state.read_text() == "PENDING"


def run(task, script):
    """Run the job script like slurmd, and again after a requeue."""
    job_id, _, index = task.partition("_")
    environment = os.environ | {"SLURM_JOB_ID": job_id, "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "1"}
    if index:
        environment |= {"SLURM_ARRAY_JOB_ID": job_id, "SLURM_ARRAY_TASK_ID": index, "SLURM_JOB_ID": f"{job_id}9{index}"}
    note(task, "pid", str(os.getpid()))
    requeue = JOBS / task / "requeue"
    requeue.touch()
    while requeue.exists():
        requeue.unlink()
        code = subprocess.run(["bash", script], env=environment, check=False).returncode
    note(task, "state", "FAILED" if code else "COMPLETED")


def note(task, name, text):
    """Write a file of a job atomically, because others may read it."""
    half = JOBS / task / f"{name}.{os.getpid()}"
    half.write_text(text)
    half.replace(JOBS / task / name)


def srun(*words):
    options, command = {}, list(words)
    while command[0].startswith("--"):
        name = command.pop(0)
        if name in ("--output", "--error"):
            options[name] = command.pop(0)
    ids = {"%j": os.environ["SLURM_JOB_ID"], "%t": "0"}
    ids |= {"%A": os.environ.get("SLURM_ARRAY_JOB_ID", ""), "%a": os.environ.get("SLURM_ARRAY_TASK_ID", "")}
    for descriptor, name in ((1, "--output"), (2, "--error")):
        path = re.sub("%[jtAa]", lambda match: ids[match[0]], options[name])
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644), descriptor)
    os.environ |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    os.execvp(command[0], command)


def sacct(*_):
    print("JobID|State|NodeList")
    for job in JOBS.iterdir():
        if job.is_dir():
            state = job / "state"
            print(f"{job.name}|{state.read_text() if state.exists() else 'RUNNING'}|node1")


def scancel(name, job_id):
    """``scancel --name=NAME ID``."""
    for job in [JOBS / job_id, *JOBS.glob(f"{job_id}_*")]:
        with suppress(OSError):
            if name != f"--name={(job / 'name').read_text()}":
                continue
            if (job / "pid").exists():
                os.killpg(int((job / "pid").read_text()), signal.SIGKILL)
            note(job.name, "state", "CANCELLED by 0")


def scontrol(_, job_id):
    """``scontrol requeue ID``."""
    task = re.sub(r"^(\d{4})9(\d+)$", r"\1_\2", job_id)
    (JOBS / task / "requeue").touch()


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    {"sbatch": sbatch, "run": run, "srun": srun, "sacct": sacct, "scancel": scancel, "scontrol": scontrol}[verb](*words)
