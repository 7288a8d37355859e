"""Checks of a mixer under bfloat16 autocast: errors of outputs and gradients, and operations that need float32."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from madbench.mixers import Check
from madbench.mixers.path_checks import (
    LONGEST,
    Make,
    MeasuredOn,
    Tensors,
    device_for,
    evaluate,
    residuals,
    worst_residual,
)
from madbench.mixers.residuals import Residual, decode_tokens, difference

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
    most = BFLOAT16_OUTPUT * max(terms, factors / FACTORS)
    steepest = min(LARGEST_BOUND, BFLOAT16_GRADIENT * max(1.0, factors / FACTORS))

    def rounded(path: str, length: int, number: int = 0) -> tuple[Mixer, Tensor]:
        """Return the mixer and the input of ``make`` in float64, with all values rounded to bfloat16.

        The weights of ``make`` are large and therefore halved first. If ``number`` is not 0, the input is drawn anew
        with this seed.
        """
        mixer, x = make(path, length)
        for parameter in mixer.parameters():
            parameter.mul_(SHRUNK).copy_(parameter.bfloat16())
        if number:
            x = torch.randn(x.shape, generator=torch.Generator().manual_seed(number), dtype=x.dtype)
        return mixer, x.bfloat16().to(x)

    @functools.cache
    def taken() -> dict[str, MeasuredOn]:
        places = {path: device_for(rounded, path, is_mixed=True) for path in paths}
        return {path: replace(place, dtype=torch.float32) for path, (place, reason) in places.items() if not reason}

    def measured(path: str, number: int) -> Tensors:
        mixer, x = taken()[path].sample(functools.partial(rounded, number=number), path, length)

        def compute(x: Tensor) -> Tensor:
            with torch.autocast(x.device.type, torch.bfloat16):
                y: Tensor = mixer(x)
                return y

        return evaluate(mixer, compute, x, late)

    def errors() -> Residual:
        excesses, right = [], []
        first: dict[str, float] = {}
        for number in range(INPUTS):
            mixer, x = rounded("auto", length, number)
            right.append(evaluate(mixer, mixer, x, late))
        for path in taken():
            outcomes = [measured(path, number) for number in range(INPUTS)]
            each = [residuals(actual, expected, share=1.0) for actual, expected in zip(outcomes, right)]
            shares = {name: median([residual[name] for residual in each]) for name in each[0]}
            first = first or shares
            bounds = {name: min(steepest, max(NEAR, BESIDE * first[name])) for name in shares}
            bounds = dict.fromkeys(shares, steepest) if shares is first else bounds
            bounds[""] = most
            excesses.append(({name: share / bounds[name] for name, share in shares.items()}, f"on the path {path}"))
            ends = zip(outcomes, right)
            last = median([difference(y[""].to(x)[:, -LAST:], right_y[""][:, -LAST:]) for y, right_y in ends])
            excesses.append(({"": last / most}, f"of the last rows on the path {path}"))
        mixer, x = rounded("auto", length)
        if hasattr(mixer, "step"):
            mixer, x = mixer.float(), x[:, :LONGEST].float()
            with torch.autocast(x.device.type, torch.bfloat16):
                y = decode_tokens(mixer, x)
            error = difference(y[:, late.start :].double(), right[0][""][:, : y.shape[1] - late.start])
            excesses.append(({"": error / most}, "of steps"))
        return worst_residual(excesses)

    def in_16_bits() -> Residual:
        counts: dict[str, int] = {}
        for path, place in taken().items():
            mixer, x = place.sample(rounded, path, length)
            axes = {length: "tokens", x.shape[2]: "features"}
            with _Narrow(narrow, axes) as of_path, torch.autocast(place.device, torch.bfloat16):
                mixer(x)
            counts |= {f"{operation} on the path {path}": count for operation, count in of_path.counts.items()}
            with _Narrow(NARROW) as of_step, torch.autocast(place.device, torch.bfloat16):
                hasattr(mixer, "step") and mixer.step(x[:, 0])
            counts |= {f"{operation} in a step": count for operation, count in of_step.counts.items()}
        return Residual(sum(counts.values()), ", ".join(counts))

    late = range(min(FIRST, length - 1), length)
    what = f"outputs are within {most:.0%} of float64 and gradients within {steepest:.0%}"
    other = f"or within {BESIDE:g} times the error of the first path"
    statement = f"Under bfloat16 autocast {what}, {other}. The residual is a median over inputs, relative to the bound."
    yield Check("bfloat16", statement, "precision", errors, 1.0, reason=unless)
    statement = (
        "Under bfloat16 autocast sums and norms, over tokens or features, and angles of positions are in float32."
    )
    yield Check("bfloat16 sums", statement, "precision", in_16_bits)


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
