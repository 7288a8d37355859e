"""Benchmarks of time and memory of single mixers, by path and by length. A path with wrong results is not timed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.bench.layers import Layers
from madbench.bench.parts import BenchColumn, BenchPart, BenchRow, BenchSetup, Curve
from madbench.bench.timing import MIB, Timing, ceiling_flops, kept_bytes, reason_unmeasured, time_in_turns
from madbench.errors import MadbenchError, TrainingError
from madbench.jobs import MixedPrecision, Precision
from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference
from madbench.mixers.sequence import block_period
from madbench.mixers.srg.kernels import fused
from madbench.models.blocks import autocast

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP

HEADS = 2
FLASH_HEAD_WIDTH = 64
CHECKED_ROWS = 1024  # most rows in the comparison with float64
TOLERANCE: Mapping[MixedPrecision, float] = {"float32": 1e-4, "bfloat16": 5e-2}
"""The largest allowed relative error (in norm) of outputs and gradients against the dense path in float64."""
COMPILED = "{} compiled"  # a path through torch.compile


@dataclass(frozen=True)
class InputShape:
    """The shape (B, T, D) of a mixer's input: sequences, tokens per sequence, and width."""

    batch: int
    length: int
    d_model: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.length}x{self.d_model}"


class WrongResultError(MadbenchError):
    """Results of a path or of decoding differ from the correct results by more than rounding explains."""


@dataclass
class Case:
    """A label on one computation path, to be timed at one input shape."""

    label: str
    path: str
    mixer: Mixer | None = None
    problem: str = ""
    """The reason why the case cannot be timed. Empty if it can."""


def paths_of(mixer: Mixer) -> list[str]:
    """The paths of the mixer's class, without ``auto`` and the slow ``reference``. Empty if the class declares none."""
    return [path for path in getattr(mixer, "paths", ()) if path not in ("auto", "reference")]


def make(label: str, shape: InputShape, setup: BenchSetup, path: str = "auto", n_head: int = HEADS) -> Mixer:
    """Build the mixer of ``label`` on the device, with fixed weights.

    For a hybrid: the mixers of one pattern (``Layers``). The budget is ``paper``, because the ranks under it do not
    depend on the sequence length.
    """
    torch.manual_seed(0)
    path = "auto" if "," in path else path  # a list of the paths that the mixers of a hybrid choose themselves
    make_module: Callable[..., nn.Module] = (
        functools.partial(Layers, label) if block_period(label) > 1 else functools.partial(build, parse(label))
    )
    module = make_module(shape.d_model, shape.length, n_head=n_head, budget="paper", path=path).to(setup.device)
    return cast("Mixer", module)


def resolved_path(mixer: Mixer, shape: InputShape, setup: BenchSetup, path: str) -> str:
    """The path that the mixer takes at this shape and precision. It differs from ``path`` only if that is ``auto``."""
    if path != "auto" or not hasattr(mixer, "resolve_path"):
        return path
    with autocast(setup.device, setup.precision):
        return mixer.resolve_path(shape.batch, shape.length)


def forward_of(module: nn.Module, x: Tensor, setup: BenchSetup) -> Callable[[], Tensor]:
    """A function that computes a forward pass and keeps the tensors that a backward pass needs.

    It uses the precision of ``setup``.
    """

    def run() -> Tensor:
        with autocast(setup.device, setup.precision):
            y: Tensor = module(x)
            return y

    return run


def pass_of(module: nn.Module, x: Tensor, setup: BenchSetup, backward: bool) -> Callable[[], None]:
    """A function to be timed: a forward pass without gradients or, with ``backward``, a forward and a backward pass.

    The backward pass computes the gradients of all parameters and of ``x``.
    """
    forward = forward_of(module, x, setup)

    def run() -> None:
        with torch.set_grad_enabled(backward):
            y = forward()
        if backward:
            module.zero_grad(set_to_none=True)
            x.grad = None
            y.backward(y.detach())

    return run


def error_of(label: str, shape: InputShape, setup: BenchSetup, path: str, n_head: int = HEADS) -> float:
    """The largest relative error of a path on one sequence of at most ``CHECKED_ROWS`` tokens.

    It is the larger of two errors, each in norm: that of the output, and that of all gradients as one vector. The truth
    is the dense path in float64, or the automatic path in float64 if there is no dense path.
    """
    rows = min(shape.length, CHECKED_ROWS)
    x = torch.randn(1, rows, shape.d_model, generator=torch.Generator().manual_seed(1)).to(setup.device)
    mixer = make(label, shape, setup, path, n_head)
    exact = make(label, shape, setup, "dense" if "dense" in paths_of(mixer) else "auto", n_head).double()
    (y, gradients), (truth, exact_gradients) = (
        _outcome(mixer, x, setup.device, setup.precision),
        _outcome(exact, x.double(), setup.device, "float64"),
    )
    return max(difference(y, truth), difference(gradients, exact_gradients))


