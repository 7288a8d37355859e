"""What ``madbench sweep --dry-run`` shows: a line a row of the grid, with jobs, parameters, FLOPs and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from madbench.cli.plan import job_states, mad_cells
from madbench.cli.tables import PLAIN, plain_table, print_whole
from madbench.cli.text import count_of_jobs, duration, quantity

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.execute.base import Policy
    from madbench.sweep_experiment import RowOf, Sweep

MOST_SHOWN = 100
"""Rows of a table that a person reads; the JSON has all."""


def sweep_plan(sweep: Sweep, slots: int | None, policy: Policy, console: Console) -> dict[str, Any]:
    """Rows with their jobs and cost, those of the MAD tasks also by task; the time is that of what is to do."""
    states = job_states(sweep.jobs, sweep.results, policy)
    plan: dict[str, Any] = {"rows": []}
    if sweep.mad:
        plan |= _mad_plan(sweep, states, slots, console)
    if sweep.language:
        plan["language_model"] = _language_plan(sweep, states, slots, console)
    counts = {state: list(states.values()).count(state) for state in ("done", "todo", "failed")}
    return plan | {"jobs": len(states), **counts, "notes": sweep.notes}


def _mad_plan(sweep: Sweep, states: dict[str, Any], slots: int | None, console: Console) -> dict[str, Any]:
    from madbench.training.cost import job_cost, seconds_per_flop
    from madbench.training.devices import default_slots

    missing = list({job.id: job for row in sweep.mad for job in row.jobs if states[job.id] == "todo"}.values())
    slots = min(slots or default_slots(sweep.device), max(1, len(missing)))
    with console.status("counting, and timing a few steps of each task"):
        per_flop = seconds_per_flop(missing, sweep.device)
        cells = mad_cells({row.row.name: row.jobs for row in sweep.mad}, states)
    rows = []
    for row in sweep.mad:
        of_row = [cell for cell in cells if cell["row"] == row.row.name]
        sizes = [cell["model_parameters"] for cell in of_row]
        seconds = sum(cell["todo_flops"] * per_flop.get(cell["task"], 0) for cell in of_row)
        totals = {name: sum(cell[name] for cell in of_row) for name in ("steps", "flops", "todo_flops")}
        sizes = {"least_parameters": min(sizes), "most_parameters": max(sizes)}
        rows.append(_counts(row, states) | sizes | totals | {"estimated_seconds": seconds, "tasks": of_row})
    seconds = sum(per_flop[job.task] * job_cost(job).flops for job in missing) / slots
    return {"rows": rows, "slots": slots, "estimated_seconds": seconds}


def _language_plan(sweep: Sweep, states: dict[str, Any], slots: int | None, console: Console) -> dict[str, Any]:
    """The time of a run is measured once an experiment, on the row of the fewest FLOPs that has something to do."""
    from madbench.training.language_cost import estimate_seconds, language_cost

    rows, seconds, per_flop = [], 0.0, {}
    with console.status("counting, and timing a few steps"):
        costs = [language_cost(row.jobs[0]) for row in sweep.language]
        by_cost = sorted(zip(sweep.language, costs), key=lambda pair: pair[1].flops)
        for row, cost in by_cost:
            is_todo = any(states[job.id] == "todo" for job in row.jobs)
            if is_todo and id(row.experiment) not in per_flop:
                per_flop[id(row.experiment)] = sum(estimate_seconds(row.jobs[0], sweep.device)) / cost.flops
    for row, cost in zip(sweep.language, costs):
        counts = _counts(row, states)
        of_row = counts["todo"] * cost.flops * per_flop.get(id(row.experiment), 0)
        seconds += of_row
        sizes = {"least_parameters": cost.parameters, "most_parameters": cost.parameters}
        flops = {"flops": cost.flops * counts["jobs"], "todo_flops": cost.flops * counts["todo"]}
        rows.append(counts | sizes | flops | {"memory_bytes": cost.memory_bytes, "estimated_seconds": of_row})
    return {"rows": rows, "slots": slots or 1, "estimated_seconds": seconds}


def _counts(row: RowOf, states: dict[str, Any]) -> dict[str, Any]:
    of_row = [states[job.id] for job in row.jobs]
    counts = {state: of_row.count(state) for state in ("done", "todo", "failed")}
    name = {"row": row.row.name, "label": row.row.label, "changes": " ".join(row.row.changes)}
    return name | {"jobs": len(of_row)} | counts


def print_sweep_plan(sweep: Sweep, plan: dict[str, Any]) -> None:
    """The plan of :func:`sweep_plan` as tables."""
    from rich.console import Console

    console = Console(highlight=False)
    halves = {"MAD tasks": plan, "Language model": plan.get("language_model", {"rows": []})}
    for title, half in halves.items():
        if not half["rows"]:
            continue
        shown = [_line(row) for row in half["rows"][:MOST_SHOWN]]
        if not any(row["failed"] for row in half["rows"]):
            shown = [{name: value for name, value in row.items() if name != "failed"} for row in shown]
        console.print(title)
        print_whole(console, plain_table(shown, right=tuple(shown[0])[1:]))
        if len(half["rows"]) > MOST_SHOWN:
            console.print(f"and {len(half['rows']) - MOST_SHOWN:,} more rows; --json has them all")
        console.print(
            f"about {duration(half['estimated_seconds'])} on {sweep.device} with {half['slots']} at a time\n", **PLAIN
        )
    rows = len(sweep.grid.rows)
    left = f", {plan['failed']} failed and left without --retry" if plan["failed"] else ""
    shared = sum(row["jobs"] for half in halves.values() for row in half["rows"]) - plan["jobs"]
    common = f" {count_of_jobs(shared)} of several rows count{'s' * (shared == 1)} once." if shared else ""
    console.print(
        f"{count_of_jobs(plan['jobs'])} in {rows} row{'s' * (rows != 1)}: {plan['done']} done, {plan['todo']} to "
        f"do{left}.{common} The baseline is the first row. Time is of what is to do, a row's jobs one after the other, "
        "from a few steps of the smallest job of each task, and less where runs stop early. Parameters are the whole "
        "model's, which depend on the task; madbench budget shows the mixer's.",
        markup=False,
    )


def _line(row: dict[str, Any]) -> dict[str, Any]:
    sizes = [quantity(row[name]) for name in ("least_parameters", "most_parameters")]
    return {
        "row": row["row"],
        "jobs": row["jobs"],
        "done": row["done"],
        "to do": row["todo"],
        "failed": row["failed"],
        "parameters": " - ".join(dict.fromkeys(sizes)),
        "FLOPs": quantity(row["flops"]),
        "time": duration(row["estimated_seconds"]) if row["todo"] else "-",
    }
