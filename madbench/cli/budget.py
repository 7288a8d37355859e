from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import LABELS_HELP, Budget, BudgetOption, JsonOption, labels_and_overrides

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from madbench.errors import BudgetError
    from madbench.mixers.family import Allocation

BYTES_PER_ELEMENT = 2  # of a decoding cache in bfloat16
MOST_REASONS = 3

Columns = Mapping[str, Callable[["Allocation"], str]]

COSTS: Columns = {
    "state": lambda a: f"{a.state_bytes_per_token(BYTES_PER_ELEMENT):,.0f}",
    "kFLOP": lambda a: f"{a.flops_per_token(a.size.max_len) / 1000:,.0f}",
}
COUNTS: Columns = {
    "B": lambda a: f"{a.target:,}",
    "strict": lambda a: f"{a.total:,}",
    "/B": lambda a: _ratio(a.total, a),
    "left": lambda a: f"{a.target - a.total:,}",
    "paper": lambda a: f"{_paper_total(a):,}",
    "/B*": lambda a: _ratio(_paper_total(a), a),
}
"""Columns of the summary; an asterisk only distinguishes two headings that are shown alike."""


def budget(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL|KEY=VALUE",
            help=LABELS_HELP + " KEY=VALUE is a setting of their mixers, such as mix_rank=8.",
            show_default=False,
        ),
    ],
    d_model: Annotated[int, typer.Option(min=1, help="Width d of the model.")] = 128,
    max_len: Annotated[int, typer.Option(min=1, help="Longest sequence L, the rows of the tables of 1 and 2.")] = 128,
    n_head: Annotated[int, typer.Option(min=1, help="Heads H; a G label has twice as many query heads.")] = 2,
    budget: BudgetOption = Budget.strict,
    mix_rank: Annotated[
        int | None, typer.Option(min=1, help="Rank r of 1 and 2 before solving.", show_default="16")
    ] = None,
    rank_multiple: Annotated[
        int | None, typer.Option(min=1, help="Widths per head are multiples of this.", show_default="1")
    ] = None,
    terms: Annotated[bool, typer.Option("--terms", help="Break several labels down term by term too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a label costs: ranks, parameters by both budgets, decoding state and FLOPs.

    Softmax attention of width d has 4 d^2 parameters: that is the budget B.
    A label with c gets 8 d more for its conv taps. --budget chooses the rule
    for the ranks; both counts of them are always shown: strict has every
    parameter, paper leaves out the tables of R(1) and R(2).

    [bold]Examples[/bold]

      madbench budget G-cg-q-12o                     one label, term by term
      madbench budget @table1                        the paper's labels
      madbench budget '~R-cg-q-12o' --budget paper   by the paper's rule
      madbench budget S-c G-cg-q-12o --d-model 768 --n-head 12 --max-len 1024
    """
    from rich.console import Console

    from madbench.cli.tables import print_whole
    from madbench.config import settings_of
    from madbench.errors import BudgetError
    from madbench.labels import expand
    from madbench.mixers import solve

    labels, overrides = labels_and_overrides(words)
    given = {"mix_rank": mix_rank, "rank_multiple": rank_multiple}
    given = [f"{name}={value}" for name, value in given.items() if value is not None]
    settings = settings_of([*(word.removeprefix("model.") for word in overrides), *given])
    found: dict[str, Allocation | BudgetError] = {}
    for label in expand(labels):
        try:
            found[label] = solve(label, d_model, n_head, max_len, budget.value, **settings)
        except BudgetError as error:
            found[label] = error
    solved = [result for result in found.values() if not isinstance(result, BudgetError)]
    failures = [str(result) for result in found.values() if isinstance(result, BudgetError)]

    if as_json:
        rows = [
            {"label": label, "error": str(result)} if isinstance(result, BudgetError) else _as_mapping(result)
            for label, result in found.items()
        ]
        print(json.dumps(rows, indent=2))
    elif solved:
        console = Console(highlight=False)
        _print_summary(console, found, _ranks(solved))
        console.print(_legend(solved[0]), style="dim")
        if terms or len(found) == 1:
            for allocation in solved:
                console.print()
                print_whole(console, _breakdown(allocation))
    if failures:
        left_out = len(failures) - MOST_REASONS
        more = [f"and {left_out} more labels that do not fit"] if left_out > 0 else []
        raise BudgetError("\n".join(failures[:MOST_REASONS] + more))


def _as_mapping(allocation: Allocation) -> dict[str, Any]:
    paper_total = _paper_total(allocation)
    return {
        "label": str(allocation.label),
        **vars(allocation.size),
        "ranks": dict(allocation.ranks),
        "widths": _widths(allocation),
        "terms": dict(allocation.terms),
        "target": allocation.target,
        "total": allocation.total,
        "ratio": allocation.ratio,
        "paper_total": paper_total,
        "paper_ratio": paper_total / allocation.target,
        "slack": allocation.target - allocation.total,
        "state_bytes_per_token": allocation.state_bytes_per_token(BYTES_PER_ELEMENT),
        "flops_per_token": allocation.flops_per_token(allocation.size.max_len),
    }


def _paper_total(allocation: Allocation) -> int:
    return getattr(allocation, "paper_total", allocation.total)


def _widths(allocation: Allocation) -> dict[str, int]:
    return dict(getattr(allocation, "widths", {}))


def _ratio(total: int, allocation: Allocation) -> str:
    text = f"{total / allocation.target:.3f}"
    return f"[yellow]{text}[/yellow]" if total > allocation.target else text


def _ranks(solved: Sequence[Allocation]) -> Columns:
    """A column a rank that any of the labels has, then a column a width."""
    ranks = dict.fromkeys(name for allocation in solved for name in allocation.ranks)
    widths = dict.fromkeys(name for allocation in solved for name in _widths(allocation))
    of_ranks = {_symbol("r", name): lambda a, name=name: str(a.ranks.get(name, "-")) for name in ranks}
    return of_ranks | {_symbol("d", name): lambda a, name=name: str(_widths(a).get(name, "-")) for name in widths}


def _symbol(letter: str, name: str) -> str:
    return name if len(name) == 1 else f"{letter}_{name}"


def _print_summary(console: Console, found: Mapping[str, Allocation | BudgetError], ranks: Columns) -> None:
    """One table where the terminal is wide enough for it, else ranks and counts one below the other."""
    from madbench.cli.tables import fits, print_whole

    whole = _summary(found, {**ranks, **COSTS, **COUNTS})
    if fits(console, whole):
        console.print(whole)
        return
    print_whole(console, _summary(found, {**ranks, **COSTS}))
    console.print()
    print_whole(console, _summary(found, COUNTS))


def _summary(found: Mapping[str, Allocation | BudgetError], columns: Columns) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from madbench.errors import BudgetError

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0), show_edge=False)
    table.add_column("label", no_wrap=True)
    for heading in columns:
        table.add_column(heading.rstrip("*"), justify="right", no_wrap=True)
    for label, result in found.items():
        if isinstance(result, BudgetError):
            table.add_row(Text(label), "no fit", *["-"] * (len(columns) - 1), style="red")
        else:
            table.add_row(Text(label), *(cell(result) for cell in columns.values()))
    return table


def _legend(sample: Allocation) -> str:
    size = sample.size
    return (
        f"d_model {size.d_model}, n_head {size.n_head}, max_len {size.max_len}, ranks by the {size.budget} budget. "
        "r_qk, r_vo: ranks over all heads; d_qk, d_vo: width of one head; r_mix: rank r of R(1), R(2). state: bytes "
        "a token adds to a bfloat16 decoding cache; kFLOP: thousand forward FLOPs per token at max_len. B: budget in "
        "parameters; left: B - strict."
    )


def _breakdown(allocation: Allocation) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        title=Text(str(allocation.label)),
        title_justify="left",
        title_style="bold",
    )
    for heading, justify in (("term", "left"), ("formula", "left"), ("parameters", "right"), ("of B", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)
    table.add_column("tensors")
    formulas = getattr(allocation, "formulas", {})
    counts = [(name, *formulas.get(name, ("", "")), size) for name, size in allocation.terms.items()]
    raised = allocation.target - 4 * allocation.size.d_model**2
    sums = [
        ("strict", "all terms", "", allocation.total),
        ("paper", "without tables", "", _paper_total(allocation)),
        ("B", f"4 d^2 + {raised:,}" if raised else "4 d^2", "", allocation.target),
        ("left", "B - strict", "", allocation.target - allocation.total),
    ]
    for rows in (counts, sums):
        for name, formula, tensors, size in rows:
            table.add_row(name, formula, f"{size:,}", f"{size / allocation.target:.1%}", tensors)
        table.add_section()
    return table


def add_to(app: typer.Typer) -> None:
    app.command()(budget)
