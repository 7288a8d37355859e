"""Checks that compare the mixers of an item with loops over their definition.

An item whose mixers fail says nothing about the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from madbench.experiment import Experiment
from madbench.labels import expand
from madbench.labels.names import typed_label
from madbench.mixers import Check
from madbench.mixers.checks import CheckResult, run_check, run_checks
from madbench.papers.making import FAILS, ItemResult, Measure, Request
from madbench.rows import Grid
from madbench.suites import checks_of


def operators_of(request: Request, measure: Measure, plan: Grid | Experiment | None) -> list[str]:
    """The labels whose operators an item uses: those that it trains or checks, otherwise those that its measure names.

    ``plan`` is the result of ``measure.plan``. Empty if the item calls no operator (``arithmetic``).
    """
    if request.item.arithmetic:
        return []
    if isinstance(plan, Experiment):
        return plan.labels
    if plan is not None:
        return list(dict.fromkeys(row.label for row in plan.rows))
    return expand(request.labels or request.item.labels or measure.operators)


def failing_operators(labels: Iterable[str]) -> dict[str, CheckResult]:
    """The failed checks of operators: label to the result of the first check that its operator fails.

    Labels whose operators pass are left out. Only checks that compare the operator with loops over its definition are
    run, up to the first that fails. If a label has no such check, all of its checks are run likewise.
    """
    failing = {}
    for label in labels:
        outcomes = run_checks(label, checks_of, of_loops=True)
        if outcomes and outcomes[-1].verdict == "fail":
            failing[label] = outcomes[-1]
    return failing


def outcome_by_loops(check: Check) -> CheckResult | None:
    """The result of a check in which mixers are computed by loops over their definition, in float64.

    None if the check calls no mixer that has such loops.
    """
    with by_loops() as class_names:
        outcome = run_check(check)
    return outcome if class_names else None


@contextmanager
def by_loops() -> Iterator[list[str]]:
    """A context in which mixers that have a method ``reference`` are computed by it: by loops in float64.

    Yield a list, to which the class name of a mixer is added at each such call.
    """
    from torch.nn.modules.module import register_module_forward_hook

    class_names: list[str] = []

    def replace_output(module: Any, arguments: tuple[Any, ...], output: Any) -> Any:
        if not callable(getattr(module, "reference", None)):
            return None
        class_names.append(type(module).__name__)
        return module.reference(arguments[0]).to(output.dtype)

    hook = register_module_forward_hook(replace_output)
    try:
        yield class_names
    finally:
        hook.remove()


def fails_here(failing: dict[str, CheckResult]) -> ItemResult:
    """The result of an item whose operators fail their checks: one verdict ``fails here`` per label in ``failing``.

    Each verdict has a remark with the measured residual and its bound, if the check got that far, and the reason.
    """
    verdicts, remarks = {}, {}
    for label, outcome in failing.items():
        statement = f"{typed_label(label)} is the operator that its label names: {outcome.check.name}"
        verdicts[statement], row = FAILS, outcome.row
        measured = "" if row["residual"] is None else f"measured {row['residual']:.1e}, bound {row['bound']}; "
        remarks[statement] = f"{measured}{row['reason']}. Nothing is said of the paper: madbench verify {label}"
    return ItemResult((), verdicts, {"remarks": remarks}, (), remarks)
