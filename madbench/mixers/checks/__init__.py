"""Checks that apply to every mixer, at a small size in float64, and the functions that run the checks of a label."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from madbench.errors import FamilyError, LabelError, MadbenchError, UnknownStateError
from madbench.labels import Label, as_label, family_of
from madbench.labels.family import A, L
from madbench.mixers import Check, Family, Size, state_size
from madbench.mixers.checks.residuals import ROUNDING, filled_mixer

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.mixer import Mixer

SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # this budget is not enforced, so every label fits


@dataclass(frozen=True)
class CheckResult:
    """The result of one check: a residual, or the error that prevented its measurement."""

    check: Check
    residual: float | None = None
    """The measured number. None if the check does not apply or has failed with an error."""
    error: str = ""
    """Text of the exception that prevented the measurement. Empty if there was none."""
    where: str = ""
    """Location of the residual as text, such as ``output at 33 tokens``. Empty if the check names none."""

    @property
    def verdict(self) -> Literal["pass", "fail", "not applicable"]:
        if self.error:
            return "fail"
        if self.check.run is None:
            return "not applicable"
        return "pass" if self.residual is not None and self.check.holds(self.residual) else "fail"

    @property
    def row(self) -> dict[str, Any]:
        """The row of this check in a table: column to value.

        The columns are check, verdict, residual, bound, statement, source and reason. If there is no residual, the
        reason says why. If the check fails, it says where.
        """
        check = self.check
        tolerance = f"{check.tolerance:.1e}".replace(".0e", "e").replace("0e+00", "0")
        bound = f"{'>' if check.is_difference else '<='} {tolerance}"
        columns = {"check": check.name, "verdict": self.verdict, "residual": self.residual, "bound": bound}
        reason = self.error or check.reason or (self.where if self.verdict == "fail" else "")
        return columns | {"statement": check.statement, "source": check.source, "reason": reason}


def run_checks(
    label: str | Label,
    further: Callable[[Label], Iterable[Check]] = lambda label: (),
    names: Collection[str] | None = None,
    *,
    of_loops: bool = False,
) -> list[CheckResult]:
    """Run the checks of a label. If a check raises an error, it has failed, and its result has the error as a text.

    Args:
        label: the label, as text or parsed.
        further: maps the label to checks that do not come from its family, such as those of a paper.
        names: the names of the checks to run. If None, all are run.
        of_loops: True to run only the checks that compare the mixer with loops over the definition of its operator, up
            to the first that fails. If the label has no such check, all its checks are run likewise.

    The caller's random state is unchanged. Raises ``LabelError`` for a label whose code is not available here.
    """
    import torch  # noqa: F401  torch must be imported for its random state to be kept

    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        return _run_checks(as_label(label), further, names, of_loops)


def _run_checks(
    label: Label, further: Callable[[Label], Iterable[Check]], names: Collection[str] | None, of_loops: bool
) -> list[CheckResult]:
    from madbench.mixers.checks.path_checks import LoopsCheck
    from madbench.mixers.ops.threads import torch_threads

    outcomes = []
    try:
        with torch_threads(1):  # more threads are slower at these sizes
            checks: Iterable[Check] = itertools.chain(family_of(label).checks(label), further(label))
            if of_loops:
                every = [*checks]
                checks = [check for check in every if isinstance(check, LoopsCheck) and check.run] or every
            for check in checks:
                if names is None or check.name in names:
                    outcomes.append(run_check(check))
                if of_loops and outcomes and outcomes[-1].verdict == "fail":
                    break
    except Exception as error:
        _raise_of_label(error)
        outcomes.append(CheckResult(_check_without_mixer(error), error=_error_text(error)))
    return outcomes


def _check_without_mixer(error: Exception) -> Check:
    """The check to report as failed if ``error`` was raised before the checks of a label could run."""
    if isinstance(error, MadbenchError):
        statement = "A mixer of the label can be built and run. It maps (batch, tokens, d_model) to the same shape."
        return Check("mixer", statement, "the protocol", None)
    return Check("checks", "The checks of the label can be prepared without an error.", "the protocol", None)


def run_check(check: Check) -> CheckResult:
    """Run one check and return its result. An error that the check raises is in the result as a text.

    A residual that is not finite counts as an error, too. Raises only ``LabelError``, if the label itself is at fault,
    for example because its module is missing.
    """
    if check.run is None:
        return CheckResult(check)
    import torch

    try:
        with torch.no_grad():
            result = check.run()
            residual, where = float(result), getattr(result, "where", "")
    except (Exception, SystemExit) as error:  # code of another package may raise anything
        _raise_of_label(error)
        return CheckResult(check, error=_error_text(error))
    if not math.isfinite(residual):
        return CheckResult(check, error=f"the residual is {residual}{f', of the {where}' if where else ''}")
    return CheckResult(check, residual, where=where)


def _raise_of_label(error: BaseException) -> None:
    """Raise ``error`` again if the label itself is at fault: a ``LabelError``, such as one for a missing module.

    Return for every other error, and for a ``FamilyError``, which blames the code of the family.
    """
    if isinstance(error, LabelError) and not isinstance(error, FamilyError):
        raise error


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def sample(family: Family[L, A], label: L, path: str = "auto", size: Size = SMALL) -> tuple[Mixer, Tensor]:
    """Return a mixer of the label in float64 with fixed random weights, and an input (2, max_len, d_model).

    The settings of the family are at their defaults. ``path`` names the implementation that the mixer uses.
    """
    settings = family.Settings()
    return filled_mixer(lambda: family.build(family.solve(label, size, settings), settings, path))


def general_checks(family: Family[L, A], label: L, *, terms: int = 1) -> Iterable[Check]:
    """Yield the checks that apply to every mixer: parameter count, causality, gradients, decoding and precision.

    Some checks depend on the mixer:

    - If it supports decoding, it is decoded token by token and after a prompt.
    - If it has a method ``reference(x, rows)``, every path (implementation) is compared with the loops of this method.
    - If later layers with the same label compute something else than the first, the paths of the second layer are
      compared as well.

    Precision is checked under bfloat16 autocast, where ``terms`` is an argument of
    :func:`madbench.mixers.checks.bfloat16_checks.bfloat16_checks`.
    """
    from madbench.mixers.checks import path_checks
    from madbench.mixers.checks.bfloat16_checks import bfloat16_checks
    from madbench.mixers.checks.kept_precision import explain_rounding
    from madbench.mixers.checks.later_layer import later_layer_checks
    from madbench.mixers.checks.ordinary import ordinary_checks

    size = replace(SMALL, max_len=path_checks.LONGEST)
    make = path_checks.sample_maker(family, label, size)
    mixer, x = sample(family, label)

    def parameters() -> float:
        return abs(sum(parameter.numel() for parameter in mixer.parameters()) - mixer.allocation.total)

    what = "The parameter count of the module matches the budget report."
    yield Check("parameters", what, "the budget", parameters)
    what = "Later tokens do not change earlier outputs."
    causality = functools.partial(path_checks.causality_residual, make)
    yield Check("causality", what, "causal mixing", explain_rounding(causality, ROUNDING), ROUNDING)
    what = "Gradients equal finite differences."
    slopes = functools.partial(path_checks.slope_residual, make)
    yield Check("gradients", what, "autograd", explain_rounding(slopes, path_checks.SLOPES), path_checks.SLOPES)
    if hasattr(mixer, "step"):
        what = "Decoding token by token gives the outputs and gradients of the parallel form."
        steps = functools.partial(path_checks.step_residual, make)
        yield Check("steps", what, "decoding", explain_rounding(steps, ROUNDING), ROUNDING)
        yield from _state_checks(mixer, x[:1])
    if hasattr(mixer, "prefill"):
        what = "Decoding a prompt at once, then token by token, gives the outputs and gradients of the parallel form."
        prefill = functools.partial(path_checks.prefill_residual, make)
        yield Check("prefill", what, "decoding", explain_rounding(prefill, ROUNDING), ROUNDING)
    paths = [path for path in getattr(mixer, "paths", ("auto",)) if path not in ("auto", "reference")] or ["auto"]
    if hasattr(mixer, "reference"):
        yield from path_checks.path_checks(path_checks.Loops(make), paths, "the definition")
    yield from later_layer_checks(family, label, size, paths)
    yield from bfloat16_checks(make, paths, terms=terms)
    yield from ordinary_checks(family, label)


def _state_checks(mixer: Mixer, x: Tensor) -> Iterable[Check]:
    """Yield a check that the cache, after each token of x (1, T, D), has as many numbers as the allocation states.

    Yield nothing if the allocation does not state a number.
    """
    from madbench.mixers.decoding import held_numbers

    def difference() -> float:
        cache, difference = None, 0
        for tokens, token in enumerate(x.unbind(1), start=1):
            _, cache = mixer.step(token, cache)
            difference += abs(held_numbers(cache) - state_size(mixer.allocation, tokens))
        return difference

    try:
        state_size(mixer.allocation, 1)
    except UnknownStateError:
        return
    except MadbenchError:  # the check below fails with this error and reports it
        pass
    what = "The cache of decoding has as many numbers as the state that costs count."
    yield Check("state", what, "costs", difference)
