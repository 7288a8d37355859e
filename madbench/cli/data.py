from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import JsonOption, ProfileOption, labels_and_overrides
from madbench.errors import MadbenchError

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.tasks import Split, TaskSetting

    Work = list[tuple[str, TaskSetting, Split]]

MOST_VIOLATIONS = 5
DEFAULT_EXAMPLES = 2
SECONDS_WITHOUT_PROGRESS = 2.0


class DataError(MadbenchError):
    """Generated data break the rules of their task."""


def data(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK|KEY=VALUE", help="A MAD task, and changes to its setting."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, validation or test.", show_default="test; all three with --check"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the run whose data are shown.")] = 0,
    examples: Annotated[
        int | None, typer.Option(min=1, help="How many examples to show.", show_default=str(DEFAULT_EXAMPLES))
    ] = None,
    profile: ProfileOption = "quick",
    check: Annotated[bool, typer.Option("--check", help="Check every example against the task's rules.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show examples of a task, or check that all generated data follow its rules.

    Below each token is a letter for its role and, where the model is asked, the
    target. The data are those of a run with this profile and seed. Without a
    task, lists the tasks.

    [bold]Examples[/bold]

      madbench data                                      all tasks
      madbench data in_context_recall                    two test examples
      madbench data selective_copying seq_len=48 --examples 1
      madbench data fuzzy_in_context_recall --split train --seed 3
      madbench data --check                              check all tasks
      madbench data memorization --check --profile full
    """
    from rich.console import Console

    from madbench.cli.preview import preview, print_preview
    from madbench.errors import ConfigError, did_you_mean
    from madbench.jobs import Job
    from madbench.tasks import SPLITS, load_task, task_names

    tasks, overrides = labels_and_overrides(words or [])
    if len(tasks) > 1:
        raise ConfigError(f"one task at a time, got {', '.join(tasks)}")
    if split is not None and split not in SPLITS:
        raise ConfigError(f"--split: unknown split {split!r}{did_you_mean(split, SPLITS)}")
    if check and examples is not None:
        raise ConfigError("--examples has no effect with --check, which reads every example")
    if not tasks and (overrides or (not check and (split or examples is not None))):
        given = overrides[0] if overrides else "--split" if split else "--examples"
        raise ConfigError(f"{given} has no effect without a task; see: madbench data")

    console = Console(highlight=False)
    data_seed = Job("mad", "", "S", "", {}, None, {}, None, seed=seed).derived_seed("data")
    settings = {task: _settings(task, profile, overrides) for task in tasks or task_names()}
    if check:
        splits = (split,) if split else SPLITS
        work = [(task, setting, split) for task, of_task in settings.items() for setting in of_task for split in splits]
        _print_check(console, work, data_seed, as_json)
    elif tasks:
        setting, shown = settings[tasks[0]][0], split or "test"
        count = examples or min(DEFAULT_EXAMPLES, setting.count(shown))
        content = preview(tasks[0], setting, shown, data_seed, count)
        if as_json:
            print(json.dumps({"seed": seed, **content}, indent=2))
        else:
            print_preview(console, content)
    elif as_json:
        about = {task: {"task": task, "description": load_task(task).description} for task in settings}
        print(json.dumps([about[task] | {"setting": asdict(settings[task][0])} for task in settings], indent=2))
    else:
        for task in settings:
            console.print(f"[bold]{task}[/bold]\n  {load_task(task).description}")
        console.print("\nmadbench data TASK shows examples; --check checks the data of all tasks.", markup=False)


def _settings(task: str, profile: str, overrides: list[str]) -> list[TaskSetting]:
    """The profile's settings of ``task``; overrides change its first one, and leave only that."""
    from madbench.config import settings_of
    from madbench.suites import MAD
    from madbench.tasks import make_setting

    settings = MAD.Profile.load(profile).settings(task)
    if overrides:
        settings = [{**settings[0], **settings_of(overrides)}]
    return [make_setting(task, setting, f"setting of {task}") for setting in settings]


def _print_check(console: Console, work: Work, seed: int, as_json: bool) -> None:
    from madbench.cli.tables import plain_table

    rows, violations = _check(work, seed)
    if as_json:
        print(json.dumps({"checked": rows, "violations": violations}, indent=2))
    else:
        formats = {int: "{:,}", float: "{:.2f}", str: "{}"}
        shown = [{name: formats[type(value)].format(value) for name, value in row.items()} for row in rows]
        console.print(plain_table(shown, right=tuple(rows[0])[2:]))
    if violations:
        more = [f"and {len(violations) - MOST_VIOLATIONS:,} more"] * (len(violations) > MOST_VIOLATIONS)
        raise DataError("\n".join([f"{len(violations):,} violations", *violations[:MOST_VIOLATIONS], *more]))


def _check(work: Work, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A row of counts for each task and split, and every violation with the place where it is."""
    from madbench.tasks import IGNORE, generate, load_task
    from madbench.tasks.generation import find_violations

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    found: list[str] = []
    for task, setting, split in _with_progress(work):
        started = time.perf_counter()
        examples = generate(task, setting, split, seed)
        violations = find_violations(setting, examples, split)
        change = ", ".join(f"{name} {value}" for name, value in load_task(task).change_of(setting).items())
        found += [f"{task} ({change or 'baseline'}) {split}: {violation}" for violation in violations]
        counts = {"settings": 1, "examples": len(examples.inputs), "targets": int((examples.targets != IGNORE).sum())}
        counts |= {"violations": len(violations), "seconds": time.perf_counter() - started}
        row = rows.setdefault((task, split), {"task": task, "split": split, **dict.fromkeys(counts, 0)})
        row |= {name: row[name] + count for name, count in counts.items()}
    return list(rows.values()), found


def _with_progress(work: Work) -> Iterator[tuple[str, TaskSetting, Split]]:
    """The items of ``work``; on a terminal a bar, weighted by tokens, once this has taken two seconds."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    bar = progress.add_task("", total=sum(setting.count(split) * setting.input_len for _, setting, split in work))
    started = time.monotonic()
    try:
        for task, setting, split in work:
            if time.monotonic() - started > SECONDS_WITHOUT_PROGRESS:
                progress.start()
            progress.update(bar, description=f"{task} {split}")
            yield task, setting, split
            progress.advance(bar, setting.count(split) * setting.input_len)
    finally:
        progress.live.stop()


def add_to(app: typer.Typer) -> None:
    app.command()(data)
