"""What labels mean and cost: ``madbench explain`` and ``madbench budget``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from madbench import labels as grammar
from madbench.cli.options import LABELS_HELP, BudgetOption, JsonOption, argument, labels_and_overrides, option
from madbench.cli.printing import first_of, print_json, print_lines, table_lines
from madbench.config import from_mapping, settings_of
from madbench.errors import BudgetError, ConfigError
from madbench.labels import Label, diff, expand, factor_names, family_of, levels, parse
from madbench.labels.names import spelled
from madbench.mixers import Allocation, solve, used_settings

BYTES_PER_ELEMENT = 2  # of a model in bfloat16
MOST_REASONS = 3


def explain(
    labels: argument(list[str], "LABEL", LABELS_HELP, show_default=False),
    show_all: option(bool, "Of several labels show what they share too, letter by letter.", "--all") = False,
    as_json: JsonOption = False,
) -> None:
    """Explain every letter of a label; of two labels or more, what each has that the first has not.

    A row a letter: what it does, its equation, its place in the HyperMLP paper.
    A row - says what the label does without. Beside another label, + is what it
    adds to the first and - what it lacks.

    [bold]Examples[/bold]

      madbench explain G-cg-q-12o           one label, letter by letter
      madbench explain R-cg-q R-cg-q-12o    how the second differs from the first
      madbench explain R-cg-q R-cg-q-12o --all   and all letters of both
      madbench explain HyperGLU --json      the paper's names are labels too
    """
    first, *others = parsed = [parse(label) for label in expand(labels)]
    if show_all and as_json:
        raise ConfigError("--all has no effect with --json, which has every letter")
    if show_all and not others:
        raise ConfigError(f"--all has no effect with one label, {first}, of which every letter is shown")
    if as_json:
        content = []
        for label in parsed:
            letters = [dataclasses.asdict(row) for row in grammar.explain(label)]
            differs = list(diff(first, label))
            content.append({"label": str(label), "letters": letters, "differs_from_first_in": differs})
        print_json(content)
        return
    console = Console(highlight=False)
    of_first = grammar.explain(first)
    if show_all or not others:
        _print_rows(console, first, [(row.letter or "-", row) for row in of_first])
    for label in others:
        rows = grammar.explain(label)
        console.print(end="\n" * (show_all or label is not others[0]))
        if show_all:
            shown, shared = [(row.letter or "-", row) for row in rows], ""
        else:
            shown = [(f"+ {row.letter}".strip(), row) for row in rows if row not in of_first]
            shown += [(f"- {row.letter}".strip(), row) for row in of_first if row not in rows]
            shared = ", ".join(f"{row.letter} {row.name}".strip() for row in rows if row in of_first)
        _print_rows(console, label, shown)
        console.print(f"differs from {spelled(str(first))} in: {', '.join(_differences(first, label))}", markup=False)
        if shared:
            console.print(f"shares: {shared} (--all explains these too)", markup=False, style="dim")


def _print_rows(console: Console, label: Label, rows: Iterable[tuple[str, grammar.Explanation]]) -> None:
    """A label, and explanations of it with what stands before each."""
    short, long = spelled(str(label)), str(label)
    console.print(Text.assemble((short, "bold"), (f" = {long}" * (short != long), "dim")))
    table = Table.grid(
        Column(min_width=2, justify="right", style="bold", no_wrap=True), Column(overflow="fold"), padding=(0, 2)
    )
    for letter, row in rows:
        about = [(row.name, "bold"), (row.what, ""), (row.equation, "cyan"), (row.source, "dim")]
        table.add_row(Text(letter), Text("\n").join(Text(*part) for part in about if part[0]))
    console.print(table)


def _differences(first: Label, label: Label) -> Iterator[str]:
    """``R(1) (1o vs. none)``: each factor in which ``label`` differs, with its level and that of ``first``."""
    of_first, of_label = levels(first), levels(label)
    names = {**factor_names(first), **factor_names(label)}
    for factor in diff(first, label):
        given, against = of_label.get(factor), of_first.get(factor)
        is_shown = None not in (given, against) and given != against  # not of factors that one family alone has
        yield names.get(factor, factor) + is_shown * f" ({given or 'none'} vs. {against or 'none'})"


def budget(
    words: argument(
        list[str],
        "LABEL|KEY=VALUE",
        LABELS_HELP + " KEY=VALUE is a setting of their mixers, such as mix_rank=8.",
        show_default=False,
    ),
    d_model: option(int, "Width d of the model.", min=1) = 128,
    max_len: option(int, "Longest sequence L, the rows of the tables of 1 and 2.", min=1) = 128,
    n_head: option(int, "Heads H; a G label has twice as many query heads.", min=1) = 2,
    budget: BudgetOption = "strict",
    mix_rank: option(int | None, "Short for mix_rank=VALUE.", show_default="16") = None,
    rank_multiple: option(int | None, "Short for rank_multiple=VALUE.", show_default="1") = None,
    terms: option(bool, "Break several labels down term by term too.", "--terms") = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a label costs: ranks, parameters by both budgets, decoding state and FLOPs.

    Softmax attention of width d has 4 d^2 parameters: that is the budget B.
    A label with c gets 8 d more for its conv taps, one with D 4 d_qk + d_vo for
    its lambda and norm. --budget chooses the rule for the ranks; both counts of
    them are always shown: strict has every parameter, paper leaves out the tables
    of R(1) and R(2).

    [bold]Examples[/bold]

      madbench budget G-cg-q-12o                     one label, term by term
      madbench budget @table1                        the paper's labels
      madbench budget '~R-cg-q-12o' --budget paper   by the paper's rule
      madbench budget S-c G-cg-q-12o --d-model 768 --n-head 12 --max-len 1024
    """
    if terms and as_json:
        raise ConfigError("--terms has no effect with --json, which has every term")
    labels, overrides = labels_and_overrides(words)
    short = {"mix_rank": mix_rank, "rank_multiple": rank_multiple}
    given = [f"{name}={value}" for name, value in short.items() if value is not None]
    settings = settings_of([*(word.removeprefix("model.") for word in overrides), *given])
    solved: dict[str, Allocation] = {}
    found: dict[str, dict[str, Any]] = {}
    labels = expand(labels)
    for label in labels:
        from_mapping(family_of(label).Settings, settings, f"settings of {label}")
    reads = {label: used_settings(label) for label in labels}
    for name in settings:
        if labels and not any(name in read for read in reads.values()):
            has = ", ".join(f"model.{known}" for known in dict.fromkeys(itertools.chain(*reads.values()))) or "none"
            raise ConfigError(f"{name} has no effect on {', '.join(labels[:4])}; settings of their mixers: {has}")
    for label in labels:
        try:
            own = {name: value for name, value in settings.items() if name in reads[label]}
            solved[label] = solve(label, d_model, n_head, max_len, budget, **own)
            found[label] = _counts(solved[label])
        except BudgetError as error:
            found[label] = {"error": str(error)}
    problems = [row["error"] for row in found.values() if "error" in row]
    if as_json:
        print_json([{"label": label} | row for label, row in found.items()])
    elif solved:
        console = Console(highlight=False)
        _print_summary(console, found)
        console.print(
            f"d_model {d_model}, n_head {n_head}, max_len {max_len}, ranks by the {budget} budget. r_qk, r_vo: ranks "
            "over all heads; d_qk, d_vo: width of one head; r_mix: rank r of R(1), R(2). state: bytes a token adds to "
            "the decoding cache of a bfloat16 model, 0 where its size is fixed; FLOP: of a forward pass, per token at "
            "max_len. B: budget in parameters; left: B - strict.",
            style="dim",
        )
        for label, allocation in solved.items() if terms or len(found) == 1 else ():
            console.print(f"\n{spelled(label)}", style="bold", markup=False)
            print_lines(console, table_lines(_breakdown(allocation, found[label]), right=("parameters", "of B")))
    if problems:
        raise BudgetError("\n".join(first_of(problems, MOST_REASONS, "and {:,} more labels that do not fit")))


