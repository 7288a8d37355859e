"""``madbench paper``: the tables, figures, theorems and claims of papers, made here beside what is published."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from madbench.cli import options, printing
from madbench.cli.options import PrintOptions, TrainingOptions
from madbench.cli.parameters import argument, option, output_option
from madbench.cli.plan import ask_before_long, job_states
from madbench.cli.plot import LayoutOptions, write_figure
from madbench.cli.printing import PLAIN, counted, print_json, print_lines, print_text_table, quantity, table_lines
from madbench.cli.progress import train_on_screen
from madbench.cli.training import carry_out
from madbench.cli.words import labels_and_overrides, split_list
from madbench.errors import ConfigError
from madbench.execute.base import Policy
from madbench.experiment import Experiment, prepare
from madbench.grid import Grid
from madbench.papers import QUICK, Item, Paper, built_in, load_paper, loaded_papers
from madbench.papers.making import (
    Made,
    Request,
    check_profile,
    command_of,
    jobs_of,
    measure_of,
    remember,
    remembered,
)
from madbench.store.runs import Snapshot
from madbench.suites import size_of

if TYPE_CHECKING:
    from madbench.analysis.scores import Results


def paper(
    words: argument(
        list[str] | None,
        "[PAPER [ITEM [KEY=VALUE]]]",
        "A paper, one of its items, and changes of its profile; without words the papers.",
    ) = None,
    profile: option(
        str, "quick, full (the paper's size), or a YAML file.", "--profile", "-p", completes="SIZE"
    ) = QUICK,
    seeds: option(str | None, "Seeds such as 0-2.", show_default="the item's") = None,
    tasks: option(
        list[str] | None, "Tasks, comma-separated.", "--tasks", "--task", "-t", show_default="its own"
    ) = None,
    *,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    slots: options.SlotsOption = None,
    threads: options.ThreadsOption = None,
    force: options.ForceOption = False,
    dry_run: option(bool, "Show jobs, FLOPs and a time estimate; train nothing.", "--dry-run") = False,
    yes: option(bool, "Train without asking, however long it takes.", "--yes", "-y") = False,
    figures: option(bool, "Draw what the item has of figures.") = True,
    output: output_option("Folder of the figures.", show_default="RESULTS/plots") = None,
    shape: LayoutOptions,
    printed: PrintOptions,
) -> None:
    """Make a table, figure, theorem or claim of a paper again, beside what is published.

    Without an item it lists what a paper holds: the command that makes each, what
    it gave here and how many of its jobs are stored, and what madbench does not
    make, with the reason. An item trains what is missing of its runs, and the
    same command again nothing.

    [bold]Examples[/bold]

      madbench paper                                  the papers
      madbench paper hypermlp                         all that one holds
      madbench paper hypermlp table1 --dry-run        what it takes here
      madbench paper coefficients principle3          trained, measured, judged
      madbench paper interactions colliding --seeds 0-2 embedding=one_hot
    """
    given, overrides = labels_and_overrides(words or [])
    name, item_id, labels = (given + [None, None])[:2] + [tuple(given[2:])]
    values = {"--profile": profile != QUICK, "--seeds": seeds, "--tasks": tasks, "--slots": slots, "--yes": yes}
    values |= {"--threads": threads, "--force": force, "--dry-run": dry_run, "--output": output}
    values |= {"--width, --no-title and --no-caption": shape != LayoutOptions()} | dict.fromkeys(overrides, True)
    if item_id is None:
        for flag in (flag for flag, value in values.items() if value):
            raise ConfigError(f"{flag} has no effect without an item")
        _list_papers(results, printed) if name is None else _list_items(load_paper(name), results, printed)
        return
    if (output or shape != LayoutOptions()) and (dry_run or not figures):
        flags = f"--output {output}: has" if output else "--width, --no-title and --no-caption have"
        raise ConfigError(f"{flags} no effect with {'--dry-run' if dry_run else '--no-figures'}")
    chosen = load_paper(name)
    item = chosen.item(item_id)
    if not item.is_made_here:
        raise ConfigError(f"{name} {item_id}: {item.needs}")
    if item.command:
        for flag in (flag for flag, value in (values | dict.fromkeys(labels, True)).items() if value):
            raise ConfigError(f"{flag} has no effect on {item.id}, which madbench {item.command} makes")
        call_verb(Request(chosen, item, results=results))
        return
    check_profile(item, profile)
    asked = tuple(split_list(tasks) or ())
    request = Request(chosen, item, profile, seeds, labels, asked, tuple(overrides), device, results)
    measure, policy = measure_of(item), Policy(redo=force)
    planned = measure.plan(request)
    if printed.asked == "terminal" and not dry_run:
        print(*measure.introduction(request), sep="\n")
    found = None
    if planned is None and dry_run:
        raise ConfigError(f"--dry-run has no effect on {item.id}: it trains nothing")
    if isinstance(planned, Grid):
        training = TrainingOptions(device=device, results=results, slots=slots, threads=threads, dry_run=dry_run)
        if not dry_run and not yes:
            experiment = prepare(planned, is_remote=False, device=device, results=results)
            ask_before_long(experiment, policy, slots=slots, threads=threads)
        keep = measure.keeps_weights(request) and not dry_run
        found = carry_out(planned, policy, training, keep, has_tables=False, printed=printed)
    elif planned is not None:
        found = _train(planned, policy, slots, threads, dry_run, printed)
    if dry_run:
        return
    with Console(stderr=True).status("measuring"):
        made = measure.decide(request, found)
        folder = output or results / "plots"
        drawn = []
        for one in made.figures if figures else ():
            drawn += write_figure(one.draw(layout=shape.layout), folder / one.stem, one.frame)
    remember(request, made)
    _print(made, drawn, printed)


def check_no_paper(word: str) -> None:
    """Raises ``ConfigError`` where the name of a paper stands in place of a verb."""
    if word in built_in():
        raise ConfigError(f"{word} is a paper: madbench paper {word}")


def _train(
    experiment: Experiment, policy: Policy, slots: int | None, threads: int | None, dry_run: bool, printed: PrintOptions
) -> Results | None:
    """Trains an experiment that is not a grid, or prints its plan; gives its results."""
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
    return Results(experiment, Snapshot.open(experiment.results, create=False))


def _print_jobs(experiment: Experiment, policy: Policy, printed: PrintOptions) -> None:
    """The jobs of an experiment whose steps cannot be timed beforehand."""
    states = job_states(experiment.jobs, experiment.results, policy)
    todo = {job_id for job_id, state in states.items() if state == "todo"}
    lines = []
    for row in experiment.rows:
        size, job = size_of(row.jobs[0]), row.jobs[0]
        line = {"task": job.task, "row": row.row.named_changes[0], "jobs": len(row.jobs)}
        line |= {"to do": sum(job.id in todo for job in row.jobs), "parameters": size.parameters, "steps": size.steps}
        lengths = ",".join(map(str, job.setting.get("test_lengths", ())))
        lines.append(line | {"FLOPs": quantity(size.flops), "tests at L": lengths})
    if printed.asked == "json":
        print_json(lines)
        return
    console = Console(highlight=False)
    print_lines(console, table_lines(lines, right=("jobs", "to do", "parameters", "steps", "FLOPs")))
    console.print(f"{counted(len(experiment.jobs), 'job')}, {len(todo)} to do. FLOPs are of one run.", **PLAIN)


def call_verb(request: Request) -> None:
    """Runs the verb that makes the item; a check that fails is against the paper."""
    from madbench.cli import app

    command = request.item.command
    Console(stderr=True).print(f"madbench {command}", **PLAIN)
    code = app(command.split(), prog_name="madbench", standalone_mode=False) or 0
    verdicts = {command: "not reproduced" if code else "reproduced"} if request.item.kind == "theorem" else {}
    if verdicts or not code:
        remember(request, Made((), verdicts, {}))
    if code:
        raise typer.Exit(code)


def _print(made: Made, files: list[Path], printed: PrintOptions) -> None:
    if printed.asked == "json":
        print_json({**made.content, "verdicts": dict(made.verdicts), "figures": list(map(str, files))})
        return
    for i, table in enumerate(made.tables):
        print()
        print_text_table(table, printed, i)
    if printed.asked == "terminal":
        console = Console(highlight=False)
        console.print()
        for about, verdict in made.verdicts.items():
            console.print(f"{verdict}: {about}", **PLAIN)
            if about in made.remarks:
                console.print(f"    {made.remarks[about]}", **PLAIN)
        console.print(*files, sep="\n", **PLAIN)


def _states(paper: Paper, item: Item, results: Path) -> dict[str, str]:
    return {size: entry["state"] for size, entry in remembered(Request(paper, item, results=results)).items()}


def _list_papers(results: Path, printed: PrintOptions) -> None:
    papers, problems = loaded_papers()
    lines = []
    for name, one in papers.items():
        states = Counter(state for item in one.items for state in [*_states(one, item, results).values()][:1])
        line = {"paper": name, "title": one.title, "items": len(one.items), "made": sum(states.values())}
        line |= {state: states[state] for state in ("reproduced", "contradicted", "not decided")}
        lines.append(line | {"not run": sum(item.is_made_here for item in one.items) - line["made"]})
        lines[-1]["not made by madbench"] = sum(not item.is_made_here for item in one.items)
    if printed.asked == "json":
        print_json({"papers": lines, "problems": dict(problems)})
        return
    print_lines(Console(highlight=False), table_lines(lines, right=[*lines[0]][2:] if lines else ()))
    for problem in problems.values():
        print(f"warning: {problem}", file=sys.stderr)


def _list_items(paper: Paper, results: Path, printed: PrintOptions) -> None:
    rows = []
    for item in paper.items:
        states = _states(paper, item, results)
        row = {"item": item.id, "kind": item.kind, "place": item.place, "title": item.title}
        made = [f"{state} ({size})" if item.profiles else state for size, state in states.items()]
        row |= {"state": "; ".join(made) or "not run"}
        row |= {"command": command_of(paper, item), "sizes": list(item.profiles), "needs": item.needs}
        jobs = jobs_of(Request(paper, item, results=results))
        stored = [*job_states(jobs, results, Policy()).values()].count("done")
        left = 1 - stored / max(1, len(jobs))
        row |= {"jobs": len(jobs), "stored": stored, "seconds": item.seconds and item.seconds * left}
        rows.append(row if item.is_made_here else row | {"state": item.needs.partition(":")[0].lower()})
    if printed.asked == "json":
        print_json({"paper": paper.name, "title": paper.title, "source": paper.source, "items": rows})
        return
    console = Console(highlight=False)
    console.print(f"[bold]{paper.title}[/bold] [dim]{paper.source}[/dim]")
    for row in rows:
        console.print(f"{row['item']}  {row['title']} ({row['place']})", style="bold", **PLAIN)
        jobs = [f"{row['stored']} of {counted(row['jobs'], 'job')} stored"] * bool(row["jobs"])
        cost = [f"about {printing.duration(row['seconds'])}"] if row["seconds"] else []
        told = [row["state"], *jobs, *cost, row["command"]] if row["command"] else [row["needs"]]
        console.print("   ", " | ".join(told), **PLAIN)
