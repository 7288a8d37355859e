"""``madbench paper``: reproduce the tables, figures, theorems and claims of papers."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from madbench.cli import options
from madbench.cli.options import TrainingOptions
from madbench.cli.paper_listings import print_items, print_papers
from madbench.cli.paper_shipped import results_or_shipped, show_shipped
from madbench.cli.parameters import EVERY_VERB, argument, option, output_option
from madbench.cli.plan import ask_before_long, job_states
from madbench.cli.plot import LayoutOptions, write_figure
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import (
    PLAIN,
    counted,
    in_words,
    print_json,
    print_lines,
    print_text_table,
    quantity,
    table_lines,
)
from madbench.cli.progress import train_on_screen
from madbench.cli.training import train_grid
from madbench.cli.words import labels_and_overrides, split_list
from madbench.errors import ConfigError, StoreError
from madbench.execute.base import Policy
from madbench.experiment import Experiment, prepare
from madbench.jobs import Budget
from madbench.papers import QUICK, built_in, load_paper
from madbench.papers.making import (
    FAILS,
    REPRODUCED,
    Made,
    Measure,
    Request,
    check_profile,
    chosen_settings,
    measure_of,
    remember,
    state_of,
    statement_verdict,
)
from madbench.papers.operators import failing_operators, fails_here, operators_of
from madbench.papers.shipped import archive_names
from madbench.rows import Grid
from madbench.store.runs import Snapshot, Store
from madbench.suites import size_of
from madbench.suites.addressing import task_names

if TYPE_CHECKING:
    from madbench.analysis.scores import Results


def paper(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        argument(
            "[PAPER [ITEM [KEY=VALUE]]]",
            "A paper, one of its items, and changes of its profile. Without words: a list of the papers.",
        ),
    ] = None,
    profile: Annotated[
        str,
        option(
            "Size: quick (for a laptop) or full (that of the paper); or a profile, or a YAML file.",
            "--profile",
            "-p",
            completes="SIZE",
        ),
    ] = QUICK,
    seeds: Annotated[str | None, option("Seeds such as 0-2.", show_default="those of the item")] = None,
    tasks: Annotated[
        list[str] | None,
        option(options.TASKS_HELP, "--tasks", "--task", "-t", show_default="its own", completes="TASK,..."),
    ] = None,
    *,
    budget: Annotated[Budget | None, option(options.BUDGET_HELP, show_default="that of the item")] = None,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    slots: options.SlotsOption = None,
    threads: options.ThreadsOption = None,
    force: options.ForceOption = False,
    corpus: Annotated[
        Path | None, option("Corpus for an item of language models, at a size without its own corpus.", rare=EVERY_VERB)
    ] = None,
    dry_run: Annotated[bool, option("Show jobs, FLOPs and a time estimate; train nothing.", "--dry-run")] = False,
    yes: Annotated[
        bool, option("Train without asking, also if it takes long or if shipped runs would answer.", "--yes", "-y")
    ] = False,
    figures: Annotated[bool, option("Draw the item's figures.")] = True,
    output: Annotated[
        Path | None, output_option("Folder of the figures.", show_default="RESULTS/plots", rare=EVERY_VERB)
    ] = None,
    shape: LayoutOptions,
    printed: PrintOptions,
) -> None:
    """Reproduce a paper's tables, figures, theorems and claims.

    Without an item it lists the items of the paper: the command of each, its
    result on this machine, the number of stored jobs, and, if madbench cannot
    make it, the reason. If an item was not made on this machine, it shows the
    shipped verdict and the archive of its runs.

    The stored runs decide an item. If some of them are missing, the shipped runs
    in a clone of the repository decide it, and nothing is trained. With --yes or
    --force, and for runs that are not shipped, such as other seeds, it trains the
    missing runs. The same command again trains nothing.

    First the operators of the item are compared with float64 loops over their
    definitions. If one differs, the item "fails here": nothing is trained, and
    there is no verdict on the paper. If an identity fails, it is also computed
    with the loops: it is "contradicted" if they fail too, otherwise it "fails
    here". The exit code is 1 in all these cases.

    [bold]Examples[/bold]

      madbench paper                                  the papers
      madbench paper hypermlp                         every item of a paper
      madbench paper hypermlp table1 --dry-run        what it takes here
      madbench paper coefficients principle3          trained, measured, judged
      madbench paper hypermlp table1 --seeds 0-2 training.epochs=20
    """
    names, overrides = labels_and_overrides(words or [])
    name, item_id, labels = (names + [None, None])[:2] + [tuple(names[2:])]
    values = {"--profile": profile != QUICK, "--seeds": seeds, "--tasks": tasks, "--slots": slots, "--yes": yes}
    values |= {"--threads": threads, "--force": force, "--corpus": corpus, "--dry-run": dry_run, "--output": output}
    values |= {"--budget": budget}
    values |= {"--width, --no-title and --no-caption": shape != LayoutOptions()} | dict.fromkeys(overrides, True)
    if item_id is None:
        for flag in (flag for flag, value in values.items() if value):
            raise ConfigError(f"{flag} has no effect without an item")
        print_papers(results, printed) if name is None else print_items(load_paper(name), results, printed)
        return
    if (output or shape != LayoutOptions()) and (dry_run or not figures):
        flags = f"--output {output}: has" if output else "--width, --no-title and --no-caption have"
        raise ConfigError(f"{flags} no effect with {'--dry-run' if dry_run else '--no-figures'}")
    chosen = load_paper(name)
    item = chosen.item(item_id)
    if not item.is_made_here:
        raise ConfigError(f"{name} {item_id}: {item.needs}")
    if item.command:
        of_jobs = ("--slots", "--threads", "--yes")  # options of jobs; an item such as a theorem may have no job
        choices = {flag: value for flag, value in values.items() if flag not in of_jobs} | dict.fromkeys(labels, True)
        for flag in (flag for flag, value in choices.items() if value):
            raise ConfigError(f"{flag} has no effect on {item.id}, which madbench {item.command} makes")
        group: Any = context.find_root().command
        verb = group.get_command(context, item.command.split()[0])
        reads = any(option.name == "results" for option in verb.params)
        words = ("--results", str(results)) if reads and results != options.RESULTS else ()
        if threads and any(option.name == "threads" for option in verb.params):
            words = (*words, "--threads", str(threads))
        request = Request(chosen, item, results=results.absolute())
        with results_or_shipped(chosen, item, results) as folder:
            hidden = ("--results", str(folder)) if reads and folder != results else ()
            call_verb(request, group.main, words, hidden)
        return
    check_profile(item, profile)
    asked = task_names(split_list(tasks) or ())
    request = Request(chosen, item, profile, seeds, labels, asked, tuple(overrides), device, results, budget)
    measure, policy = measure_of(item), Policy(redo=force)
    planned = measure.plan(request)
    if budget and not isinstance(planned, Grid):
        raise ConfigError(f"--budget {budget}: has no effect on {item.id}, which has the ranks of its own models")
    from madbench.training.distributed import is_first

    if printed.format == "terminal" and not dry_run and is_first():
        print(*measure.introduction(request), sep="\n")
    if corpus is not None and not isinstance(planned, Grid):
        raise ConfigError(f"--corpus {corpus}: has no effect on {item.id}, which trains no language model")
    if planned is None and dry_run:
        raise ConfigError(f"--dry-run has no effect on {item.id}: it trains nothing")

    def finish(decided: Request, trained: Results | None) -> None:
        """Decide the item by its own runs or by the shipped runs. Draw, store and print the result."""
        with Console(stderr=True).status("measuring"):
            made = measure.decide(decided, trained)
            folder = output or results / "plots"
            drawn = []
            try:
                for figure in made.figures if figures else ():
                    drawn += write_figure(figure.draw(layout=shape.layout), folder / figure.stem, figure.frame)
            except StoreError as error:
                if decided is request:
                    raise
                options.warn(f"figures are left out: {error}")  # they need weights, which are not shipped
        note = chosen_settings(trained) if made.verdicts else ""
        remember(replace(decided, results=results), made, () if decided is request else archive_names(item), note)
        _print(decided, made, drawn, printed, note)
        if made.exit_code:
            raise typer.Exit(made.exit_code)

    asks_to_train = dry_run or yes or force or corpus is not None or not is_first()
    verify = functools.partial(_check_operators, request, measure, planned, printed)
    if item.runs and not asks_to_train and show_shipped(request, measure, verify, finish, printed):
        return
    where, trained = {"device": device, "results": results, "corpus": corpus}, None
    keep = measure.keeps_weights(request) and not dry_run
    if isinstance(planned, Grid):
        needs_weights = keep and not force
        if not dry_run and (needs_weights or not yes):
            experiment = prepare(planned, is_remote=False, **where)
            if needs_weights and (note := _note_on_weights(measure, request, experiment)):
                raise StoreError(f"{item.id} measures trained models: {note}; or name another folder with --results")
            if not yes:
                ask_before_long(experiment, policy, slots=slots, threads=threads)
    if not dry_run:
        verify()
    if isinstance(planned, Grid):
        training = TrainingOptions(
            **where, slots=slots, threads=threads, dry_run=dry_run, force=force, keep_weights=keep
        )
        trained = train_grid(planned, training, has_tables=False, printed=printed)
    elif planned is not None:
        trained = _train(planned, policy, slots, threads, dry_run, printed)
    if not dry_run and is_first():
        finish(request, trained)


def _check_operators(
    request: Request, measure: Measure, planned: Grid | Experiment | None, printed: PrintOptions
) -> None:
    """Print the failures and exit with code 1 if an operator of the item differs from its definition."""
    from madbench.training.distributed import is_first

    with Console(stderr=True).status("verifying the operators"):
        failing = failing_operators(operators_of(request, measure, planned))
    if not failing:
        return
    made = fails_here(failing)
    if is_first():
        remember(request, made)
        _print(request, made, [], printed)
    raise typer.Exit(1)


def _note_on_weights(measure: Measure, request: Request, experiment: Experiment) -> str:
    """Advice on stored runs that the item cannot measure, such as runs without weights. Empty if there are none."""
    quantity = measure.quantity(request) if hasattr(measure, "quantity") else None
    if quantity is None or not (experiment.results / "runs").is_dir():
        return experiment.note_on_weights()
    return quantity.note_on_runs(Store(experiment.results), [job.id for job in experiment.jobs])


def check_no_paper(word: str) -> None:
    """Raise ``ConfigError`` if a word in place of a verb is the name of a paper."""
    if word in built_in():
        raise ConfigError(f"{word} is a paper: madbench paper {word}")


def _train(
    experiment: Experiment, policy: Policy, slots: int | None, threads: int | None, dry_run: bool, printed: PrintOptions
) -> Results | None:
    """Train an experiment that is not a grid and return its results, or print its plan and return None."""
    from madbench.analysis.scores import Results

    console = Console(stderr=True)
    if dry_run:
        _print_jobs(experiment, policy, printed)
        return None
    names = {job.id: row.row.named_changes[0] for row in experiment.rows for job in row.jobs}
    _, failed = train_on_screen(experiment, policy, console, names, slots=slots, threads=threads)
    for job_id, reason in failed.items():
        console.print(f"failed: {names[job_id]} ({job_id}): {reason}", **PLAIN)
    if failed:
        raise typer.Exit(1)
    return Results.from_rows(experiment, Snapshot.open(experiment.results, create=False))


def _print_jobs(experiment: Experiment, policy: Policy, printed: PrintOptions) -> None:
    """Print the jobs of an experiment whose steps cannot be timed in advance."""
    states = job_states(experiment.jobs, experiment.results, policy)
    todo = {job_id for job_id, state in states.items() if state == "todo"}
    lines = []
    for row in experiment.rows:
        size, job = size_of(row.jobs[0]), row.jobs[0]
        line = {"task": job.task, "row": row.row.named_changes[0], "jobs": len(row.jobs)}
        line |= {"to do": sum(job.id in todo for job in row.jobs), "parameters": size.parameters, "steps": size.steps}
        lengths = ",".join(map(str, job.setting.get("test_lengths", ())))
        lines.append(line | {"FLOPs": quantity(size.flops), "tests at L": lengths})
    if printed.format == "json":
        print_json(lines)
        return
    console = Console(highlight=False)
    print_lines(console, table_lines(lines, right=("jobs", "to do", "parameters", "steps", "FLOPs")))
    console.print(f"{counted(len(experiment.jobs), 'job')}, {len(todo)} to do. FLOPs are of one run.", **PLAIN)


def call_verb(
    request: Request,
    run_command: Callable[..., int | None],
    words: Sequence[str] = (),
    hidden: Sequence[str] = (),
) -> None:
    """Run the verb that makes the item with ``words``, and with ``hidden`` words that are left out when it is printed.

    A theorem is reproduced if its checks pass; otherwise it fails here.
    """
    command = shlex.join([*shlex.split(request.item.command), *words])
    Console(stderr=True).print(f"madbench {command}", **PLAIN)
    code = run_command([*shlex.split(command), *hidden], prog_name="madbench", standalone_mode=False) or 0
    verdicts = {command: FAILS if code else REPRODUCED} if request.item.kind == "theorem" else {}
    if verdicts or not code:
        remember(request, Made((), verdicts, {}))
    if code:
        raise typer.Exit(code)


def _print(request: Request, made: Made, files: list[Path], printed: PrintOptions, note: str = "") -> None:
    """Print the result. ``note`` is printed beside each verdict."""
    if printed.format == "json":
        content = {**made.content, "state": state_of(request, made), "verdicts": dict(made.verdicts), "note": note}
        print_json(content | {"figures": list(map(str, files))})
        return
    for i, table in enumerate(made.tables):
        print()
        print_text_table(table, printed, i)
    if printed.format == "terminal":
        console = Console(highlight=False)
        console.print()
        if made.heading:
            console.print(in_words(made.heading, console), **PLAIN)
        for statement, verdict in made.verdicts.items():
            beside = f" ({note})" if note else ""
            console.print(in_words(f"{statement_verdict(request, verdict)}{beside}: {statement}", console), **PLAIN)
            if statement in made.remarks:
                console.print(in_words(made.remarks[statement], console, indent=4), **PLAIN)
        if made.verdicts:
            console.print(f"{request.paper.name} {request.item.id}: {state_of(request, made)}", **PLAIN)
        console.print(*files, sep="\n", **PLAIN)
