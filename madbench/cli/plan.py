"""The plan of an experiment, which ``--dry-run`` shows: jobs, what is to do, parameters, FLOPs, memory, time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from madbench.cli.printing import PLAIN, counted, duration, first_of, print_lines, quantity, table_lines
from madbench.execute.base import Policy
from madbench.experiment import Experiment, PlannedRow
from madbench.jobs import Job
from madbench.store.runs import Store
from madbench.suites import LANGUAGE, suite_of
from madbench.suites.base import Size

MOST_SHOWN = 100  # lines of a table that a person reads; the JSON has all
STATES = ("done", "todo", "failed")
_ADDED = ("jobs", *STATES, "steps", "flops", "estimated_seconds")


def job_states(jobs: Sequence[Job], results: Path, policy: Policy) -> dict[str, str]:
    """What ``policy`` makes of each job, by id: done, todo, or failed for a stored failure that is left alone."""
    records = {}
    if (results / "runs").exists():
        records = Store.open(results, create=False).records(job.id for job in jobs)
    statuses = {job_id: record.status for job_id, record in records.items()}
    states = {None: "todo", "stored": "done", "failed": "failed"}
    return {job.id: states[policy.skips(statuses.get(job.id))] for job in jobs}


def make_plan(
    experiment: Experiment,
    policy: Policy,
    console: Console,
    *,
    slots: int | None,
    devices: Sequence[str] | None,
    micro_batch: int | None,
    details: bool,
) -> dict[str, Any]:
    """Cost of every row and task of the experiment, and seconds of what is to do, timed on the device.

    A few steps are timed of each task, with ``details`` of each row and task, which then also have memory, FLOPs as torch
    counts them, and parameters by group.
    """
    from madbench.execute.slots import plan_shifts
    from madbench.training.cost import job_size, seconds_per_flop

    sizes = {job.id: job_size(job) for job in experiment.jobs}
    states = job_states(experiment.jobs, experiment.results, policy)
    cells, suites = [], {}
    with console.status("counting, and timing a few steps"):
        todo = [job for job in experiment.jobs if states[job.id] == "todo"]
        for shift in plan_shifts(experiment.jobs, experiment.device, slots, devices, micro_batch, todo):
            together = {job.suite for job in shift.jobs}
            for suite in (suite for suite in experiment.suites if suite.name in together):
                part = experiment.of(suite)
                todo = [job for job in part.jobs if states[job.id] == "todo"]
                rates_of = functools.partial(seconds_per_flop, device=experiment.device, threads=shift.threads)
                rates = {} if details else rates_of(todo)
                made = []
                for row, jobs in _by_row_and_task(part):
                    if details:
                        rates = rates_of([job for job in jobs if states[job.id] == "todo"])
                    cell = _cell(row, jobs, states, sizes, rates.get(jobs[0].task, 0.0))
                    made.append(cell | (_details(jobs[0], micro_batch) if details else {}))
                at_once = min(shift.slots, max(1, len(todo)))
                apart = at_once  # slots that share no core and no GPU
                if experiment.device != "cpu" and suite.uses_all_cores:
                    apart = min(at_once, len(devices or [""]))
                repeats = sum(one["todo"] for one in made) / max(1, len(todo))  # a job may be in several rows
                seconds = sum(one["estimated_seconds"] for one in made) / apart / max(1, repeats)
                suites[suite.name] = {"slots": at_once, "estimated_seconds": seconds}
                cells += made
    counts = {state: list(states.values()).count(state) for state in STATES}
    seconds = sum(one["estimated_seconds"] for one in suites.values())
    totals = {"jobs": len(states), **counts, "estimated_seconds": seconds, "notes": experiment.notes}
    return {"cells": cells, "suites": suites} | totals


def _by_row_and_task(part: Experiment) -> Iterator[tuple[PlannedRow, list[Job]]]:
    """Every row with its jobs of one task, task by task."""
    for row in part.rows:
        for task in dict.fromkeys(job.task for job in row.jobs):
            yield row, [job for job in row.jobs if job.task == task]


def _cell(
    row: PlannedRow, jobs: Sequence[Job], states: Mapping[str, str], sizes: Mapping[str, Size], seconds_per_flop: float
) -> dict[str, Any]:
    """What the row's jobs of one task cost."""
    about = {"suite": row.protocol.suite.name, "row": row.name, "label": row.row.label}
    about |= {"changes": " ".join(row.row.changes), "task": jobs[0].task, "jobs": len(jobs)}
    about |= {state: sum(states[job.id] == state for job in jobs) for state in STATES}
    return about | {
        "parameters": sorted({sizes[job.id].parameters for job in jobs}),
        "steps": sum(sizes[job.id].steps for job in jobs),
        "flops": sum(sizes[job.id].flops for job in jobs),
        "estimated_seconds": seconds_per_flop * sum(sizes[job.id].flops for job in jobs if states[job.id] == "todo"),
    }


