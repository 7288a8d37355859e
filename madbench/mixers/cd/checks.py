"""Checks of the mixer of a ``cd:`` label: its budget, its paths and decoding, its cache, and its numerics.

Most checks use mixers in float64 with d_model 32 and 2 heads of width 16, on inputs of 16 tokens, with three seeds.
Their weights are from N(0, 1/d_model), and their gates have the initial values. Names of checks begin with numbers,
such as V1. Checks with other numbers, of the lemmas of arXiv 2510.09389, are in the package of this paper.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from madbench.mixers import Check, build
from madbench.mixers.cd.grammar import CdLabel
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.ranges import FLOAT32_EXPONENT, OVERFLOW, leaves_float64
from madbench.mixers.cd.sample_mixers import (
    CHECK_SEEDS,
    HEADS,
    LENGTH,
    LONG,
    WIDTH,
    SampleMixers,
    is_positive,
    relative,
)
from madbench.mixers.checks import general_checks, ordinary, path_checks
from madbench.mixers.checks.bfloat16_checks import NARROW, bfloat16_checks
from madbench.mixers.checks.residuals import ROUNDING, Residual, decode_tokens, difference
from madbench.mixers.random_state import kept_random_state

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

UNEVEN_ROUNDING = 1e-6  # tolerance for labels that divide by sums of terms of both signs
CPU = replace(path_checks.CPU, tolerance=1e-10)
FAR = 300  # tokens; bfloat16 cannot represent odd positions beyond 256
FAR_ROWS = range(253, FAR, 4)
PRODUCTS = {"bmm", "baddbmm"}
"""Torch operations that multiply gates, states and scores. Unlike linear maps, they must not be in 16 bits."""
UNEVEN = "a sum of terms of both signs is only as exact as the largest term"


def checks(family: Any, label: CdLabel) -> Iterable[Check]:
    """Yield the checks of the mixer of a label. ``family`` is the ``cd:`` family."""
    samples = SampleMixers(family, label)
    yield from (check for check in general_checks(family, label) if check.name in ("parameters", "state"))
    parts = (_forms, _ordinary, _state, _softmax_attention, _numerics)
    for check in itertools.chain.from_iterable(part(samples) for part in parts):
        if check.run and check.name.startswith(("V2", "gradients")) and leaves_float64(label, LENGTH):
            check = replace(check, reason=OVERFLOW)
        yield check


def paths_of(mixer: CoefficientMixer) -> list[str]:
    """The paths of a mixer that compute a whole sequence on a CPU, other than ``reference``."""
    label = mixer.label
    optional = {"chunked": label.is_recurrent, "sdpa": label.is_softmax}
    return [path for path in ("dense", "chunked", "blocks", "sdpa") if optional.get(path, True)]


def _forms(samples: SampleMixers) -> Iterator[Check]:
    """Yield the checks of causality (V1), of all paths and decoding (V2), of gradients, and of bfloat16.

    V2 compares every path, the decoding of prompts, and rows at late positions with loops that follow eq. 3.
    """

    def make(path: str, length: int) -> tuple[Mixer, Tensor]:
        return cast("tuple[Mixer, Tensor]", samples.sample(0, length=length, chunk=0, path=path))

    def change(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        changed, at, changes = x.clone(), 7, []
        changed[:, at] += 1
        for path in paths_of(mixer):
            mixer.path = path
            changes.append((mixer(changed) - mixer(x))[:, :at].abs().max())
        return torch.stack(changes).max()

    yield Check("V1 causal", "A changed token does not change earlier rows.", "eq. 2", samples.largest(change))
    label = samples.label
    lengths = [length for length in path_checks.LENGTHS if not leaves_float64(label, length)]
    optional = {"sdpa": label.is_softmax, "fla": label.is_recurrent}
    every = ("dense", "chunked", "blocks", "step", "sdpa", "fla")
    paths = tuple(path for path in every if optional.get(path, True))
    loops = path_checks.Loops(make)
    what, source = "eq. 3 row by row", "eq. 2-4, Remark 1"
    yield from path_checks.path_checks(loops, paths, source, name="V2 {}", what=what, lengths=lengths, cpu=CPU)
    prompts = [prompt for prompt in path_checks.PROMPTS if not leaves_float64(label, prompt + path_checks.CONTINUED)]
    prefill = functools.partial(path_checks.prefill_residual, make, prompts)
    what = "Decoding a prompt at once, then token by token, gives the outputs and gradients of the parallel form."
    yield Check("V2 prefill", what, "eq. 2-4, Remark 1", prefill, CPU.tolerance)
    far = functools.partial(_far_rows, make)
    what = f"Rows and steps from {FAR_ROWS.start} to {FAR} equal eq. 3 row by row, at positions that bfloat16 lacks."
    reason = "" if label.rope else "the label has no RoPE"
    reason = reason or (OVERFLOW if leaves_float64(label, FAR) else "")
    yield Check("V2 far", what, "eq. 2-4", far, CPU.tolerance, reason=reason)
    what = "Gradients equal finite differences."
    slopes = functools.partial(path_checks.slope_residual, make, LENGTH)
    yield Check("gradients", what, "autograd", slopes, path_checks.SLOPES)
    reason = _leaves_float32(label) or ("" if _is_as_exact_as_a_term(label) else UNEVEN)
    length = FAR if label.rope else path_checks.LONGEST
    fast = [path for path in paths if path != "step"]
    narrow = NARROW | PRODUCTS
    yield from bfloat16_checks(make, fast, length=length, narrow=narrow, unless=reason)


def _ordinary(samples: SampleMixers) -> Iterator[Check]:
    label = samples.label
    reason = OVERFLOW if leaves_float64(label, ordinary.TOKENS) else ""
    if label.readout == "kexp" and label.scaling in ("bd", "bi"):
        reason = "exp of keys with this b has numbers too far apart for float64"
    tolerance = ROUNDING if _is_as_exact_as_a_term(label) else UNEVEN_ROUNDING
    options: dict[str, Any] = {"fill": _perturbed, "unless": reason, "tolerance": tolerance}
    yield from ordinary.ordinary_checks(samples.family, label, **options)


def _perturbed(build: Callable[[], CoefficientMixer]) -> tuple[CoefficientMixer, Tensor]:
    """The mixer that ``build`` constructs, with random weights and changed gains and biases, and an input.

    The input is (B, max_len, d_model), and both are in float64.
    """
    with kept_random_state():
        torch.manual_seed(0)
        mixer = build().double()
        size = mixer.allocation.size
        for name, parameter in mixer.named_parameters():
            if parameter.ndim > 1 and not name.startswith("decay"):
                parameter.normal_(std=size.d_model**-0.5)
            elif parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
        x = torch.randn(ordinary.BATCH, size.max_len, size.d_model, dtype=torch.float64)
        return mixer.eval().requires_grad_(False), x


def _far_rows(make: path_checks.Make) -> Residual:
    mixer, x = make("auto", FAR)
    expected = mixer.reference(x, FAR_ROWS)
    rows = {"forward": mixer(x), "steps": decode_tokens(mixer, x)}
    return path_checks.worst_residual(
        ({"": difference(y[:, list(FAR_ROWS)], expected)}, f"of {name}") for name, y in rows.items()
    )


def _state(samples: SampleMixers) -> Iterator[Check]:
    """Yield check V4, which measures how much the decoding cache grows per token."""

    def bytes_after(length: int) -> int:
        (mixer, x), cache = samples.sample(0, length=length), None
        for token in x.unbind(1):
            _, cache = mixer.step(token, cache)
        return sum(value.nbytes for value in vars(cache).values() if isinstance(value, Tensor))

    def growth() -> float:
        per_token = (bytes_after(64) - bytes_after(16)) / 48
        return abs(per_token - (0 if samples.label.is_recurrent else 2 * WIDTH * 8))

    if samples.label.is_recurrent:
        statement = "The cache does not grow between 16 and 64 tokens."
    else:
        statement = "Between 16 and 64 tokens, the cache grows by one key and one value per token."
    yield Check("V4 state", statement, "Lemma 1", growth)


def _softmax_attention(samples: SampleMixers) -> Iterator[Check]:
    """Yield check V14: softmax attention as a ``cd:`` label equals that of the S/R/G family with the same weights.

    It does not apply to other labels.
    """
    label, reason = samples.label, ""
    if not label.is_softmax or label.scaling or label.conv or label.unit or label.output:
        reason = "only exp with sum, A = I and b = 1/sqrt(n) is softmax attention"

    def measure(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        other = build("S-p" if label.rope else "S", WIDTH, LONG, n_head=HEADS, budget="paper").double()
        other.load_state_dict(mixer.state_dict())
        differences = []
        for path in paths_of(mixer):
            mixer.path = path
            differences.append(relative(mixer(x), other(x)))
        return torch.stack(differences).max()

    statement = "The mixer equals softmax attention, S or S-p, with the same weights."
    yield Check("V14 families", statement, "Table 1", samples.largest(measure), 1e-12, reason=reason)


def _numerics(samples: SampleMixers) -> Iterator[Check]:
    """Yield the two checks V15 of float32: with open and closed gates, results are finite and close to float64."""
    label = samples.label

    def extreme(seed: int) -> tuple[CoefficientMixer, Tensor]:
        mixer, x = samples.sample(seed, length=LONG, chunk=0)
        with kept_random_state():
            torch.manual_seed(seed)
            x[..., :3] = torch.randint(-1, 2, (LONG, 3)).double()
        if mixer.decay_down:
            mixer.decay_down.weight.zero_()
            mixer.decay_down.weight[0, 0] = 1
        scale = mixer.scale if label.scaling[:2] == "bz" else None
        for column, layer in ((0, mixer.decay), (0, mixer.decay_up), (1, mixer.strength), (2, scale)):
            if layer:
                layer.weight.zero_()
                layer.weight[:, column] = 30
                if layer.bias is not None:
                    layer.bias.zero_()
        return mixer, x

    @torch.enable_grad()
    def is_not_finite() -> float:
        count = 0
        for seed in CHECK_SEEDS:
            mixer, x = extreme(seed)
            mixer.float().requires_grad_()
            x = x.float().requires_grad_()
            y = mixer(x)
            (y * x.detach()).sum().backward()
            tensors = [y, x.grad, *(p.grad for p in mixer.parameters() if p.grad is not None)]
            count += sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
        return count

    def error() -> float:
        errors = []
        for seed in CHECK_SEEDS:
            mixer, x = extreme(seed)
            expected = mixer(x)
            errors.append(relative(mixer.float()(x.float()).double(), expected))
        return float(torch.stack(errors).max())

    reason, where = _leaves_float32(label), "In float32, with 1,024 tokens and gate logits of -30, 0 and 30, outputs"
    yield Check("V15 finite", f"{where} and all gradients are finite.", "Principle 6", is_not_finite, reason=reason)
    reason = reason or ("" if _is_as_exact_as_a_term(label) else UNEVEN)
    yield Check("V15 close", f"{where} equal those of float64.", "Principle 6", error, 1e-4, reason=reason)


def _is_as_exact_as_a_term(label: CdLabel) -> bool:
    """True if the label does not divide rows by a sum whose terms may have both signs.

    Such a sum may cancel to almost zero. The rounding error of its largest term is then large in proportion.
    """
    return is_positive(label) or not (label.norm == "sum" or (label.norm == "max" and label.is_kernel))


def _leaves_float32(label: CdLabel) -> str:
    """The reason why this label has numbers outside the range of float32 by definition. Empty if it has none."""
    log_gate = math.log(float(label.gate)) if label.is_constant else 0.0
    if label.gate == "se" or log_gate > 0:
        return "lambda may exceed 1: its coefficients may grow without bound (Principle 6)"
    if label.norm == "pow" and -log_gate * LONG * (2 if label.output == "g" else 1) > FLOAT32_EXPONENT:
        return "lambda^i leaves the range of float32"
    if label.readout == "exp" and label.norm in ("", "wx", "pow") and label.scaling[:2] in ("bd", "bi"):
        return "without a sum, exp of scores with this b leaves the range of float32"
    if label.readout == "kexp" and label.scaling in ("bd", "bi"):
        return "exp of keys with this b leaves the range of float32"
    return ""
