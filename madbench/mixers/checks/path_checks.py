"""Checks that compare every computation path of a mixer with loops in float64: outputs, gradients and decoding.

Code that works in blocks fails at block borders first. The compared lengths and rows are therefore on both sides of
the borders of blocks of 16, 32, 64 and 128 rows, and of a few rows if a mixer's block size can be set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.labels.family import A, L
from madbench.mixers import Check, Family, Size
from madbench.mixers.checks.residuals import ROUNDING, Residual, decode_tokens, difference, filled_mixer
from madbench.mixers.mixer import Mixer

LONGEST = 130
LENGTHS = (1, 2, 5, 16, 17, 33, 64, 65, LONGEST)
WHOLE = 17  # largest number of tokens at which all rows are compared
BORDERS = (16, 32, 64, 128)
FEW = 5  # rows per block of a mixer whose block size can be set
PROMPTS = (1, 2, 3, 5, 16, 62, 63, 64, 65, 126)  # lengths of prompts in tokens
CONTINUED = 4  # number of decoding steps after a prompt
GRADIENT_OF_STEPS = 9  # number of tokens for which gradients through decoding steps are compared
ZERO = 1e-12  # largest norm that counts as zero with float64 rounding; differences from it are not relative
SMALLEST_SHARE = 1e-3  # share of the largest gradient below which a gradient may be zero in exact arithmetic

SLOPES = 1e-5  # largest relative difference between gradients and finite differences that passes
STEPS = (1e-6, 1e-5, 1e-7)
"""Step sizes of finite differences, tried in turn. Small steps lose digits of large outputs, and large steps can cross
the edge of a ReLU. A wrong gradient is wrong for all step sizes."""

Make = Callable[[str, int], tuple[Mixer, Tensor]]
"""Maps the name of a path and a number of tokens T to a mixer in float64 with fixed weights, and an input x (B, T,
D)."""
Tensors = Mapping[str, Tensor]


def sample_maker(family: Family[L, A], label: L, size: Size) -> Make:
    """Return a function that maps a path (implementation) and a number of tokens T to a mixer and an input (1, T, D).

    The mixer has the given size. Its weights and the input are random, and the same for all paths and lengths, except
    that the input ends after T tokens.
    """
    settings = family.Settings()
    allocation = family.solve(label, size, settings)

    def make(path: str, length: int) -> tuple[Mixer, Tensor]:
        mixer, x = filled_mixer(lambda: family.build(allocation, settings, path))
        return mixer, x[:1, :length]

    return make


def rows_of(length: int) -> Sequence[int]:
    """The indices of the rows that are compared in a sequence of ``length`` tokens.

    In a sequence of up to 17 tokens, all rows are compared. In a longer one, the rows at both ends and next to block
    borders are compared.
    """
    if length <= WHOLE:
        return range(length)
    near = {border + offset for border in BORDERS for offset in (-1, 0, 1)}
    return sorted({0, 1, 2, length - 2, length - 1} | {row for row in near if row < length})


@torch.enable_grad()
def evaluate(mixer: nn.Module, compute: Callable[[Tensor], Tensor], x: Tensor, rows: Sequence[int] | None) -> Tensors:
    """Return the output ``compute(x)`` and its gradients, as tensors by name.

    The output has the empty name. If ``rows`` is not None, it has only the rows with these indices. The gradient of x
    has the name ``x``, and the gradient of a parameter of ``mixer`` has the parameter's name. Gradients are those of a
    fixed random linear function of the output.
    """
    x, mixer = x.detach().requires_grad_(), mixer.requires_grad_()
    y = compute(x)
    y = y if rows is None else y[:, list(rows)]
    variables = {"x": x, **dict(mixer.named_parameters())}
    cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y)
    gradients: Iterable[Tensor]
    if y.requires_grad:
        gradients = torch.autograd.grad(y, list(variables.values()), cotangent, materialize_grads=True)
    else:  # the rows do not depend on x, for example because all are zero
        gradients = map(torch.zeros_like, variables.values())
    mixer.requires_grad_(False)
    return {"": y.detach()} | dict(zip(variables, gradients))


def residuals(actual: Tensors, expected: Tensors, share: float = SMALLEST_SHARE) -> dict[str, float]:
    """The relative error of each tensor, by name: the norm of ``actual - expected`` divided by a scale.

    The output has the empty name, and all other tensors are gradients. The scale of the output is the norm of the
    expected output. The scale of a gradient is the norm of the expected gradient, but at least ``share`` times the norm
    of the largest expected gradient.

    If the norm of the output or of the largest gradient is zero up to rounding, 1 replaces it. The output is zero, for
    example, for the first token of a mixer in which a token does not see its own value.
    """
    norms = {name: float(tensor.norm()) for name, tensor in expected.items()}
    least = share * _scale(max(norm for name, norm in norms.items() if name))
    by_name = {}
    for name, tensor in expected.items():
        scale = max(norms[name], least) if name else _scale(norms[name])
        by_name[name] = float((actual[name].to(tensor) - tensor).norm()) / scale
    return by_name


def _scale(norm: float) -> float:
    """The norm, or 1 if the norm is zero up to rounding."""
    return norm if norm > ZERO else 1.0


def worst_residual(residuals_with_places: Iterable[tuple[Mapping[str, float], str]]) -> Residual:
    """The largest residual, with the name of its tensor and its place. NaN if any residual is NaN.

    Each element of the argument is a pair: residuals by name of a tensor, as :func:`residuals` returns them, and their
    place as text, such as ``at 33 tokens``.
    """
    each = [(value, name, place) for of_place, place in residuals_with_places for name, value in of_place.items()]
    value, name, place = max(each, key=lambda residual: (residual[0] != residual[0], residual[0]))
    return Residual(value, f"{f'gradient of {name}' if name else 'output'} {place}")


class LoopsCheck(Check):
    """A check that compares a mixer with loops that follow the definition of its operator."""


class Loops:
    """The expected results of a check: the outputs and gradients of a mixer's method ``reference(x, rows)``.

    ``at(length)`` computes them for an input of ``length`` tokens, once per length. ``make`` makes the mixer and the
    input.
    """

    def __init__(self, make: Make):
        self.make = make
        self.at = functools.cache(self._at)

    def _at(self, length: int) -> Tensors:
        mixer, x = self.make("auto", length)
        return evaluate(mixer, lambda x: mixer.reference(x, rows_of(length)), x, None)


@dataclass(frozen=True)
class MeasuredOn:
    """The device and dtype on which a path is measured, and the tolerance of its comparison with :class:`Loops`."""

    device: str
    dtype: torch.dtype
    tolerance: float = 0.0

    def sample(self, make: Make, path: str, length: int) -> tuple[Mixer, Tensor]:
        mixer, x = make(path, length)
        return mixer.to(self.device, self.dtype), x.to(self.device, self.dtype)


CPU = MeasuredOn("cpu", torch.float64, ROUNDING)


GPU = MeasuredOn("cuda", torch.float32, 1e-3)  # products may be in TF32


def device_for(make: Make, path: str, cpu: MeasuredOn = CPU, *, is_mixed: bool = False) -> tuple[MeasuredOn, str]:
    """Return the device on which a path is checked, and the reason why no device here can compute the path.

    The reason is empty if a device can. The CPU is preferred. A GPU is used for paths whose kernels do not accept
    float64. If ``is_mixed`` is true, the path is tried under bfloat16 autocast on a GPU. ``cpu`` has the dtype and the
    tolerance of checks on the CPU.
    """
    for place in (cpu, GPU) if torch.cuda.is_available() else (cpu,):
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
    what: str = "the results of float64 loops",
    lengths: Sequence[int] = LENGTHS,
    cpu: MeasuredOn = CPU,
) -> Iterator[LoopsCheck]:
    """Yield one check per path (implementation), which compares outputs and gradients with ``loops``.

    If a mixer has a block size ``chunk``, it is set to a few rows for short sequences, so that they have many blocks.

    Args:
        loops: the expected results.
        paths: names of the paths. The name ``step`` means decoding token by token.
        source: place where the operator is defined, for the column ``source`` of the check.
        name: template of a check's name, with ``{}`` for the path.
        what: the expected results, as words of the check's statement.
        lengths: numbers of tokens at which results are compared.
        cpu: dtype and tolerance of checks on the CPU.
    """

    def measure(path: str, place: MeasuredOn) -> Residual:
        differences = []
        for length in lengths:
            expected, rows = loops.at(length), rows_of(length)
            mixer, x = place.sample(loops.make, "auto" if path == "step" else path, length)
            if hasattr(mixer, "chunk") and length <= WHOLE:
                mixer.chunk = FEW
            compute = functools.partial(decode_tokens, mixer) if path == "step" else mixer
            differences.append((residuals(evaluate(mixer, compute, x, rows), expected), f"at {length} tokens"))
            y = compute(x)[:, list(rows)].to(expected[""])
            apart = float((y - expected[""]).norm()) / _scale(float(expected[""].norm()))
            differences.append(({"": apart}, f"at {length} tokens without gradients"))
        return worst_residual(differences)

    for path in paths:
        statement = f"The path {path} computes {what}: outputs and all gradients, on both sides of every block border."
        place, reason = device_for(loops.make, "auto" if path == "step" else path, cpu)
        run = functools.partial(measure, path, place)
        yield LoopsCheck(name.format(path), statement, source, run, place.tolerance, reason=reason)


def causality_residual(make: Make) -> Residual:
    """The largest relative change of output rows when all tokens after them are changed.

    The changed tokens begin at borders of blocks.
    """
    mixer, x = make("auto", LONGEST)
    y, differences = mixer(x), []
    for row in (FEW, *BORDERS):
        changed = x.clone()
        changed[:, row:] += 1
        differences.append(({"": difference(mixer(changed)[:, :row], y[:, :row])}, f"before token {row}"))
    return worst_residual(differences)


def step_residual(make: Make, length: int = LONGEST) -> Residual:
    """The largest relative difference between decoding token by token and a forward pass over the whole sequence.

    Outputs are compared for ``length`` tokens. Gradients, and outputs in inference mode, are compared for 9 tokens.
    """
    mixer, x = make("auto", length)
    differences = [({"": difference(decode_tokens(mixer, x), mixer(x))}, f"at {length} tokens")]
    x = x[:, :GRADIENT_OF_STEPS]
    with torch.inference_mode():
        inferred = decode_tokens(mixer, x)
    differences.append(({"": difference(inferred, mixer(x))}, "in inference mode"))
    steps = functools.partial(decode_tokens, mixer)
    expected, actual = (evaluate(mixer, compute, x, None) for compute in (mixer, steps))
    return worst_residual([*differences, (residuals(actual, expected), f"of {x.shape[1]} steps")])


def prefill_residual(make: Make, prompts: Sequence[int] = PROMPTS) -> Residual:
    """The largest relative difference between decoding after a prompt and a forward pass over the whole sequence.

    ``prompts`` are the lengths of the prompts in tokens. After each prompt, a second continuation is decoded from the
    same cache as well. It must not affect the first.
    """
    mixer, x = make("auto", max(prompts) + CONTINUED)
    y, differences = mixer(x), []
    for prompt in prompts:
        end, place = prompt + CONTINUED, f"after a prompt of {prompt} tokens"
        rows, cache = mixer.prefill(x[:, :prompt])
        rows, other = [*rows.unbind(1)], cache
        for token in x[:, prompt:end].unbind(1):
            row, cache = mixer.step(token, cache)
            _, other = mixer.step(-token, other)  # a second continuation, which must not affect the first
            rows.append(row)
        differences.append(({"": difference(torch.stack(rows, dim=1), y[:, :end])}, place))

    def with_prompt(x: Tensor) -> Tensor:
        rows, cache = mixer.prefill(x[:, :FEW])
        return torch.cat((rows, decode_tokens(mixer, x[:, FEW:], cache)), dim=1)

    x = x[:, :GRADIENT_OF_STEPS]
    actual, expected = evaluate(mixer, with_prompt, x, None), evaluate(mixer, mixer, x, None)
    differences.append((residuals(actual, expected), f"of a prompt of {FEW} tokens and steps"))
    return worst_residual(differences)


def slope_residual(make: Make, length: int = 8, steps: Sequence[float] = STEPS) -> Residual:
    """The largest relative difference between gradients and finite differences.

    The variables are the parameters of the mixer and its input of ``length`` tokens. For a finite difference, one of
    them is moved in a random direction. ``steps`` are step sizes, which are tried in turn until one passes.
    """
    mixer, x = make("auto", length)
    computed = evaluate(mixer, mixer, x, None)
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
    return worst_residual([(residual, f"at {length} tokens")])
