"""The command-line options that choose a protocol: profile, tasks, fidelity and budget.

The Python functions that take the same options share these declarations.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, overload

from madbench.config.options import EVERY_VERB, Parameter, option, split_list
from madbench.jobs import Budget, Fidelity

BudgetName = Literal["strict", "parameters", "paper", "flops", "state", "compute"]
"""The names of budgets that users may give. Jobs store the budget ``parameters`` as ``strict``."""


@overload
def canonical_budget(name: BudgetName) -> Budget: ...
@overload
def canonical_budget(name: None) -> None: ...
def canonical_budget(name: BudgetName | None) -> Budget | None:
    """The name under which jobs store a budget: ``strict`` for ``parameters``, any other name unchanged.

    None stays None.
    """
    return "strict" if name == "parameters" else name


ProfileOption = Annotated[
    str | None,
    option(
        "evening, evening-4 (four layers, for hybrids), quick (a first look), full (the paper's size), or a YAML "
        "file like those in tasks/mad. Other suites have other profiles: madbench ls profiles.",
        "--profile",
        "-p",
        completes="PROFILE",
        show_default="evening; tiny for language models",
    ),
]
FidelityOption = Annotated[
    Fidelity,
    option("corrected: our protocol. published: that of the reference implementation, with quirks.", rare=EVERY_VERB),
]


def tasks_option(show_default: str, *flags: str, **settings: Any) -> Parameter:
    """The option ``--tasks``. ``flags`` are more names of it; the help shows ``show_default`` as its default.

    ``settings`` are further arguments of ``option``.
    """

    def split(values: list[str] | None) -> list[str] | None:
        return split_list(values)

    return option(
        "Tasks of any suite, or a suite for its default tasks; madbench ls tasks lists them.",
        "--tasks",
        *flags,
        "-t",
        reads=list[str] | None,
        callback=split,
        metavar="TASK,...",
        completes="TASK,...",
        show_default=show_default,
        **settings,
    )


def budget_option(reads: Any = BudgetName, **settings: Any) -> Parameter:
    """The option ``--budget``, also called ``--match``. ``settings`` are further arguments of ``option``.

    ``reads`` is the type of the value that the option accepts.
    """

    def canonical(name: BudgetName | None) -> Budget | None:
        return canonical_budget(name)

    return option(
        "Quantity matched to softmax attention. strict (or parameters): every parameter counts, except the taps of "
        "convolutions. paper: the ranks of the paper; the tables of R(1), R(2) do not count either. flops: FLOPs per "
        "token. state: numbers carried while decoding. compute: parameters, and training FLOPs by the number of steps.",
        "--budget",
        "--match",
        metavar="QUANTITY",
        reads=reads,
        callback=canonical,
        **settings,
    )


BudgetOption = Annotated[Budget, budget_option()]
