"""The lists of papers and of their items, for ``madbench paper`` without an item."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from madbench.cli.shared.options import warn
from madbench.cli.shared.plan import job_states
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import (
    PLAIN,
    count_text,
    in_words,
    print_json,
    print_lines,
    print_text_table,
    table_lines,
)
from madbench.execute.base import Policy, duration
from madbench.papers import EVIDENCE, Item, Paper, loaded_papers
from madbench.papers.making import (
    CONTRADICTED,
    DIFFERS,
    FAILS,
    OPEN,
    PARTLY,
    REPRODUCED,
    SMALL,
    STATES,
    Request,
    command_of,
    jobs_of,
    stored_verdicts,
)
from madbench.papers.shipped import archive_names, shipped_state

NOT_RUN, NOT_MADE = "not run", "not made here"
"""The states of items without a verdict: those that madbench can make but has not made yet, and those that it cannot
make."""

LEGEND = {
    REPRODUCED: "our measurement agrees with the paper, by the item's rule",
    CONTRADICTED: "our measurement disagrees with the paper, by the item's rule",
    OPEN: "our measurement decides neither way, often for few seeds",
    PARTLY: "only parts of the item are made, and all are reproduced",
    SMALL: "contradicted by smaller models than the paper's: no verdict",
    FAILS: "an operator of madbench is wrong: no verdict on the paper",
    DIFFERS: "settings differ from the paper's: no verdict on the paper",
    "made": "nothing to decide, or its claims are judged one by one",
    NOT_RUN: "the command exists and has not run here",
    NOT_MADE: "needs what madbench lacks; madbench paper NAME says what",
}
"""The meanings of the states of items, in the order in which the overview of papers explains them."""


def _states(paper: Paper, item: Item, results: Path) -> dict[str, str]:
    """The states that an item got when it was made on this machine: size (``quick`` or ``full``) to state.

    Empty if the item was not made here.
    """
    return {size: entry["state"] for size, entry in stored_verdicts(Request(paper, item, results=results)).items()}


def _row(paper: Paper, item: Item, results: Path) -> dict[str, Any]:
    """The row of an item in the list of a paper's items, in the form of ``madbench paper PAPER -f json``.

    It has, among others, the state of the item, its command, the numbers of its jobs and of its stored jobs, and the
    estimated seconds of training the other jobs.
    """
    entries = stored_verdicts(Request(paper, item, results=results))
    row: dict[str, Any] = {"item": item.id, "kind": item.kind, "place": item.place, "title": item.title}
    state_texts = []
    for size, entry in entries.items():
        notes = ", ".join(filter(None, [size if item.profiles else "", entry.get("note", "")]))
        state_texts.append(f"{entry['state']} ({notes})" if notes else entry["state"])
    row |= {"state": "; ".join(state_texts) or shipped_state(paper, item) or NOT_RUN, "is_shipped": not state_texts}
    runs = [name for entry in entries.values() for name in entry.get("runs", ())]
    row["runs"] = list(dict.fromkeys(runs)) if state_texts else archive_names(item)
    row |= {"command": command_of(paper, item), "sizes": list(item.profiles), "needs": item.needs}
    row |= {"availability": item.availability, "arithmetic": item.arithmetic, "note": item.note}
    row |= {"fewer_seeds": item.fewer_seeds}
    jobs = jobs_of(Request(paper, item, results=results))
    stored_count = [*job_states(jobs, results, Policy()).values()].count("done")
    missing_share = 1 - stored_count / max(1, len(jobs))
    row |= {"jobs": len(jobs), "stored": stored_count, "seconds": item.seconds and item.seconds * missing_share}
    return row if item.is_made_here else row | {"state": item.needs.partition(":")[0].lower()}


def print_papers(results: Path, print_options: PrintOptions) -> None:
    """Print one row per paper: for each state, such as ``reproduced``, the number of items by kind of evidence."""
    from madbench.analysis.rendering import Listing

    papers, problems = loaded_papers()
    contents, lines = [], []
    shown_states: set[str] = set()
    for name, paper in papers.items():
        counts: dict[str, Counter[str]] = {}
        made_count = shipped_count = 0
        for item in paper.items:
            local_states = [*_states(paper, item, results).values()][:1]
            shipped_states = [shipped_state(paper, item)] if item.is_made_here and not local_states else []
            made_count, shipped_count = made_count + len(local_states), shipped_count + any(shipped_states)
            first_state = next(
                filter(None, [*local_states, *shipped_states]), NOT_RUN if item.is_made_here else NOT_MADE
            )
            state = first_state.partition(" (")[0]
            counts.setdefault(state, Counter())[item.evidence] += 1
        states = [state for state in dict.fromkeys([*STATES, *counts]) if state in counts or state in STATES[:3]]
        states.sort(key=(NOT_RUN, NOT_MADE).__contains__)
        content = {
            "paper": name,
            "title": paper.title,
            "items": len(paper.items),
            "made": made_count,
            "shipped": shipped_count,
        }
        lines.append([name, *("" for _ in EVIDENCE)])
        shown_states.update(states)
        for state in states:
            of_state = counts.get(state, Counter())
            lines.append([f"  {state}", *(str(of_state[kind] or "") for kind in EVIDENCE)])
        contents.append(content | {"states": counts})
    if print_options.format == "json":
        print_json({"papers": contents, "problems": dict(problems)})
        return
    caption = (
        "Number of items of each paper by state. Operator: identities and counts of our operator, without training;"
        " trained: decided by trained models; arithmetic: only a formula or printed numbers."
        " madbench paper NAME lists the items."
    )
    headings = ["Paper", *(kind.capitalize() for kind in EVIDENCE)]
    print_text_table(
        Listing(contents, headings, lines, contents, caption, "", "tab:papers"), replace(print_options, notes=True)
    )
    if print_options.format == "terminal":
        legend = [{"State": state, "Meaning": text} for state, text in LEGEND.items() if state in shown_states]
        console = Console(highlight=False)
        console.print()
        print_lines(console, table_lines(legend, width=console.width))
    for problem in problems.values():
        warn(problem)


def print_items(paper: Paper, results: Path, print_options: PrintOptions) -> None:
    """Print each item of a paper: its state, stored jobs, cost and command, or why madbench cannot make it."""
    with Console(stderr=True).status("looking at what is stored"):  # plans the jobs of every item
        rows = [_row(paper, item, results) for item in paper.items]
    if print_options.format == "json":
        print_json({"paper": paper.name, "title": paper.title, "source": paper.source, "items": rows})
        return
    console = Console(highlight=False)
    console.print(f"[bold]{paper.title}[/bold] [dim]{paper.source}[/dim]")
    for row in rows:
        heading = f"{row['item']}  {row['title']} ({row['place']})"
        console.print(in_words(heading, console), style="bold", **PLAIN)
        jobs = [f"{row['stored']} of {count_text(row['jobs'], 'job')} stored"] if row["jobs"] else []
        cost = [f"about {duration(row['seconds'])}"] if row["seconds"] else []
        kind, state = ["arithmetic"] if row["arithmetic"] else [], row["state"]
        if row["is_shipped"] and state != NOT_RUN:
            state += ", shipped"
        if row["runs"]:
            state += f", by {', '.join(row['runs'])}"
        status = " | ".join([row["availability"], *kind, state, *jobs, *cost]) if row["command"] else row["needs"]
        console.print(in_words(status, console, indent=4), **PLAIN)
        if row["command"]:
            console.print(f"    {row['command']}", **PLAIN)
        if row["note"]:
            console.print(in_words(row["note"], console, indent=4), **PLAIN)
