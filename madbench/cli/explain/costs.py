"""Costs of labels for ``madbench explain --cost``: ranks, parameters, decoding state and FLOPs."""

from __future__ import annotations

import functools
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from rich.console import Console

from madbench.cli.shared.printing import first_of, print_json, print_lines, table_lines
from madbench.config import Override, convert, from_mapping, settings_of, short_repr
from madbench.config.options import option
from madbench.errors import BudgetError, ConfigError, did_you_mean, no_effect
from madbench.labels import expand, family_of
from madbench.labels.budgets import BUDGETS, LEAST_MATCHED
from madbench.labels.names import display_name, typed_label
from madbench.mixers import Allocation, solve, used_settings
from madbench.mixers.costs import count_costs, paper_total
from madbench.suites.options import BudgetOption

BYTES_PER_ELEMENT = 2  # of a model in bfloat16
MOST_REASONS = 3
SIZES = ("d_model", "n_head", "max_len")
"""The options that may also be given as a setting: ``--d-model 64`` is the same as ``model.d_model=64``."""
STEPS_NOTE = " madbench run --match compute --dry-run shows the number of training steps of each label."
_option = functools.partial(option, rich_help_panel="With --cost")


@dataclass(frozen=True)
class CostOptions:
    """The options of ``explain --cost``: the size of the model, and the details that are printed."""

    d_model: Annotated[int, _option("Width d of the model.", min=1)] = 128
    max_len: Annotated[int, _option("Longest sequence L, which is the number of rows of the mixing tables.", min=1)] = (
        128
    )
    n_head: Annotated[int, _option("Heads H; a G label has twice as many query heads.", min=1)] = 2
    budget: BudgetOption = "strict"
    mix_rank: Annotated[int | None, _option("Short for mix_rank=VALUE.", show_default="16")] = None
    rank_multiple: Annotated[int | None, _option("Short for rank_multiple=VALUE.", show_default="1")] = None
    terms: Annotated[bool, _option("Also show every term of several labels.", "--terms")] = False

    @property
    def changed_options(self) -> Iterator[str]:
        """The options that differ from their defaults, as words of the command line."""
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                option = f"--{field.name.replace('_', '-')}"
                yield option if value is True else f"{option} {value}"


def print_costs(labels: Sequence[str], overrides: Sequence[Override], options: CostOptions, as_json: bool) -> None:
    """Print the costs of each label in one row, and every term of its parameters if there is a single label.

    ``overrides`` are sizes of the model or settings of the mixers. Raises ``BudgetError`` after printing if a label
    does not fit the budget, and ``ConfigError`` for an invalid option or override.
    """
    if options.terms and as_json:
        raise no_effect("--terms", "with -f json, which has every term")
    short = {"mix_rank": options.mix_rank, "rank_multiple": options.rank_multiple}
    sizes = [replace(override, key=override.key.removeprefix("model.")) for override in overrides]
    settings = settings_of([*sizes, *(Override.of(name, value) for name, value in short.items() if value is not None)])
    options = _resize(options, settings)
    budget = options.budget
    allocations: dict[str, Allocation] = {}
    rows: dict[str, dict[str, Any]] = {}
    labels = expand(labels)
    _refuse_other_settings(labels, settings)
    for label in labels:
        from_mapping(family_of(label).Settings, settings, f"settings of {label}")
    reads = {label: used_settings(label) for label in labels}
    for name in settings:
        if labels and not any(name in read for read in reads.values()):
            has = ", ".join(f"model.{setting}" for setting in dict.fromkeys(itertools.chain(*reads.values()))) or "none"
            raise no_effect(name, f"on {', '.join(labels[:4])}; settings of their mixers: {has}")
    for label in labels:
        try:
            own_settings = {name: value for name, value in settings.items() if name in reads[label]}
            allocations[label] = solve(label, options.d_model, options.n_head, options.max_len, budget, **own_settings)
            rows[label] = _counts(allocations[label])
        except BudgetError as error:
            rows[label] = {"error": str(error)}
    problems = [row["error"] for row in rows.values() if "error" in row]
    if as_json:
        print_json([{"label": label} | row for label, row in rows.items()])
    elif allocations:
        console = Console(highlight=False)
        _print_summary(console, rows)
        _print_match(console, rows, BUDGETS[budget].name)
        console.print(
            f"d_model {options.d_model}, n_head {options.n_head}, max_len {options.max_len}, ranks by the {budget} "
            "budget. r_qk, r_vo: ranks over all heads; d_qk, d_vo: width of one head; r_mix: rank r of R(1), R(2). "
            "state: numbers that decoding carries after max_len tokens; bytes: its size in a bfloat16 model; cache: "
            "bytes that a token adds to it there, 0 if its size is fixed; FLOP: forward pass, per token at max_len, "
            "causal half. B: budget in parameters; left: B - strict."
            f"{STEPS_NOTE if budget == 'compute' else ''}",
            style="dim",
        )
        ratios = {label: row.get("match", row)["ratio"] for label, row in rows.items() if "ratio" in row}
        below_budget = [
            f"{display_name(label)} {ratio:.2f}" for label, ratio in ratios.items() if ratio < LEAST_MATCHED
        ]
        if below_budget:
            console.print(f"Smaller than softmax attention, not matched: {', '.join(below_budget)}.", style="dim")
        for label, allocation in allocations.items() if options.terms or len(rows) == 1 else ():
            console.print(f"\n{typed_label(label)}", style="bold", markup=False)
            print_lines(console, table_lines(_breakdown(allocation, rows[label]), right=("parameters", "of B")))
    if problems:
        raise BudgetError("\n".join(first_of(problems, MOST_REASONS, "and {:,} more labels that do not fit")))


