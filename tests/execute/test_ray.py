"""Jobs on Ray give the results of this machine, and survive killed workers and machines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from madbench.config import from_mapping
from madbench.errors import ConfigError
from madbench.execute.base import Policy, Summary
from madbench.execute.options import RunOptions
from madbench.execute.ray import SETTINGS, RayConfig, ray_executor
from madbench.experiment import ExperimentOptions, prepare
from madbench.grid import GridFile, expand_grid
from madbench.store.runs import Store
from small_profiles import counts, profile_text, with_setting

HERE = Path(__file__).parent
os.environ.update(SETTINGS)
pytest.importorskip("ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster():
    """Three machines of one core each."""
    from ray.cluster_utils import Cluster

    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.others = [cluster.add_node(num_cpus=1) for _ in range(2)]
    yield cluster
    cluster.shutdown()
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path


def results(store):
    return {run.job.seed: run.record for run in store.runs()}


def test_jobs_on_ray_end_as_on_one_machine(cluster, fake, store, capfd):
    good = [fake.make_job(seed, steps=3, environment=["OMP_NUM_THREADS"]) for seed in range(4)]
    slow = fake.make_job(7, steps=1000, pause=0.05)
    bad = [fake.make_job(8, trouble="raise"), fake.make_job(9, trouble="os._exit")]
    events = []
    summary = ray_executor(RayConfig(cluster.address))(
        fake.alone([*bad, slow, *good]), store, fake.train, on_event=events.append, policy=Policy(time_limit=8)
    )
    assert summary == Summary(finished=4, failed=3)
    stored = results(store)
    assert [stored[job.seed] for job in good] == [fake.expected(job) for job in good]
    assert stored[7].error == "stopped after the time limit of 8 s"
    assert stored[8].error.endswith("ValueError: the loss has no gradient")
    assert stored[9].error.startswith(
        "killed or lost 3 times, at last: WorkerCrashedError: The worker died unexpectedly"
    )
    told = [event["progress"] for event in events if event["job"] == slow and event["event"] == "progress"]
    assert [progress["step"] for progress in told] == sorted(progress["step"] for progress in told) and len(told) > 1
    assert "".join(capfd.readouterr()) == ""


def test_members_of_a_group_finish_diverge_or_fail_independently(cluster, check_pairs):
    check_pairs(ray_executor(RayConfig(cluster.address)))


@pytest.mark.parametrize("shared", [False, True])
def test_jobs_are_stored_when_they_end_and_only_the_failing_one_fails(cluster, fake, store, tmp_path, shared):
    marker = tmp_path / "finished"  # until one job is stored, the one to blame waits
    blamed = fake.make_job(1, steps=60, trouble="os._exit", at=50, held_at=40, marker=str(marker))
    jobs, events = [fake.make_job(0), blamed, fake.make_job(2)], []

    def listen(event):
        events.append(event)
        if event["event"] == "finished":
            marker.touch()

    summary = ray_executor(RayConfig(cluster.address, shared=shared))([jobs], store, fake.train, on_event=listen)
    assert summary == Summary(finished=2, failed=1)
    assert [results(store)[seed] for seed in (0, 2)] == [fake.expected(jobs[0]), fake.expected(jobs[2])]
    assert results(store)[1].error.startswith("killed or lost 3 times")
    ends = [(event["event"], event["job"].seed) for event in events if event["event"] in ("finished", "failed")]
    assert ends[-1] == ("failed", 1)  # which could not go on before another was stored


def test_both_jobs_of_a_group_resume_after_their_worker_was_killed(cluster, fake, store, tmp_path):
    pids = tmp_path / "pids"
    pair = [fake.make_job(seed, steps=60, pause=0.05, pids=str(pids)) for seed in range(2)]
    killed, steps = [], []

    def listen(event):
        step = event.get("progress", {}).get("step", 0)
        if killed and "progress" in event:
            steps.append(step)
        elif step > 0:
            killed.append(int(pids.read_text().split()[0]))
            os.kill(killed[0], signal.SIGKILL)

    assert ray_executor(RayConfig(cluster.address, shared=True))([pair], store, fake.train, on_event=listen) == Summary(
        finished=2
    )
    assert results(store) == {job.seed: fake.expected(job) for job in pair}
    first, second = Counter(pids.read_text().split()).items()
    assert first == (str(killed[0]), 2) and second[1] == 2 and min(steps) >= 1


def test_runs_on_ray_equal_local_runs_bit_for_bit(cluster, tmp_path):
    profile = tmp_path / "tiny.yaml"
    tasks = with_setting(["compression"], **counts(32, 16))
    profile.write_text(profile_text(model={"d_model": 16}, training={"batch_size": 16, "epochs": 2}, tasks=tasks))
    stored = []
    for name, executor in (("here", None), ("there", ray_executor(RayConfig(cluster.address)))):
        keys = {"labels": ["S-c", "R-cg-q-12o"], "profile": str(profile), "tasks": ["compression"]}
        grid = expand_grid(from_mapping(GridFile, keys, "grid"))
        experiment = prepare(
            grid, ExperimentOptions(device="cpu", is_remote=executor is not None, results=tmp_path / name)
        )
        assert experiment.execute(options=RunOptions(executor=executor)) == Summary(finished=2)
        stored.append({run.job.id: run.record for run in Store.open(tmp_path / name).runs()})
    here, there = stored
    assert here.keys() == there.keys()
    for job_id, record in here.items():
        assert (record.metrics, record.curve) == (there[job_id].metrics, there[job_id].curve)


def test_ray_clusters_that_are_too_small_or_unreachable_are_refused(cluster, fake, store):
    with pytest.raises(ConfigError, match="no machine of the Ray cluster has the 2 CPUs and 1 GPUs that"):
        ray_executor(RayConfig(cluster.address, cpus_per_job=2, gpus_per_job=1))(
            [[fake.make_job(0)]], store, fake.train
        )
    for address in ("nohost.invalid", "127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(ConfigError, match=f"the Ray cluster '{address}' cannot be reached"):
            ray_executor(RayConfig(address))([[fake.make_job(0)]], store, fake.train)


def test_killing_a_machine_repeats_only_its_current_job(cluster, fake, store, tmp_path):
    trained = tmp_path / "trained"
    jobs = [fake.make_job(seed, steps=25, pause=0.04, pids=str(trained)) for seed in range(9)]
    victims = list(cluster.others)
    finished, at_kill = [], []

    def listen(event):
        if event["event"] == "finished":
            finished.append(event["job"].seed)
            if len(finished) == 3:
                at_kill.extend(finished)
                cluster.remove_node(victims.pop(), allow_graceful=False)

    assert ray_executor(RayConfig(cluster.address))(fake.alone(jobs), store, fake.train, on_event=listen) == Summary(
        finished=9
    )
    assert results(store) == {job.seed: fake.expected(job) for job in jobs}
    assert Counter(finished) == dict.fromkeys(range(9), 1) and len(at_kill) == 3
    trainings = len(trained.read_text().split())
    assert 9 <= trainings <= 10  # the killed machine was at one job at most


def test_ctrl_c_stops_all_ray_workers_and_frees_the_locks(fake, tmp_path):
    store = Store.open(tmp_path / "results")
    pids = tmp_path / "pids"
    program = (
        "import fake_sweep as fake; from madbench.store.runs import Store\n"
        "from madbench.execute.ray import RayConfig, ray_executor\n"
        f"jobs = [[fake.make_job(s, steps=5 if s == 0 else 2000, pause=0.05, pids={str(pids)!r})] for s in range(3)]\n"
        f"ray_executor(RayConfig('local'), slots=1)(jobs, Store.open({str(store.root)!r}), fake.train)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    environment.pop("RAY_ADDRESS", None)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-W", "error", "-c", program]
    driver = subprocess.Popen(command, env=environment, start_new_session=True, text=True, **pipes)
    deadline = time.monotonic() + 120
    while 0 not in results(store) or len(pids.read_text().split()) < 2:
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.1)
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == -signal.SIGINT and out == ""
    assert err.count("Traceback") == 1 and err.rstrip().endswith("KeyboardInterrupt")
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert set(results(store)) == {0}
    for seed in (1, 2):
        job = fake.make_job(seed, steps=2000, pause=0.05, pids=str(pids))
        with store.lock(job):
            assert not store.has(job)
