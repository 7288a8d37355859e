"""Compiles the kernels with ``o`` for sm_90, which needs no GPU, and prints what became of them as JSON.

A program of its own: in a process whose kernels are interpreted Triton compiles nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from madbench.mixers.srg.kernels import lag

TYPES = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32"}
BIN = Path(triton.__file__).parent / "backends/nvidia/bin"
DIVISIBLE = [["tt.divisibility", 16]]


def launches(base: str, dtype: torch.dtype, length: int, k_width: int, v_width: int, rank: int):
    """Every launch of a forward and a backward pass: kernel, types of its tensors, compile-time values."""
    found = []

    def record(self, kernel, *tensors):
        types = [TYPES[(tensors[0] if tensor is None else tensor).dtype] for tensor in tensors]
        found.append((kernel, types, self.options(kernel)))

    lag.Launch.__call__ = record

    def mixing(heads):
        sizes = ((1, heads, length, rank), (heads, length, rank), (heads, length, rank), (heads, length))
        return tuple(torch.empty(*size, device="meta") for size in sizes)

    heads = 2 if base == "G" else 1
    q, k = (torch.empty(1, heads, length, k_width, dtype=dtype, device="meta") for _ in range(2))
    v = torch.empty(1, 1, length, v_width, dtype=dtype, device="meta")
    inputs = (q, k, v, mixing(heads), mixing(1))
    o, saved = lag.forward(base, *inputs)
    lag.backward(base, o, *inputs, o, saved)
    return found


def disassembled(tool: str, *arguments: str) -> str:
    return subprocess.run([BIN / tool, *arguments], capture_output=True, text=True, check=True).stdout


def measure(kernel, types: list[str], options: dict) -> dict[str, int]:
    """Registers a thread, instructions, those of them that spill, and bytes of shared memory."""
    names = iter(types)
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        if parameter.is_constexpr:
            signature[parameter.name], constants[parameter.name] = "constexpr", options[parameter.name]
            continue
        signature[parameter.name] = "i32" if parameter.name in "TH" else next(names)
        if parameter.name != "H":
            attributes[(place,)] = DIVISIBLE
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    cut = {name: options[name] for name in ("num_warps", "num_stages")}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=cut)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        usage, code = disassembled("cuobjdump", "-res-usage", str(cubin)), disassembled("nvdisasm", "-c", str(cubin))
    instructions = re.findall(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?(\w+)", code, flags=re.MULTILINE)
    return {
        "registers": int(re.search(r"REG:(\d+)", usage)[1]),
        "instructions": len(instructions),
        "spills": sum(name in ("LDL", "STL") for name in instructions),
        "shared": compiled.metadata.shared,
    }


if __name__ == "__main__":
    base, dtype, *sizes = sys.argv[1:]
    found = launches(base, getattr(torch, dtype), *map(int, sizes))
    print(json.dumps({kernel.__name__: measure(kernel, types, options) for kernel, types, options in found}))
