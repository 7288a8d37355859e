from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import LABELS_HELP, Counting, CountingOption, JsonOption, variants_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from madbench.errors import BudgetError
    from madbench.mixers.srg.allocation import Allocation

BYTES_PER_ELEMENT = 2  # of a decoding cache in bfloat16
MOST_REASONS = 3

TERMS = {
    "qk": ("2 d r_qk", "W_q, W_k"),
    "vo": ("2 d r_vo", "W_v, W_o"),
    "conv": ("2 * 4 d", "taps of K and of V"),
    "qk_gate": ("(d + 1) r_qk", "W_M1 and its bias"),
    "vo_gate": ("(d + 1) r_vo", "W_M2 and its bias"),
    "mix1": ("H_q r (d + 1)", "W_S1 and its bias"),
    "mix1_tables": ("H_q L (2 r + 1)", "A1, B1, p1 (strict only)"),
    "mix2": ("H r (d + 1)", "W_S2 and its bias"),
    "mix2_tables": ("H L (2 r + 1)", "A2, B2, p2 (strict only)"),
}
"""Formula and tensors of every term of :attr:`madbench.mixers.srg.allocation.Allocation.terms`."""

RANKS: dict[str, Callable[[Allocation], str]] = {
    "r_qk": lambda a: str(a.ranks.qk),
    "r_vo": lambda a: str(a.ranks.vo),
    "r": lambda a: str(a.ranks.mix),
    "d_qk": lambda a: str(a.qk_width),
    "d_vo": lambda a: str(a.vo_width),
    "state": lambda a: f"{a.state_bytes_per_token(BYTES_PER_ELEMENT):,}",
    "kFLOP": lambda a: f"{a.flops_per_token(a.max_len) / 1000:,.0f}",
}
COSTS: dict[str, Callable[[Allocation], str]] = {
    "B": lambda a: f"{a.target:,}",
    "strict": lambda a: f"{a.total:,}",
    "/B": lambda a: _ratio(a.ratio),
    "left": lambda a: f"{a.slack:,}",
    "published": lambda a: f"{a.published_total:,}",
    "/B*": lambda a: _ratio(a.published_ratio),
}
"""Columns of the summary; an asterisk only tells apart two headings that are shown alike."""


