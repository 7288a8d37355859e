"""The plan of an experiment for ``--dry-run``: jobs, parameters, FLOPs, memory and time."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from madbench.cli.shared.printing import PLAIN, count_text, first_of, print_lines, quantity, table_lines
from madbench.errors import ConfigError, TrainingError
from madbench.execute.base import Policy, duration
from madbench.execute.options import RunOptions
from madbench.execute.slots import HEADROOM, PROCESS_BYTES, JobBatch, choose_threads, makespan, plan_batches
from madbench.experiment import Experiment
from madbench.experiment.commands import option_words
from madbench.experiment.notes import note_on_groups
from madbench.jobs import Job
from madbench.labels.names import display_name, row_display_name, with_typed_labels
from madbench.rows import SuiteRow
from madbench.store.runs import Store
from madbench.suites import Suite, has_blocks, main_suite, size_of, suite_of
from madbench.suites.base import JobSize

MOST_SHOWN = 100  # the most printed lines of a table; the JSON has all
LONG = 600.0  # seconds of training above which the user is asked first
STATES = ("done", "todo", "failed")
LARGE_FLOPS = 1e18  # FLOPs of a job (most of an hour on a large GPU) from which a plan describes several GPUs
GPU, GPUS, SHARE = "NVIDIA H100 80GB HBM3", 8, 0.4  # a node, and the usual share of its peak in training
_ADDED = ("jobs", *STATES, "steps", "flops", "estimated_seconds")


def job_states(jobs: Sequence[Job], results: Path, policy: Policy) -> dict[str, str]:
    """The state of each job, by id: ``done``, ``todo`` or ``failed``.

    ``failed`` is a job that is stored as failed and that ``policy`` does not retry.
    """
    records = {}
    if (results / "runs").exists():
        records = Store.open(results, create=False).records(job.id for job in jobs)
    statuses = {job_id: record.status for job_id, record in records.items()}
    states = {None: "todo", "stored": "done", "failed": "failed"}
    return {job.id: states[policy.reason_to_skip(statuses.get(job.id))] for job in jobs}


def make_plan(
    experiment: Experiment,
    options: RunOptions,
    policy: Policy,
    console: Console,
    has_details: bool,
) -> dict[str, Any]:
    """The plan of an experiment: the cost of every row and task, and the estimated seconds of the jobs left to train.

    A few steps of each task are timed on this machine. With ``has_details`` a few steps of every row and task are
    timed, and memory, FLOPs counted by torch, and parameters by group are added. A label that this machine cannot run
    has no seconds; ``untimed`` maps it to the reason. ``console`` shows that the plan is being made.
    """
    states = job_states(experiment.jobs, experiment.results, policy)
    sizes = {job.id: size_of(job) for job in experiment.jobs}
    todo = [job for job in experiment.jobs if states[job.id] == "todo"]
    cells: list[dict[str, Any]] = []
    batches: list[dict[str, Any]] = []
    with console.status("counting, and timing a few steps") as status:
        untimed_reasons = _untimed_reasons(todo, sizes, experiment.device)
        jobs = _PlannedJobs(states, sizes, untimed_reasons, experiment.device, options.micro_batch, has_details)
        threads = choose_threads(todo, options.threads)
        for batch in plan_batches(experiment.jobs, experiment.device, options, todo, threads):
            together = {job.suite for job in batch.jobs}
            suites = [suite for suite in experiment.suites if suite.name in together]
            seconds: dict[str, float] = {}
            for suite in suites:
                of_suite, seconds_of_suite = jobs.cells(experiment.for_suite(suite), batch.threads, status)
                cells += of_suite
                seconds |= seconds_of_suite
            batches.append(_batch_content(batch, suites, seconds, experiment.device, options))
    counts = {state: list(states.values()).count(state) for state in STATES}
    total_seconds = sum(batch["estimated_seconds"] for batch in batches)
    notes = [*experiment.notes, *filter(None, [note_on_groups(experiment.jobs, options.group)])]
    totals = {"jobs": len(states), **counts, "estimated_seconds": total_seconds, "notes": notes}
    totals |= {"untimed": untimed_reasons}
    totals |= {"node": _node(sum(sizes[job.id].flops for job in todo))} if _has_large(todo) else {}
    return {"cells": cells, "batches": batches} | totals


def _untimed_reasons(jobs: Sequence[Job], sizes: Mapping[str, JobSize], device: str) -> dict[str, str]:
    """The labels that cannot be timed on ``device``: label to reason.

    Only the job with the most parameters is tried for each label. ``sizes`` has the size of each job, by id.
    """
    from madbench.training.cost import why_untimed

    largest = {job.label: job for job in sorted(jobs, key=lambda job: sizes[job.id].parameters)}
    return {label: reason for label, job in largest.items() if (reason := why_untimed(job, device))}


@dataclass(frozen=True)
class _PlannedJobs:
    """The jobs of a plan with their states and sizes. It counts jobs and estimates their time."""

    states: Mapping[str, str]
    """The state of each job, by id, from :func:`job_states`."""
    sizes: Mapping[str, JobSize]
    untimed_reasons: Mapping[str, str]
    """The reason why a label cannot be timed, by label, from :func:`_untimed_reasons`."""
    device: str
    micro_batch: int | None
    has_details: bool

    def cells(self, part: Experiment, threads: int, status: Status) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """The cells of a plan for one suite, one per row and task, and the seconds of its jobs by id.

        The seconds are estimates for the jobs that are left to train. ``part`` is the part of the experiment for the
        suite. The steps are timed with ``threads`` threads, and ``status`` shows which row is being timed.
        """
        from madbench.training.cost import seconds_per_flop

        rates_of = functools.partial(seconds_per_flop, device=self.device, threads=threads)
        timed_jobs = [job for job in self._todo(part.jobs) if job.label not in self.untimed_reasons]
        rates = {} if self.has_details else rates_of(timed_jobs)
        cells: list[dict[str, Any]] = []
        seconds: dict[str, float] = {}
        for row, jobs in _by_row_and_task(part):
            if row.row.label in self.untimed_reasons:
                cells.append(_cell(row, jobs, self.states, self.sizes, None))
                continue
            if self.has_details:  # an operator of many small steps takes a minute
                status.update(f"counting, and timing a few steps: {escape(with_typed_labels(row.name))}")
            todo = self._todo(jobs)
            rate = (rates_of(todo) if self.has_details else rates).get(jobs[0].task, 0.0)
            cell = _cell(row, jobs, self.states, self.sizes, rate)
            cells.append(cell | (_details(jobs[0], self.micro_batch) if self.has_details else {}))
            seconds |= {job.id: rate * self.sizes[job.id].flops for job in todo}
        return cells, seconds

    def _todo(self, jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if self.states[job.id] == "todo"]


def _batch_content(
    batch: JobBatch, suites: Sequence[Suite], seconds: Mapping[str, float], device: str, options: RunOptions
) -> dict[str, Any]:
    """The content of a plan for a batch of jobs that share slots: suites, slots, threads and estimated seconds.

    ``seconds`` has the time of each job that is left to train, by id.
    """
    at_once = min(batch.slots, max(1, len(seconds)))
    separate_slots = at_once  # slots that share no core and no GPU
    if device != "cpu" and any(suite.uses_all_cores for suite in suites):
        separate_slots = min(at_once, len(options.gpus or [""]))
    return {
        "suites": [suite.name for suite in suites],
        "slots": at_once,
        "threads": batch.threads,
        "text": batch.text(at_once),
        "estimated_seconds": makespan([seconds[job.id] for job in batch.jobs if job.id in seconds], separate_slots),
    }


def _has_large(jobs: Sequence[Job]) -> bool:
    """True if a job is so large that training it on several GPUs with torchrun is worthwhile."""
    return any(suite_of(job).uses_all_cores and size_of(job).flops > LARGE_FLOPS for job in jobs)


def _node(flops: float) -> dict[str, Any]:
    """The assumed training time on a node of ``GPUS`` GPUs in seconds, and torchrun commands for one node and for two.

    ``flops`` are those of all jobs. The GPUs are assumed to reach the share ``SHARE`` of their peak. The commands
    repeat the command line of this process.
    """
    from madbench.training.devices import peak_flops

    words = shlex.join(["-m", "madbench", *_training_words(sys.argv[1:])])
    several = f"--nnodes 2 --nproc-per-node {GPUS} --rdzv-backend c10d --rdzv-endpoint HOST:29500"
    commands = {"one": f"torchrun --nproc-per-node {GPUS} {words}", "two": f"torchrun {several} {words}"}
    peak = peak_flops(GPU, "bfloat16")
    assert peak is not None
    seconds = flops / (GPUS * SHARE * peak)
    return {"gpu": GPU, "gpus": GPUS, "share_of_peak": SHARE, "assumed_seconds": seconds, "commands": commands}


_PLAN_OPTIONS = ("--threads", "--slots", "--format", "-f")


def _training_words(words: Sequence[str]) -> list[str]:
    """The words of a ``--dry-run`` command without the options of a plan, so that they train.

    ``--yes`` is added for ``paper``, because under torchrun the user cannot be asked.
    """
    kept_words, skips = [], False
    for word in words:
        if not skips and word != "--dry-run" and word.partition("=")[0] not in _PLAN_OPTIONS:
            kept_words.append(word)
        skips = word in _PLAN_OPTIONS
    if kept_words[:1] == ["paper"] and not {"--yes", "-y"} & {*kept_words}:
        kept_words.append("--yes")
    return kept_words


def _by_row_and_task(part: Experiment) -> Iterator[tuple[SuiteRow, list[Job]]]:
    """Yield each row once per task, with the jobs of this row and task."""
    for row in part.rows:
        for task in dict.fromkeys(job.task for job in row.jobs):
            yield row, [job for job in row.jobs if job.task == task]


def _cell(
    row: SuiteRow,
    jobs: Sequence[Job],
    states: Mapping[str, str],
    sizes: Mapping[str, JobSize],
    seconds_per_flop: float | None,
) -> dict[str, Any]:
    """The cost of one row and task, whose jobs are ``jobs``.

    ``states`` and ``sizes`` have the state and the size of each job, by id. The estimated seconds are those of the jobs
    left to train, and None if ``seconds_per_flop`` is None.
    """
    flops_left = sum(sizes[job.id].flops for job in jobs if states[job.id] == "todo")
    cell: dict[str, Any] = {"suite": row.protocol.suite.name, "row": row.name, "label": row.row.label}
    cell |= {"changes": " ".join(map(str, row.row.changes)), "task": jobs[0].task, "jobs": len(jobs)}
    cell |= {state: sum(states[job.id] == state for job in jobs) for state in STATES}
    cell["learning_rates"] = sorted({job.training.learning_rate for job in jobs})
    return cell | {
        "parameters": sorted({sizes[job.id].parameters for job in jobs}),
        "steps": sum(sizes[job.id].steps for job in jobs),
        "flops": sum(sizes[job.id].flops for job in jobs),
        "estimated_seconds": None if seconds_per_flop is None else seconds_per_flop * flops_left,
    }


def _details(job: Job, micro_batch: int | None) -> dict[str, Any]:
    import torch

    from madbench.training.cost import counted_flops_per_token, peak_memory_bytes, sequences_at_once
    from madbench.training.optimizer import parameter_groups

    at_once = sequences_at_once(job, micro_batch)
    with torch.device("meta"):
        groups = parameter_groups(suite_of(job).Trial.build(job), job.fidelity)
    return {
        "flops_per_token": 3 * size_of(job).flops_per_token,
        "counted_flops_per_token": counted_flops_per_token(job),
        "micro_batch": at_once,
        "memory_bytes": peak_memory_bytes(job, at_once),
        "parameter_groups": groups,
    }


def print_plan(experiment: Experiment, plan: dict[str, Any], by_task: bool = False) -> None:
    """Print the plan that :func:`make_plan` returned: one line per row or, with ``by_task``, one per row and task."""
    console = Console(highlight=False)
    for batch in plan["batches"]:
        for suite in batch["suites"]:
            cells = [cell for cell in plan["cells"] if cell["suite"] == suite]
            lines = [_line(cell, plan["failed"] > 0) for cell in (cells if by_task else _rows(cells))]
            text = table_lines(lines, right=lines[0].keys() - {"row", "task"})
            print_lines(console, first_of(text, MOST_SHOWN + 2, "and {:,} more lines; -f json has them all"))
            console.print()
            if detailed_cells := [cell for cell in cells if "parameter_groups" in cell]:
                _print_groups(console, detailed_cells)
        if batch["estimated_seconds"] or not plan["untimed"]:
            seconds = duration(batch["estimated_seconds"])
            console.print(f"about {seconds} on {experiment.device} with {batch['text']}\n", **PLAIN)
    for label, reason in plan["untimed"].items():
        console.print(f"not timed here: {display_name(label)}: {reason}\n", **PLAIN)
    if node := plan.get("node"):
        hours, share = duration(node["assumed_seconds"]), f"{node['share_of_peak']:.0%} of their peak in bfloat16"
        console.print(f"{hours} if {node['gpus']} x {node['gpu']} reach {share} (assumed, not timed):", **PLAIN)
        console.print(f"  {node['commands']['one']}", **PLAIN)
        console.print("on each of two nodes (to resume, both need the same results folder):", **PLAIN)
        console.print(f"  {node['commands']['two']}\n", **PLAIN)
    failures = f", {plan['failed']} failed (--retry trains them again)" if plan["failed"] else ""
    shared = sum(cell["jobs"] for cell in plan["cells"]) - plan["jobs"]
    common = f" {count_text(shared, 'job')} shared by several rows counted once." if shared else ""
    console.print(
        f"{count_text(plan['jobs'], 'job')} in {count_text(len(experiment.grid.rows), 'row')}: {plan['done']} done, "
        f"{plan['todo']} to do{failures}.{common} time: jobs to do, one after the other, estimated from a few steps; "
        "less if a run stops early. FLOPs: training (forward and backward), without masked positions. params: the "
        f"whole model{_cost_advice(experiment)}. {_rates_text(plan['cells'])}",
        markup=False,
    )


def _cost_advice(experiment: Experiment) -> str:
    """A clause that names the command for the costs of the mixers. Empty if the models have no mixers."""
    protocol = experiment.protocol
    if not has_blocks(experiment.jobs[0]):
        return ""
    tasks = [] if protocol.suite is main_suite() else ["-t", protocol.suite.name]
    options = shlex.join([*option_words({"-p": protocol.profile_name}, experiment.grid.budget), *tasks])
    return f"; madbench explain --cost LABEL {options} shows ranks and parameters of the mixer"


def _rates_text(cells: Iterable[Mapping[str, Any]]) -> str:
    """A sentence with the learning rates of all rows, and with the tasks if the tasks have different rates."""
    rates_of_task: dict[str, set[float]] = {}
    for cell in cells:
        rates_of_task.setdefault(cell["task"], set()).update(cell["learning_rates"])
    tasks_of_rates: dict[str, list[str]] = {}
    for task, rates in rates_of_task.items():
        tasks_of_rates.setdefault(", ".join(f"{rate:g}" for rate in sorted(rates)), []).append(task)
    if len(tasks_of_rates) == 1:
        (rates_text,) = tasks_of_rates
        return f"Learning rate{'s' if ',' in rates_text else ''}: {rates_text}."
    parts = [f"{rates} ({', '.join(tasks)})" for rates, tasks in tasks_of_rates.items()]
    return f"Learning rates: {'; '.join(parts)}."


def _rows(cells: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Combine the entries of a plan, one per row and task, into one entry per row of the grid.

    Numbers of jobs, steps, FLOPs and estimated seconds are summed over the tasks. The seconds are None if those of a
    task are None. ``parameters`` lists the different parameter counts of all tasks.
    """
    rows: dict[str, dict[str, Any]] = {}
    for cell in cells:
        row = rows.setdefault(cell["row"], {"row": cell["row"], "parameters": []} | dict.fromkeys(_ADDED, 0))
        row["parameters"] = sorted({*row["parameters"], *cell["parameters"]})
        row |= {name: _sum(row[name], cell[name]) for name in _ADDED}
    return list(rows.values())


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second


