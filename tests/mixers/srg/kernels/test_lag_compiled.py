"""The kernels with ``o`` as machine code for sm_90, which is made without a GPU: its length and its spilled registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import madbench

LONGEST = 4500  # instructions of a kernel, its loops once
MOST_SPILLED = 0.09  # of them
MOST_SHARED = 48 * 1024  # bytes that any kernel may have, so that two and more programs fit on a multiprocessor


@pytest.fixture
def compiled(tmp_path):
    """``compiled(base, dtype, length, k_width, v_width, rank)``: what became of each kernel."""
    spec = find_spec("triton")
    if spec is None:
        pytest.skip("needs Triton")
    tools = Path(spec.origin).parent / "backends/nvidia/bin"
    if missing := [name for name in ("ptxas", "cuobjdump", "nvdisasm") if not (tools / name).exists()]:
        pytest.skip(f"this Triton comes without {', '.join(missing)}")

    def run(*arguments):
        paths = [str(Path(madbench.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        places = {"PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(tmp_path)}
        program = [sys.executable, str(Path(__file__).with_name("compile_lag.py")), *map(str, arguments)]
        environment = os.environ | places | {"TRITON_INTERPRET": "0"}
        return json.loads(subprocess.run(program, env=environment, stdout=subprocess.PIPE, check=True).stdout)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1024, 32, 64, 16), (1024, 48, 384, 16)], ids=["MAD", "language model"])
def test_machine_code_is_short_and_spills_little(shape, compiled):
    kernels = compiled("G", "bfloat16", *shape)
    assert len(kernels) == 6
    for name, code in kernels.items():
        assert code["instructions"] <= LONGEST, (name, code)
        assert code["spills"] <= MOST_SPILLED * code["instructions"], (name, code)
        assert code["shared"] <= MOST_SHARED, (name, code)
    assert not kernels["sums_kernel"]["spills"] and not kernels["mixed_gradients_kernel"]["spills"]
