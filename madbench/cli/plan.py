"""What ``--dry-run`` shows: of both halves which jobs are still to do, and the plan of the MAD tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.experiment import Experiment
    from madbench.jobs import JobBase
    from madbench.language_experiment import LanguageExperiment


def missing_jobs(experiment: Experiment | LanguageExperiment) -> list[JobBase]:
    """The jobs without a result; nothing is written, and there need be no store yet."""
    from madbench.runs import Store

    if not (experiment.results / "runs").exists():
        return list(experiment.jobs)
    return Store.open(experiment.results, create=False).missing(experiment.jobs)


def mad_plan(experiment: Experiment, slots: int | None, console: Console) -> dict[str, Any]:
    """Jobs, parameters, steps and FLOPs by label and task, and seconds from a calibration on the device."""
    from madbench.devices import default_slots
    from madbench.training.cost import estimate_seconds, job_cost

    missing = missing_jobs(experiment)
    todo = {job.id for job in missing}
    cells: dict[tuple[str, str], dict] = {}
    for job in experiment.jobs:
        cost = job_cost(job)
        cell = {"label": job.label, "task": job.task, "jobs": 0, "todo": 0, "steps": 0, "flops": 0.0}
        cell = cells.setdefault((job.label, job.task), cell)
        cell["jobs"] += 1
        cell["todo"] += job.id in todo
        cell["steps"] += cost.steps
        cell["flops"] += cost.flops
        cell["model_parameters"] = cost.model_parameters
    slots = min(slots or default_slots(experiment.device), max(1, len(missing)))
    with console.status("timing a few steps of each task"):
        seconds = estimate_seconds(missing, experiment.device) / slots
    return {"cells": list(cells.values()), "todo": len(todo), "slots": slots, "estimated_seconds": seconds}


def print_mad_plan(experiment: Experiment, plan: dict[str, Any]) -> None:
    """The plan of :func:`mad_plan` as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from madbench.cli.tables import print_whole
    from madbench.cli.text import count_of_jobs, duration, quantity

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("Label", "Task", "Jobs", "To do", "Params", "Steps", "FLOPs"):
        table.add_column(heading, justify="left" if heading in ("Label", "Task") else "right", overflow="fold")
    for cell in plan["cells"]:
        numbers = (cell["model_parameters"], cell["steps"], cell["flops"])
        table.add_row(cell["label"], cell["task"], str(cell["jobs"]), str(cell["todo"]), *map(quantity, numbers))
    console = Console()
    print_whole(console, table)
    console.print(
        f"{count_of_jobs(len(experiment.jobs))}, {plan['todo']} to do; about {duration(plan['estimated_seconds'])} on "
        f"{experiment.device} with {plan['slots']} at a time, less where runs stop early. Parameters are the whole "
        "model's; madbench budget shows the mixer's."
    )
