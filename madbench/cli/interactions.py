"""``madbench interactions``: agents whose values are sums of pairwise and three-way interactions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from madbench.cli import options
from madbench.cli.options import argument, labels_and_overrides, option, output_option, split_list
from madbench.cli.plan import job_states
from madbench.cli.plots import LayoutOptions, write_figure
from madbench.cli.printing import PLAIN, counted, print_json, print_lines, quantity, table_lines
from madbench.cli.progress import train_on_screen
from madbench.config import parse_seeds
from madbench.errors import ConfigError
from madbench.execute.base import Policy
from madbench.experiment import Experiment, PlannedRow, Protocol
from madbench.grid import Grid
from madbench.grid import Row as GridRow
from madbench.jobs import Job
from madbench.labels import expand
from madbench.store.runs import Store
from madbench.suites import size_of
from madbench.suites.base import check_tasks_of
from madbench.suites.interactions.suite import INTERACTIONS, TASKS, InteractionProfile, check_task, world_of
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from madbench.analysis.figures.panels import Layout
    from madbench.analysis.interactions import Claim, Row


def interactions(
    words: argument(
        list[str] | None,
        "LABEL|KEY=VALUE",
        "Labels of hfa: and ha:, instead of those that theory compares; KEY=VALUE changes the profile.",
    ) = None,
    tasks: option(
        list[str] | None,
        "colliding, hunters, alliances, comma-separated.",
        "--task",
        "--tasks",
        "-t",
        show_default="all",
    ) = None,
    embedding: option(
        Literal["one_hot", "sinusoidal"] | None, "Vectors of colliding agents' positions.", show_default="both"
    ) = None,
    controls: option(bool, "Colliding agents also where a theorem's condition is broken.") = True,
    profile: option(
        str, "quick, full, or a YAML file like those in tasks/interactions.", "--profile", "-p", completes="PROFILE"
    ) = "quick",
    seeds: options.SeedsOption = "0",
    device: options.DeviceOption = "cpu",
    results: options.ResultsOption = options.RESULTS,
    slots: options.SlotsOption = None,
    threads: options.ThreadsOption = None,
    force: options.ForceOption = False,
    dry_run: option(bool, "Show jobs, parameters and steps; train nothing.", "--dry-run") = False,
    figures: option(bool, "Draw learned against theoretical matrices, and error against length.") = True,
    output: output_option("Folder of the figures.", show_default="RESULTS/plots") = None,
    *,
    shape: LayoutOptions,
    as_json: options.JsonOption = False,
) -> None:
    """Train attention on interacting agents, test it on other numbers of them, and compare what it learned with theory.

    A model is a fixed embedding and one mixer in which all agents see each
    other; the value of each agent is known exactly. Source: A Theoretical Study
    of (Hyper) Self-Attention through the Lens of Interactions, sections 4 to 7.

    colliding  Discs on a cylinder; a value is minus the collisions. Linear
               attention (hfa:C1) can be exact, gradient descent has to find it,
               and errors have to vanish at every number of agents. Controls
               break a condition: then they vanish at the number trained on only.
    hunters    Species, policy and place together decide who catches whom.
               HyperFeatureAttention (hfa:C3) can be exact; linear attention of
               as many parameters has a floor, which is printed.
    alliances  Pairs of allies that are not each other's. HyperAttention (ha:C3)
               can be exact; nothing that is a sum over single agents can.

    The same command again does only what is missing; Ctrl-C keeps what is done.
    One seed of everything takes two minutes on one core. --profile full has
    colliding agents at the paper's size; tasks/interactions has the files.

    [bold]Examples[/bold]

      madbench interactions
      madbench interactions --task colliding --seeds 0-2
      madbench interactions -t colliding --embedding one_hot --profile full
      madbench interactions hfa:C1 hfa:L1 hfa:2 -t hunters training.steps=1000
      madbench interactions --dry-run --seeds 0-9
    """
    labels, overrides = labels_and_overrides(words or [])
    asked = split_list(tasks) or list(TASKS)
    for task in asked:
        check_task(task, "--task: ")
    if "colliding" not in asked and (embedding or not controls):
        given = f"--embedding {embedding}" if embedding else "--no-controls"
        raise ConfigError(f"{given}: has no effect without colliding agents")
    if (output or shape != LayoutOptions()) and (dry_run or not figures):
        given = f"--output {output}: has" if output else "--width, --no-title and --no-caption have"
        raise ConfigError(f"{given} no effect with {'--dry-run' if dry_run else '--no-figures'}")
    labels, how = expand(labels), {"seeds": parse_seeds(seeds), "embedding": embedding, "has_controls": controls}
    loaded = InteractionProfile.load(profile, overrides)
    check_tasks_of(overrides, asked)
    shared = ("corrected", "strict", loaded.precision, resolve_device(device))
    protocol = Protocol(INTERACTIONS, loaded, profile, tuple(overrides), asked, *shared)
    jobs = INTERACTIONS.jobs(labels, loaded, tasks=asked, **how)
    if not jobs:
        raise ConfigError(f"nothing to train: the profile {profile} names no labels of {', '.join(asked)}")
    experiment, policy = _experiment(jobs, protocol, results), Policy(redo=force)
    if dry_run:
        _print_plan(experiment, policy, as_json)
        return
    console = Console(stderr=True)
    names = {job.id: row.row.shown[0] for row in experiment.rows for job in row.jobs}
    summary, failed = train_on_screen(experiment, policy, console, names, slots=slots, threads=threads)
    failures = {f"{names[job_id]} ({job_id})": reason for job_id, reason in failed.items()}
    drawn = (output or results / "plots", shape.layout) if figures else None
    _show(experiment, console, drawn, as_json, failures)
    if summary.failed:
        raise typer.Exit(1)


def _experiment(jobs: Sequence[Job], protocol: Protocol, results: Path) -> Experiment:
    """The jobs as rows, a row a label and setting."""
    from madbench.analysis.interactions import row_name

    by_row: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        by_row.setdefault((job.task, row_name(job)), []).append(job)
    rows = [PlannedRow(GridRow(own[0].label, shown=(name,)), protocol, own) for (_, name), own in by_row.items()]
    return Experiment(Grid(tuple(row.row for row in rows)), rows, protocol.device, results)


def _print_plan(experiment: Experiment, policy: Policy, as_json: bool) -> None:
    states = job_states(experiment.jobs, experiment.results, policy)
    todo = {job_id for job_id, state in states.items() if state == "todo"}
    lines = []
    for row in experiment.rows:
        size, job = size_of(row.jobs[0]), row.jobs[0]
        line = {"task": job.task, "row": row.row.shown[0], "jobs": len(row.jobs)}
        line |= {"to do": sum(job.id in todo for job in row.jobs), "parameters": size.parameters, "steps": size.steps}
        lines.append(line | {"FLOPs": quantity(size.flops), "tests at L": ",".join(map(str, world_of(job).lengths))})
    if as_json:
        print_json(lines)
        return
    console = Console(highlight=False)
    print_lines(console, table_lines(lines, right=("jobs", "to do", "parameters", "steps", "FLOPs")))
    console.print(f"{counted(len(experiment.jobs), 'job')}, {len(todo)} to do. FLOPs are of one run.", **PLAIN)


def _show(
    experiment: Experiment,
    console: Console,
    figures: tuple[Path, Layout] | None,
    as_json: bool,
    failures: Mapping[str, str],
) -> None:
    """Prints tables and claims and draws the figures into a folder, as they are asked for."""
    from madbench.analysis.interactions import claims, interaction_rows

    store = Store.open(experiment.results, create=False)
    rows = interaction_rows(experiment.rows, store.records({job.id for job in experiment.jobs}))
    found = claims(rows)
    with console.status("drawing"):
        drawn = list(_draw(rows, store, *figures)) if figures and rows else []
    if as_json:
        content = {"rows": [row.summary() for row in rows], "claims": [vars(claim) for claim in found]}
        print_json(content | {"figures": list(map(str, drawn)), "failed": failures})
        return
    printed = Console(highlight=False)
    for task in dict.fromkeys(row.task for row in rows):
        own = [row for row in rows if row.task == task]
        _print_task(printed, own, [claim for claim in found if claim.task == task])
    for path in drawn:
        console.print(f"figure: {path}", **PLAIN)
    for name, problem in failures.items():
        console.print(f"failed: {name}: {problem}", **PLAIN)


def _print_task(console: Console, rows: Sequence[Row], found: Sequence[Claim]) -> None:
    world = rows[0].world
    lengths = list(dict.fromkeys(n for row in rows for n in row.world.lengths))
    heading = {n: f"L {n}{'*' * (n == world.length)}" for n in lengths}
    lines = []

    def add(name: str, count: int | str, errors: Mapping[int, float | None], distance: str = "") -> None:
        shown = {heading[n]: _number(errors.get(n)) for n in lengths}
        lines.append({world.title: name, "n": count, **shown, "T off": distance})

    for row in rows:
        errors = {n: max(row.errors(n)) for n in row.world.lengths}
        add(row.name, len(row.records), errors, "-" if row.control else _number(row.distance))
        references = {n: row.reference(n) for n in row.world.lengths}
        if any(references.values()):
            add("  predicted" if row.control else "  floor", "", references)
    add("a constant", "", {n: rows[0].variance(n) for n in lengths})
    print_lines(console, table_lines(lines, right=("n", *heading.values(), "T off")))
    console.print()
    for claim in found:
        verdict = Text(claim.verdict, style="green" if claim.verdict == "reproduced" else "red")
        console.print(Text.assemble(verdict, f": {claim.statement} ({claim.source})"))
        console.print(Padding(Text(claim.numbers), (0, 0, 0, 4)))
    if found:
        console.print()
    about = (
        "L agents, * trained. Mean squared error of a test agent, the largest of n seeds. T off: of the learned matrix."
    )
    console.print(about, markup=False, style="dim")
    console.print()


def _number(value: float | None) -> str:
    """Two or three digits of what one can see, one of what is next to nothing."""
    if value is None or math.isnan(value):
        return "-"
    digits = ".3g" if value >= 1 else ".2g" if value >= 1e-3 else ".0e"
    return "0" if value == 0 else format(value, digits).replace("e-0", "e-")


def _draw(rows: Sequence[Row], store: Store, folder: Path, layout: Layout) -> Iterator[Path]:
    """Writes the figures, each as CSV, PNG and PDF; of matrices the first seed's."""
    from madbench.analysis.figures.interactions import devised, errors, errors_frame, learned_matrices
    from madbench.tasks.worlds import Colliding
    from madbench.training.checkpoints import load_model

    def write(name: str, figure: Figure, frame: pd.DataFrame) -> Path:
        _, png, *_ = write_figure(figure, folder / f"interactions_{name}", frame)
        return png

    yield write("errors", errors(rows, layout), errors_frame(rows))
    if any(row.task == "colliding" for row in rows):
        yield write("devised", *devised(Colliding(positions=360, radius=5, embedding="sinusoidal"), layout))
    for row in rows:
        if row.control or row.records[0].status != "finished":
            continue
        model, _ = load_model(store.kept_file(row.jobs[0].id, "weights.safetensors"))
        name = "_".join([row.task, *re.findall("[A-Za-z0-9]+", row.name)])
        for part, found in learned_matrices(row, model).items():
            yield write(name + part, found.draw(layout), found.frame)
