"""Every way of computing a mixer against its loops in float64: outputs, every gradient and decoding.

What works in blocks goes wrong at their borders first, so lengths and rows are on both sides of those: of 16, 32, 64
and 128 rows, and of a few where a mixer's blocks can be made as small.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.mixers import Check, Family, Size
from madbench.mixers.residuals import ROUNDING, Residual, decoded, difference, filled

LONGEST = 130
LENGTHS = (1, 2, 5, 16, 17, 33, 64, 65, LONGEST)
WHOLE = 17  # tokens up to which every row is compared
BORDERS = (16, 32, 64, 128)
FEW = 5  # rows of a block, of a mixer whose blocks can be made as small
PROMPTS = (1, 2, 3, 5, 16, 62, 63, 64, 65, 126)  # tokens of a prompt
CONTINUED = 4  # steps after it
GRADIENT_OF_STEPS = 9  # tokens
SMALLEST_SHARE = 1e-3  # of the largest gradient: a smaller one is zero in exact arithmetic, or may be

SLOPES = 1e-5  # error of gradients against differences of outputs
STEPS = (1e-6, 1e-5, 1e-7)
"""How far outputs are apart for their slopes. Short steps lose digits of large outputs and long ones cross the edge of
a ReLU, but a wrong gradient is wrong for all of them."""

Make = Callable[[str, int], tuple[nn.Module, Tensor]]
"""Path and number of tokens -> a mixer in float64, always with the same weights, and an input (B, T, D)."""
Tensors = Mapping[str, Tensor]


def sampled(family: Family, label: Any, size: Size) -> Make:
    """Small mixers of a label for :func:`path_checks`; weights that show, of all lengths the same."""
    settings = family.Settings()
    allocation = family.solve(label, size, settings)

    def make(path: str, length: int) -> tuple[nn.Module, Tensor]:
        mixer, x = filled(lambda: family.build(allocation, settings, path))
        return mixer, x[:1, :length]

    return make


def rows_of(length: int) -> Sequence[int]:
    """The rows that are compared: all of a short sequence, of a longer one the ends and those beside borders."""
    if length <= WHOLE:
        return range(length)
    near = {border + offset for border in BORDERS for offset in (-1, 0, 1)}
    return sorted({0, 1, 2, length - 2, length - 1} | {row for row in near if row < length})


@torch.enable_grad()
def outcome(mixer: nn.Module, compute: Callable[[Tensor], Tensor], x: Tensor, rows: Sequence[int] | None) -> Tensors:
    """Rows of what ``compute`` makes of x, or all it makes, and their gradients for x and every parameter, by name."""
    x, mixer = x.detach().requires_grad_(), mixer.requires_grad_()
    y = compute(x)
    y = y if rows is None else y[:, list(rows)]
    variables = {"x": x, **dict(mixer.named_parameters())}
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y)
    if y.requires_grad:
        gradients = torch.autograd.grad(y, list(variables.values()), cotangent, materialize_grads=True)
    else:  # as where no tuple is long enough, so that all rows are zero
        gradients = map(torch.zeros_like, variables.values())
    mixer.requires_grad_(False)
    return {"": y.detach()} | dict(zip(variables, gradients))


def residuals(actual: Tensors, expected: Tensors, share: float = SMALLEST_SHARE) -> dict[str, float]:
    """Norms of the differences, relative to what is expected, of a gradient at least to a share of the largest."""
    norms = {name: float(tensor.norm()) for name, tensor in expected.items()}
    least = share * max(norm for name, norm in norms.items() if name)
    by_name = {}
    for name, tensor in expected.items():
        scale = max(norms[name], least if name else 0.0, 1e-30)
        by_name[name] = float((actual[name].to(tensor) - tensor).norm()) / scale
    return by_name


def worst(residuals_with_places: Iterable[tuple[Mapping[str, float], str]]) -> Residual:
    """The largest of all residuals, with the tensor and the place that it is of; NaN where one is."""
    each = [(value, name, place) for of_place, place in residuals_with_places for name, value in of_place.items()]
    value, name, place = max(each, key=lambda residual: (residual[0] != residual[0], residual[0]))
    return Residual(value, f"{f'gradient of {name}' if name else 'output'} {place}")


class LoopsCheck(Check):
    """A check that compares the operator with loops over its definition."""


class Loops:
    """What the ``reference(x, rows)`` of a mixer gives, and its gradients, worked out once a length."""

    def __init__(self, make: Make):
        self.make = make
        self.at = functools.cache(self._at)

    def _at(self, length: int) -> Tensors:
        mixer, x = self.make("auto", length)
        return outcome(mixer, lambda x: mixer.reference(x, rows_of(length)), x, None)


@dataclass(frozen=True)
class Place:
    """Where a path is measured, and how far it may be from the loops, which are in float64 on the CPU."""

    device: str
    dtype: torch.dtype
    tolerance: float = 0.0

    def sample(self, make: Make, path: str, length: int) -> tuple[nn.Module, Tensor]:
        mixer, x = make(path, length)
        return mixer.to(self.device, self.dtype), x.to(self.device, self.dtype)


CPU = Place("cpu", torch.float64, ROUNDING)


GPU = Place("cuda", torch.float32, 1e-3)  # products may be in TF32


def place_of(make: Make, path: str, cpu: Place = CPU, *, is_mixed: bool = False) -> tuple[Place, str]:
    """Where a path is computed: on the CPU, else, where its kernels may take no float64, on a GPU; and why nowhere.

    ``is_mixed`` is for what a GPU computes under bfloat16 autocast.
    """
    for place in [cpu, *[GPU] * torch.cuda.is_available()]:
        try:
            mixer, x = place.sample(make, path, 1)
            with torch.autocast(place.device, torch.bfloat16, enabled=is_mixed and place is GPU):
                mixer(x)
            return place, ""
        except TrainingError as error:
            reason = str(error).partition("; use")[0]
    return cpu, reason


def path_checks(
    loops: Loops,
    paths: Iterable[str],
    source: str,
    *,
    name: str = "path {}",
    what: str = "what float64 loops do",
    lengths: Sequence[int] = LENGTHS,
    cpu: Place = CPU,
) -> Iterator[LoopsCheck]:
    """A check a path, ``step`` being decoding.

    Where a path works in blocks of ``mixer.chunk`` rows, those of short sequences have a few rows.
    """

    def measure(path: str, place: Place) -> Residual:
        differences = []
        for length in lengths:
            expected, rows = loops.at(length), rows_of(length)
            mixer, x = place.sample(loops.make, "auto" if path == "step" else path, length)
            if hasattr(mixer, "chunk") and length <= WHOLE:
                mixer.chunk = FEW
            compute = functools.partial(decoded, mixer) if path == "step" else mixer
            differences.append((residuals(outcome(mixer, compute, x, rows), expected), f"at {length} tokens"))
            y = compute(x)[:, list(rows)].to(expected[""])
            differences.append(({"": difference(y, expected[""])}, f"at {length} tokens without gradients"))
        return worst(differences)

    for path in paths:
        statement = f"The path {path} computes {what}, outputs and every gradient, on both sides of every block."
        place, reason = place_of(loops.make, "auto" if path == "step" else path, cpu)
        run = functools.partial(measure, path, place)
        yield LoopsCheck(name.format(path), statement, source, run, place.tolerance, reason=reason)


def causality_residual(make: Make) -> Residual:
    """The change of rows before a token that has changed, on every border of blocks."""
    mixer, x = make("auto", LONGEST)
    y, differences = mixer(x), []
    for row in (FEW, *BORDERS):
        changed = x.clone()
        changed[:, row:] += 1
        differences.append(({"": difference(mixer(changed)[:, :row], y[:, :row])}, f"before token {row}"))
    return worst(differences)


def step_residual(make: Make, length: int = LONGEST) -> Residual:
    """The difference of steps from the parallel form: all rows of a long sequence, and the gradients of a short one."""
    mixer, x = make("auto", length)
    differences = [({"": difference(decoded(mixer, x), mixer(x))}, f"at {length} tokens")]
    x = x[:, :GRADIENT_OF_STEPS]
    with torch.inference_mode():
        inferred = decoded(mixer, x)
    differences.append(({"": difference(inferred, mixer(x))}, "in inference mode"))
    expected, actual = (outcome(mixer, compute, x, None) for compute in (mixer, functools.partial(decoded, mixer)))
    return worst([*differences, (residuals(actual, expected), f"of {x.shape[1]} steps")])


def prefill_residual(make: Make, prompts: Sequence[int] = PROMPTS) -> Residual:
    """The difference of prompts and steps after them from the parallel form, each beside another continuation."""
    mixer, x = make("auto", max(prompts) + CONTINUED)
    y, differences = mixer(x), []
    for prompt in prompts:
        end, place = prompt + CONTINUED, f"after a prompt of {prompt} tokens"
        rows, cache = mixer.prefill(x[:, :prompt])
        rows, other = [*rows.unbind(1)], cache
        for token in x[:, prompt:end].unbind(1):
            row, cache = mixer.step(token, cache)
            _, other = mixer.step(-token, other)  # another continuation, which this one must not see
            rows.append(row)
        differences.append(({"": difference(torch.stack(rows, dim=1), y[:, :end])}, place))

    def with_prompt(x: Tensor) -> Tensor:
        rows, cache = mixer.prefill(x[:, :FEW])
        return torch.cat((rows, decoded(mixer, x[:, FEW:], cache)), dim=1)

    x = x[:, :GRADIENT_OF_STEPS]
    of_prompt = outcome(mixer, with_prompt, x, None)
    differences.append((residuals(of_prompt, outcome(mixer, mixer, x, None)), f"of a prompt of {FEW} tokens and steps"))
    return worst(differences)


def slope_residual(make: Make, length: int = 8, steps: Sequence[float] = STEPS) -> Residual:
    """The difference of gradients from slopes of outputs along random directions, a parameter at a time."""
    mixer, x = make("auto", length)
    computed = outcome(mixer, mixer, x, None)
    generator = torch.Generator().manual_seed(2)
    cotangent = torch.randn(computed[""].shape, generator=generator).to(x)
    largest, residual = max(float(gradient.norm()) for name, gradient in computed.items() if name), {}
    variables = {"x": x, **dict(mixer.named_parameters())}
    for name, variable in variables.items():
        direction = torch.randn(variable.shape, generator=generator).to(variable)
        scale = max(float(computed[name].norm()), SMALLEST_SHARE * largest, 1e-30)
        expected, errors = float((computed[name] * direction).sum()), []
        for step in steps:
            moved = []
            for sign in (1, -1):
                variable += sign * step * direction
                moved.append(float((mixer(x) * cotangent).sum()))
                variable -= sign * step * direction
            errors.append(abs((moved[0] - moved[1]) / (2 * step) - expected) / scale)
            if errors[-1] <= SLOPES:
                break
        residual[name] = min(errors, key=lambda error: (error != error, error))
    return worst([(residual, f"at {length} tokens")])
