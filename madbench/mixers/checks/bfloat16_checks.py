"""Checks of a mixer under bfloat16 autocast: errors of outputs and gradients, and operations that need float32."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from madbench.mixers import Check
from madbench.mixers.checks.path_checks import (
    LONGEST,
    Make,
    MeasuredOn,
    Tensors,
    device_for,
    evaluate,
    residuals,
    worst_residual,
)
from madbench.mixers.checks.residuals import Residual, decode_tokens, difference

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

BFLOAT16_OUTPUT, BFLOAT16_GRADIENT = 2e-2, 0.5
"""Largest accepted errors of outputs and of gradients in bfloat16. An error is a norm relative to that of the output,
or to that of the largest gradient. Rounding near the edge of a ReLU changes single terms, which affects gradients
most."""
FACTORS = 4  # the bounds are raised if the product of a score and a value has more factors than this
LARGEST_BOUND = 0.9  # upper limit of the bound of gradients; a missing gradient has the error 1
BESIDE = 1.5  # allowed error of gradients on further paths, as a multiple of the first path's error
NEAR = 5e-2  # error of gradients that is allowed on further paths even if the first path is more exact
SHRUNK = 0.5  # factor on weights in bfloat16 checks, which brings scores to about one
FIRST = 16  # first row whose errors are measured; earlier rows divide by norms and sums of few terms
LAST = 32  # number of last rows that are also measured alone: bfloat16 represents positions exactly only up to 256
INPUTS = 3  # number of inputs; crossing the edge of a ReLU affects one input, a defect affects all
NARROW = frozenset(
    {
        *("sum", "mean", "var", "var_mean", "std", "norm", "linalg_vector_norm", "prod", "cumsum", "cumprod"),
        *("logsumexp", "logcumsumexp", "native_layer_norm", "_fused_rms_norm", "arange", "sin", "cos", "polar"),
    }
)
"""Operations whose result must not be in 16 bits: long sums, and positions and their angles."""


def bfloat16_checks(
    make: Make,
    paths: Iterable[str],
    *,
    length: int = LONGEST,
    narrow: Collection[str] = NARROW,
    unless: str = "",
    factors: int = 1,
    terms: int = 1,
) -> Iterator[Check]:
    """Yield two checks under bfloat16 autocast: errors are bounded, and no reduction or position is in 16 bits.

    Errors are those of outputs and gradients, relative to the same mixer in float64.

    Args:
        make: maps a path (implementation) and a number of tokens to a mixer in float64, and an input.
        paths: names of the paths to check. A path that no device here can compute is left out.
        length: number of tokens of the input.
        narrow: names of torch operations whose result must not have 16 bits.
        unless: reason why errors in bfloat16 are meaningless for the label. If it is not empty, errors are not
            measured; the second check runs nevertheless.
        factors: number of factors in the product of a score and a value. The output is a sum of such products. The
            relative errors of the factors add up, so the bounds are raised for more than four factors.
        terms: number of sums over tokens that are subtracted from each other. The common part of the sums cancels, but
            their rounding errors do not. The bound of outputs is proportional to this number.
    """
    bounds = _Bounds(
        output=BFLOAT16_OUTPUT * max(terms, factors / FACTORS),
        gradients=min(LARGEST_BOUND, BFLOAT16_GRADIENT * max(1.0, factors / FACTORS)),
    )
    mixers = _RoundedMixers(make, tuple(paths), length)
    what = f"outputs are within {bounds.output:.0%} of float64 and gradients within {bounds.gradients:.0%}"
    other = f"or within {BESIDE:g} times the error of the first path"
    statement = f"Under bfloat16 autocast {what}, {other}. The residual is a median over inputs, relative to the bound."
    errors = functools.partial(_worst_error, mixers, bounds)
    yield Check("bfloat16", statement, "precision", errors, 1.0, reason=unless)
    statement = (
        "Under bfloat16 autocast sums and norms, over tokens or features, and angles of positions are in float32."
    )
    yield Check("bfloat16 sums", statement, "precision", functools.partial(_narrow_results, mixers, narrow))


class _Bounds(NamedTuple):
    """The largest accepted errors of a label's mixer in bfloat16."""

    output: float
    gradients: float

    def of_path(self, first: Mapping[str, float] | None, errors: Mapping[str, float]) -> dict[str, float]:
        """The bound of each tensor of ``errors``. ``first`` has the errors of the first path, None for this path."""
        if first is None:
            bounds = dict.fromkeys(errors, self.gradients)
        else:
            bounds = {name: min(self.gradients, max(NEAR, BESIDE * first[name])) for name in errors}
        return bounds | {"": self.output}


@dataclass(frozen=True)
class _RoundedMixers:
    """The mixers of a label, one per path, with weights and inputs that bfloat16 represents exactly."""

    make: Make
    paths: tuple[str, ...]
    length: int
    """The number of tokens of an input."""

    @property
    def measured_rows(self) -> range:
        return range(min(FIRST, self.length - 1), self.length)

    def sample(self, path: str, length: int, number: int = 0) -> tuple[Mixer, Tensor]:
        """Return the mixer and the input of ``make`` in float64, with all values rounded to bfloat16.

        The weights of ``make`` are large and therefore halved first. If ``number`` is not 0, the input is drawn anew
        with this seed.
        """
        mixer, x = self.make(path, length)
        for parameter in mixer.parameters():
            parameter.mul_(SHRUNK).copy_(parameter.bfloat16())
        if number:
            x = torch.randn(x.shape, generator=torch.Generator().manual_seed(number), dtype=x.dtype)
        return mixer, x.bfloat16().to(x)

    @functools.cached_property
    def devices(self) -> dict[str, MeasuredOn]:
        """The device of each path that a device here can compute."""
        places = {path: device_for(self.sample, path, is_mixed=True) for path in self.paths}
        return {path: replace(place, dtype=torch.float32) for path, (place, reason) in places.items() if not reason}

    def in_float64(self, number: int) -> Tensors:
        """The output and the gradients without rounding."""
        mixer, x = self.sample("auto", self.length, number)
        return evaluate(mixer, mixer, x, self.measured_rows)

    def in_bfloat16(self, path: str, number: int) -> Tensors:
        """The output and the gradients under autocast."""
        mixer, x = self.devices[path].sample(functools.partial(self.sample, number=number), path, self.length)

        def compute(x: Tensor) -> Tensor:
            with torch.autocast(x.device.type, torch.bfloat16):
                y: Tensor = mixer(x)
                return y

        return evaluate(mixer, compute, x, self.measured_rows)


