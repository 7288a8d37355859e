"""The output of ``madbench paper``: the result of an item, and the jobs of an item that would be trained."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from madbench.cli.shared.plan import job_states
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import (
    PLAIN,
    count_text,
    in_words,
    print_json,
    print_lines,
    print_text_table,
    quantity,
    table_lines,
)
from madbench.execute.base import Policy
from madbench.experiment import Experiment
from madbench.labels.names import display_name
from madbench.papers.making import ItemResult, Request, state_of, statement_verdict
from madbench.suites import size_of


def print_jobs(experiment: Experiment, policy: Policy, print_options: PrintOptions) -> None:
    """Print the jobs of an experiment whose steps cannot be timed: one line per row, with sizes but no times."""
    states = job_states(experiment.jobs, experiment.results, policy)
    todo = {job_id for job_id, state in states.items() if state == "todo"}
    lines = []
    for row in experiment.rows:
        size, job = size_of(row.jobs[0]), row.jobs[0]
        line = {"task": job.task, "row": row.row.name_suffix, "jobs": len(row.jobs)}
        line |= {"to do": sum(job.id in todo for job in row.jobs), "parameters": size.parameters, "steps": size.steps}
        lengths = ",".join(map(str, job.setting.get("test_lengths", ())))
        lines.append(line | {"FLOPs": quantity(size.flops), "tests at L": lengths})
    if print_options.format == "json":
        print_json(lines)
        return
    console = Console(highlight=False)
    for line, row in zip(lines, experiment.rows):
        line["row"] = row.row.name_suffix.replace(row.row.label, display_name(row.row.label), 1)
    print_lines(console, table_lines(lines, right=("jobs", "to do", "parameters", "steps", "FLOPs")))
    console.print(f"{count_text(len(experiment.jobs), 'job')}, {len(todo)} to do. FLOPs are of one run.", **PLAIN)


def print_made(
    request: Request, decision: ItemResult, files: list[Path], print_options: PrintOptions, note: str = ""
) -> None:
    """Print ``decision``, the result of an item: tables and, on a terminal, verdicts, state and paths of its figures.

    With the format JSON, one document has the content, the state, the verdicts and the paths. ``files`` are the paths
    of the figures. ``note`` is a remark that
    is printed with each verdict.
    """
    if print_options.format == "json":
        content = {
            **decision.content,
            "state": state_of(request, decision),
            "verdicts": dict(decision.verdicts),
            "note": note,
        }
        print_json(content | {"figures": list(map(str, files))})
        return
    for i, table in enumerate(decision.tables):
        print()
        print_text_table(table, print_options, i)
    if print_options.format == "terminal":
        console = Console(highlight=False)
        console.print()
        if decision.heading:
            console.print(in_words(decision.heading, console), **PLAIN)
        for statement, verdict in decision.verdicts.items():
            note_text = f" ({note})" if note else ""
            console.print(in_words(f"{statement_verdict(request, verdict)}{note_text}: {statement}", console), **PLAIN)
            if statement in decision.remarks:
                console.print(in_words(decision.remarks[statement], console, indent=4), **PLAIN)
        if decision.verdicts:
            console.print(f"{request.paper.name} {request.item.id}: {state_of(request, decision)}", **PLAIN)
        console.print(*files, sep="\n", **PLAIN)
