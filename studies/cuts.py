"""Time the operator of a label with o while one of its kernels uses other tile sizes than usual.

python studies/cuts.py [LABEL] [--shape 8x1024x768] [--kernels rows,keys] [--json]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from rich.console import Console
from rich.table import Table
from torch import nn

from madbench.bench.mixer import InputShape, check_path, core_passes, make
from madbench.bench.parts import BenchRow, BenchSetup
from madbench.bench.timing import TimingLimits, reason_unmeasured, time_in_turns
from madbench.errors import ConfigError, MadbenchError
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.kernels import lag
from madbench.training.devices import resolve_device

Cut = tuple[int, int, int]
CUTS: list[Cut] = [*itertools.product((16, 32), (1, 2, 4), (1, 2, 3))]
"""The tried tile sizes: rows of a tile, warps and stages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("label", nargs="?", default="G-cg-q-12o", metavar="LABEL")
    parser.add_argument("--shape", default="8x1024x768", help="of the mixer's input, BxTxD")
    parser.add_argument("--kernels", help="such as rows,keys; all by default, about a minute each")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    names = [kernel.removesuffix("_kernel") for kernel in lag.CUTS]
    asked = [name for name in (options.kernels or "").split(",") if name] or names
    if unknown := [name for name in asked if name not in names]:
        parser.error(f"--kernels: no {unknown[0]!r}; there are {', '.join(names)}")
    try:
        shape = InputShape(*map(int, options.shape.split("x")))
    except (TypeError, ValueError):
        parser.error(f"--shape {options.shape}: expected BxTxD, such as 8x1024x768")
    try:
        if (device := resolve_device("auto")) == "cpu":
            raise ConfigError("the kernels run on a CUDA GPU, and torch finds none")
        setup = BenchSetup([options.label], device, "bfloat16", TimingLimits(5), "full")
        rows: list[BenchRow] = []
        with Console(stderr=True).status("") as status:
            for i, name in enumerate(asked, 1):
                status.update(f"{name}, kernel {i} of {len(asked)}: {len(CUTS)} cuts")
                rows += measure(shape, setup, name)
    except MadbenchError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps({"shape": str(shape), "rows": rows}, indent=2))
    else:
        print_table(shape, rows)


def measure(shape: InputShape, setup: BenchSetup, name: str, cuts: Sequence[Cut] = CUTS) -> Iterator[BenchRow]:
    """Milliseconds of the operator, forward and backward: one row per cut (tile size) of the kernel, the usual first.

    All other kernels use their usual cut. Cuts are timed in turns. For a cut with an error, or with wrong output or
    gradients, the row has the reason instead of times.
    """
    (label,) = setup.labels
    mixer = cast(nn.Module, make(label, shape, setup, "fused"))
    if not isinstance(mixer, DynamicMLP) or not mixer.by_lag:
        raise ConfigError(f"{label}: expected a label with o, such as G-cg-q-12o")
    run = core_passes(mixer, shape, setup)["core", True]
    kernel = f"{name}_kernel"
    usual: Cut = lag.CUTS[kernel][mixer.allocation.vo_width > lag.WIDE]
    problems: dict[Cut, str] = {}
    for cut in cuts:
        try:
            _with_cut(kernel, cut, functools.partial(check_path, label, shape, setup, "fused"))
        except Exception as error:  # kernels and compilers raise exceptions of many kinds
            problems[cut] = reason_unmeasured(error)
    cases = dict.fromkeys([usual, *(cut for cut in cuts if cut not in problems)])
    passes = {cut: functools.partial(_with_cut, kernel, cut, run) for cut in cases}
    times = time_in_turns(passes, setup.limits, setup.device)
    for cut in dict.fromkeys([usual, *cuts]):
        row = {"kernel": name, **dict(zip(("rows", "warps", "stages"), cut)), "is_usual": cut == usual}
        time = problems.get(cut) or times[cut]
        yield row | ({"error": time} if isinstance(time, str) else time.milliseconds("step"))


def _with_cut(kernel: str, cut: Cut, run: Callable[[], object]) -> None:
    usual = lag.CUTS[kernel]
    lag.CUTS[kernel] = (cut, cut)
    try:
        run()
    finally:
        lag.CUTS[kernel] = usual


def print_table(shape: InputShape, rows: Sequence[BenchRow]) -> None:
    table = Table(title=f"The operator at {shape}, forward and backward; * the usual cut")
    for column in ("kernel", "rows", "warps", "stages", "ms", "spread"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    for row in sorted(rows, key=lambda row: (row["kernel"], row.get("step_ms", float("inf")))):
        cut = [str(row[name]) for name in ("rows", "warps", "stages")]
        if "error" in row:
            times = [row["error"], ""]
        else:
            times = [f"{row['step_ms']:.3f}", f"{row['step_low_ms']:.3f}-{row['step_high_ms']:.3f}"]
        table.add_row(f"{row['kernel']} *" if row["is_usual"] else row["kernel"], *cut, *times)
    Console().print(table)


if __name__ == "__main__":
    main()