def _worst_error(mixers: _RoundedMixers, bounds: _Bounds) -> Residual:
    """The largest error of a path or of decoding steps, relative to its bound."""
    excesses = []
    expected = [mixers.in_float64(number) for number in range(INPUTS)]
    first: Mapping[str, float] | None = None
    for path in mixers.devices:
        actual = [mixers.in_bfloat16(path, number) for number in range(INPUTS)]
        by_input = [residuals(y, right, share=1.0) for y, right in zip(actual, expected)]
        errors = {name: median([residual[name] for residual in by_input]) for name in by_input[0]}
        bound_by_name = bounds.of_path(first, errors)
        first = first or errors
        excesses.append(({name: error / bound_by_name[name] for name, error in errors.items()}, f"on the path {path}"))
        ends = [(y[""][:, -LAST:], right[""][:, -LAST:]) for y, right in zip(actual, expected)]
        last = median([difference(y.to(right), right) for y, right in ends])
        excesses.append(({"": last / bounds.output}, f"of the last rows on the path {path}"))
    error_of_steps = _error_of_steps(mixers, expected[0][""])
    if error_of_steps is not None:
        excesses.append(({"": error_of_steps / bounds.output}, "of steps"))
    return worst_residual(excesses)


def _error_of_steps(mixers: _RoundedMixers, expected: Tensor) -> float | None:
    """The error of decoding token by token. None if the mixer has no steps.

    ``expected`` are the measured rows in float64.
    """
    mixer, x = mixers.sample("auto", mixers.length)
    if not hasattr(mixer, "step"):
        return None
    mixer, x = mixer.float(), x[:, :LONGEST].float()
    with torch.autocast(x.device.type, torch.bfloat16):
        y = decode_tokens(mixer, x)
    start = mixers.measured_rows.start
    return difference(y[:, start:].double(), expected[:, : y.shape[1] - start])


def _narrow_results(mixers: _RoundedMixers, narrow: Collection[str]) -> Residual:
    """The number of operations in ``narrow``, and of operations on positions, whose result has 16 bits."""
    counts: dict[str, int] = {}
    for path, place in mixers.devices.items():
        mixer, x = place.sample(mixers.sample, path, mixers.length)
        axes = {mixers.length: "tokens", x.shape[2]: "features"}
        with _Narrow(narrow, axes) as of_path, torch.autocast(place.device, torch.bfloat16):
            mixer(x)
        counts |= {f"{operation} on the path {path}": count for operation, count in of_path.counts.items()}
        with _Narrow(NARROW) as of_step, torch.autocast(place.device, torch.bfloat16):
            hasattr(mixer, "step") and mixer.step(x[:, 0])
        counts |= {f"{operation} in a step": count for operation, count in of_step.counts.items()}
    return Residual(sum(counts.values()), ", ".join(counts))


class _Narrow(TorchDispatchMode):
    """A mode that counts two kinds of operations whose result has 16 bits: those in ``names``, and those on positions.

    An operation is on positions if its inputs were computed from ``arange`` and constants only. Its result may be a
    position, an angle or a cosine. A conversion of such a result from 32 to 16 bits counts as well, because it makes
    the rotation of late tokens wrong.
    """

    def __init__(self, names: Collection[str], axes: Mapping[int, str] = {}):
        super().__init__()
        self.axes = axes  # name of an axis, by its length
        self.names = names
        self.counts: dict[str, int] = {}
        self.of_positions: dict[int, Tensor] = {}  # by id; keeping the tensor keeps its id unique

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        if not isinstance(result, Tensor):
            return result
        name = operation.overloadpacket.__name__
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        is_position = name == "arange" or (bool(inputs) and all(id(x) in self.of_positions for x in inputs))
        if is_position and result.dtype != torch.bool:  # a mask is exact
            self.of_positions[id(result)] = result
        if (name in self.names or is_position) and result.dtype in (torch.bfloat16, torch.float16):
            name = f"{name}{self._over(name, args, kwargs)}" if name in self.names else f"{name} of positions"
            self.counts[name] = self.counts.get(name, 0) + 1
        return result

    def _over(self, name: str, args: tuple[Any, ...], kwargs: Any) -> str:
        """The text ``over tokens`` or ``over features`` if an operation reduces the axis of tokens or of features.

        Empty for other operations. An axis is recognized by its length.
        """
        x = args[0] if args and isinstance(args[0], Tensor) else None
        place = 2 if name in ("norm", "linalg_vector_norm") else 1
        dims = (kwargs or {}).get("dim", args[place] if len(args) > place else ())
        dims = [dims] if isinstance(dims, int) else dims
        if x is None or name in ("sin", "cos", "arange", "polar") or "layer_norm" in name or "rms_norm" in name:
            return ""
        if not isinstance(dims, (list, tuple)):
            return ""
        over = dict.fromkeys(self.axes[x.shape[dim]] for dim in dims if x.shape[dim] in self.axes)
        return f" over {' and '.join(over)}" if over else ""