def _details(job: Job, micro_batch: int | None) -> dict[str, Any]:
    import torch

    from madbench.training.cost import counted_flops_per_token, job_size, peak_memory_bytes, usual_micro_batch
    from madbench.training.optimizer import parameter_groups

    size, suite = job_size(job), suite_of(job)
    usual = usual_micro_batch(size) if suite is LANGUAGE else size.sequences_per_step
    at_once = min(micro_batch or usual, size.sequences_per_step)
    with torch.device("meta"):
        groups = parameter_groups(suite.Trial.build(job), job.fidelity)
    return {
        "flops_per_token": 3 * size.flops_per_token,
        "counted_flops_per_token": counted_flops_per_token(job),
        "micro_batch": at_once,
        "memory_bytes": peak_memory_bytes(job, at_once),
        "parameter_groups": groups,
    }


def print_plan(experiment: Experiment, plan: dict[str, Any], by_task: bool = False) -> None:
    """The plan of :func:`make_plan` as tables: a line a row, or with ``by_task`` a line a row and task."""
    console = Console(highlight=False)
    for suite, totals in plan["suites"].items():
        cells = [cell for cell in plan["cells"] if cell["suite"] == suite]
        lines = [_line(cell, plan["failed"] > 0) for cell in (cells if by_task else _rows(cells))]
        text = table_lines(lines, right=lines[0].keys() - {"row", "task"})
        print_lines(console, first_of(text, MOST_SHOWN + 2, "and {:,} more lines; --json has them all"))
        seconds = duration(totals["estimated_seconds"])
        console.print(f"about {seconds} on {experiment.device} with {totals['slots']} at a time\n", **PLAIN)
        if "parameter_groups" in cells[0]:
            lines = _groups({f"{cell['row']} {cell['task']}": cell["parameter_groups"] for cell in cells})
            print_lines(console, table_lines(lines, right=tuple(lines[0])[2:]))
            console.print(
                "FLOPs/token are of training; dense: as torch counts the dense path, all pairs. Memory is that of tensors "
                f"with {', '.join(sorted({str(cell['micro_batch']) for cell in cells}))} sequences at a time.\n"
            )
    left = f", {plan['failed']} failed and left without --retry" if plan["failed"] else ""
    shared = sum(cell["jobs"] for cell in plan["cells"]) - plan["jobs"]
    common = f" {counted(shared, 'job')} of several rows count{'s' * (shared == 1)} once." if shared else ""
    console.print(
        f"{counted(plan['jobs'], 'job')} in {counted(len(experiment.grid.rows), 'row')}: {plan['done']} done, "
        f"{plan['todo']} to do{left}.{common} Time is of what is to do, one job after the other in a row, estimated "
        "from a few steps, and less where runs stop early. FLOPs are of training, forward and backward, with the pairs "
        "that causality keeps. Parameters are the whole model's; madbench budget shows the mixer's.",
        markup=False,
    )


def _rows(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cells of each row as one."""
    rows: dict[str, dict[str, Any]] = {}
    for cell in cells:
        row = rows.setdefault(cell["row"], {"row": cell["row"], "parameters": []} | dict.fromkeys(_ADDED, 0))
        row["parameters"] = sorted({*row["parameters"], *cell["parameters"]})
        row |= {name: row[name] + cell[name] for name in _ADDED}
    return list(rows.values())


def _line(cell: Mapping[str, Any], has_failed: bool) -> dict[str, Any]:
    names = ["row", *["task"] * ("task" in cell), "jobs", "done", "todo", *["failed"] * has_failed]
    sizes = [quantity(count) for count in (cell["parameters"][0], cell["parameters"][-1])]
    line = {name: cell[name] for name in names} | {"parameters": " - ".join(dict.fromkeys(sizes))}
    line |= {"steps": quantity(cell["steps"]), "FLOPs": quantity(cell["flops"])}
    line["time"] = duration(cell["estimated_seconds"]) if cell["todo"] else "-"
    if "memory_bytes" in cell:
        line["FLOPs/token"] = quantity(cell["flops_per_token"])
        line["dense"] = quantity(cell["counted_flops_per_token"])
        line["memory"] = f"{quantity(cell['memory_bytes'])}B"
    return line


def _groups(by_name: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A line a group of parameters, a column a model."""
    lines: dict[tuple[str, bool], dict[str, Any]] = {}
    for name, groups in by_name.items():
        for group in groups:
            usual = {"parameters": group["group"], "weight decay": "yes" if group["decays"] else "no"}
            line = lines.setdefault((group["group"], group["decays"]), usual | dict.fromkeys(by_name, "0"))
            line[name] = f"{group['parameters']:,}"
    totals = {name: f"{sum(group['parameters'] for group in groups):,}" for name, groups in by_name.items()}
    return [*lines.values(), {"parameters": "all", "weight decay": ""} | totals]
