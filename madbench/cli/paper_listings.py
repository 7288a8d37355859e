"""The papers and what each holds, for ``madbench paper`` without an item."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from madbench.cli.options import warn
from madbench.cli.plan import job_states
from madbench.cli.print_options import PrintOptions
from madbench.cli.printing import PLAIN, counted, duration, in_words, print_json, print_lines, table_lines
from madbench.execute.base import Policy
from madbench.papers import Item, Paper, loaded_papers
from madbench.papers.making import STATES, Request, command_of, jobs_of, remembered
from madbench.papers.shipped import archive_names, shipped_state


def _states(paper: Paper, item: Item, results: Path) -> dict[str, str]:
    """By size of a run the state that the item had when it was made here."""
    return {size: entry["state"] for size, entry in remembered(Request(paper, item, results=results)).items()}


def _row(paper: Paper, item: Item, results: Path) -> dict[str, Any]:
    """One line of an item: its state, jobs, cost and command."""
    entries = remembered(Request(paper, item, results=results))
    states = {size: entry["state"] for size, entry in entries.items()}
    row: dict[str, Any] = {"item": item.id, "kind": item.kind, "place": item.place, "title": item.title}
    made = [f"{state} ({size})" if item.profiles else state for size, state in states.items()]
    row |= {"state": "; ".join(made) or shipped_state(paper, item) or "not run", "is_shipped": not made}
    runs = [name for entry in entries.values() for name in entry.get("runs", ())]
    row["runs"] = list(dict.fromkeys(runs)) if made else archive_names(item)
    row |= {"command": command_of(paper, item), "sizes": list(item.profiles), "needs": item.needs}
    row |= {"availability": item.availability, "arithmetic": item.arithmetic, "note": item.note}
    jobs = jobs_of(Request(paper, item, results=results))
    stored = [*job_states(jobs, results, Policy()).values()].count("done")
    left = 1 - stored / max(1, len(jobs))
    row |= {"jobs": len(jobs), "stored": stored, "seconds": item.seconds and item.seconds * left}
    return row if item.is_made_here else row | {"state": item.needs.partition(":")[0].lower()}


def print_papers(results: Path, printed: PrintOptions) -> None:
    """Prints a line per paper: the numbers of its items by state; items of arithmetic are counted apart."""
    papers, problems = loaded_papers()
    lines = []
    for name, paper in papers.items():
        own = [(item, state) for item in paper.items for state in [*_states(paper, item, results).values()][:1]]
        here = [item for item, _ in own]
        shipped = [(item, shipped_state(paper, item).partition(" (")[0]) for item in paper.items if item not in here]
        shipped = [(item, state) for item, state in shipped if state]
        made = [*own, *shipped]
        states = Counter(state for item, state in made if not item.arithmetic)
        line = {"paper": name, "title": paper.title, "items": len(paper.items), "made": len(own)}
        line["shipped"] = len(shipped)
        line |= {state: states[state] for state in STATES}
        arithmetic = Counter(state for item, state in made if item.arithmetic)
        line["arithmetic"] = ", ".join(f"{count} {state}" for state, count in arithmetic.items())
        lines.append(line | {"not run": sum(item.is_made_here for item in paper.items) - len(made)})
        lines[-1]["not made here"] = sum(not item.is_made_here for item in paper.items)
    if printed.asked == "json":
        print_json({"papers": lines, "problems": dict(problems)})
        return
    print_lines(Console(highlight=False), table_lines(lines, right=[*lines[0]][2:] if lines else ()))
    for problem in problems.values():
        warn(problem)


def print_items(paper: Paper, results: Path, printed: PrintOptions) -> None:
    """Prints the items of a paper with their states, stored jobs, cost and command; or why one is not made here."""
    with Console(stderr=True).status("looking at what is stored"):  # plans the jobs of every item
        rows = [_row(paper, item, results) for item in paper.items]
    if printed.asked == "json":
        print_json({"paper": paper.name, "title": paper.title, "source": paper.source, "items": rows})
        return
    console = Console(highlight=False)
    console.print(f"[bold]{paper.title}[/bold] [dim]{paper.source}[/dim]")
    for row in rows:
        heading = f"{row['item']}  {row['title']} ({row['place']})"
        console.print(in_words(heading, console), style="bold", **PLAIN)
        jobs = [f"{row['stored']} of {counted(row['jobs'], 'job')} stored"] * bool(row["jobs"])
        cost = [f"about {duration(row['seconds'])}"] if row["seconds"] else []
        kind = ["arithmetic"] * row["arithmetic"]
        state = row["state"] + ", shipped" * (row["is_shipped"] and row["state"] != "not run")
        state += f", by {', '.join(row['runs'])}" * bool(row["runs"])
        status = " | ".join([row["availability"], *kind, state, *jobs, *cost]) if row["command"] else row["needs"]
        console.print(in_words(status, console, indent=4), **PLAIN)
        if row["command"]:
            console.print(f"    {row['command']}", **PLAIN)
        if row["note"]:
            console.print(in_words(row["note"], console, indent=4), **PLAIN)
