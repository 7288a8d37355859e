"""Checks of every computation path of a mixer at an ordinary size, with default and with random settings.

Other checks use very small mixers. These do not reach the code for wide heads, late positions or large batches.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import random
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.errors import BudgetError, ConfigError, TrainingError
from madbench.labels.budgets import COUNTINGS
from madbench.mixers import Check, Family, Size, effective_settings, label_traits, used_settings
from madbench.mixers.checks.kept_precision import explain_rounding
from madbench.mixers.checks.path_checks import BORDERS, SLOPES, evaluate, residuals, slope_residual, worst_residual
from madbench.mixers.checks.residuals import ROUNDING, Residual, decode_tokens, difference, filled_mixer
from madbench.mixers.lengths import depends_on_length

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer

SIZE = Size(d_model=96, n_head=3, max_len=256)
TOKENS = 200
BATCH = 3
ROWS = (0, 1, 17, 64, 100, 101, 127, 128, 150, 191, 192, 198, 199)
"""Rows that are compared with loops if settings have their defaults. Paths are compared with each other in all rows."""
FEW_ROWS = (0, 64, 101, 150, 193, 199)
"""Rows that are compared with loops if the settings are random."""
PROMPT = 0.75  # share of the tokens that belong to the prompt
WEIGHTS = 1.2  # standard deviation of weights times sqrt(d_model), as in the small mixers: 0.3 at width 16
CHANGE = 1e-13  # smallest relative change of outputs or initial weights that counts as an effect of a setting
NUMBERS = (1, 2, 3, 4, 5, 6, 8, 12, 24, 48)
"""Whole numbers that are tried as values of a setting."""

Build = Callable[[Callable[[], nn.Module]], "tuple[Mixer, Tensor]"]
"""Maps a constructor of a mixer to the mixer in float64 with fixed random weights, and an input (B, max_len, D)."""


@dataclass(frozen=True)
class Sample:
    """A mixer to be checked: its label, allocation and settings, and the number of tokens of its input.

    ``fill`` gives the built mixer random weights, and makes the input.
    """

    family: Family[Any, Any]
    label: Any
    allocation: Any
    settings: Any
    tokens: int
    fill: Build

    def make(self, path: str = "auto") -> tuple[Mixer, Tensor]:
        """Return the mixer in float64 with fixed random weights, and an input (B, ``tokens``, D).

        ``path`` names the implementation that the mixer uses.
        """
        mixer, x = self.fill(lambda: self.family.build(self.allocation, self.settings, path))
        return mixer, x[:, : self.tokens]

    @property
    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults: name to value."""
        usual = self.family.Settings()
        return {name: value for name, value in vars(self.settings).items() if value != getattr(usual, name)}

    @property
    def effective(self) -> dict[str, Any]:
        """The settings that still change the mixer when its ranks are given: name to value."""
        return effective_settings(self.allocation, vars(self.settings), self.family)


def ordinary_fill(build: Callable[[], nn.Module]) -> tuple[Mixer, Tensor]:
    """Return the mixer of ``build`` in float64 with normally distributed weights, and an input (3, max_len, D)."""
    return filled_mixer(build, std=WEIGHTS / math.sqrt(SIZE.d_model), batch=BATCH)


