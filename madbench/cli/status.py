from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import RESULTS, JsonOption, ResultsOption
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from madbench.execute.journal import RecordedSweep

ENDED = 3
"""Sweeps shown that have ended."""
FAILURES = 10
"""Failures shown of one sweep."""
SILENT = 60.0
"""Seconds without an event after which a sweep is shown as silent."""

_ENDINGS = {"died": "it died", "error": "not all was done", "interrupted": "it was interrupted"}


def status(
    results: ResultsOption = RESULTS,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every second until all sweeps finish.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a results folder's sweeps, from another terminal or machine.

    Of each running sweep, and of the last three that ended: jobs done, rate, time
    left, what is running, and what failed and why. One that was killed resumes
    when its command is given again. The commands run, lm and sweep write what is
    read here to RESULTS/sweeps.

    [bold]Examples[/bold]

      madbench status
      madbench status --results /data/runs --watch
      madbench status --json
    """
    import json

    from rich.console import Console

    from madbench.errors import StoreError
    from madbench.execute.journal import RecordedSweeps

    console = Console(highlight=False)
    if watch and as_json:
        raise ConfigError("--watch has no effect with --json; give one of the two")
    if watch and not console.is_terminal:
        raise ConfigError("--watch has no effect where the output is no terminal")
    if not results.exists():
        raise StoreError(f"{results}: there is no such results folder")
    if as_json:
        print(json.dumps([_content(sweep) for sweep in RecordedSweeps(results).read(ENDED)], indent=2))
    elif watch:
        _watch(results, console)
    else:
        for part in _parts(RecordedSweeps(results).read(ENDED), results, console.width, height=None):
            console.print(part, soft_wrap=isinstance(part, str), markup=False)


def _watch(results: Path, console: Console) -> None:
    import time
    from contextlib import suppress

    from rich.console import Group
    from rich.live import Live

    from madbench.execute.journal import RecordedSweeps

    journals = RecordedSweeps(results)
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            sweeps = journals.read(ENDED)
            live.update(Group(*_parts(sweeps, results, console.width, console.height - 1)), refresh=True)
            if not any(sweep.is_alive for sweep in sweeps):
                return
            time.sleep(1)


def _parts(sweeps: list[RecordedSweep], results: Path, width: int, height: int | None) -> list[RenderableType]:
    """The screen from top to bottom; where it is refreshed, at most ``height`` lines of it, running sweeps come first."""
    from rich.text import Text

    if not sweeps:
        return [f"{results}: no sweep is recorded here; madbench run, lm and sweep record theirs"]
    parts: list[RenderableType] = []
    running = sum(sweep.is_alive for sweep in sweeps)
    for sweep in sweeps if height is None else sorted(sweeps, key=lambda sweep: not sweep.is_alive):
        if parts:
            parts.append("")
        if sweep.problem:
            parts.append(f"damaged  {sweep.problem}")
        else:
            room = None if height is None else max(4, height // max(1, running) - 5)
            parts += _sweep_parts(sweep, results, width, room)
    if height is None:
        return parts
    return [Text(part, no_wrap=True, overflow="ellipsis") if isinstance(part, str) else part for part in parts]


def _sweep_parts(sweep: RecordedSweep, results: Path, width: int, room: int | None) -> list[RenderableType]:
    from madbench.cli.sweep_view import view
    from madbench.cli.text import count_of_jobs, duration

    def name(job_id: str) -> str:
        job = sweep.jobs.get(job_id, {})
        return f"{job.get('label')} {job.get('task')} seed {job.get('seed')}"

    plan, tally = sweep.plan, sweep.tally
    parts: list[RenderableType] = [
        f"{sweep.state:<11} {plan['command']}",
        f"{count_of_jobs(tally.total)}, {plan['title']}; since {plan['started']}, {plan['host']} {plan['pid']}",
    ]
    if sweep.is_alive:
        parts.append(view(tally, name, width, room or len(tally.running) + 1))
        if sweep.silent_seconds > SILENT:
            parts.append(f"no event for {duration(sweep.silent_seconds)}")
    parts.append(", ".join(f"{count} {what}" for what, count in _counts(sweep).items()))
    if sweep.state == "error":
        parts.append(f"it ended with an error: {sweep.ended.get('error')}")
    if sweep.state in _ENDINGS:
        stored = {path.name for path in (results / "runs").glob("*")}
        if left := len(tally.open - stored):
            parts.append(f"{_ENDINGS[sweep.state]}, {count_of_jobs(left)} left: the same command resumes")
            parts.append(f"  cd {plan['folder']} && {plan['command']}")
        else:
            parts.append("all its jobs are in the store by now")
    failures = [(job, reason) for job, reason in tally.failures if job in sweep.jobs]
    parts += [f"  failed: {name(job)}: {reason}" for job, reason in failures[:FAILURES]]
    if len(failures) > FAILURES:
        parts.append(f"  and {len(failures) - FAILURES} more failed; madbench status --json has them all")
    return parts


def _counts(sweep: RecordedSweep) -> dict[str, int]:
    """Jobs by outcome, without the outcomes of none."""
    tally = sweep.tally
    running = len(tally.open.intersection(tally.running))
    counts = {
        "finished": tally.counts["finished"],
        "diverged": tally.counts["diverged"],
        "failed": tally.counts["failed"],
        "already in the store": tally.counts["stored"],
        "failed before and not retried": tally.counts["failed before"],
        "left to another process": tally.counts["busy"],
        "running": running,
        "waiting" if sweep.is_alive else "not done": len(tally.open) - running,
    }
    return {what: count for what, count in counts.items() if count}


def _content(sweep: RecordedSweep) -> dict[str, Any]:
    if sweep.problem:
        return {"state": "damaged", "error": sweep.problem}
    tally = sweep.tally

    def named(job_id: str) -> dict[str, Any]:
        return {key: sweep.jobs.get(job_id, {}).get(key) for key in ("label", "task", "seed")} | {"id": job_id}

    hidden = {"event", "slot", "job", "time", "seconds"}
    return {
        "name": sweep.path.stem,
        "state": sweep.state,
        **sweep.plan,
        "total": tally.total,
        "done": tally.done,
        "counts": _counts(sweep),
        "jobs_per_minute": tally.jobs_per_minute(),
        "seconds_left": tally.seconds_left() if sweep.is_alive else None,
        "seconds": tally.seconds,
        "slots": [
            {"slot": running.slot, **named(job), "fraction": running.fraction}
            | {key: value for key, value in running.line.items() if key not in hidden}
            for job, running in sorted(tally.running.items(), key=lambda item: (item[1].slot is None, item[1].slot))
        ],
        "failures": [named(job) | {"reason": reason} for job, reason in tally.failures],
    }
