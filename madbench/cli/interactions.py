"""``madbench interactions``: agents whose values are sums of pairwise and three-way interactions."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from madbench.cli.options import (
    RESULTS,
    DeviceOption,
    JsonOption,
    ResultsOption,
    argument,
    labels_and_overrides,
    option,
    split_list,
)
from madbench.cli.printing import PLAIN, count_of_jobs, print_json, print_lines, quantity, table_lines
from madbench.cli.progress import observed
from madbench.config import parse_seeds
from madbench.errors import ConfigError
from madbench.execute.base import Policy
from madbench.experiment import Experiment, PlannedRow, Protocol
from madbench.grid import Grid
from madbench.grid import Row as GridRow
from madbench.jobs import Job
from madbench.labels import expand
from madbench.store.runs import Store
from madbench.suites import INTERACTIONS, size_of
from madbench.suites.interactions import TASKS, InteractionProfile, check_task, world_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from madbench.analysis.interactions import Claim, Row
    from madbench.mixers.interactions.worlds import Embedding


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
    profile: option(str, "quick, full, or a YAML file like those in tasks/interactions.", "--profile", "-p") = "quick",
    seeds: option(str, "Seeds such as 0,1,2 or 0-4; each decides initialisation, data and order.") = "0",
    device: DeviceOption = "cpu",
    results: ResultsOption = RESULTS,
    slots: option(int | None, "Jobs at a time; one a CPU core, one on a GPU by default.", min=1) = None,
    force: option(bool, "Train again what the store has already.", "--force") = False,
    dry_run: option(bool, "Show jobs, parameters and steps; train nothing.", "--dry-run") = False,
    figures: option(bool, "Draw learned against theoretical matrices, and error against length.") = True,
    output: option(Path | None, "Folder of the figures.", "--output", "-o", show_default="RESULTS/plots") = None,
    as_json: JsonOption = False,
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
    if output and not figures:
        raise ConfigError(f"--output {output}: has no effect with --no-figures")
    experiment = plan(
        expand(labels), overrides, asked, embedding, controls, profile, tuple(parse_seeds(seeds)), device, results
    )
    if dry_run:
        _print_plan(experiment, as_json)
        return
    console = Console(stderr=True)
    names = {job.id: row.row.shown[0] for row in experiment.rows for job in row.jobs}
    try:
        with observed(experiment.jobs, experiment.title, results, console, names=names) as (on_event, screen):
            summary = experiment.execute(on_event, slots=slots, policy=Policy(redo=force))
    except KeyboardInterrupt:
        console.print(f"stopped; finished runs are in {results}, the same command resumes", **PLAIN)
        raise
    failures = {f"{names[job_id]} ({job_id})": reason for job_id, reason in screen.tally.failures}
    _show(experiment, console, figures, output or results / "plots", as_json, failures)
    if summary.failed:
        raise typer.Exit(1)


def plan(
    labels: Sequence[str],
    overrides: Sequence[str],
    tasks: Sequence[str],
    embedding: Embedding | None,
    has_controls: bool,
    profile_name: str,
    seeds: Sequence[int],
    device: str,
    results: Path,
) -> Experiment:
    """The checked plan, a row a label and setting. Raises a ``MadbenchError`` for what could not be trained."""
    from madbench.analysis.interactions import row_name
    from madbench.training.devices import resolve_device

    profile = InteractionProfile.load(profile_name, overrides)
    for override in overrides:
        if (of_task := re.match(r"tasks\.(\w+)\.", override)) and of_task[1] not in tasks:
            raise ConfigError(f"override {override!r} has no effect: the tasks are {', '.join(tasks)}")
    device = resolve_device(device)
    how = {"seeds": seeds, "tasks": tasks, "embedding": embedding, "has_controls": has_controls}
    by_row: dict[tuple[str, str], list[Job]] = {}
    for job in INTERACTIONS.jobs(labels, profile, **how):
        by_row.setdefault((job.task, row_name(job)), []).append(job)
    if not by_row:
        raise ConfigError(f"nothing to train: the profile {profile_name} names no labels of {', '.join(tasks)}")
    shared = {"fidelity": "corrected", "budget": "strict", "precision": "float32", "device": device}
    protocol = Protocol(INTERACTIONS, profile, profile_name, tuple(overrides), list(tasks), **shared)
    rows = [PlannedRow(GridRow(jobs[0].label, shown=(name,)), protocol, jobs) for (_, name), jobs in by_row.items()]
    grid = Grid(tuple(row.row for row in rows), tuple(tasks), tuple(seeds), profile_name, overrides=tuple(overrides))
    return Experiment(grid, rows, device, results)


def _print_plan(experiment: Experiment, as_json: bool) -> None:
    store = experiment.results / "runs"
    missing = experiment.jobs
    if store.exists():
        missing = Store.open(experiment.results, create=False).missing(experiment.jobs)
    todo = {job.id for job in missing}
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
    console.print(f"{count_of_jobs(len(experiment.jobs))}, {len(todo)} to do. FLOPs are of one run.", **PLAIN)


def _show(
    experiment: Experiment, console: Console, figures: bool, folder: Path, as_json: bool, failures: Mapping[str, str]
) -> None:
    """Prints tables and claims and draws the figures."""
    from madbench.analysis.interactions import claims, interaction_rows

    store = Store.open(experiment.results, create=False)
    rows = interaction_rows(experiment.rows, store.records({job.id for job in experiment.jobs}))
    found = claims(rows)
    with console.status("drawing"):
        drawn = list(_draw(rows, store, folder)) if figures and rows else []
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
    for row in rows:
        line: dict[str, Any] = {world.title: row.name, "n": len(row.records)}
        line |= {heading[n]: _number(max(row.errors(n))) if n in row.world.lengths else "-" for n in lengths}
        line["T off"] = "-" if row.control else _number(row.distance)
        lines.append(line)
        if any(row.reference(n) for n in row.world.lengths):
            what = "  predicted" if row.control else "  floor"
            known = {heading[n]: _number(row.reference(n)) if n in row.world.lengths else "-" for n in lengths}
            lines.append({world.title: what, "n": "", **known, "T off": ""})
    lines.append(
        {world.title: "a constant", "n": "", "T off": ""} | {heading[n]: _number(rows[0].variance(n)) for n in lengths}
    )
    print_lines(console, table_lines(lines, right=("n", *heading.values(), "T off")))
    console.print()
    for claim in found:
        verdict = Text(claim.verdict, style="green" if claim.verdict == "reproduced" else "red")
        console.print(Text.assemble(verdict, f": {claim.statement} ({claim.source})"))
        indented = {"initial_indent": "    ", "subsequent_indent": "    "}
        console.print(textwrap.fill(claim.numbers, console.width, **indented), markup=False)
    if found:
        console.print()
    about = (
        "L agents, * trained. Mean squared error of a test agent, the largest of n seeds. T off: of the learned matrix."
    )
    console.print(about, markup=False, style="dim")
    console.print()


def _number(value: float | None) -> str:
    """Two or three digits of what one can see, one of what is next to nothing."""
    if value is None:
        return "-"
    digits = ".3g" if value >= 1 else ".2g" if value >= 1e-3 else ".0e"
    return "0" if value == 0 else format(value, digits).replace("e-0", "e-")


def _draw(rows: Sequence[Row], store: Store, folder: Path) -> Iterator[Path]:
    """Writes the figures, each as CSV, PNG and PDF; of matrices the first seed's."""
    from madbench.analysis.figures.files import save_figure, write_frame
    from madbench.analysis.figures.interactions import devised, errors, errors_frame, learned_matrices
    from madbench.mixers.interactions.worlds import Colliding
    from madbench.training.checkpoints import load_model

    def write(name: str, figure: Figure, frame: pd.DataFrame) -> Path:
        stem = folder / f"interactions_{name}"
        write_frame(frame, stem.with_name(f"{stem.name}.csv"))
        return save_figure(figure, stem)[0]

    yield write("errors", errors(rows), errors_frame(rows))
    if any(row.task == "colliding" for row in rows):
        yield write("devised", *devised(Colliding(positions=360, radius=5, embedding="sinusoidal")))
    for row in rows:
        if row.control or row.records[0].status != "finished":
            continue
        model, _ = load_model(store.kept_file(row.jobs[0].id, "weights.safetensors"))
        name = "_".join([row.task, *re.findall("[A-Za-z0-9]+", row.name)])
        for part, found in learned_matrices(row, model).items():
            yield write(name + part, found.draw(), found.frame)