def _resize(options: CostOptions, settings: dict[str, Any]) -> CostOptions:
    """Move sizes of the model, such as ``d_model``, from ``settings`` to the options. Return the changed options.

    Raises ``ConfigError`` if a size is given in both.
    """
    for name in SIZES:
        if name in settings:
            if f"--{name.replace('_', '-')} {getattr(options, name)}" in options.changed_options:
                raise ConfigError(f"model.{name} is given twice; only one value can hold")
            options = replace(options, **{name: convert(settings.pop(name), int, f"model.{name}")})
    return options


def _refuse_other_settings(labels: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` for a setting that no mixer of these labels has.

    The message names the command that counts a whole model with this setting.
    """
    known_names = dict.fromkeys(field.name for label in labels for field in fields(family_of(label).Settings))
    for name, value in settings.items():
        if name not in known_names:
            suggestion = did_you_mean(name, known_names)
            word = f"{name if '.' in name else f'model.{name}'}={value}"
            command = f"madbench run {shlex.quote(labels[0])} {shlex.quote(word)} --dry-run"
            hint = "" if suggestion.endswith("?") else f"\na model is counted by: {command}"
            raise ConfigError(
                f"explain --cost counts one mixer, and {short_repr(name)} is no setting of it{suggestion}{hint}"
            )


def _counts(allocation: Allocation) -> dict[str, Any]:
    target, total = allocation.target, allocation.total
    of_paper = paper_total(allocation)
    parts = {name: dict(getattr(allocation, name, {})) for name in ("ranks", "widths", "terms")}
    size = {name: getattr(allocation.size, name) for name in ("d_model", "n_head", "max_len", "budget")}
    content = size | parts | {"target": target, "total": total, "ratio": allocation.ratio}
    content |= {"slack": target - total, "paper_total": of_paper, "paper_ratio": of_paper / target}
    rule = allocation.size.rule
    if rule.quantity != "parameters":
        amounts = {
            "amount": rule.amount(allocation),
            "target": rule.target(allocation),
            "ratio": rule.ratio(allocation),
        }
        content["match"] = {"quantity": rule.quantity} | amounts
    length = allocation.size.max_len
    counted, all_pairs = (count_costs(allocation, length, is_whole) for is_whole in (False, True))
    return content | {
        "state": counted.state,
        "state_bytes": None if counted.state is None else BYTES_PER_ELEMENT * counted.state,
        "state_bytes_per_token": allocation.state_bytes_per_token(BYTES_PER_ELEMENT),
        "flops_per_token": counted.flops_per_token,
        "full_square_flops_per_token": all_pairs.flops_per_token,
    }


def _print_summary(console: Console, rows: Mapping[str, dict[str, Any]]) -> None:
    """Print a table of ranks and costs, and a table of parameters, with one row per label.

    The row of a label that does not fit the budget has no numbers. Below the row of a hybrid, each of its mixers has a
    row with its ranks.
    """
    names = {
        name if len(name) == 1 else f"{letter}_{name}": (kind, name)
        for kind, letter in (("ranks", "r"), ("widths", "d"))
        for row in rows.values()
        for name in (text.rpartition(" ")[2] for text in row.get(kind, ()))
        if name != "state"  # the state has a column of its own
    }
    ranks: list[dict[str, Any]]
    parameters: list[dict[str, Any]]
    ranks, parameters = [], []
    for label, row in rows.items():
        shown = display_name(label)
        if "error" in row:
            ranks.append({"label": f"{shown} (no fit)"})
            parameters.append(ranks[-1])
            continue
        costs = {"state": row["state"], "bytes": row["state_bytes"], "cache": row["state_bytes_per_token"]}
        costs["FLOP"] = row["flops_per_token"]
        counts = {"B": row["target"], "strict": row["total"], "left": row["slack"], "paper": row["paper_total"]}
        ratios = {"strict/B": row["ratio"], "paper/B": row["paper_ratio"]}
        line = {"label": shown} | {heading: row[kind].get(name) for heading, (kind, name) in names.items()}
        ranks.append(line | {name: cost if cost is None else f"{cost:,.0f}" for name, cost in costs.items()})
        for part in dict.fromkeys(text.rpartition(" ")[0] for text in row["ranks"] if " " in text):
            values = {heading: row[kind].get(f"{part} {name}") for heading, (kind, name) in names.items()}
            ranks.append({"label": f"  {display_name(part)}"} | values | dict.fromkeys(costs, ""))
        line = {"label": shown} | {name: f"{count:,}" for name, count in counts.items()}
        parameters.append(line | {name: f"{ratio:.3f}" for name, ratio in ratios.items()})
    for i, lines in enumerate((ranks, parameters)):
        if i > 0:
            console.print()
        print_lines(console, table_lines(lines, right={name for line in lines for name in line} - {"label"}))


def _print_match(console: Console, rows: Mapping[str, dict[str, Any]], name: str) -> None:
    """Print the amount of the matched quantity for each label and for softmax attention, with the ratio of both.

    ``name`` is the name of the quantity, such as FLOPs. Nothing is printed if the quantity is parameters.
    """
    lines = [
        {"label": display_name(label), name: f"{match['amount']:,.0f}", "softmax attention": f"{match['target']:,.0f}"}
        | {"ratio": f"{match['ratio']:.3f}"}
        for label, row in rows.items()
        if (match := row.get("match"))
    ]
    if lines:
        console.print()
        print_lines(console, table_lines(lines, right={name, "softmax attention", "ratio"}))


def _breakdown(allocation: Allocation, counts: Mapping[str, Any]) -> list[dict[str, str]]:
    formulas = getattr(allocation, "formulas", {})
    above_softmax = counts["target"] - 4 * allocation.size.d_model**2
    terms = [(name, *formulas.get(name, ("", "")), count) for name, count in allocation.terms.items()]
    terms += [
        ("strict", "all terms", "", counts["total"]),
        ("paper", "without tables", "", counts["paper_total"]),
        ("B", f"4 d^2 + {above_softmax:,}" if above_softmax else "4 d^2", "", counts["target"]),
        ("left", "B - strict", "", counts["slack"]),
    ]
    return [
        {"term": term, "formula": formula, "parameters": f"{count:,}"}
        | {"of B": f"{count / counts['target']:.1%}", "tensors": tensors}
        for term, formula, tensors, count in terms
    ]
