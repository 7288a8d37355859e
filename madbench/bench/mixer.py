"""Time and memory of single mixers, by path and by length; no time of a path that computes something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

from madbench.bench.parts import Column, Curve, Part, Row, Setup
from madbench.bench.timing import MIB, Timing, ceiling_flops, in_turns, kept_bytes, reason
from madbench.errors import MadbenchError, TrainingError
from madbench.mixers import build
from madbench.mixers.checks import difference
from madbench.models.blocks import autocast

HEADS = 2
CHECKED_LENGTH = 512  # at most, of the comparison with float64
TOLERANCE = {"float32": 1e-4, "bfloat16": 5e-2}
"""Largest relative error of outputs and gradients, as norms, against the dense path in float64."""


def paths_of(mixer: nn.Module) -> Sequence[str]:
    """The paths that a mixer of this class may be built with, the automatic choice and the slow reference left out."""
    return [path for path in getattr(mixer, "paths", ()) if path not in ("auto", "reference")]


def make(label: str, length: int, setup: Setup, path: str = "auto", d_model: int = 128) -> nn.Module:
    """The mixer of a label on the device, always with the same weights; ranks as in the paper, the same at any length."""
    torch.manual_seed(0)
    return build(label, d_model, length, n_head=HEADS, budget="paper", path=path).to(setup.device)


def pass_of(mixer: nn.Module, x: Tensor, setup: Setup, backward: bool = True) -> Callable[[], Tensor]:
    """A forward pass, and a backward pass for all gradients."""

    def run() -> Tensor:
        with torch.set_grad_enabled(backward), autocast(setup.device, setup.precision):
            y = mixer(x)
        if backward:
            mixer.zero_grad(set_to_none=True)
            x.grad = None
            y.backward(y.detach())
        return y

    return run


def error_of(label: str, length: int, setup: Setup, path: str, d_model: int) -> float:
    """The largest relative error of output and gradients of a path, on one short sequence, against dense float64."""
    length = min(length, CHECKED_LENGTH)
    x = torch.randn(1, length, d_model, generator=torch.Generator().manual_seed(1)).to(setup.device)
    mixer = make(label, length, setup, path, d_model)
    exact = make(label, length, setup, "dense" if "dense" in paths_of(mixer) else "auto", d_model).double()
    found = []
    for module, given, how in ((mixer, x, setup.precision), (exact, x.double(), "float64")):
        given = given.requires_grad_()
        with autocast(setup.device, how):
            y = module(given)
        gradients = torch.autograd.grad(y, [given, *module.parameters()], y.detach(), materialize_grads=True)
        flat = torch.cat([gradient.flatten().double() for gradient in gradients])
        found.append((y.detach().double(), flat))
    return max(difference(ours, truth) for ours, truth in zip(*found))


def checked(label: str, length: int, setup: Setup, path: str, d_model: int) -> str:
    """What is wrong with a path, in a sentence; empty where it computes what it should."""
    try:
        error = error_of(label, length, setup, path, d_model)
    except (RuntimeError, MadbenchError) as problem:
        return reason(problem)
    bound = TOLERANCE[setup.precision]
    return "" if error <= bound else f"wrong: relative error {error:.1e}, at most {bound:.0e} is allowed"


def _measured(label: str, length: int, batch: int, paths: Sequence[str], setup: Setup) -> Iterator[Row]:
    """A row a path at one length."""
    d_model = setup.d_model or 128
    try:
        known = paths_of(make(label, length, setup, d_model=d_model))
    except MadbenchError as error:
        yield {"label": label, "length": length, "error": str(error)}
        return
    dtype = torch.bfloat16 if setup.precision == "bfloat16" else torch.float32
    ceiling, mixers, errors = ceiling_flops(setup.device, dtype), {}, {}
    for path in paths or known:
        try:
            mixers[path] = make(label, length, setup, path, d_model)
        except TrainingError:
            continue  # not for this label or this device
        errors[path] = checked(label, length, setup, path, d_model)
    x = torch.randn(batch, length, d_model, device=setup.device, requires_grad=True)
    right = [path for path in mixers if not errors[path]]
    both = {(path, way): pass_of(mixers[path], x, setup, way) for path in right for way in (False, True)}
    times = in_turns(both, setup.limits, setup.device)
    for path, mixer in mixers.items():
        row = {"label": label, "length": length, "batch": batch, "d_model": d_model, "path": path}
        if hasattr(mixer, "resolve_path"):
            row["path"] = mixer.resolve_path(batch, length)
        forward, step = times.get((path, False)), times.get((path, True))
        problem = errors[path] or next((time for time in (forward, step) if isinstance(time, str)), "")
        if problem:
            yield row | {"error": problem}
            continue
        flops = 3 * mixer.allocation.flops_per_token(length) * batch * length if hasattr(mixer, "allocation") else None
        dense = times.get(("dense", True))
        yield row | {
            "forward_ms": 1e3 * forward.median,
            "step_ms": 1e3 * step.median,
            "step_low_ms": 1e3 * step.low,
            "step_high_ms": 1e3 * step.high,
            "spread": f"{1e3 * step.low:.1f}-{1e3 * step.high:.1f}",
            "speed_over_dense": dense.median / step.median if isinstance(dense, Timing) else None,
            "kept_mib": kept_bytes(mixer, pass_of_forward(mixer, x, setup)) / MIB,
            "gflop": flops and flops / 1e9,
            "percent_of_ceiling": flops and 100 * flops / step.median / ceiling,
        }


def pass_of_forward(mixer: nn.Module, x: Tensor, setup: Setup) -> Callable[[], Tensor]:
    """A forward pass that keeps what the backward pass needs."""

    def run() -> Tensor:
        with autocast(setup.device, setup.precision):
            return mixer(x)

    return run


def _lengths(setup: Setup) -> Sequence[int]:
    return setup.lengths or ((32, 128, 256) if setup.is_cpu else (128, 1024))


def _long(setup: Setup) -> Sequence[int]:
    return setup.lengths or tuple(2**i for i in range(7, 12 if setup.is_cpu else 15))


def measure_paths(setup: Setup) -> Iterator[Row]:
    """Every path of every label at every length."""
    for length in _lengths(setup):
        for label in setup.labels:
            yield from _measured(label, length, setup.batch or (32 if setup.is_cpu else 128), (), setup)


def measure_lengths(setup: Setup) -> Iterator[Row]:
    """The automatic path of every label against length, one sequence."""
    for length in _long(setup):
        for label in setup.labels:
            for row in _measured(label, length, setup.batch or 1, ("auto",), setup):
                per_token = {"us_per_token": 1e3 * row["step_ms"] / row["batch"] / length} if "step_ms" in row else {}
                yield {**row, **per_token}


_START = [Column("label", "Label"), Column("length", "T"), Column("path", "Path")]
_END = [Column("error", "")]
MIXERS = Part(
    "mixers",
    "time and memory of a mixer, by path",
    "Milliseconds of a mixer's forward pass, and of forward and backward with the least and the longest; speed over the dense "
    "path; MiB kept for the backward pass; GFLOP by formula and their share of what a matrix product reaches here.",
    [
        *_START,
        Column("forward_ms", "Forward", "{:.1f}"),
        Column("step_ms", "Both", "{:.1f}"),
        Column("spread", "Spread"),
        Column("speed_over_dense", "Speed", "{:.2f}"),
        Column("kept_mib", "Kept", "{:.1f}"),
        Column("gflop", "GFLOP", "{:.1f}"),
        Column("percent_of_ceiling", "%", "{:.0f}"),
        *_END,
    ],
    Curve("length", "step_ms", "label", "length T", "ms, forward and backward"),
    measure_paths,
    ("label", "length"),
    lambda setup: len(setup.labels) * len(_lengths(setup)),
)
LENGTH = Part(
    "length",
    "time and memory of a mixer against length",
    "Milliseconds of a mixer's forward and backward pass on the path that it takes by itself, microseconds a token, MiB kept for "
    "the backward pass.",
    [
        *_START,
        Column("forward_ms", "Forward", "{:.1f}"),
        Column("step_ms", "Both", "{:.1f}"),
        Column("spread", "Spread"),
        Column("us_per_token", "us/token", "{:.1f}"),
        Column("kept_mib", "Kept", "{:.1f}"),
        *_END,
    ],
    Curve("length", "step_ms", "label", "length T", "ms, forward and backward"),
    measure_lengths,
    ("label", "length"),
    lambda setup: len(setup.labels) * len(_long(setup)),
)
