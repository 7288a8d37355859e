from __future__ import annotations

import sys
from typing import Annotated, Any, get_args

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    ProfileOption,
    ResultsOption,
    TasksOption,
    labels_and_overrides,
    split_list,
)
from madbench.cli.tables import Format, print_text_table


def table(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " All labels in the store by default."),
    ] = None,
    profile: ProfileOption = "quick",
    tasks: TasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    results: ResultsOption = RESULTS,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print it.")] = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Tabulate what the store holds under one protocol: profile, fidelity, budget and overrides are never mixed.

    So give the same profile, overrides, fidelity and budget as for madbench
    run, which prints the command that shows its table again.

    [bold]Examples[/bold]

      madbench table
      madbench table @table1 --profile full --format latex > table1.tex
      madbench table training.epochs=20 --format csv
    """
    from madbench.errors import ConfigError, StoreError
    from madbench.experiment import prepare, tabulate
    from madbench.jobs import Job, Precision
    from madbench.runs import Store

    if as_json and format not in (Format.terminal, Format.json):
        raise ConfigError(f"--json has no effect with --format {format.value}; give one of the two")
    named, overrides = labels_and_overrides(words or [])
    store = Store.open(results, create=False)
    runs = list(store.runs(with_curves=False))
    stored = {run.job.id: run.job for run in runs if isinstance(run.job, Job)}
    for problem in store.problems:
        print(f"warning: {problem}", file=sys.stderr)
    if not stored:
        instead = "; its language models are in madbench lm table" if runs else ""
        raise StoreError(f"{results}: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some{instead}")
    protocol = (fidelity.value, budget.value)
    of_protocol = {job.label for job in stored.values() if (job.fidelity, job.counting) == protocol}
    labels = named or in_grammar_order(of_protocol)
    choices = {
        "profile": profile,
        "overrides": overrides,
        "tasks": split_list(tasks),
        "seeds": sorted({job.seed for job in stored.values()}),
        "fidelity": fidelity.value,
        "counting": budget.value,
        "device": "cpu",
        "results": results,
    }
    if not named:
        labels = [label for label in labels if _fits(label, choices)]
    candidates = [prepare(labels, **choices, precision=precision) for precision in get_args(Precision) if labels]
    present = {made.precision: made for made in candidates if any(job.id in stored for job in made.jobs)}
    if len(present) > 1:
        raise ConfigError(f"{results}: runs in float32 and in bfloat16; add precision=float32 or precision=bfloat16")
    if not present:
        raise StoreError(
            f"{results}: none of its {len(stored)} runs belongs to profile {profile}, fidelity {fidelity.value}, "
            f"budget {budget.value}; madbench ls runs shows what is there"
        )
    begun = next(iter(present.values())).begun(stored, all_labels=bool(named))
    print_text_table(tabulate(begun), Format.json if as_json else format)


def _fits(label: str, choices: dict[str, Any]) -> bool:
    """Whether the label has ranks on every task; it may be stored for one task, or for other sizes, alone."""
    from madbench.errors import BudgetError
    from madbench.experiment import prepare

    try:
        prepare([label], **choices)
    except BudgetError as error:
        print(f"warning: {label} is left out; {error}", file=sys.stderr)
        return False
    return True


def in_grammar_order(labels: set[str]) -> list[str]:
    from madbench.labels import all_labels

    position = {label: i for i, label in enumerate(all_labels())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))


def add_to(app: typer.Typer) -> None:
    app.command()(table)
