"""Costs of labels for ``madbench explain --cost``: ranks, parameters, decoding state and FLOPs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

from rich.console import Console

from madbench.cli.explain.sizes import CountedMixer, mixers_at_size, mixers_of_profile
from madbench.cli.shared.printing import first_of, print_json, print_lines, table_lines
from madbench.config import MOST, Override, convert, settings_of
from madbench.config.options import option
from madbench.config.settings import check_bounds
from madbench.errors import BudgetError, ConfigError, no_effect
from madbench.labels import expand
from madbench.labels.budgets import BUDGETS, LEAST_MATCHED
from madbench.labels.names import display_name, typed_label
from madbench.mixers import Allocation, solve
from madbench.mixers.costs import count_costs, paper_total
from madbench.suites.options import BudgetOption, tasks_option

BYTES_PER_ELEMENT = 2  # of a model in bfloat16
MOST_REASONS = 3
DEFAULT_SIZES = {"d_model": 128, "n_head": 2, "max_len": 128}
"""The sizes without a profile. Each may be given as an option or as a setting: ``--d-model 64`` is the same as
``model.d_model=64``."""
STEPS_NOTE = " madbench run --match compute --dry-run shows the number of training steps of each label."
_option = functools.partial(option, rich_help_panel="With --cost")


@dataclass(frozen=True)
class CostOptions:
    """The options of ``explain --cost``: the size of the model, and the details that are printed."""

    profile: Annotated[
        str | None,
        _option(
            "Count each label at the sizes and settings of this profile, at every length of its tasks.",
            "--profile",
            "-p",
            completes="PROFILE",
        ),
    ] = None
    tasks: Annotated[list[str] | None, tasks_option("those of the profile", rich_help_panel="With --cost")] = None
    d_model: Annotated[int | None, _option("Width d of the model.", min=1, max=MOST["d_model"], show_default="128")] = (
        None
    )
    max_len: Annotated[
        int | None,
        _option(
            "Longest sequence L, which is the number of rows of the mixing tables.",
            min=1,
            max=MOST["max_len"],
            show_default="128",
        ),
    ] = None
    n_head: Annotated[
        int | None,
        _option("Heads H; a G label has twice as many query heads.", min=1, max=MOST["n_head"], show_default="2"),
    ] = None
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
                words = ",".join(value) if isinstance(value, list) else value
                yield option if value is True else f"{option} {words}"


def print_costs(labels: Sequence[str], overrides: Sequence[Override], options: CostOptions, as_json: bool) -> None:
    """Print the costs of each label in one row, and every term of its parameters if there is a single row.

    With a profile, a label has one row for every length of the profile's tasks. ``overrides`` are sizes of the model or
    settings of the mixers. Raises ``BudgetError`` after printing if a label does not fit the budget, and
    ``ConfigError`` for an invalid option or override.
    """
    if options.terms and as_json:
        raise no_effect("--terms", "with -f json, which has every term")
    budget = options.budget
    mixers = _counted_mixers(expand(labels), overrides, options)
    allocations: dict[CountedMixer, Allocation] = {}
    rows: dict[CountedMixer, dict[str, Any]] = {}
    for mixer in mixers:
        try:
            allocations[mixer] = solve(
                mixer.label, mixer.d_model, mixer.n_head, mixer.max_len, budget, **dict(mixer.settings)
            )
            rows[mixer] = _counts(allocations[mixer])
        except BudgetError as error:
            rows[mixer] = {"error": str(error)}
    problems = list(dict.fromkeys(row["error"] for row in rows.values() if "error" in row))
    if as_json:
        print_json(
            [
                {"label": mixer.label} | ({"tasks": list(mixer.tasks)} if mixer.tasks else {}) | row
                for mixer, row in rows.items()
            ]
        )
    elif allocations:
        console = Console(highlight=False)
        _print_summary(console, rows)
        _print_match(console, rows, BUDGETS[budget].name)
        console.print(
            f"{_sizes_text(mixers, options)}, ranks by the {budget} "
            "budget. r_qk, r_vo: ranks over all heads; d_qk, d_vo: width of one head; r_mix: rank r of R(1), R(2). "
            "state: numbers that decoding carries after max_len tokens; bytes: its size in a bfloat16 model; cache: "
            "bytes that a token adds to it there, 0 if its size is fixed; FLOP: forward pass, per token at max_len, "
            "causal half. B: budget in parameters; left: B - strict."
            f"{STEPS_NOTE if budget == 'compute' else ''}",
            style="dim",
        )
        ratios = {mixer: row.get("match", row)["ratio"] for mixer, row in rows.items() if "ratio" in row}
        below_budget = [f"{_name(mixer, rows)} {ratio:.2f}" for mixer, ratio in ratios.items() if ratio < LEAST_MATCHED]
        if below_budget:
            console.print(f"Smaller than softmax attention, not matched: {', '.join(below_budget)}.", style="dim")
        for mixer, allocation in allocations.items() if options.terms or len(rows) == 1 else ():
            console.print(f"\n{_name(mixer, rows, typed_label)}", style="bold", markup=False)
            print_lines(console, table_lines(_breakdown(allocation, rows[mixer]), right=("parameters", "of B")))
    if problems:
        raise BudgetError("\n".join(first_of(problems, MOST_REASONS, "and {:,} more labels that do not fit")))


def _counted_mixers(labels: Sequence[str], overrides: Sequence[Override], options: CostOptions) -> list[CountedMixer]:
    """The mixers whose costs are counted. Raises ``ConfigError`` for an invalid option or override."""
    short = {"mix_rank": options.mix_rank, "rank_multiple": options.rank_multiple}
    changes = [replace(override, key=override.key.removeprefix("model.")) for override in overrides]
    changes += [Override.of(name, value) for name, value in short.items() if value is not None]
    settings = settings_of(changes)
    sizes = _sizes(options, settings)
    if options.profile is None and options.tasks is None:
        return mixers_at_size(labels, settings, **DEFAULT_SIZES | sizes)
    max_len = sizes.pop("max_len", None)
    return mixers_of_profile(labels, sizes | settings, options.profile, options.tasks, options.budget, max_len)


def _sizes(options: CostOptions, settings: dict[str, Any]) -> dict[str, int]:
    """The sizes of the model that the user gives, such as ``d_model``, by options or by ``settings``.

    They are removed from ``settings``. Raises ``ConfigError`` if a size is given in both, or is too large.
    """
    sizes: dict[str, int] = {}
    for name in DEFAULT_SIZES:
        value = getattr(options, name)
        if name in settings:
            if value is not None:
                raise ConfigError(f"model.{name} is given twice; only one value can hold")
            value = convert(settings.pop(name), int, f"model.{name}")
            check_bounds(f"model.{name}", value, None, MOST[name])
        if value is not None:
            sizes[name] = value
    return sizes


def _sizes_text(mixers: Sequence[CountedMixer], options: CostOptions) -> str:
    """The profile and the sizes of the counted mixers, and the tasks of each length.

    An example is ``Profile evening: d_model 64, n_head 2, L 8 (compression), 24 (fuzzy_in_context_recall)``.
    """
    tasks_by_length: dict[int, list[str]] = {}
    for mixer in sorted(mixers, key=lambda mixer: mixer.max_len):
        tasks = tasks_by_length.setdefault(mixer.max_len, [])
        tasks += [task for task in mixer.tasks if task not in tasks]
    texts = [f"{length} ({', '.join(tasks)})" if tasks else str(length) for length, tasks in tasks_by_length.items()]
    profile = f"Profile {options.profile}: " if options.profile else ""
    length = "max_len L" if len(texts) > 1 else "max_len"
    return f"{profile}d_model {mixers[0].d_model}, n_head {mixers[0].n_head}, {length} {'; '.join(texts)}"


def _name(mixer: CountedMixer, mixers: Iterable[CountedMixer], name: Callable[[str], str] = display_name) -> str:
    """The label of ``mixer``, with its length if the lengths of ``mixers`` differ."""
    return f"{name(mixer.label)}{f' at L {mixer.max_len}' if _have_lengths(mixers) else ''}"


def _have_lengths(mixers: Iterable[CountedMixer]) -> bool:
    """True if the lengths of ``mixers`` differ. Tables then have a column with them."""
    return len({mixer.max_len for mixer in mixers}) > 1


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


def _print_summary(console: Console, rows: Mapping[CountedMixer, dict[str, Any]]) -> None:
    """Print a table of ranks and costs, and a table of parameters, with one row per label and length.

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
    has_lengths = _have_lengths(rows)
    for mixer, row in rows.items():
        shown, length = display_name(mixer.label), {"L": str(mixer.max_len)} if has_lengths else {}
        if "error" in row:
            ranks.append({"label": f"{shown} (no fit)"} | length)
            parameters.append(ranks[-1])
            continue
        costs = {"state": row["state"], "bytes": row["state_bytes"], "cache": row["state_bytes_per_token"]}
        costs["FLOP"] = row["flops_per_token"]
        counts = {"B": row["target"], "strict": row["total"], "left": row["slack"], "paper": row["paper_total"]}
        ratios = {"strict/B": row["ratio"], "paper/B": row["paper_ratio"]}
        line = {"label": shown} | length
        line |= {heading: row[kind].get(name) for heading, (kind, name) in names.items()}
        ranks.append(line | {name: cost if cost is None else f"{cost:,.0f}" for name, cost in costs.items()})
        for part in dict.fromkeys(text.rpartition(" ")[0] for text in row["ranks"] if " " in text):
            values = {heading: row[kind].get(f"{part} {name}") for heading, (kind, name) in names.items()}
            line_of_part = {"label": f"  {display_name(part)}"} | dict.fromkeys(length, "")
            ranks.append(line_of_part | values | dict.fromkeys(costs, ""))
        line = {"label": shown} | length | {name: f"{count:,}" for name, count in counts.items()}
        parameters.append(line | {name: f"{ratio:.3f}" for name, ratio in ratios.items()})
    for i, lines in enumerate((ranks, parameters)):
        if i > 0:
            console.print()
        print_lines(console, table_lines(lines, right={name for line in lines for name in line} - {"label"}))


def _print_match(console: Console, rows: Mapping[CountedMixer, dict[str, Any]], name: str) -> None:
    """Print the amount of the matched quantity for each row and for softmax attention, with the ratio of both.

    ``name`` is the name of the quantity, such as FLOPs. Nothing is printed if the quantity is parameters.
    """
    lines = [
        {"label": display_name(mixer.label)}
        | ({"L": str(mixer.max_len)} if _have_lengths(rows) else {})
        | {name: f"{match['amount']:,.0f}", "softmax attention": f"{match['target']:,.0f}"}
        | {"ratio": f"{match['ratio']:.3f}"}
        for mixer, row in rows.items()
        if (match := row.get("match"))
    ]
    if lines:
        console.print()
        print_lines(console, table_lines(lines, right={"L", name, "softmax attention", "ratio"}))


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
