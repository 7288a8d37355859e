"""Times forward and backward of a mixer on every path that computes it, and measures their peak memory.

    python bench/mixer.py [--labels S R-cg-q-12o] [--lengths 128,512,1024] [--d-model 128] [--batch 8]
                          [--device cpu|cuda] [--dtype float32|bfloat16] [--repeats 5] [--json]

Paths take turns within a round and are compared round by round, so that a noisy machine slows all of them alike.
Ranks come from published counting, which keeps the mixing rank at 16 at every length.

Peak memory is what one forward and backward pass adds to parameters and input, gradients included. On CUDA it is
the allocator's peak. On the CPU it is the peak of the bytes in live tensors that torch operations returned; the
workspace inside an operation is not seen. There the dense paths grow as B H T T, and chunked as B H M T with
M = 128 rows a block.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn

from madbench.errors import MadbenchError, TrainingError
from madbench.labels import Variant, expand, parse
from madbench.mixers import build
from madbench.mixers.srg.dynamic_mlp import PATHS
from madbench.training.cost import PeakMemory
from madbench.training.devices import resolve_device

LABELS = ("S", "R", "R-cg-q-12", "R-cg-q-12o", "G-cg-q-12o")
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", nargs="+", default=LABELS, help="labels or sets of labels of the S/R/G grammar")
    parser.add_argument("--lengths", type=_whole_numbers, default=[128, 512, 1024], help="e.g. 128,512,1024")
    parser.add_argument("--d-model", type=_positive, default=128, help="width")
    parser.add_argument("--batch", type=_positive, default=8, help="sequences")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1 or auto")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="bfloat16: by autocast")
    parser.add_argument("--repeats", type=_positive, default=5, help="rounds that count, after one that does not")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args()
    try:
        variants = [parse(label) for label in expand(options.labels)]
        if other := [str(variant) for variant in variants if not isinstance(variant, Variant)]:
            parser.error(f"{other[0]} has no paths to compare; give labels of the S/R/G grammar")
        options.device = resolve_device(options.device)
        rows = list(measure(variants, options))
    except MadbenchError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps(machine(options) | {"rows": rows}, indent=2))
    else:
        print_table(rows, options)


def measure(variants: list[Variant], options: argparse.Namespace) -> Iterator[dict]:
    """One row a label, length and path: milliseconds, speed over dense, steps a second, peak MiB, or an error."""
    cells = [(variant, length) for variant in variants for length in options.lengths]
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(cells))
        for variant, length in cells:
            progress.update(task, description=f"{variant} at {length}")
            yield from measure_paths(variant, length, options)
            progress.advance(task)


def measure_paths(variant: Variant, length: int, options: argparse.Namespace) -> Iterator[dict]:
    """The rows of one label at one length, its paths in turn in each round."""
    torch.manual_seed(0)
    x = torch.randn(options.batch, length, options.d_model, device=options.device, requires_grad=True)
    peaks, seconds, errors = {}, {}, {}
    mixers = dict(applicable(variant, length, options))
    for path, mixer in mixers.items():
        try:
            peaks[path], seconds[path] = peak_bytes(mixer, x, options.dtype), []
        except RuntimeError as error:
            errors[path] = out_of_memory(error)
    for round_ in range(1 + options.repeats):
        for path in list(seconds):
            try:
                spent = time_pass(mixers[path], x, options.dtype)
            except RuntimeError as error:
                errors[path] = out_of_memory(error)
                del seconds[path]
                continue
            if round_:
                seconds[path].append(spent)
    for path in mixers:
        row = {"label": str(variant), "length": length, "path": path}
        if path in errors:
            yield row | {"error": errors[path]}
            continue
        median = statistics.median(seconds[path])
        ratio = None
        if "dense" in seconds:
            ratio = statistics.median(dense / own for dense, own in zip(seconds["dense"], seconds[path]))
        yield row | {
            "milliseconds": 1e3 * median,
            "speed_over_dense": ratio,
            "steps_per_second": 1 / median,
            "peak_mib": peaks[path] / MIB,
        }


def applicable(variant: Variant, length: int, options: argparse.Namespace) -> Iterator[tuple[str, nn.Module]]:
    """The paths that compute ``variant`` on this device, each with its mixer."""
    for path in PATHS:
        if path in ("auto", "reference") or (path == "fused" and options.device == "cpu"):
            continue
        try:
            mixer = build(variant, options.d_model, length, budget="paper", path=path)
        except TrainingError:
            continue
        yield path, mixer.to(options.device)


def forward_backward(mixer: nn.Module, x: Tensor, dtype: str) -> None:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
        y = mixer(x)
    y.sum().backward()


def clear_gradients(mixer: nn.Module, x: Tensor) -> None:
    mixer.zero_grad(set_to_none=True)
    x.grad = None


def time_pass(mixer: nn.Module, x: Tensor, dtype: str) -> float:
    """Seconds of one forward and backward pass."""
    clear_gradients(mixer, x)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    started = time.perf_counter()
    forward_backward(mixer, x, dtype)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter() - started


def peak_bytes(mixer: nn.Module, x: Tensor, dtype: str = "float32") -> int:
    """Bytes that one forward and backward pass adds at its peak."""
    clear_gradients(mixer, x)
    if not x.is_cuda:
        with PeakMemory() as memory:
            forward_backward(mixer, x, dtype)
        return memory.peak
    torch.cuda.synchronize(x.device)
    torch.cuda.reset_peak_memory_stats(x.device)
    before = torch.cuda.memory_allocated(x.device)
    forward_backward(mixer, x, dtype)
    torch.cuda.synchronize(x.device)
    return torch.cuda.max_memory_allocated(x.device) - before


def out_of_memory(error: RuntimeError) -> str:
    """What a cell says when memory runs out; any other error passes."""
    if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):
        raise error
    return "out of memory"


def machine(options: argparse.Namespace) -> dict:
    on_cuda = options.device != "cpu"
    return {
        "device": torch.cuda.get_device_name(options.device) if on_cuda else platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "d_model": options.d_model,
        "batch": options.batch,
        "dtype": options.dtype,
        "repeats": options.repeats,
        "peak_memory": "allocator" if on_cuda else "live tensors",
    }


def print_table(rows: list[dict], options: argparse.Namespace) -> None:
    about = machine(options)
    size = f"d_model {options.d_model}, batch {options.batch}, {options.dtype}, {about['device']}"
    table = Table(title=f"Forward and backward, {size}, torch {about['torch']}")
    for column in ("label", "length", "path"):
        table.add_column(column, justify="right" if column == "length" else "left", no_wrap=True)
    peak = f"peak MiB\n{about['peak_memory']}"
    for column in ("ms", "speed /\ndense", "steps/s", peak, "peak\n~ T^"):
        table.add_column(column, justify="right")
    previous: dict[tuple[str, str], dict] = {}
    for index, row in enumerate(rows):
        if index and (row["label"], row["length"]) != (rows[index - 1]["label"], rows[index - 1]["length"]):
            table.add_section()
        cells = [row["label"], str(row["length"]), row["path"]]
        if "error" in row:
            table.add_row(*cells, row["error"])
            continue
        ratio = row["speed_over_dense"]
        grows = growth(previous.get((row["label"], row["path"])), row)
        cells += [f"{row['milliseconds']:.1f}", _two_digits(ratio), _two_digits(row["steps_per_second"])]
        table.add_row(*cells, f"{row['peak_mib']:.1f}", _two_digits(grows))
        previous[row["label"], row["path"]] = row
    Console().print(table)


def growth(shorter: dict | None, longer: dict) -> float | None:
    """The exponent x of peak ~ T^x between two lengths."""
    if shorter is None or shorter["length"] == longer["length"]:
        return None
    return math.log(longer["peak_mib"] / shorter["peak_mib"]) / math.log(longer["length"] / shorter["length"])


def _two_digits(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def _whole_numbers(text: str) -> list[int]:
    return sorted({_positive(part) for part in text.split(",")})


if __name__ == "__main__":
    main()