def ordinary_checks(
    family: Family[Any, Any],
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
    """Yield up to three checks of a label at an ordinary size.

    The first two check the mixer with default and with random settings. If the mixer has a method ``reference``, they
    do three comparisons:

    - outputs and gradients with the loops of this method, in some rows;
    - all paths (implementations) with each other, in all rows;
    - decoding token by token with a pass over the whole sequence, in all rows.

    Without ``reference``, they check causality, gradients against finite differences, and decoding. The third check is
    that each setting has an effect. A family without settings has only the first check.

    Args:
        family: the family of the label.
        label: the parsed label.
        size: the size of the mixer.
        tokens: number of tokens of the input.
        rows: rows that are compared with loops, with default settings.
        few_rows: rows that are compared with loops, with random settings.
        fill: gives a built mixer its weights, and makes its input.
        unless: reason why the checks do not apply. Empty if they do.
        tolerance: largest residual that passes.
    """
    default, drawn = None, []
    try:
        default = _default(family, label, size, tokens, fill)
        drawn = [] if unless else _random_samples(default)
    except BudgetError as error:
        unless = unless or f"the label has no mixer at this size: {error}"
    where = f"d_model {size.d_model}, {size.n_head} heads, {BATCH} sequences of {tokens} tokens"
    what = "outputs, gradients and decoding are correct on every path"
    run = explain_rounding(functools.partial(_residual, cast(Sample, default), rows), tolerance)
    yield Check("ordinary size", f"At {where}, {what}.", "ordinary use", run, tolerance, reason=unless)
    if not dataclasses.fields(family.Settings):
        return
    no_settings = unless or ("" if drawn else "no other settings give another mixer")
    named = " and with ".join(_settings_text(sample) for sample in drawn)
    what = f"At {where}, the same holds with {named}." if drawn else "The same holds with other settings."
    run = functools.partial(_residual_of_all, drawn, few_rows)
    yield Check("settings", what, "ordinary use", run, tolerance, reason=no_settings)
    effective = [] if default is None else [*default.effective]
    without = unless or ("" if effective else "settings change the mixer only through its ranks")
    what = "Each setting that its family calls effective changes outputs, parameters or initial weights."
    run = functools.partial(_least_change, cast(Sample, default), effective)
    yield Check("effect of settings", what, "settings", run, CHANGE, is_difference=True, reason=without)


def _default(family: Family[Any, Any], label: Any, size: Size, tokens: int, fill: Build) -> Sample:
    """The sample with default settings. If no ranks meet the budget of ``size``, the budget ``paper`` is used."""
    settings = family.Settings()
    try:
        allocation = family.solve(label, size, settings)
    except BudgetError:
        allocation = family.solve(label, replace(size, budget="paper"), settings)
    return Sample(family, label, allocation, settings, tokens, fill)


def _random_samples(default: Sample) -> list[Sample]:
    """Samples with random settings, drawn with a seed that depends on the label.

    There are up to two samples in which every setting that can differ from its default does so, one for the budget
    ``strict`` and one for ``paper``. A setting can hide the effect of another, as ``differential=v2`` hides
    ``lambda_init``. For each setting that is hidden in these samples, a further sample changes it alone.
    """
    samples = [default]
    alone: dict[str, Any] = {}
    for number, budget in enumerate(COUNTINGS):
        size = replace(default.allocation.size, budget=budget)
        others = {name: _other_values(default, name, size) for name in used_settings(default.label, default.family)}
        values = {name: each[number % len(each)] for name, each in others.items() if each}
        sample = _with(default, values, size)  # None for an invalid combination
        if sample and not any(_are_alike(sample, other) for other in samples):
            samples.append(sample)
        alone = {name: each[0] for name, each in others.items() if each} | alone
    drawn = samples[1:]
    hidden = [name for name in default.effective if name in alone and not any(name in each.effective for each in drawn)]
    return drawn + [
        sample for name in hidden if (sample := _with(default, {name: alone[name]}, default.allocation.size))
    ]


def _are_alike(sample: Sample, other: Sample) -> bool:
    """True if both samples have the same ranks, parameter counts and effective settings."""
    mine, theirs = sample.allocation, other.allocation
    return sample.effective == other.effective and (mine.ranks, mine.terms) == (theirs.ranks, theirs.terms)


def _other_values(default: Sample, name: str, size: Size) -> list[Any]:
    """Values of the setting ``name`` that differ from its default and give a valid mixer at ``size``, in random order.

    Empty if there are none, or if the type of the setting has no values to try.
    """
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
    """The sample at ``size`` with other settings: those in ``values``, and defaults for all others.

    None if these settings and this size have no valid mixer.
    """
    try:
        settings = default.family.Settings(**values)
        allocation = default.family.solve(default.label, size, settings)
    except (BudgetError, ConfigError):
        return None
    return replace(default, settings=settings, allocation=allocation)


def _settings_text(sample: Sample) -> str:
    values = (f"{value:.3g}" if isinstance(value, float) else value for value in sample.changed.values())
    return ", ".join(f"{name}={value}" for name, value in zip(sample.changed, values))


def _residual_of_all(samples: Iterable[Sample], rows: Sequence[int]) -> Residual:
    return _largest(
        Residual(residual, f"{residual.where}, with {_settings_text(sample)}")
        for sample in samples
        for residual in [_residual(sample, rows)]
    )


def _largest(residuals_with_places: Iterable[Residual]) -> Residual:
    return max(residuals_with_places, key=lambda residual: (residual != residual, residual))


def _residual(sample: Sample, rows: Sequence[int]) -> Residual:
    """The largest relative error of a sample's outputs, gradients and decoding steps.

    If the mixer has another number of parameters than its allocation states, the difference of these numbers is
    returned instead.
    """
    mixer, _ = sample.make()
    count = abs(sum(parameter.numel() for parameter in mixer.parameters()) - sample.allocation.total)
    if count:
        return Residual(count, "difference in the number of parameters between module and allocation")
    found = [_of_loops(sample, rows) if hasattr(mixer, "reference") else _of_slopes(sample)]
    if hasattr(mixer, "step"):
        found.append(_of_decoding(sample, rows))
    return _largest(found)


def _of_loops(sample: Sample, rows: Sequence[int]) -> Residual:
    """Compare the paths of a sample's mixer, and return the largest residual.

    The first path is compared with loops, on the last sequence of the batch and in the given rows. Every other path is
    compared with the first path, on the whole batch and in all rows.
    """
    usual, x = sample.make()
    tried = {path: _computable(sample, path) for path in usual.paths if path not in ("auto", "reference")}
    mixers = {path: mixer for path, mixer in tried.items() if mixer is not None}
    if usual.resolve_path(*x.shape[:2]) not in mixers:
        mixers["auto"] = usual
    first, mixer = next(iter(mixers.items()))
    expected = evaluate(mixer, lambda x: cast("Mixer", mixer).reference(x[-1:], rows), x, None)
    actual = evaluate(mixer, lambda x: mixer(x)[-1:, list(rows)], x, None)
    found = [(residuals(actual, expected), f"on the path {first}, against loops")]
    whole = evaluate(mixer, mixer, x, None)
    for path, other in mixers.items():
        if path != first:
            found.append((residuals(evaluate(other, other, x, None), whole), f"on the path {path}, against {first}"))
            found.append(({"": difference(other(x), whole[""])}, f"on the path {path} without gradients"))
    return worst_residual(found)


def _computable(sample: Sample, path: str) -> nn.Module | None:
    """The sample's mixer with the implementation ``path``.

    None if the label has no such path, or if the path cannot compute float64 on the CPU.
    """
    try:
        mixer, x = sample.make(path)
        mixer(x[:, :1])
    except TrainingError:
        return None
    return mixer


def _of_slopes(sample: Sample) -> Residual:
    """Check causality, and gradients against finite differences. Return the larger residual.

    Gradients pass up to the bound ``SLOPES``, and causality up to ``ROUNDING``. The residual of gradients is scaled so
    that its bound is also ``ROUNDING``.
    """
    mixer, x = sample.make()
    y, changes = mixer(x), []
    for row in (border + 1 for border in BORDERS if border + 1 < x.shape[1]):
        changed = x.clone()
        changed[:, row:] += 1
        changes.append(({"": difference(mixer(changed)[:, :row], y[:, :row])}, f"before token {row}"))
    slopes = slope_residual(lambda path, length: (mixer, x[:, :length]), x.shape[1])
    return _largest([worst_residual(changes), Residual(slopes * ROUNDING / SLOPES, slopes.where)])


def _of_decoding(sample: Sample, rows: Sequence[int]) -> Residual:
    """Compare decoding, from the first token and after a prompt, with the outputs of the whole sequence at once.

    If the rows of a mixer depend on the length of the input, each row of decoding is compared with the last row of an
    input that ends there. Only the given ``rows`` in the last quarter of the sequence are then compared, otherwise all
    rows. With changed settings, decoding from the first token is skipped if the mixer has ``prefill``.
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
        found.append(({"": difference(decode_tokens(mixer, x)[:, list(rows)], expected)}, "of steps"))
    if has_prompt:
        prompt = int(PROMPT * length)
        of_prompt, cache = mixer.prefill(x[:, :prompt])
        y = torch.cat((of_prompt, decode_tokens(mixer, x[:, prompt:], cache)), dim=1)
        found.append(({"": difference(y[:, list(rows)], expected)}, f"of steps after a prompt of {prompt} tokens"))
    return worst_residual(found)


def _least_change(default: Sample, names: Sequence[str]) -> Residual:
    """The effect of the setting with the smallest effect, among the named settings. :func:`_change` measures each.

    Settings without a value besides their default are left out. The result is infinite if no setting is left.
    """
    found = [_change(default, name) for name in names]
    return min((each for each in found if each is not None), default=Residual(math.inf, ""))


def _change(default: Sample, name: str) -> Residual | None:
    """The largest effect of changing the setting ``name`` alone. None if the setting has no value besides its default.

    Up to three values are tried. The effect of a value is the relative change of the outputs, but at most 1. If the
    setting affects only initial weights, it is the relative change of these. If the parameter counts change, it is 1.
    """
    traits, size, changes = label_traits(default.label, default.family), default.allocation.size, []
    for value in _other_values(default, name, size)[:3]:
        other = _with(default, {name: value}, size)
        assert other is not None  # other values are chosen so
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
    """The initial parameters of the sample's mixer at seed 0, concatenated to one vector."""
    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        torch.manual_seed(0)
        mixer = sample.family.build(sample.allocation, sample.settings)
    return torch.cat([parameter.detach().flatten() for parameter in mixer.parameters()])
