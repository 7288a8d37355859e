"""Compile the kernels of a layout for a GPU that need not be present: ``compiled.py LAYOUT SHAPE`` prints JSON.

SHAPE is a base, the mixings ('12') and batch, heads, length, d_qk, d_vo and rank, separated by commas.
"""

from __future__ import annotations

import importlib
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

HOPPER = GPUTarget("cuda", 90, 32)
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
TYPES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}


class Recorder:
    """A stand-in for a kernel that records the arguments of its launches."""

    def __init__(self, kernel, launches):
        self.kernel, self.launches, self.arg_names, self.fn = kernel, launches, kernel.arg_names, kernel.fn

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.launches.append((self.kernel, arguments, constants))


def launches(layout, base, mixings, shape):
    """The launches of a forward and a backward pass in bfloat16, on tensors without data."""
    batch, heads, length, k_width, v_width, rank = shape
    query_heads = 2 * heads if base == "G" else heads

    def empty(*size, dtype=torch.float32):
        return torch.empty(*size, dtype=dtype, device="meta")

    def mixing(count):
        return empty(batch, count, length, rank), *(empty(count, length, rank) for _ in "AB"), empty(count, length)

    q, k = (empty(batch, query_heads, length, k_width, dtype=torch.bfloat16) for _ in "qk")
    v = empty(batch, heads, length, v_width, dtype=torch.bfloat16)
    mix1, mix2 = mixing(query_heads) if "1" in mixings else None, mixing(heads) if "2" in mixings else None
    found = []
    for name, kernel in list(vars(layout).items()):
        if name.endswith("_kernel"):
            setattr(layout, name, Recorder(kernel, found))
    o, saved = layout.forward(base, q, k, v, mix1, mix2)
    layout.backward(base, o, q, k, v, mix1, mix2, o, saved)
    return found


def compile_launch(kernel, arguments, constants):
    """Compile as Triton's launcher does, with the same specialization of pointers and of multiples of 16.

    Returns the binary.
    """
    options = {name: constants[name] for name in ("num_warps", "num_stages") if name in constants}
    constants = {name: value for name, value in constants.items() if name not in options}
    signature, known = dict.fromkeys(constants, "constexpr"), {}
    for index, (name, value) in enumerate(zip(kernel.arg_names, arguments)):
        is_tensor = isinstance(value, torch.Tensor)
        signature[name] = TYPES[value.dtype] if is_tensor else "i32"
        if is_tensor or value % 16 == 0:
            known[index,] = [["tt.divisibility", 16]]
    signature = {name: signature[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=known)
    return triton.compile(source, target=HOPPER, options=options)


def disassemble(compiled):
    """The instructions of a binary, and the positions of its labels."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        text = subprocess.run([TOOLS / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True).stdout
    code, labels = [], {}
    for line in text.splitlines():
        if label := re.match(r"(\.L_x_\w+):", line.strip()):
            labels[label[1]] = len(code)
        elif instruction := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?) ?;", line):
            code.append(instruction[1])
    return code, labels


def measure(code, labels):
    """Numbers of instructions and of spills, in the whole kernel and in its longest loop."""
    loop, found = [], {}
    for end, instruction in enumerate(code):
        target = re.search(r"\bBRA\b.*`\((\.L_x_\w+)\)", instruction)
        if target and labels.get(target[1], end) < end:
            loop = max(loop, code[labels[target[1]] : end + 1], key=len)
    for name, part in (("all", code), ("loop", loop)):
        found |= {f"{name}_instructions": len(part), f"{name}_spills": sum(bool(re.search("LDL|STL", x)) for x in part)}
    return found


def reads_of_unset_registers(code):
    """The instructions that read a uniform register that no instruction writes."""
    written, read = set(), []
    for instruction in code:
        operation, _, operands = re.sub(r"^@!?U?P\w+ +", "", instruction).partition(" ")
        operands = [operand.strip() for operand in operands.split(",")]
        if re.match("U|R2UR|S2UR|CS2UR|VOTEU|LDCU|REDUX", operation):
            while re.fullmatch(r"!?U?P(T|\d)", operands[0]):
                operands.pop(0)
            target = re.fullmatch(r"UR(\d+)", operands.pop(0))
            width = 4 if ".128" in operation else 2 if re.search(r"\.64|\.WIDE", operation) else 1
            written |= {int(target[1]) + i for i in range(width)} if target else set()
        of_factor = r"gdesc\[UR(\d+)\]"  # in four: where the factors are, the first one unless it is in registers
        for number in map(int, re.findall(of_factor, ",".join(operands))):
            first = number + 2 * bool(re.match(r"R\d", operands[1]))
            read += [(each, instruction) for each in range(first, number + 4)]
        rest = re.sub(of_factor, "", ",".join(operands))
        read += [(int(number), instruction) for number in re.findall(r"\bUR(\d+)", rest)]
    return [instruction for number, instruction in read if number not in written]


if __name__ == "__main__":
    base, mixings, *shape = sys.argv[2].split(",")
    module = importlib.import_module(f"madbench.mixers.srg.kernels.{sys.argv[1]}")
    rows, seen = {}, set()
    for kernel, arguments, constants in launches(module, base, mixings, [int(size) for size in shape]):
        if (program := (kernel.__name__, *sorted(constants.items()))) in seen:
            continue
        seen.add(program)
        compiled = compile_launch(kernel, arguments, constants)
        code, labels = disassemble(compiled)
        row = rows.setdefault(
            kernel.__name__, measure(code, labels) | {"shared_bytes": compiled.metadata.shared, "unset": []}
        )
        row["unset"] += reads_of_unset_registers(code)
        if "S" in constants:
            lanes = 32 * constants["num_warps"]
            row["loop_instructions_a_score"] = row["loop_instructions"] * lanes / (constants["P"] * constants["S"])
    print(json.dumps(rows))