def budget(
    labels: Annotated[list[str], typer.Argument(metavar="LABEL", help=LABELS_HELP, show_default=False)],
    d_model: Annotated[int, typer.Option(min=1, help="Width d of the model.")] = 128,
    max_len: Annotated[int, typer.Option(min=1, help="Longest sequence L, the rows of the tables of 1 and 2.")] = 128,
    n_head: Annotated[int, typer.Option(min=1, help="Heads H; a G label has twice as many query heads.")] = 2,
    counting: CountingOption = Counting.strict,
    mix_rank: Annotated[int, typer.Option(min=1, help="Rank r of 1 and 2 before solving.")] = 16,
    rank_multiple: Annotated[int, typer.Option(min=1, help="Widths per head are multiples of this.")] = 1,
    terms: Annotated[bool, typer.Option("--terms", help="Break several labels down term by term too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a label costs: ranks, parameters in both countings, decoding state and FLOPs.

    Softmax attention of width d has 4 d^2 parameters: that is the budget B.
    A label with c gets 8 d more for its conv taps. --budget chooses the rule
    for the ranks; both countings of them are always shown: strict has every
    parameter, published leaves out the tables of R(1) and R(2).

    [bold]Examples[/bold]

      madbench budget G-cg-q-12o                        one label, term by term
      madbench budget @table1                           the paper's labels
      madbench budget '~R-cg-q-12o' --budget published  by the paper's rule
      madbench budget S-c G-cg-q-12o --d-model 768 --n-head 12 --max-len 1024
    """
    import json

    from rich.console import Console

    from madbench.cli.tables import print_whole
    from madbench.errors import BudgetError
    from madbench.mixers.srg.budget import solve

    found: dict[str, Allocation | BudgetError] = {}
    for variant in variants_of(labels):
        try:
            found[str(variant)] = solve(variant, d_model, n_head, max_len, counting.value, mix_rank, rank_multiple)
        except BudgetError as error:
            found[str(variant)] = error
    solved = {label: result for label, result in found.items() if not isinstance(result, BudgetError)}
    failures = [str(result) for result in found.values() if isinstance(result, BudgetError)]

    if as_json:
        rows = [
            {"label": label, "error": str(result)} if isinstance(result, BudgetError) else _as_mapping(result)
            for label, result in found.items()
        ]
        print(json.dumps(rows, indent=2))
    elif solved:
        console = Console(highlight=False)
        _print_summary(console, found)
        console.print(_legend(next(iter(solved.values())), counting.value), style="dim")
        if terms or len(found) == 1:
            for allocation in solved.values():
                console.print()
                print_whole(console, _breakdown(allocation))
    if failures:
        left_out = len(failures) - MOST_REASONS
        more = [f"and {left_out} more labels that do not fit"] if left_out > 0 else []
        raise BudgetError("\n".join(failures[:MOST_REASONS] + more))


def _as_mapping(allocation: Allocation) -> dict[str, Any]:
    ranks = allocation.ranks
    return {
        "label": str(allocation.variant),
        "d_model": allocation.d_model,
        "n_head": allocation.n_head,
        "max_len": allocation.max_len,
        "counting": allocation.counting,
        "r_qk": ranks.qk,
        "r_vo": ranks.vo,
        "r": ranks.mix,
        "qk_width": allocation.qk_width,
        "vo_width": allocation.vo_width,
        "query_heads": allocation.query_heads,
        "terms": allocation.terms,
        "budget": allocation.target,
        "strict_total": allocation.total,
        "strict_ratio": allocation.ratio,
        "published_total": allocation.published_total,
        "published_ratio": allocation.published_ratio,
        "slack": allocation.slack,
        "state_bytes_per_token": allocation.state_bytes_per_token(BYTES_PER_ELEMENT),
        "flops_per_token": allocation.flops_per_token(allocation.max_len),
    }


def _print_summary(console: Console, found: dict[str, Allocation | BudgetError]) -> None:
    """One table where the terminal is wide enough for it, else ranks and costs one below the other."""
    from madbench.cli.tables import fits, print_whole

    whole = _summary(found, {**RANKS, **COSTS})
    if fits(console, whole):
        console.print(whole)
        return
    print_whole(console, _summary(found, RANKS))
    console.print()
    print_whole(console, _summary(found, COSTS))


def _summary(found: dict[str, Allocation | BudgetError], columns: dict[str, Callable[[Allocation], str]]) -> Table:
    from rich import box
    from rich.table import Table

    from madbench.errors import BudgetError

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0), show_edge=False)
    table.add_column("label", no_wrap=True)
    for heading in columns:
        table.add_column(heading.rstrip("*"), justify="right", no_wrap=True)
    for label, result in found.items():
        if isinstance(result, BudgetError):
            table.add_row(label, "no fit", *["-"] * (len(columns) - 1), style="red")
        else:
            table.add_row(label, *(cell(result) for cell in columns.values()))
    return table


def _ratio(ratio: float) -> str:
    text = f"{ratio:.3f}"
    return f"[yellow]{text}[/yellow]" if ratio > 1 else text


def _legend(sample: Allocation, counting: str) -> str:
    return (
        f"d_model {sample.d_model}, n_head {sample.n_head}, max_len {sample.max_len}, ranks by {counting} counting. "
        "r_qk, r_vo: ranks over all heads; d_qk, d_vo: width of one head; r: rank of R(1), R(2). state: bytes "
        "a token adds to a bfloat16 decoding cache; kFLOP: thousand forward FLOPs per token at max_len. B: budget in "
        "parameters; left: B - strict."
    )


def _breakdown(allocation: Allocation) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        title=str(allocation.variant),
        title_justify="left",
        title_style="bold",
    )
    for heading, justify in (("term", "left"), ("formula", "left"), ("parameters", "right"), ("of B", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)
    table.add_column("tensors")
    for name, size in allocation.terms.items():
        formula, tensors = TERMS[name]
        table.add_row(name, formula, f"{size:,}", f"{size / allocation.target:.1%}", tensors)
    table.add_section()
    of_conv = " + 8 d" if allocation.variant.conv else ""
    for name, formula, size in (
        ("strict", "all terms", allocation.total),
        ("published", "without tables", allocation.published_total),
        ("B", f"4 d^2{of_conv}", allocation.target),
        ("left", "B - strict", allocation.slack),
    ):
        table.add_row(name, formula, f"{size:,}", f"{size / allocation.target:.1%}", "")
    return table


def add_to(app: typer.Typer) -> None:
    app.command()(budget)
