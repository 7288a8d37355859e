"""The kernels compiled for sm_90, without a GPU: registers and shared memory suffice, and loops are short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import madbench

HOPPER_SHARED_BYTES = 227 * 1024
LONGEST = 5200  # instructions of a kernel with ``o``, its loops once
MOST_SPILLED = 0.11  # of them; two warps spill more than four and take less time
MOST_SHARED = 64 * 1024  # bytes of a kernel with ``o``, so that three and more programs fit on a multiprocessor


@pytest.fixture
def compile_kernels(tmp_path):
    """``compile_kernels(layout, shape)``: measures of each compiled kernel, from a process without Triton's
    interpreter."""
    triton = pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")
    if not (Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm").exists():
        pytest.skip("this Triton comes without nvdisasm")

    def compile(layout, shape):
        environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        environment |= {"PYTHONPATH": str(Path(madbench.__file__).parents[1]), "TRITON_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, Path(__file__).with_name("compiled.py"), layout, shape]
        kernels = json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
        # ptxas 12.8, which Triton brings along, has some products of four warps read registers that were never written
        assert {name: row["unset"] for name, row in kernels.items() if row["unset"]} == {}
        return kernels

    return compile


@pytest.mark.slow
def test_kernels_at_language_model_size_have_short_loops_with_few_spills(compile_kernels):
    kernels = compile_kernels("position", "G,12,8,2,1024,48,384,16")
    most = {"forward_kernel": 44, "values_kernel": 42, "queries_kernel": 80, "keys_kernel": 76}
    assert {name: row for name, row in kernels.items() if row["shared_bytes"] > HOPPER_SHARED_BYTES} == {}
    for name, instructions in most.items():
        assert kernels[name]["loop_instructions_a_score"] <= instructions, (name, kernels[name])
        assert kernels[name]["loop_spills"] <= 16 and kernels[name]["all_spills"] <= 100, (name, kernels[name])


@pytest.mark.slow
def test_kernels_with_o_are_short_and_spill_little(compile_kernels):
    """Tested at the widths of a language model, whose kernels are the longest."""
    kernels = compile_kernels("lag", "G,12,1,1,1024,48,384,16")
    assert len(kernels) == 7
    for name, row in kernels.items():
        assert row["all_instructions"] <= LONGEST, (name, row)
        assert row["all_spills"] <= MOST_SPILLED * row["all_instructions"], (name, row)
        assert row["shared_bytes"] <= MOST_SHARED, (name, row)
    assert not kernels["sums_kernel"]["all_spills"] and not kernels["mixed_gradients_kernel"]["all_spills"]
