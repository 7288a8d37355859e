"""Every way of computing a mixer at an ordinary size, with the default settings of its label and with drawn ones.

Other checks use the smallest mixers that show a fault, which take no branch that begins at wider heads, later positions
or larger batches.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from madbench.errors import BudgetError, ConfigError, TrainingError
from madbench.mixers import Check, Family, Size, effective_settings, label_traits, used_settings
from madbench.mixers.kept_precision import with_reason
from madbench.mixers.lengths import depends_on_length
from madbench.mixers.path_checks import BORDERS, SLOPES, outcome, residuals, slope_residual, worst
from madbench.mixers.residuals import ROUNDING, Residual, decoded, difference, filled

SIZE = Size(d_model=96, n_head=3, max_len=256)
TOKENS = 200
BATCH = 3
ROWS = (0, 1, 17, 64, 100, 101, 127, 128, 150, 191, 192, 198, 199)
"""Rows that loops compute. The paths are compared with each other in all rows."""
FEW_ROWS = (0, 64, 101, 150, 193, 199)
"""The rows of a mixer with drawn settings."""
PROMPT = 0.75  # share of the tokens that are decoded at once
WEIGHTS = 1.2  # standard deviation of weights, times sqrt(d_model): that of the small mixers, 0.3 at width 16
CHANGE = 1e-13  # least relative change of outputs or initial weights by a setting that has an effect
NUMBERS = (1, 2, 3, 4, 5, 6, 8, 12, 24, 48)
"""Whole numbers that a setting may have."""

Build = Callable[[Callable[[], nn.Module]], tuple[nn.Module, Tensor]]
"""A constructor -> the mixer in float64 with weights that show, always the same, and an input (B, max_len, D)."""


@dataclass(frozen=True)
class Sample:
    """One mixer of a label: its allocation and settings, and how many tokens it is given."""

    family: Family
    label: Any
    allocation: Any
    settings: Any
    tokens: int
    fill: Build

    def make(self, path: str = "auto") -> tuple[nn.Module, Tensor]:
        """The mixer and an input (B, T, D)."""
        mixer, x = self.fill(lambda: self.family.build(self.allocation, self.settings, path))
        return mixer, x[:, : self.tokens]

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from the defaults."""
        usual = self.family.Settings()
        return {name: value for name, value in vars(self.settings).items() if value != getattr(usual, name)}

    @property
    def effective(self) -> dict[str, Any]:
        """The settings that act otherwise than through the allocation."""
        return effective_settings(self.allocation, vars(self.settings), self.family)


def ordinary_fill(build: Callable[[], nn.Module]) -> tuple[nn.Module, Tensor]:
    """The mixer with normal weights, and an input (3, max_len, D)."""
    return filled(build, std=WEIGHTS / math.sqrt(SIZE.d_model), batch=BATCH)


def ordinary_checks(
    family: Family,
    label: Any,
    *,
    size: Size = SIZE,
    tokens: int = TOKENS,
    rows: Sequence[int] = ROWS,
    few_rows: Sequence[int] = FEW_ROWS,
    fill: Build = ordinary_fill,
    unless: str = "",
    tolerance: float = ROUNDING,
) -> Iterator[Check]:
    """Checks at an ordinary size. ``unless`` is the reason why they say nothing about the label.

    A mixer with loops (``reference``) is compared with them in ``rows``, with drawn settings in ``few_rows``; its paths
    and its decoding are compared in all rows.
    A mixer without loops has to be causal, its gradients have to be slopes, and decoding has to give its rows.
    """
    default, drawn = None, []
    try:
        default = _default(family, label, size, tokens, fill)
        drawn = [] if unless else _drawn(default)
    except BudgetError as error:
        unless = unless or f"there is no mixer of the label at this size: {error}"
    where = f"d_model {size.d_model}, {size.n_head} heads, {BATCH} sequences of {tokens} tokens"
    what = "outputs, gradients and decoding of every path are right"
    run = with_reason(functools.partial(_residual, default, rows), tolerance)
    yield Check("ordinary size", f"At {where}, {what}.", "ordinary use", run, tolerance, reason=unless)
    if not dataclasses.fields(family.Settings):
        return
    no_settings = unless or ("" if drawn else "no other settings give another mixer")
    named = " and with ".join(_spelled(sample) for sample in drawn)
    what = f"At {where}, all is right with {named} too." if drawn else "All is right with other settings too."
    run = functools.partial(_residual_of_all, drawn, few_rows)
    yield Check("settings", what, "ordinary use", run, tolerance, reason=no_settings)
    effective = [] if default is None else [*default.effective]
    without = unless or ("" if effective else "no setting acts otherwise than through the ranks")
    what = "Each setting that its family calls effective changes outputs, parameters or initial weights."
    run = functools.partial(_least_change, default, effective)
    yield Check("effect of settings", what, "settings", run, CHANGE, is_difference=True, reason=without)


