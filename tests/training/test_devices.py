"""The choice of device and precision, and the number of free cores."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from madbench.errors import ConfigError
from madbench.execute.base import worker_environment
from madbench.training import devices
from madbench.training.devices import (
    available_cores,
    cpu_has_bfloat16_units,
    cpu_kind,
    peak_flops,
    resolve_device,
    resolve_precision,
)


@pytest.fixture
def gpus(monkeypatch):
    def set_count(count: int) -> None:
        monkeypatch.setattr(devices, "version", lambda package: "2.13.0")  # a build for GPUs
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return set_count


@pytest.fixture
def cpuinfo(monkeypatch):
    def set_text(text: str | None) -> None:
        def read_text(path: Path) -> str:
            assert str(path) == "/proc/cpuinfo"
            if text is None:
                raise FileNotFoundError
            return text

        monkeypatch.setattr(Path, "read_text", read_text)

    return set_text


def test_device_auto_is_the_gpu_if_there_is_one(gpus):
    gpus(1)
    assert resolve_device("auto") == "cuda"
    gpus(0)
    assert resolve_device("auto") == "cpu"


def test_resolve_device_returns_an_existing_device_unchanged(gpus):
    gpus(2)
    assert [resolve_device(name) for name in ("cpu", "cuda", "cuda:0", "cuda:1")] == ["cpu", "cuda", "cuda:0", "cuda:1"]


@pytest.mark.parametrize(("count", "device"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2")])
def test_a_missing_device_is_refused(gpus, count, device):
    gpus(count)
    with pytest.raises(
        ConfigError, match=f"device '{device}': this machine has {count} CUDA devices; use --device cpu"
    ):
        resolve_device(device)


@pytest.mark.parametrize("device", ["gpu", "", "cuda:", "cuda:x", "cpu:0", "CPU", "cuda:1 "])
def test_an_unknown_device_is_refused(device):
    with pytest.raises(ConfigError, match="is not known; expected auto, cpu, cuda or cuda:N"):
        resolve_device(device)


def test_the_cpu_is_resolved_without_importing_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert resolve_device("cpu") == "cpu"


def test_a_cpu_build_of_torch_has_no_gpus_and_is_not_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(devices, "version", lambda package: "2.13.0+cpu")
    assert resolve_device("auto") == "cpu"
    with pytest.raises(ConfigError, match="this machine has 0 CUDA devices"):
        resolve_device("cuda")


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 amx_tile", True),
        ("flags\t\t: fpu amx_bf16", True),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("flags\t\t: fpu avx512f avx512_vnni avx2", False),
        ("flags\t\t: not_bf16_at_all", False),
        (None, False),
    ],
)
def test_support_of_bfloat16_is_read_from_the_processor_flags(cpuinfo, text, has):
    cpuinfo(text)
    assert cpu_has_bfloat16_units() is has


def test_auto_precision_is_bfloat16_where_the_hardware_multiplies_it(monkeypatch):
    for has in (True, False):
        monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda has=has: has)
        assert resolve_precision("auto", "cpu") == ("bfloat16" if has else "float32")
        assert resolve_precision("auto", "cuda:1") == "bfloat16"
        assert resolve_precision("float32", "cuda") == "float32"
        assert resolve_precision("bfloat16", "cpu") == "bfloat16"


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """``groups(own, files)``: the CPU quota of a process in the control groups ``own``, with these files."""

    def quota(own, files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "groups" / name).write_text(text)
        return devices.cpu_quota(tmp_path / "groups", tmp_path / "own")

    return quota


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000", "cpu.max": "400000 100000"}, 3.0),
        ("0::/docker/9f\n", {"cpu.max": "50000 100000"}, 0.5),  # whose own folder is the root here
        ("1:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 2.0),
        ("3:cpu,cpuacct:/x\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "50000"}, 2.0),
        ("3:cpu,cpuacct:/x\n", {"cpu,cpuacct/x/cpu.cfs_quota_us": "-1"}, math.inf),
        ("3:cpuset:/x\n0::/\n", {"cpuset/x/cpu.max": "100000 100000"}, math.inf),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("0::/\n", {"cpu.max": "damaged"}, math.inf),
        ("not of this kind\n", {}, math.inf),
    ],
)
def test_the_cpu_quota_is_read_from_both_versions_of_control_groups(groups, own, files, quota):
    assert groups(own, files) == quota


@pytest.mark.parametrize(("quota", "cores"), [(0.5, 1), (1.0, 1), (2.9, 2), (3.0, 3), (64.0, 3), (math.inf, 3)])
def test_a_cpu_quota_bounds_the_cores(quota, cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    monkeypatch.setattr(devices, "cpu_quota", lambda: quota)
    assert available_cores() == cores


def ticks(**cores):
    """The text of ``/proc/stat`` with the given idle ticks and total ticks of each core."""
    lines = [f"{name} {total - idle} 0 0 {idle} 0 0 0 0 0 0" for name, (idle, total) in cores.items()]
    return "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "ctxt 9"])


@pytest.mark.parametrize(
    ("looks", "busy"),
    [
        ([ticks(cpu0=(0, 0), cpu1=(0, 0)), ticks(cpu0=(20, 20), cpu1=(0, 20)), ticks(cpu0=(40, 40), cpu1=(0, 40))], 1),
        ([ticks(cpu0=(0, 0)), ticks(cpu0=(0, 20)), ticks(cpu0=(20, 40))], 0),  # a burst
        ([ticks(cpu0=(7, 9)), ticks(cpu0=(7, 9)), ticks(cpu0=(7, 9))], 0),  # a system that does not count
        ([ticks(), ticks(), ticks()], 0),
        ([ticks(cpu7=(0, 0)), ticks(cpu7=(0, 20)), ticks(cpu7=(0, 40))], 0),  # a core of others
    ],
)
def test_a_core_is_busy_if_it_is_in_two_consecutive_samples(looks, busy, monkeypatch):
    texts = iter(looks)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path: next(texts) if str(path) == "/proc/stat" else "")
    assert devices.busy_cores(0) == busy


@pytest.mark.parametrize(
    ("own", "quota", "busy", "free"),
    [(4, math.inf, 0.0, 4), (4, math.inf, 0.4, 4), (4, math.inf, 0.9, 3), (4, math.inf, 4.0, 1), (64, 2.0, 40.0, 2)],
)
def test_free_cores_are_the_available_ones_minus_the_busy_ones(own, quota, busy, free, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(own)), raising=False)
    monkeypatch.setattr(devices, "cpu_quota", lambda: quota)
    assert devices.free_cores(busy) == free


def test_the_load_average_is_infinite_if_the_system_does_not_give_it(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.25, 9.0, 9.0))
    assert devices.load_average() == 0.25
    monkeypatch.delattr(os, "getloadavg")
    assert devices.load_average() == math.inf


def test_core_times_of_this_machine_can_be_read():
    first = devices._core_times()
    if first:
        assert len(first) == len(os.sched_getaffinity(0)) and 0 <= devices.busy_cores(0.05) <= len(first)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "3"}, (3, "OMP_NUM_THREADS=3")),
        ({"MKL_NUM_THREADS": "2"}, (2, "MKL_NUM_THREADS=2")),
        ({"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "2"}, (2, "MKL_NUM_THREADS=2")),
        ({"OMP_NUM_THREADS": "4,2"}, (4, "OMP_NUM_THREADS=4")),
        ({"OMP_NUM_THREADS": " 5 "}, (5, "OMP_NUM_THREADS=5")),
        ({"OMP_NUM_THREADS": "many", "MKL_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "", "MKL_NUM_THREADS": "-1"}, None),
    ],
)
def test_environment_threads_reads_the_users_thread_variables(variables, expected, monkeypatch):
    for name in devices.THREAD_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert devices.environment_threads() == expected


def test_the_cores_that_this_process_may_use_are_counted(monkeypatch):
    monkeypatch.setattr(devices, "cpu_quota", lambda: math.inf)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_peak_flops_are_known_for_exact_device_names_only():
    assert peak_flops("NVIDIA H100 80GB HBM3", "bfloat16") == 989.5e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", "bfloat16") == 312e12
    for name in ("NVIDIA H100", "H200", "Tesla T4", "Intel(R) Xeon(R) Processor", ""):
        assert peak_flops(name, "bfloat16") is None
    assert peak_flops("NVIDIA H100 80GB HBM3", "float32") is None


def test_processors_with_one_name_and_other_models_are_different_kinds(cpuinfo):
    text = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: {}\nmodel name\t: AMD EPYC\n"
    kinds = []
    for model in (1, 17):
        cpuinfo(text.format(model))
        kinds.append(cpu_kind())
    assert kinds[0].startswith("AuthenticAMD 25/1, ") and kinds[1].startswith("AuthenticAMD 25/17, ")
    cpuinfo(None)
    assert cpu_kind() == torch.backends.cpu.get_cpu_capability()


FREED = """
import torch
from madbench.training.devices import return_freed_memory
def resident():
    (line,) = (line for line in open("/proc/self/status") if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
tensors = [torch.ones(2**16) for _ in range(1000)]
del tensors
before = resident()
return_freed_memory()
print(before - resident())
"""


@pytest.mark.slow
def test_freed_memory_that_workers_keep_can_be_returned():
    """250 MiB in small pieces, in a process with the settings of a worker."""
    environment = os.environ | worker_environment(1)
    ended = subprocess.run([sys.executable, "-c", FREED], env=environment, capture_output=True, text=True, check=True)
    assert float(ended.stdout) > 200
