"""Time the HyperGLU layer beside the layer that the authors of HyperMLP released, with the same weights.

    python studies/released_layer.py --release CHECKOUT [--shape 1x256x768] [--heads 12] [--threads 1] [--json]

CHECKOUT is a clone of github.com/LJC-FVNR/HyperMLP. Both layers run forward and backward in float32 on the CPU, in
turns. Before, their outputs are compared, and the gradients of the input in float64. The released layer runs on its
path ``dense`` and on its path ``chunked`` with several numbers of rows. The last row of the table has the linear maps
of madbench's layer alone.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from madbench.bench.mixer import InputShape, check_error
from madbench.bench.parts import BenchSetup
from madbench.bench.timing import Timing, TimingLimits, keep_freed_memory, time_in_turns
from madbench.errors import ConfigError, MadbenchError
from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference
from madbench.mixers.ops.linear_maps import call
from madbench.mixers.srg.dynamic_mlp import DynamicMLP

LABEL, FILE = "G-cg-q-12o", "hyperglu.py"
CHUNKS = (64, 128, 256)
"""Rows of a block of the released layer's path ``chunked``."""
RENAMED = {
    "c_proj": "o", "conv1.conv": "k_conv", "conv2.conv": "v_conv", "left_gate": "qk_gate", "right_gate": "vo_gate",
    "control1": "mix1.gate", "control2": "mix2.gate", "op.mix.U": "mix1.A", "op.mix.Vt": "mix1.B", "op.mix.d": "mix1.p",
    "op2.mix.U": "mix2.B", "op2.mix.Vt": "mix2.A", "op2.mix.d": "mix2.p",
}  # fmt: skip
"""Our name of a released parameter, or of its module, if it has another name."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--release", type=Path, required=True, help="a clone of github.com/LJC-FVNR/HyperMLP")
    parser.add_argument("--shape", default="1x256x768", help="of the layer's input, BxTxD")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9, help="of which the medians are shown")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    try:
        shape = InputShape(*map(int, options.shape.split("x")))
    except (TypeError, ValueError):
        parser.error(f"--shape {options.shape}: expected BxTxD, such as 1x256x768")
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    try:
        seconds = measure(load_release(options.release), shape, options.heads, options.rounds)
    except MadbenchError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps({"shape": str(shape), "heads": options.heads, "seconds": seconds}, indent=2))
    else:
        print_table(seconds, f"{LABEL}, {shape}, {options.heads} heads, {options.threads} thread(s)")


def load_release(checkout: Path) -> ModuleType:
    """The released module. Raises ``ConfigError`` if the folder does not have it."""
    path = checkout / FILE
    if not path.is_file():
        raise ConfigError(f"--release {checkout}: expected a clone of github.com/LJC-FVNR/HyperMLP, which has {FILE}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader  # FILE ends in .py
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def measure(release: ModuleType, shape: InputShape, heads: int, rounds: int) -> dict[str, float]:
    """Median seconds of forward and backward, by case. Raises ``WrongResultError`` if two layers differ."""
    torch.manual_seed(0)
    ours = cast(DynamicMLP, build(parse(LABEL), shape.d_model, shape.length, n_head=heads, budget="paper"))
    for parameter in ours.parameters():  # initial scores can be so small that only the epsilons of norms decide
        nn.init.normal_(parameter, std=shape.d_model**-0.5)
    x = torch.randn(shape.batch, shape.length, shape.d_model)
    chunks = [rows for rows in CHUNKS if rows < shape.length]
    layers: dict[str, nn.Module] = {"madbench": ours, "dense": released_layer(release, ours, "dense")}
    layers |= {f"chunked {rows}": released_layer(release, ours, "chunked", rows) for rows in chunks}
    setup = BenchSetup([LABEL], "cpu", "float32", TimingLimits(rounds), "full")
    (expected, _), (_, slope) = run(ours, x), run_in_float64(ours, x)
    for layer in layers.values():
        (y, _), (_, of_x) = run(layer, x), run_in_float64(layer, x)
        check_error(max(difference(y, expected), difference(of_x, slope)), setup)
    cases: dict[str, Callable[[], object]] = {name: functools.partial(run, layer, x) for name, layer in layers.items()}
    maps = [layer for layer in ours.modules() if isinstance(layer, nn.Linear)]
    cases["linear maps"] = functools.partial(run_maps, maps, x)
    seconds = {}
    for name, time in time_in_turns(cases, setup.limits, "cpu").items():
        if not isinstance(time, Timing):
            raise ConfigError(time)
        seconds[name] = time.median
    return seconds


def released_layer(release: ModuleType, ours: DynamicMLP, path: str, rows: int = 1024) -> nn.Module:
    """The released layer with the weights of ours. It stores the rows of tables by lag, the oldest first."""
    ranks, size = ours.allocation.ranks, ours.allocation.size
    config = release.HyperGLUConfig(
        n_embd=size.d_model, n_head=size.n_head, block_size=size.max_len, qk_rank=ranks["qk"], vo_rank=ranks["vo"],
        op1_rank=ranks["mix"], op2_rank=ranks["mix"], impl_default=path, chunk_T=rows,
    )  # fmt: skip
    layer: nn.Module = release.HyperGLU(config)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            module, _, last = name.rpartition(".")
            of_ours = RENAMED.get(name) or f"{RENAMED.get(module, module)}.{last}"
            weight = ours.get_parameter(of_ours)
            weight = weight.flip(1) if ".mix." in name else weight
            parameter.copy_((weight.mT if last == "Vt" else weight).view_as(parameter))
    return layer


def run(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output of a layer, and the gradient of x. All parameters get their gradients too."""
    layer.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    y = call(layer, x)
    y.backward(y.detach())
    assert x.grad is not None
    return y.detach(), x.grad


def run_in_float64(layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`run`, with a copy of the layer in float64.

    In float32, gradients of two layers can differ: of a million scores, one can be so close to zero that rounding
    decides whether ReLU lets it pass.
    """
    return run(copy.deepcopy(layer).double(), x.double())


def run_maps(maps: Sequence[nn.Linear], x: Tensor) -> None:
    """Forward and backward of linear maps alone, each from the columns of x that it has inputs for."""
    for layer in maps:
        run(layer, x[..., : layer.in_features])


def print_table(seconds: dict[str, float], title: str) -> None:
    best = min(time for name, time in seconds.items() if name == "dense" or name.startswith("chunked"))
    table = Table(title=title)
    for column in ("layer", "ms", "speed over the best released path"):
        table.add_column(column, justify="left" if column == "layer" else "right")
    for name, time in seconds.items():
        table.add_row(name, f"{1e3 * time:.1f}", f"{best / time:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
