"""The plan of an experiment, which ``--dry-run`` shows: jobs, what is to do, parameters, FLOPs, memory, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from madbench.cli.tables import PLAIN, plain_table, print_whole
from madbench.cli.text import count_of_jobs, duration, quantity
from madbench.execute.base import Policy

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.experiment import Experiment
    from madbench.jobs import Job

State = Literal["done", "todo", "failed"]

MOST_SHOWN = 100
"""Lines of a table that a person reads; the JSON has all."""
TITLES = {"mad": "MAD tasks", "language": "Language model"}
_COUNTS = ("jobs", "done", "todo", "failed", "steps", "flops", "todo_flops", "estimated_seconds")


def job_states(jobs: Sequence[Job], results: Path, policy: Policy) -> dict[str, State]:
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


def make_plan(
    experiment: Experiment,
    policy: Policy,
    console: Console,
    *,
    slots: int | None = None,
    devices: Sequence[str] | None = None,
    micro_batch: int | None = None,
    details: bool = False,
) -> dict[str, Any]:
    """Every row of the experiment with its cost by task, and seconds from a short calibration on the device.

    The time is that of what is to do. With ``details`` every row and task is timed by itself, and has memory, FLOPs as
    torch counts them, and parameters by group.
    """
    from madbench.training.cost import seconds_per_flop
    from madbench.training.devices import default_slots

    states = job_states(experiment.jobs, experiment.results, policy)
    plan: dict[str, Any] = {"rows": [], "suites": {}}
    with console.status("counting, and timing a few steps of each task"):
        for suite in experiment.suites:
            part = experiment.of(suite)
            todo = [job for job in part.jobs if states[job.id] == "todo"]
            per_flop = {} if details else seconds_per_flop(todo, experiment.device)
            rows = [_row(row, states, per_flop, experiment.device, micro_batch, details) for row in part.rows]
            plan["rows"] += rows
            usual = len(devices) if devices else 1 if suite.uses_all_cores else default_slots(experiment.device)
            at_once = min(slots or usual, max(1, len(todo)))
            share = min(at_once, len(devices or [""])) if suite.uses_all_cores else at_once  # slots that share cores
            doubled = sum(row["todo"] for row in rows) / max(1, len(todo))
            seconds = sum(row["estimated_seconds"] for row in rows) / share / max(1, doubled)
            plan["suites"][suite.name] = {"slots": at_once, "estimated_seconds": seconds}
    counts = {state: list(states.values()).count(state) for state in ("done", "todo", "failed")}
    seconds = sum(suite["estimated_seconds"] for suite in plan["suites"].values())
    return plan | {"jobs": len(states), **counts, "estimated_seconds": seconds, "notes": experiment.notes}


def _row(
    row: Any,
    states: Mapping[str, State],
    per_flop: Mapping[str, float],
    device: str,
    micro_batch: int | None,
    details: bool,
) -> dict[str, Any]:
    from madbench.training.cost import job_size, seconds_per_flop

    cells: dict[str, dict[str, Any]] = {}
    of_task: dict[str, list[Job]] = {}
    for job in row.jobs:
        of_task.setdefault(job.task, []).append(job)
    for task, jobs in of_task.items():
        sizes = {job.id: job_size(job) for job in jobs}
        todo = [job for job in jobs if states[job.id] == "todo"]
        rate = (seconds_per_flop(todo, device) if details else per_flop).get(task, 0.0)
        todo_flops = sum(sizes[job.id].flops for job in todo)
        parameters = [size.parameters for size in sizes.values()]
        cells[task] = {
            "task": task,
            "jobs": len(jobs),
            **{state: sum(states[job.id] == state for job in jobs) for state in ("done", "todo", "failed")},
            "least_parameters": min(parameters),
            "most_parameters": max(parameters),
            "steps": sum(size.steps for size in sizes.values()),
            "flops": sum(size.flops for size in sizes.values()),
            "todo_flops": todo_flops,
            "estimated_seconds": rate * todo_flops,
        } | (_details(jobs[0], micro_batch) if details else {})
    totals = {name: sum(cell[name] for cell in cells.values()) for name in _COUNTS}
    totals |= {"least_parameters": min(cell["least_parameters"] for cell in cells.values())}
    totals |= {"most_parameters": max(cell["most_parameters"] for cell in cells.values())}
    name = {
        "suite": row.protocol.suite.name,
        "row": row.name,
        "label": row.row.label,
        "changes": " ".join(row.row.changes),
    }
    return name | totals | {"tasks": list(cells.values())}


def _details(job: Job, micro_batch: int | None) -> dict[str, Any]:
    import torch

    from madbench.suites import LANGUAGE, suite_of
    from madbench.training.cost import counted_flops_per_token, job_size, peak_memory_bytes, usual_micro_batch
    from madbench.training.optimizer import parameter_groups

    size, suite = job_size(job), suite_of(job)
    usual = usual_micro_batch(size) if suite is LANGUAGE else size.sequences_per_step
    at_once = min(micro_batch or usual, size.sequences_per_step)
    with torch.device("meta"):
        model = suite.Trial.build(job)
    return {
        "flops_per_token": 3 * size.flops_per_token,
        "counted_flops_per_token": counted_flops_per_token(job),
        "micro_batch": at_once,
        "seq_len": size.seq_len,
        "memory_bytes": peak_memory_bytes(job, at_once),
        "parameter_groups": parameter_groups(model),
    }


def print_plan(experiment: Experiment, plan: dict[str, Any], by_task: bool = False) -> None:
    """The plan of :func:`make_plan` as tables: a line a row, or with ``by_task`` a line a row and task."""
    from rich.console import Console

    console = Console(highlight=False)
    for suite, totals in plan["suites"].items():
        rows = [row for row in plan["rows"] if row["suite"] == suite]
        cells = [{"row": row["row"]} | cell for row in rows for cell in row["tasks"]]
        lines = [_line(row, has_failed=plan["failed"] > 0) for row in (cells if by_task else rows)]
        console.print(TITLES.get(suite, suite))
        print_whole(console, plain_table(lines[:MOST_SHOWN], right=tuple(set(lines[0]) - {"row", "task"})))
        if len(lines) > MOST_SHOWN:
            console.print(f"and {len(lines) - MOST_SHOWN:,} more lines; --json has them all")
        seconds = duration(totals["estimated_seconds"])
        console.print(f"about {seconds} on {experiment.device} with {totals['slots']} at a time\n", **PLAIN)
        if "memory_bytes" in cells[0]:
            _print_details(console, cells)
    count = len(experiment.grid.rows)
    left = f", {plan['failed']} failed and left without --retry" if plan["failed"] else ""
    shared = sum(row["jobs"] for row in plan["rows"]) - plan["jobs"]
    common = f" {count_of_jobs(shared)} of several rows count{'s' * (shared == 1)} once." if shared else ""
    console.print(
        f"{count_of_jobs(plan['jobs'])} in {count} row{'s' * (count != 1)}: {plan['done']} done, {plan['todo']} to "
        f"do{left}.{common} Time is of what is to do, one job after the other in a row, estimated from a few steps, and "
        "less where runs stop early. FLOPs are of training, forward and backward, with the pairs that causality keeps. "
        "Parameters are the whole model's; madbench budget shows the mixer's.",
        markup=False,
    )


def _line(cell: dict[str, Any], has_failed: bool) -> dict[str, Any]:
    sizes = [quantity(cell[name]) for name in ("least_parameters", "most_parameters")]
    task = {"task": cell["task"]} if "task" in cell else {}
    counts = {"jobs": cell["jobs"], "done": cell["done"], "to do": cell["todo"]}
    failed = {"failed": cell["failed"]} if has_failed else {}
    return (
        {"row": cell["row"]}
        | task
        | counts
        | failed
        | {
            "parameters": " - ".join(dict.fromkeys(sizes)),
            "steps": quantity(cell["steps"]),
            "FLOPs": quantity(cell["flops"]),
            "time": duration(cell["estimated_seconds"]) if cell["todo"] else "-",
        }
    )


def _print_details(console: Console, cells: list[dict[str, Any]]) -> None:
    """FLOPs and memory of each row and task, and a table of parameters, a row a group and a column each of those."""
    is_one_task = len({cell["task"] for cell in cells}) == 1
    by_name = {cell["row"] if is_one_task else f"{cell['row']} {cell['task']}": cell for cell in cells}
    lines = [
        {
            "": name,
            "FLOPs/token": quantity(cell["flops_per_token"]),
            "dense": quantity(cell["counted_flops_per_token"]),
            "at a time": f"{cell['micro_batch']} x {cell['seq_len']}",
            "memory": f"{quantity(cell['memory_bytes'])}B",
        }
        for name, cell in by_name.items()
    ]
    print_whole(console, plain_table(lines, right=tuple(lines[0])[1:]))
    console.print(
        "FLOPs/token: of training; dense: as torch counts the dense path, all pairs. Memory is that of the tensors of a "
        "step with so many sequences and tokens at a time.\n"
    )
    counts = {
        name: {(group["group"], group["decays"]): group["parameters"] for group in cell["parameter_groups"]}
        for name, cell in by_name.items()
    }
    groups = dict.fromkeys(key for of_cell in counts.values() for key in of_cell)
    lines = [
        {"parameters": group, "weight decay": "yes" if decays else "no"}
        | {name: f"{of_cell.get((group, decays), 0):,}" for name, of_cell in counts.items()}
        for group, decays in groups
    ]
    totals = {name: f"{sum(of_cell.values()):,}" for name, of_cell in counts.items()}
    lines.append({"parameters": "all", "weight decay": ""} | totals)
    print_whole(console, plain_table(lines, right=tuple(counts)))
    console.print()