def _outcome(module: nn.Module, x: Tensor, device: str, precision: Precision) -> tuple[Tensor, Tensor]:
    """The output of a module, and the gradients of the input and all parameters in one vector, both in float64."""
    x = x.detach().requires_grad_()
    with autocast(device, precision):
        y = module(x)
    gradients = torch.autograd.grad(y, [x, *module.parameters()], y.detach(), materialize_grads=True)
    return y.detach().double(), torch.cat([gradient.flatten().double() for gradient in gradients])


def check_path(label: str, shape: InputShape, setup: BenchSetup, path: str, n_head: int = HEADS) -> None:
    """Raise ``WrongResultError`` if the relative error of a path (:func:`error_of`) is larger than rounding explains.

    The limit is ``TOLERANCE``. In 16 bits it is twice the error of the dense path, if that is larger, because scores
    near zero can change their sign under ReLU.
    """
    error, usual = error_of(label, shape, setup, path, n_head), 0.0
    if not error <= TOLERANCE[setup.precision] and setup.precision != "float32" and path != "dense":
        if "dense" in paths_of(make(label, shape, setup, path, n_head)):
            usual = error_of(label, shape, setup, "dense", n_head)
    check_error(error, setup, 2 * usual)


def check_error(error: float, setup: BenchSetup, own_tolerance: float = 0.0) -> None:
    """Raise ``WrongResultError`` if ``error`` is NaN or larger than allowed.

    The largest allowed error is ``own_tolerance`` or the tolerance of the precision, whichever is larger.
    """
    if not error <= (tolerance := max(own_tolerance, TOLERANCE[setup.precision])):
        raise WrongResultError(f"wrong: relative error {error:.1e}, at most {tolerance:.0e} is allowed")


def _cases(label: str, paths: Sequence[str], shape: InputShape, setup: BenchSetup) -> list[Case]:
    """The cases of a label, one per path. The results of each path are checked.

    ``paths`` has the requested paths. If it is empty, all paths of the label that run on this device are used. A case
    that fails has its ``problem``.
    """
    try:
        all_paths = paths_of(make(label, shape, setup)) or ["auto"]
    except MadbenchError as error:
        return [Case(label, "-", problem=reason_unmeasured(error))]
    cases = []
    for path in paths or all_paths:
        try:
            mixer = make(label, shape, setup, path)
            path = resolved_path(mixer, shape, setup, path)
            check_path(label, shape, setup, path)
            cases.append(Case(label, path, mixer))
        except TrainingError as error:
            if paths:
                cases.append(Case(label, path, problem=reason_unmeasured(error)))
        except Exception as error:  # many kinds of errors of a kernel
            cases.append(Case(label, path, problem=reason_unmeasured(error)))
    return cases


def _compile(case: Case, x: Tensor, setup: BenchSetup) -> Case:
    """Return a copy of ``case`` with the mixer compiled.

    If compiling fails, or if the compiled mixer gives other results for the input ``x``, the reason is in its
    ``problem``.
    """
    mixer = make(case.label, InputShape(*x.shape), setup, case.path)
    compiled_case = Case(case.label, COMPILED.format(case.path), mixer)
    try:
        mixer.compile(dynamic=False)
        (y, gradients), (truth, exact) = (
            _outcome(cast("Mixer", compared_case.mixer), x, setup.device, setup.precision)
            for compared_case in (compiled_case, case)
        )
        check_error(max(difference(y, truth), difference(gradients, exact)), setup)
    except Exception as error:  # many kinds of errors of a compiler
        compiled_case.problem = reason_unmeasured(error)
    return compiled_case


