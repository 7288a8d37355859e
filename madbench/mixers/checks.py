"""Checks that a mixer of any family passes, at a small size in float64, and what running those of a label gives."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from madbench.errors import FamilyError, LabelError
from madbench.labels import as_label, family_of
from madbench.mixers import Check, Family, Size
from madbench.mixers.residuals import ROUNDING, filled

if TYPE_CHECKING:
    from torch import Tensor, nn

SMALL = Size(d_model=16, n_head=2, max_len=8, budget="paper")  # paper: every label fits


@dataclass(frozen=True)
class Outcome:
    """What running a check gave."""

    check: Check
    residual: float | None = None  # None where the check does not apply, or did not get as far
    error: str = ""  # what kept it from measuring
    where: str = ""  # what the residual is of, where the check says so

    @property
    def verdict(self) -> Literal["pass", "fail", "not applicable"]:
        if self.error:
            return "fail"
        if self.check.run is None:
            return "not applicable"
        return "pass" if self.check.holds(self.residual) else "fail"

    @property
    def row(self) -> dict[str, Any]:
        """A table's row: check, verdict, residual, bound, statement, source, and why there is no residual, or where one
        fails."""
        check = self.check
        tolerance = f"{check.tolerance:.1e}".replace(".0e", "e").replace("0e+00", "0")
        bound = f"{'>' if check.is_difference else '<='} {tolerance}"
        columns = {"check": check.name, "verdict": self.verdict, "residual": self.residual, "bound": bound}
        reason = self.error or check.reason or (self.where if self.verdict == "fail" else "")
        return columns | {"statement": check.statement, "source": check.source, "reason": reason}


def run_checks(
    label: Any,
    further: Callable[[Any], Iterable[Check]] = lambda label: (),
    names: Collection[str] | None = None,
    *,
    of_loops: bool = False,
) -> list[Outcome]:
    """The outcome of every check of a label or its text; one that raises has failed, with the error as its reason.

    Raises ``LabelError`` for a label that names no code here.

    ``further`` gives the checks of a label that its family does not know; ``names`` are of those that are run, all
    unless given. With ``of_loops`` only the checks that compare the operator with loops over its definition are run, or
    all of a label that has no loops. The caller's random state stays as it is.
    """
    import torch  # noqa: F401  its random state is kept if it is imported

    from madbench.mixers.random_state import kept_random_state

    with kept_random_state():
        return _run_checks(as_label(label), further, names, of_loops)


def _run_checks(
    label: Any, further: Callable[[Any], Iterable[Check]], names: Collection[str] | None, of_loops: bool
) -> list[Outcome]:
    import torch

    from madbench.mixers.path_checks import LoopsCheck

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more are in each other's way at these sizes
    outcomes = []
    try:
        checks: Iterable[Check] = itertools.chain(family_of(label).checks(label), further(label))
        if of_loops:
            every = [*checks]
            checks = [check for check in every if isinstance(check, LoopsCheck) and check.run] or every
        for check in checks:
            if names is None or check.name in names:
                outcomes.append(run_check(check))
    except Exception as error:
        _raise_of_label(error)
        check = Check("checks", "The family has checks of this label.", "the protocol", None)
        outcomes.append(Outcome(check, error=_named(error)))
    finally:
        torch.set_num_threads(threads)
    return outcomes


def run_check(check: Check) -> Outcome:
    """What the check gives, whatever it raises."""
    if check.run is None:
        return Outcome(check)
    import torch

    try:
        with torch.no_grad():
            result = check.run()
            residual, where = float(result), getattr(result, "where", "")
    except (Exception, SystemExit) as error:  # of another package's code
        _raise_of_label(error)
        return Outcome(check, error=_named(error))
    if not math.isfinite(residual):
        return Outcome(check, error=f"the residual is {residual}{f', of the {where}' if where else ''}")
    return Outcome(check, residual, where=where)


def _raise_of_label(error: BaseException) -> None:
    """Raises an error of the label itself, such as of a module that is not here: then there is nothing to check."""
    if isinstance(error, LabelError) and not isinstance(error, FamilyError):
        raise error


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def sample(family: Family, label: Any, path: str = "auto", size: Size = SMALL) -> tuple[nn.Module, Tensor]:
    """A small mixer of the label, always the same, with weights that show, and an input."""
    settings = family.Settings()
    return filled(lambda: family.build(family.solve(label, size, settings), settings, path))


def general_checks(family: Family, label: Any, *, terms: int = 1) -> Iterable[Check]:
    """What any mixer has to hold; every path against its loops where it has some, a method ``reference(x, rows)``.

    Parameter count, causality, gradients, decoding by steps and after a prompt where it can, precision in bfloat16,
    whose ``terms`` are those of :func:`madbench.mixers.bfloat16_checks.bfloat16_checks`.
    """
    from madbench.mixers import path_checks
    from madbench.mixers.bfloat16_checks import bfloat16_checks
    from madbench.mixers.kept_precision import with_reason
    from madbench.mixers.ordinary import ordinary_checks

    make = path_checks.sampled(family, label, replace(SMALL, max_len=path_checks.LONGEST))
    mixer, x = sample(family, label)

    def parameters() -> float:
        return abs(sum(parameter.numel() for parameter in mixer.parameters()) - mixer.allocation.total)

    what = "The module has exactly the parameters of its allocation."
    yield Check("parameters", what, "the budget", parameters)
    what = "Later tokens do not change earlier outputs."
    causality = functools.partial(path_checks.causality_residual, make)
    yield Check("causality", what, "causal mixing", with_reason(causality, ROUNDING), ROUNDING)
    what = "Gradients are the slopes of the outputs."
    slopes = functools.partial(path_checks.slope_residual, make)
    yield Check("gradients", what, "autograd", with_reason(slopes, path_checks.SLOPES), path_checks.SLOPES)
    if hasattr(mixer, "step"):
        what = "Decoding token by token gives the parallel outputs and gradients."
        steps = functools.partial(path_checks.step_residual, make)
        yield Check("steps", what, "decoding", with_reason(steps, ROUNDING), ROUNDING)
    if hasattr(mixer, "prefill"):
        what = "Decoding a prompt at once, then token by token, gives the parallel outputs and gradients."
        prefill = functools.partial(path_checks.prefill_residual, make)
        yield Check("prefill", what, "decoding", with_reason(prefill, ROUNDING), ROUNDING)
    paths = [path for path in getattr(mixer, "paths", ("auto",)) if path not in ("auto", "reference")] or ["auto"]
    if hasattr(mixer, "reference"):
        yield from path_checks.path_checks(path_checks.Loops(make), paths, "the definition")
    yield from bfloat16_checks(make, paths, terms=terms)
    yield from ordinary_checks(family, label)