def _default(family: Family, label: Any, size: Size, tokens: int, fill: Build) -> Sample:
    """The sample with default settings, under the budget of the paper if no ranks meet that of ``size``."""
    settings = family.Settings()
    try:
        allocation = family.solve(label, size, settings)
    except BudgetError:
        allocation = family.solve(label, replace(size, budget="paper"), settings)
    return Sample(family, label, allocation, settings, tokens, fill)


def _drawn(default: Sample) -> list[Sample]:
    """Up to two samples, every setting of the label being another than the default: strict budget, then the paper's.

    The draw is seeded by the label.
    """
    samples = [default]
    for number, budget in enumerate(("strict", "paper")):
        size = replace(default.allocation.size, budget=budget)
        others = {name: _others(default, name, size) for name in used_settings(default.label, default.family)}
        values = {name: each[number % len(each)] for name, each in others.items() if each}
        sample = _with(default, values, size)  # None if the values do not go together
        if sample and not any(_are_alike(sample, other) for other in samples):
            samples.append(sample)
    return samples[1:]


def _are_alike(sample: Sample, other: Sample) -> bool:
    """True if both have the same ranks and the same effective settings."""
    mine, theirs = sample.allocation, other.allocation
    return sample.effective == other.effective and (mine.ranks, mine.terms) == (theirs.ranks, theirs.terms)


def _others(default: Sample, name: str, size: Size) -> list[Any]:
    """Values of a setting other than its default, in a drawn order; only those that alone give a mixer of the size."""
    settings, usual = default.family.Settings, getattr(default.family.Settings(), name)
    kind, generator = typing.get_type_hints(settings)[name], random.Random(f"{default.label} {name}")
    if typing.get_origin(kind) is typing.Literal:
        values = list(typing.get_args(kind))
    elif kind is bool:
        values = [False, True]
    elif kind is int:
        values = list(NUMBERS)
    elif kind is float:
        values = [usual * generator.uniform(0.3, 2.0) for _ in NUMBERS]
    else:
        values = []
    generator.shuffle(values)
    return [value for value in values if value != usual and _with(default, {name: value}, size)]


def _with(default: Sample, values: Mapping[str, Any], size: Size) -> Sample | None:
    """The sample with other settings and another size; None if there is no such mixer."""
    try:
        settings = default.family.Settings(**values)
        allocation = default.family.solve(default.label, size, settings)
    except (BudgetError, ConfigError):
        return None
    return replace(default, settings=settings, allocation=allocation)


def _spelled(sample: Sample) -> str:
    values = (f"{value:.3g}" if isinstance(value, float) else value for value in sample.changed.values())
    return ", ".join(f"{name}={value}" for name, value in zip(sample.changed, values))


def _residual_of_all(samples: Iterable[Sample], rows: Sequence[int]) -> Residual:
    return _largest(
        Residual(residual, f"{residual.where}, with {_spelled(sample)}")
        for sample in samples
        for residual in [_residual(sample, rows)]
    )


def _largest(residuals_with_places: Iterable[Residual]) -> Residual:
    return max(residuals_with_places, key=lambda residual: (residual != residual, residual))


def _residual(sample: Sample, rows: Sequence[int]) -> Residual:
    """The largest difference of a sample's outputs, gradients and steps from what they should be, relative."""
    mixer, _ = sample.make()
    count = abs(sum(parameter.numel() for parameter in mixer.parameters()) - sample.allocation.total)
    if count:
        return Residual(count, "number of parameters less that of the allocation")
    found = [_of_loops(sample, rows) if hasattr(mixer, "reference") else _of_slopes(sample)]
    if hasattr(mixer, "step"):
        found.append(_of_decoding(sample, rows))
    return _largest(found)