def core_passes(
    mixer: DynamicMLP, shape: InputShape, setup: BenchSetup, attend: Callable[..., Tensor] = fused.attend
) -> dict[tuple[str, bool], Callable[[], Any]]:
    """Functions to be timed: our attention operator (``core``) and torch's (``flash``), without linear maps.

    The keys are ``(name, backward)``. If ``backward`` is True, the function runs the forward and the backward pass,
    otherwise only the forward pass. ``core`` is the operator of ``mixer``, computed by ``attend``. ``flash`` is softmax
    attention with heads of width 64.
    """
    dtype = getattr(torch, setup.precision)
    sizes, heads = mixer.allocation, (mixer.query_heads, mixer.n_head)

    def leaf(n_head: int, width: int, dtype: torch.dtype = dtype) -> Tensor:
        size = (shape.batch, n_head, shape.length, width)
        return torch.randn(size, device=setup.device, dtype=dtype).requires_grad_()

    q, k, v = leaf(heads[0], sizes.qk_width), leaf(heads[0], sizes.qk_width), leaf(heads[1], sizes.vo_width)
    mixings = [mixing.tables(shape.length) if mixing else None for mixing in (mixer.mix1, mixer.mix2)]
    strengths = [leaf(n, sizes.r, torch.float32) if mixing else None for n, mixing in zip(heads, mixings)]
    tables = itertools.chain.from_iterable(mixing for mixing in mixings if mixing)
    ours = [q, k, v, *(x for x in strengths if x is not None), *tables]
    theirs = [leaf(shape.d_model // FLASH_HEAD_WIDTH, FLASH_HEAD_WIDTH) for _ in range(3)]
    operators = {
        "core": (ours, lambda: attend(mixer.label.base, mixer.by_lag, q, k, v, *strengths, *mixings)),
        "flash": (theirs, lambda: F.scaled_dot_product_attention(theirs[0], theirs[1], theirs[2], is_causal=True)),
    }

    def run(inputs: Sequence[Tensor], operator: Callable[[], Tensor], backward: bool) -> None:
        with torch.set_grad_enabled(backward):
            o = operator()
        if backward:
            torch.autograd.grad(o, inputs, o.detach())

    return {
        (name, backward): functools.partial(run, inputs, operator, backward)
        for name, (inputs, operator) in operators.items()
        for backward in (False, True)
    }


def _measure_paths(
    paths_by_label: Sequence[tuple[str, Sequence[str]]], shape: InputShape, setup: BenchSetup
) -> Iterator[BenchRow]:
    """Measure paths of labels at one shape. One row per label and path, all timed in turns.

    ``paths_by_label`` has pairs of a label and its paths. If there is only one label, its rows also compare each path
    with the chunked path, or with the compiled chunked path if that was timed: ``speed`` is the ratio of speeds, and
    ``kept_share`` the ratio of kept memory. Rows for the attention operator alone (:func:`core_passes`) follow, with
    only the ``speed``, relative to ``flash``.
    """
    try:
        x = torch.randn(shape.batch, shape.length, shape.d_model, device=setup.device, requires_grad=True)
    except RuntimeError as error:  # also torch.OutOfMemoryError
        row: BenchRow = {"path": "-", "shape": str(shape), "error": reason_unmeasured(error)}
        yield from (row | {"label": label} for label, _ in paths_by_label)
        return
    cases = [case for label, paths in paths_by_label for case in _cases(label, paths, shape, setup)]
    by_path = {case.path: case for case in cases if not case.problem} if len(paths_by_label) == 1 else {}
    compiled_paths = [by_path[path] for path in ("chunked", "fused") if path in by_path and "sdpa" not in by_path]
    if setup.compiles and compiled_paths:
        torch.compiler.reset()
        cases += [_compile(case, x, setup) for case in compiled_paths]
    passes = {
        (case.label, case.path, way): pass_of(case.mixer, x, setup, way)
        for case in cases
        if case.mixer is not None and not case.problem
        for way in (False, True)
    }
    fused_mixer = by_path["fused"].mixer if "fused" in by_path else None
    if fused_mixer is not None and shape.d_model % FLASH_HEAD_WIDTH == 0:
        core = core_passes(cast("DynamicMLP", fused_mixer), shape, setup)
        passes |= {(paths_by_label[0][0], path, way): run for (path, way), run in core.items()}
        cases += [Case(paths_by_label[0][0], path) for path in ("core", "flash")]
    times = time_in_turns(passes, setup.limits, setup.device)
    rows = [_row(case, times, x, shape, setup) for case in cases]
    of_path = {row["path"]: row for row in rows if "step_ms" in row} if len(paths_by_label) == 1 else {}
    usual = of_path.get(COMPILED.format("chunked"), of_path.get("chunked"))
    for row in rows:
        reference = of_path.get("flash") if row["path"] in ("core", "flash") else usual
        if reference and "step_ms" in row:
            row |= {"beside": reference["path"], "speed": reference["step_ms"] / row["step_ms"]}
            if row.get("kept_mib") and reference.get("kept_mib"):
                row["kept_share"] = row["kept_mib"] / reference["kept_mib"]
        yield row


def _row(case: Case, times: Mapping[Any, Timing | str], x: Tensor, shape: InputShape, setup: BenchSetup) -> BenchRow:
    row: BenchRow = {"label": case.label, "path": case.path, "shape": str(shape)}
    row |= {"batch": shape.batch, "length": shape.length, "d_model": shape.d_model}
    if case.problem:
        return row | {"error": case.problem}
    forward, step = (times[case.label, case.path, way] for way in (False, True))
    if isinstance(forward, str) or isinstance(step, str):
        return row | {"error": forward if isinstance(forward, str) else step}
    row |= {"forward_ms": 1e3 * forward.median, **step.milliseconds("step")}
    row["us_per_token"] = 1e6 * step.median / shape.batch / shape.length
    if case.mixer is None:
        return row
    row["kept_mib"] = kept_bytes(case.mixer, forward_of(case.mixer, x, setup), setup.device) / MIB
    if hasattr(case.mixer, "allocation"):
        flops = 3 * case.mixer.allocation.flops_per_token(shape.length) * shape.batch * shape.length
        share = flops / step.median / ceiling_flops(setup.device, getattr(torch, setup.precision))
        row |= {"gflop": flops / 1e9, "percent_of_ceiling": 100 * share}
    return row


def _shapes(setup: BenchSetup) -> list[InputShape]:
    """The shapes for :func:`measure_paths`: those of MAD, and on a GPU also that of the language model.

    If ``setup`` has lengths, a batch or a width, they replace those of MAD.
    """
    if not (setup.is_cpu or setup.lengths or setup.batch or setup.d_model):
        return [InputShape(8, 1024, 768), InputShape(128, 128, 128), InputShape(128, 1024, 128)]
    batch, lengths = (32, (32, 128, 256)) if setup.is_cpu else (128, (128, 1024))
    return [InputShape(setup.batch or batch, length, setup.d_model or 128) for length in setup.lengths or lengths]


def _long(setup: BenchSetup) -> list[InputShape]:
    lengths = setup.lengths or [2**i for i in range(7, 13 if setup.is_cpu else 15)]
    return [InputShape(setup.batch or 1, length, setup.d_model or 128) for length in lengths]


def measure_paths(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure the paths of every label at every shape.

    Sizes and paths that ``setup`` gives replace the default ones.
    """
    for label, shape in setup.in_time(itertools.product(setup.labels, _shapes(setup))):
        yield from _measure_paths([(label, setup.paths)], shape, setup)


def measure_lengths(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure every label at increasing lengths, by default on its automatic path with one sequence per batch."""
    for shape in setup.in_time(_long(setup)):
        yield from _measure_paths([(label, setup.paths or ("auto",)) for label in setup.labels], shape, setup)


_TIMES = [
    BenchColumn("forward_ms", "Forward", "{:.1f}"),
    BenchColumn("step_ms", "Both", "{:.1f}"),
    BenchColumn("step_low_ms", "Spread", "{:.1f}-{step_high_ms:.1f}"),
]
MIXERS = BenchPart(
    "mixers",
    "time and memory of a mixer, by path",
    "Milliseconds of a mixer's forward pass, and of forward and backward with the least and the longest; speed over "
    "the chunked path, where it was compiled over that; MiB kept for the backward pass; GFLOP by formula and their "
    "share of what a matrix product reaches here. A hybrid has the mixers of one pattern.",
    [
        BenchColumn("label", "Label"),
        BenchColumn("shape", "BxTxD"),
        BenchColumn("path", "Path"),
        *_TIMES,
        BenchColumn("speed", "Speed", "{:.2f}"),
        BenchColumn("kept_mib", "Kept", "{:.1f}"),
        BenchColumn("gflop", "GFLOP", "{:.1f}"),
        BenchColumn("percent_of_ceiling", "%", "{:.0f}"),
    ],
    Curve("label", "step_ms", "ms, forward and backward", series="path", panel="shape"),
    measure_paths,
    ("label", "shape"),
    lambda setup: len(setup.labels) * len(_shapes(setup)),
)
LENGTH = BenchPart(
    "length",
    "time and memory of a mixer against length",
    "Milliseconds of a mixer's forward pass, and of forward and backward with the least and the longest, on the path "
    "that it takes by itself; microseconds per token; MiB kept for the backward pass.",
    [
        BenchColumn("label", "Label"),
        BenchColumn("length", "T"),
        BenchColumn("path", "Path"),
        *_TIMES,
        BenchColumn("us_per_token", "us/token", "{:.1f}"),
        BenchColumn("kept_mib", "Kept", "{:.1f}"),
    ],
    Curve("length", "step_ms", "ms, forward and backward", "length T", series="label"),
    measure_lengths,
    ("shape",),
    lambda setup: len(_long(setup)),
)
