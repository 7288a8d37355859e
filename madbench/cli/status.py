from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import RESULTS, JsonOption, ResultsOption
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from madbench.execute.journal_reader import DamagedJournalError, Sweep

ENDED = 3
"""Sweeps shown that have ended."""
FAILURES = 10
"""Failures shown of one sweep."""
SILENT = 60.0
"""Seconds without a word after which a sweep is said to be silent."""


def status(
    results: ResultsOption = RESULTS,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it anew every second until no sweep is at work.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say how far the sweeps of a results folder are, from another terminal or another machine.

    Of each sweep at work, and of the last three that ended: jobs done, rate,
    time left, what every slot does, and what failed and why. One that was killed
    goes on when its command is given again. Whoever trains writes what is read
    here to RESULTS/sweeps; only the commands run, lm and sweep do.

    [bold]Examples[/bold]

      madbench status
      madbench status --results /data/runs --watch
      madbench status --json
    """
    import json

    from rich.console import Console

    from madbench.errors import StoreError
    from madbench.execute.journal_reader import Sweeps

    console = Console(highlight=False)
    if watch and as_json:
        raise ConfigError("--watch has no effect with --json; give one of the two")
    if watch and not console.is_terminal:
        raise ConfigError("--watch has no effect where the output is no terminal")
    if not results.exists():
        raise StoreError(f"{results}: there is no such results folder")
    if as_json:
        print(json.dumps([_content(sweep) for sweep in Sweeps(results).read(ENDED)], indent=2))
    elif watch:
        _watch(results, console)
    else:
        for part in _parts(list(Sweeps(results).read(ENDED)), results, console.width, height=None):
            console.print(part, soft_wrap=isinstance(part, str), markup=False)


def _watch(results: Path, console: Console) -> None:
    import time

    from rich.console import Group
    from rich.live import Live

    from madbench.execute.journal_reader import Sweeps

    journals = Sweeps(results)
    sweeps: list[Sweep | DamagedJournalError] = []

    def screen() -> RenderableType:
        sweeps[:] = journals.read(ENDED)
        return Group(*_parts(sweeps, results, console.width, console.height - 1))

    try:
        with Live(screen(), console=console, auto_refresh=False) as live:
            while any(getattr(sweep, "is_alive", False) for sweep in sweeps):
                time.sleep(1)
                live.update(screen(), refresh=True)
    except KeyboardInterrupt:
        pass


def _parts(
    sweeps: list[Sweep | DamagedJournalError], results: Path, width: int, height: int | None
) -> list[RenderableType]:
    """The screen from top to bottom; on a terminal that is looked at again and again, sweeps at work come first."""
    from rich.text import Text

    if not sweeps:
        return [f"{results}: no sweep is recorded here; madbench run, lm and sweep record theirs"]
    parts: list[RenderableType] = []
    alive = [sweep for sweep in sweeps if getattr(sweep, "is_alive", False)]
    for sweep in sweeps if height is None else [*alive, *(sweep for sweep in sweeps if sweep not in alive)]:
        if parts:
            parts.append("")
        if isinstance(sweep, Exception):
            parts.append(f"damaged  {sweep}")
        else:
            room = None if height is None else max(4, height // max(1, len(alive)) - 5)
            parts += _sweep_parts(sweep, results, width, room)
    if height is None:
        return parts
    return [Text(part, no_wrap=True, overflow="ellipsis") if isinstance(part, str) else part for part in parts]


def _sweep_parts(sweep: Sweep, results: Path, width: int, room: int | None) -> list[RenderableType]:
    from madbench.cli.sweep_view import view
    from madbench.cli.text import count_of_jobs, duration

    plan, tally = sweep.plan, sweep.tally
    parts: list[RenderableType] = [f"{sweep.state:<11} {plan['command']}"]
    parts.append(
        f"{count_of_jobs(tally.total)}, {plan['title']}; since {plan['started']}, {plan['host']} {plan['pid']}"
    )
    if sweep.is_alive:
        parts.append(view(tally, lambda job: _name(sweep, job), width, room or len(tally.running) + 1))
        if sweep.silent_seconds > SILENT:
            parts.append(f"nothing heard for {duration(sweep.silent_seconds)}")
    parts.append(", ".join(f"{count} {what}" for what, count in _counts(sweep).items()))
    if sweep.state in ("interrupted", "died", "error"):
        left = len(_not_stored(sweep, results))
        if sweep.state == "error":
            parts.append(f"it ended with an error: {sweep.ended.get('error')}")
        if left:
            how = {"died": "it died without ending", "error": "not all was done", "interrupted": "it was interrupted"}
            parts.append(f"{how[sweep.state]}, {count_of_jobs(left)} left: the same command goes on")
            parts.append(f"  cd {plan['folder']} && {plan['command']}")
        else:
            parts.append("all its jobs are in the store by now")
    failures = [(job, reason) for job, reason in tally.failures if job in sweep.jobs]
    parts += [f"  failed: {_name(sweep, job)}: {reason}" for job, reason in failures[:FAILURES]]
    if len(failures) > FAILURES:
        parts.append(f"  and {len(failures) - FAILURES} more failed; madbench status --json has them all")
    return parts


def _counts(sweep: Sweep) -> dict[str, int]:
    """Jobs by what became of them, those without any left out."""
    tally = sweep.tally
    at_work = sum(running.job in tally.open for running in tally.running.values())
    counts = {
        "finished": tally.counts["finished"],
        "diverged": tally.counts["diverged"],
        "failed": tally.counts["failed"],
        "already in the store": tally.counts["stored"],
        "failed before and not tried again": tally.counts["failed before"],
        "left to another process": tally.counts["busy"],
        "at work": at_work,
        "not done" if not sweep.is_alive else "waiting": len(tally.open) - at_work,
    }
    return {what: count for what, count in counts.items() if count}


def _not_stored(sweep: Sweep, results: Path) -> set[str]:
    """Jobs that neither the sweep nor any other since has brought to an end."""
    import os

    runs = results / "runs"
    return sweep.tally.open - set(os.listdir(runs) if runs.is_dir() else ())


def _name(sweep: Sweep, job_id: str) -> str:
    job: dict[str, Any] = sweep.jobs.get(job_id, {})
    return f"{job.get('label')} {job.get('task')} seed {job.get('seed')}"


def _content(sweep: Sweep | DamagedJournalError) -> dict[str, Any]:
    if isinstance(sweep, Exception):
        return {"state": "damaged", "error": str(sweep)}
    tally = sweep.tally
    named = {job_id: {key: job[key] for key in ("id", "label", "task", "seed")} for job_id, job in sweep.jobs.items()}
    return {
        "name": sweep.folder.name,
        "state": sweep.state,
        **sweep.plan,
        "total": tally.total,
        "done": tally.done,
        "counts": _counts(sweep),
        "jobs_per_minute": tally.jobs_per_minute(),
        "seconds_left": tally.seconds_left() if sweep.is_alive else None,
        "seconds": tally.seconds,
        "slots": [
            {"slot": slot, **named.get(running.job, {"id": running.job}), "fraction": running.last[1]}
            | {
                key: value
                for key, value in running.line.items()
                if key not in ("event", "slot", "job", "time", "seconds")
            }
            for slot, running in sorted(tally.running.items())
        ],
        "failures": [named.get(job, {"id": job}) | {"reason": reason} for job, reason in tally.failures],
    }


def add_to(app: typer.Typer) -> None:
    app.command()(status)
