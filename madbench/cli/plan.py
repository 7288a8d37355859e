"""What ``--dry-run`` shows: which jobs are still to do, and what those of the MAD tasks cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from madbench.execute.base import Policy

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.experiment import Experiment
    from madbench.jobs import Job, JobBase
    from madbench.language_experiment import LanguageExperiment

State = Literal["done", "todo", "failed"]


def missing_jobs(experiment: Experiment | LanguageExperiment) -> list[JobBase]:
    """The jobs without a result; nothing is written, and there need be no store yet."""
    states = job_states(experiment.jobs, experiment.results)
    return [job for job in experiment.jobs if states[job.id] == "todo"]


def job_states(jobs: Sequence[JobBase], results: Path, policy: Policy = Policy()) -> dict[str, State]:
    """What ``policy`` makes of each job, by id: ``failed`` is a stored failure that is left alone."""
    from madbench.store.runs import Store

    if policy.redo or not (results / "runs").exists():
        return {job.id: "todo" for job in jobs}
    store = Store.open(results, create=False)
    states: dict[str, State] = {job.id: "done" for job in jobs}
    for job in store.missing(jobs):
        is_left = not policy.retry and store.status(job) == "failed"
        states[job.id] = "failed" if is_left else "todo"
    return states


def mad_cells(jobs_by_row: Mapping[str, Sequence[Job]], states: Mapping[str, State]) -> list[dict[str, Any]]:
    """Jobs, parameters, steps and FLOPs of each row and task."""
    from madbench.training.cost import job_cost

    cells: dict[tuple[str, str], dict] = {}
    for row, jobs in jobs_by_row.items():
        for job in jobs:
            cost = job_cost(job)
            cell = {"row": row, "label": job.label, "task": job.task, "jobs": 0, "todo": 0, "failed": 0}
            cell = cells.setdefault((row, job.task), cell | {"steps": 0, "flops": 0.0, "todo_flops": 0.0})
            is_todo = states[job.id] == "todo"
            cell["jobs"] += 1
            cell["todo"] += is_todo
            cell["failed"] += states[job.id] == "failed"
            cell["steps"] += cost.steps
            cell["flops"] += cost.flops
            cell["todo_flops"] += cost.flops * is_todo
            cell["model_parameters"] = cost.model_parameters
    return list(cells.values())


def mad_plan(experiment: Experiment, slots: int | None, console: Console) -> dict[str, Any]:
    """Jobs, parameters, steps and FLOPs by label and task, and seconds from a calibration on the device."""
    from madbench.training.cost import estimate_seconds
    from madbench.training.devices import default_slots

    states = job_states(experiment.jobs, experiment.results)
    missing = [job for job in experiment.jobs if states[job.id] == "todo"]
    by_label: dict[str, list[Job]] = {}
    for job in experiment.jobs:
        by_label.setdefault(job.label, []).append(job)
    slots = min(slots or default_slots(experiment.device), max(1, len(missing)))
    with console.status("timing a few steps of each task"):
        seconds = estimate_seconds(missing, experiment.device) / slots
    cells = mad_cells(by_label, states)
    return {"cells": cells, "todo": len(missing), "slots": slots, "estimated_seconds": seconds}


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