def _counts(allocation: Allocation) -> dict[str, Any]:
    target, total = allocation.target, allocation.total
    paper_total = getattr(allocation, "paper_total", total)
    parts = {name: dict(getattr(allocation, name, {})) for name in ("ranks", "widths", "terms")}
    content = vars(allocation.size) | parts | {"target": target, "total": total, "ratio": allocation.ratio}
    content |= {"slack": target - total, "paper_total": paper_total, "paper_ratio": paper_total / target}
    return content | {
        "state_bytes_per_token": allocation.state_bytes_per_token(BYTES_PER_ELEMENT),
        "flops_per_token": allocation.flops_per_token(allocation.size.max_len),
    }


def _print_summary(console: Console, found: Mapping[str, dict[str, Any]]) -> None:
    """Ranks and costs, and below them parameters; a label without ranks does not fit."""
    names = {
        name if len(name) == 1 else f"{letter}_{name}": (kind, name)
        for kind, letter in (("ranks", "r"), ("widths", "d"))
        for row in found.values()
        for name in row.get(kind, ())
    }
    ranks, parameters = [], []
    for label, row in found.items():
        if "error" in row:
            ranks.append({"label": f"{label} (no fit)"})
            parameters.append(ranks[-1])
            continue
        costs = {"state": row["state_bytes_per_token"], "FLOP": row["flops_per_token"]}
        counts = {"B": row["target"], "strict": row["total"], "left": row["slack"], "paper": row["paper_total"]}
        ratios = {"strict/B": row["ratio"], "paper/B": row["paper_ratio"]}
        line = {"label": label} | {heading: row[kind].get(name) for heading, (kind, name) in names.items()}
        ranks.append(line | {name: f"{cost:,.0f}" for name, cost in costs.items()})
        line = {"label": label} | {name: f"{count:,}" for name, count in counts.items()}
        parameters.append(line | {name: f"{ratio:.3f}" for name, ratio in ratios.items()})
    for i, lines in enumerate((ranks, parameters)):
        console.print(end="\n" * i)
        print_lines(console, table_lines(lines, right={name for line in lines for name in line} - {"label"}))


def _breakdown(allocation: Allocation, counts: Mapping[str, Any]) -> list[dict[str, str]]:
    formulas = getattr(allocation, "formulas", {})
    raised = counts["target"] - 4 * allocation.size.d_model**2
    terms = [(name, *formulas.get(name, ("", "")), count) for name, count in allocation.terms.items()]
    terms += [
        ("strict", "all terms", "", counts["total"]),
        ("paper", "without tables", "", counts["paper_total"]),
        ("B", f"4 d^2 + {raised:,}" if raised else "4 d^2", "", counts["target"]),
        ("left", "B - strict", "", counts["slack"]),
    ]
    return [
        {"term": term, "formula": formula, "parameters": f"{count:,}"}
        | {"of B": f"{count / counts['target']:.1%}", "tensors": tensors}
        for term, formula, tensors, count in terms
    ]
