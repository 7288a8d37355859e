from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from madbench.errors import ConfigError
from madbench.training import devices
from madbench.training.devices import (
    available_cores,
    cpu_has_bfloat16_units,
    peak_flops,
    resolve_device,
    resolve_precision,
)


@pytest.fixture
def gpus(monkeypatch):
    def set_count(count: int) -> None:
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


def test_auto_takes_the_gpu_where_there_is_one(gpus):
    gpus(1)
    assert resolve_device("auto") == "cuda"
    gpus(0)
    assert resolve_device("auto") == "cpu"


def test_a_device_that_is_there_is_taken_as_named(gpus):
    gpus(2)
    assert [resolve_device(name) for name in ("cpu", "cuda", "cuda:0", "cuda:1")] == ["cpu", "cuda", "cuda:0", "cuda:1"]


@pytest.mark.parametrize(("count", "device"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2")])
def test_a_device_that_is_not_there_is_refused(gpus, count, device):
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
def test_bfloat16_units_are_read_from_the_processors_flags(cpuinfo, text, has):
    cpuinfo(text)
    assert cpu_has_bfloat16_units() is has


def test_auto_precision_is_bfloat16_where_the_hardware_multiplies_it(monkeypatch):
    for has in (True, False):
        monkeypatch.setattr(devices, "cpu_has_bfloat16_units", lambda has=has: has)
        assert resolve_precision("auto", "cpu") == ("bfloat16" if has else "float32")
        assert resolve_precision("auto", "cuda:1") == "bfloat16"
        assert resolve_precision("float32", "cuda") == "float32"
        assert resolve_precision("bfloat16", "cpu") == "bfloat16"


def test_the_cores_that_this_process_may_use_are_counted(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_peak_flops_are_known_for_the_names_that_torch_gives_and_never_guessed():
    assert peak_flops("NVIDIA H100 80GB HBM3", "bfloat16") == 989.5e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", "bfloat16") == 312e12
    for name in ("NVIDIA H100", "H200", "Tesla T4", "Intel(R) Xeon(R) Processor", ""):
        assert peak_flops(name, "bfloat16") is None
    assert peak_flops("NVIDIA H100 80GB HBM3", "float32") is None
