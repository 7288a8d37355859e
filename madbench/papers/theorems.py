"""Theorems as items of papers: checks of operators decide them, and give verdicts on the printed statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from madbench.errors import ConfigError, did_you_mean, no_effect
from madbench.labels import expand, family_of, parse
from madbench.labels.names import typed_label
from madbench.mixers.checks import CheckResult, run_checks
from madbench.papers.making import (
    CONTRADICTED,
    FAILS,
    OPEN,
    REPRODUCED,
    ItemResult,
    PlainMeasure,
    Request,
    refuse_choices,
)
from madbench.papers.operators import failing_operators, outcome_by_loops
from madbench.suites import checks_of

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results


class TheoremMeasure(PlainMeasure):
    """A measure that runs an item's checks on the labels of the item, or on labels given by the user."""

    def plan(self, request: Request) -> None:
        refuse_choices(replace(request, labels=()), request.item.id)
        if request.device != "auto":
            raise no_effect("--device", f"on {request.item.id}", "it trains nothing")

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        by_label, is_arithmetic = outcomes_of(request), request.item.arithmetic
        verdicts, remarks, failed = {}, {}, False
        for name in request.item.checks:
            of_labels = {label: named[name] for label, named in by_label.items() if name in named}
            measured = {label: outcome for label, outcome in of_labels.items() if outcome.check.run is not None}
            for label, outcome in (measured or of_labels).items():
                statement = f"{name}, {typed_label(label)}: {outcome.check.statement} ({outcome.check.source})"
                loops = None if is_arithmetic else _by_loops(label, outcome)
                verdicts[statement], remarks[statement] = verdict(outcome, loops), _number(outcome, loops)
                failed |= outcome.verdict == "fail"
        table = check_table(request, by_label)
        return ItemResult([table], verdicts, {"checks": table.json_rows()}, (), remarks, failed=failed)


def outcomes_of(request: Request) -> dict[str, dict[str, CheckResult]]:
    """The results of the item's checks: label to name of the check to result.

    The labels are those of the user, otherwise those of the item. Raises ``ConfigError`` if none of the labels has a
    check.
    """
    item = request.item
    labels = expand(request.labels or item.labels)
    by_label = {
        label: {outcome.check.name: outcome for outcome in run_checks(label, checks_of, item.checks)}
        for label in labels
    }
    measured = {name for named in by_label.values() for name in named}
    for name in item.checks:
        if name not in measured and request.labels:
            problem = f"{', '.join(labels)} has no check {name!r}, by which it is decided"
            raise ConfigError(f"{item.id}: {problem}; its own labels are {', '.join(item.labels)}")
        if name not in measured:
            all_checks = ((*family_of(label).checks(parse(label)), *checks_of(label)) for label in labels)
            check_names = dict.fromkeys(check.name for checks in all_checks for check in checks)
            raise ConfigError(f"{item.id}: no check {name!r} of {', '.join(labels)}{did_you_mean(name, check_names)}")
    return by_label


def _by_loops(label: str, outcome: CheckResult) -> CheckResult | None:
    """Repeat a failed check of ``label`` with its mixers computed by loops in float64. Return the result of this second
    run.

    ``outcome`` is the result of the first run. None if it is no failure, or an error, or if the check calls no mixer
    with such loops. Also None if both runs fail and the label's operator fails its own checks
    (:func:`failing_operators`). The failure may then be the operator's fault, so it says nothing about the paper.
    """
    if outcome.verdict != "fail" or outcome.error:
        return None
    loops = outcome_by_loops(outcome.check)
    is_of_both = loops is not None and loops.verdict == "fail"
    return None if is_of_both and failing_operators([label]) else loops


def verdict(outcome: CheckResult, loops: CheckResult | None = None) -> str:
    """The verdict on the printed statement that a check tests. ``outcome`` is the result of the check.

    A check that passes reproduces the statement, or contradicts it if the check has the mark ``contradicts``. A failed
    check without this mark contradicts the statement if it also fails with loops in float64, whose result is ``loops``.
    For every other failed check the verdict is ``fails here``, and for one that does not apply ``not decided``.
    """
    if outcome.verdict == "not applicable":
        return OPEN
    if outcome.verdict == "fail":
        is_of_both = loops is not None and loops.verdict == "fail" and not loops.error
        return CONTRADICTED if is_of_both and not outcome.check.contradicts else FAILS
    return CONTRADICTED if outcome.check.contradicts else REPRODUCED


def check_table(request: Request, by_label: Mapping[str, Mapping[str, CheckResult]]) -> Listing:
    """The table of an item's checks, one line per label and check: the measured value and its bound."""
    from madbench.analysis.rendering import Listing

    cells = [{"label": label} | outcome.row for label, named in by_label.items() for outcome in named.values()]
    lines = []
    for cell in cells:
        residual = "-" if cell["residual"] is None else f"{cell['residual']:.1e}".replace("0.0e+00", "0")
        bound_text = cell["bound"] if cell["residual"] is not None else "-"
        lines.append([typed_label(cell["label"]), cell["check"], cell["verdict"], residual, bound_text])
    item = request.item
    caption = f"{item.place} of {request.paper.title}: what was measured, and its bound."
    notes = "In float64 on small mixers or on the paper's construction; madbench verify LABEL says what each check is."
    headings = ["Label", "Check", "Outcome", "Measured", "Bound"]
    return Listing(cells, headings, lines, cells, caption, notes, f"tab:{item.id}")


def _number(outcome: CheckResult, loops: CheckResult | None) -> str:
    row = outcome.row
    if row["residual"] is None:
        return str(row["reason"])
    number = f"measured {row['residual']:.1e}, bound {row['bound']}"
    if row["reason"]:
        number += f"; {row['reason']}"
    return number if loops is None else f"{number}; {_loops_text(loops)}"


def _loops_text(loops: CheckResult) -> str:
    if loops.residual is None:
        return f"by float64 loops not measured: {loops.error}"
    failure_text = (
        "our operator alone fails it" if loops.verdict == "pass" else "our operator and the loops both fail it"
    )
    return f"by float64 loops {loops.residual:.1e}: {failure_text}"