def _line(cell: Mapping[str, Any], has_failed: bool) -> dict[str, Any]:
    names = [name for name in ("row", "task", "jobs", "todo") if name in cell]
    if has_failed:
        names.append("failed")
    sizes = [quantity(count) for count in (cell["parameters"][0], cell["parameters"][-1])]
    line = {name: cell[name] for name in names}
    line |= {"row": row_display_name(cell["row"]), "params": " - ".join(dict.fromkeys(sizes))}
    line |= {"steps": quantity(cell["steps"]), "FLOPs": quantity(cell["flops"])}
    is_timed = cell["todo"] and cell["estimated_seconds"] is not None
    line["time"] = duration(cell["estimated_seconds"]) if is_timed else "-"
    if "memory_bytes" in cell:
        line["FLOPs/token"] = quantity(cell["flops_per_token"])
        line["dense"] = quantity(cell["counted_flops_per_token"])
        line["memory"] = f"{quantity(cell['memory_bytes'])}B"
    return line


def _print_groups(console: Console, cells: Sequence[Mapping[str, Any]]) -> None:
    """Print the numbers of parameters in the optimizer's groups: one line per row, task and group."""
    lines = []
    for cell in cells:
        groups = cell["parameter_groups"]
        name = {"row": row_display_name(cell["row"]), "task": cell["task"]}
        for group in [*groups, {"group": "all", "parameters": sum(group["parameters"] for group in groups)}]:
            decays = {True: "yes", False: "no"}.get(group.get("decays"), "")
            lines.append(
                name | {"parameters": group["group"], "count": f"{group['parameters']:,}", "weight decay": decays}
            )
            name = {"row": "", "task": ""}
    print_lines(console, table_lines(lines, right=("count",)))
    at_once = ", ".join(sorted({str(cell["micro_batch"]) for cell in cells}))
    console.print(
        "FLOPs/token: training; dense: counted by torch for the dense path, all pairs of tokens. memory: tensors of "
        f"{at_once} sequences at a time. A process on a CPU takes about {HEADROOM} times as much plus "
        f"{PROCESS_BYTES / 1e9} GB.\n"
    )


def ask_before_long(experiment: Experiment, options: RunOptions, policy: Policy) -> None:
    """Ask the user before a training of more than ``LONG`` seconds, as estimated from a few timed steps.

    Raises ``ConfigError`` if the training is long and the input is not a terminal, and ``TrainingError`` if a label
    cannot be trained here. Exits if the user declines.
    """
    states = job_states(experiment.jobs, experiment.results, policy)
    todo = sum(state == "todo" for state in states.values())
    if not todo:
        return
    console = Console(stderr=True)
    plan = make_plan(experiment, options, policy, console, has_details=False)
    for reason in plan.get("untimed", {}).values():  # this label would fail during the training
        raise TrainingError(reason)
    seconds = plan["estimated_seconds"]
    if seconds <= LONG:
        return
    text = f"{count_text(todo, 'job')} to train, about {duration(seconds)}"
    if not sys.stdin.isatty():
        raise ConfigError(f"{text}: give --yes to train them without being asked")
    typer.confirm(f"{text}. Train them?", abort=True, err=True)