def _of_loops(sample: Sample, rows: Sequence[int]) -> Residual:
    """The first path against loops on the last sequence, and the others against the first one on all sequences."""
    usual, x = sample.make()
    mixers = {path: _computable(sample, path) for path in usual.paths if path not in ("auto", "reference")}
    mixers = {path: mixer for path, mixer in mixers.items() if mixer is not None}
    if usual.resolve_path(*x.shape[:2]) not in mixers:
        mixers["auto"] = usual
    first, mixer = next(iter(mixers.items()))
    expected = outcome(mixer, lambda x: mixer.reference(x[-1:], rows), x, None)
    actual = outcome(mixer, lambda x: mixer(x)[-1:, list(rows)], x, None)
    found = [(residuals(actual, expected), f"on the path {first}, against loops")]
    whole = outcome(mixer, mixer, x, None)
    for path, other in mixers.items():
        if path != first:
            found.append((residuals(outcome(other, other, x, None), whole), f"on the path {path}, against {first}"))
            found.append(({"": difference(other(x), whole[""])}, f"on the path {path} without gradients"))
    return worst(found)


def _computable(sample: Sample, path: str) -> nn.Module | None:
    """The sample's mixer on a path; None if the label lacks the path, or float64 on the CPU does."""
    try:
        mixer, x = sample.make(path)
        mixer(x[:, :1])
    except TrainingError:
        return None
    return mixer


def _of_slopes(sample: Sample) -> Residual:
    """Causality, and gradients against slopes scaled to the bound of the check."""
    mixer, x = sample.make()
    y, changes = mixer(x), []
    for row in (border + 1 for border in BORDERS if border + 1 < x.shape[1]):
        changed = x.clone()
        changed[:, row:] += 1
        changes.append(({"": difference(mixer(changed)[:, :row], y[:, :row])}, f"before token {row}"))
    slopes = slope_residual(lambda path, length: (mixer, x[:, :length]), x.shape[1])
    return _largest([worst(changes), Residual(slopes * ROUNDING / SLOPES, slopes.where)])


def _of_decoding(sample: Sample, rows: Sequence[int]) -> Residual:
    """Steps, and steps after a prompt, against the rows of the whole sequence.

    Rows that depend on the length of the input are compared with the last row of each prefix. With drawn settings all
    steps are after a prompt, if the mixer takes one.
    """
    mixer, x = sample.make()
    length = x.shape[1]
    if depends_on_length(mixer, x.shape[2], length):
        rows = [row for row in rows if row >= PROMPT * length]
        expected = torch.stack([mixer(x[:, : row + 1])[:, -1] for row in rows], dim=1)
    else:
        rows, expected = range(length), mixer(x)
    found, has_prompt = [], hasattr(mixer, "prefill")
    if not (sample.changed and has_prompt):
        found.append(({"": difference(decoded(mixer, x)[:, list(rows)], expected)}, "of steps"))
    if has_prompt:
        prompt = int(PROMPT * length)
        of_prompt, cache = mixer.prefill(x[:, :prompt])
        y = torch.cat((of_prompt, decoded(mixer, x[:, prompt:], cache)), dim=1)
        found.append(({"": difference(y[:, list(rows)], expected)}, f"of steps after a prompt of {prompt} tokens"))
    return worst(found)


def _least_change(default: Sample, names: Sequence[str]) -> Residual:
    """The least change by any of the named settings, each alone."""
    found = [_change(default, name) for name in names]
    return min((each for each in found if each is not None), default=Residual(math.inf, ""))


def _change(default: Sample, name: str) -> Residual | None:
    """The largest change that other values of one setting make; None if no other value is possible."""
    traits, size, changes = label_traits(default.label, default.family), default.allocation.size, []
    for value in _others(default, name, size)[:3]:
        other = _with(default, {name: value}, size)
        if other.allocation.terms != default.allocation.terms:
            change = math.inf
        elif name in traits.start_settings:
            change = difference(_start(other), _start(default))
        else:
            (mixer, x), (usual, _) = other.make(), default.make()
            change = difference(mixer(x), usual(x))
        changes.append(Residual(min(change, 1.0), f"effect of {name}"))
    return max(changes, default=None)


def _start(sample: Sample) -> Tensor:
    """The parameters that training starts from, in one vector."""
    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        torch.manual_seed(0)
        mixer = sample.family.build(sample.allocation, sample.settings)
    return torch.cat([parameter.detach().flatten() for parameter in mixer.parameters()])
