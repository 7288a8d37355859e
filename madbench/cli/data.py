from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import JsonOption, ProfileOption, labels_and_overrides
from madbench.errors import MadbenchError

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.suites.profile import Profile
    from madbench.tasks import Split, TaskSetting

MOST_VIOLATIONS = 5
MOST_UNASKED = 2  # examples shown where nobody says how many
SECONDS_WITHOUT_PROGRESS = 2.0


class DataError(MadbenchError):
    """Generated data that break the rules of their task."""


def data(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="TASK|KEY=VALUE", help="A MAD task, and changes to its setting."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="train, validation or test.", show_default="test; all three with --check"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of a run; its data are shown.")] = 0,
    examples: Annotated[
        int | None, typer.Option(min=1, help="How many examples to show.", show_default=str(MOST_UNASKED))
    ] = None,
    profile: ProfileOption = "quick",
    check: Annotated[bool, typer.Option("--check", help="Check every example against the task's rules.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show examples of a task as a person can read them, or check that the generated data keep its rules.

    Under each token stands a letter for the part it plays and, where the model
    is asked, the token it has to answer. The data are those a run with this
    profile and seed has. Without a task: what tasks there are.

    [bold]Examples[/bold]

      madbench data                                      the six tasks
      madbench data in_context_recall                    two test examples
      madbench data selective_copying seq_len=48 --examples 1
      madbench data fuzzy_in_context_recall --split train --seed 3
      madbench data --check                              check all tasks
      madbench data memorization --check --profile full
    """
    import json

    from rich.console import Console

    from madbench.cli.preview import preview, print_preview
    from madbench.errors import ConfigError, did_you_mean
    from madbench.jobs import Job
    from madbench.suites.profile import load_profile
    from madbench.tasks import SPLITS

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
    data_seed = Job("S", "", {}, seed=seed).derived_seed("data")
    loaded = load_profile(profile)
    settings = {task: _settings(task, loaded, overrides) for task in tasks or _all_tasks()}
    if check:
        _print_check(console, settings, (split,) if split else SPLITS, data_seed, as_json)
    elif tasks:
        task = tasks[0]
        setting, shown = settings[task][0], split or "test"
        count = examples or min(MOST_UNASKED, setting.count(shown))
        content = preview(task, setting, shown, data_seed, count)
        if as_json:
            print(json.dumps({"seed": seed, **content}, indent=2))
        else:
            print_preview(console, content)
    else:
        _list(console, settings, as_json)


def _all_tasks() -> tuple[str, ...]:
    from madbench.tasks import TASK_NAMES

    return TASK_NAMES


def _settings(task: str, profile: Profile, overrides: list[str]) -> list[TaskSetting]:
    """The profile's settings of ``task``; overrides change its first one, and leave only that."""
    from madbench.suites.overrides import settings_of
    from madbench.suites.plan import task_settings
    from madbench.tasks import make_setting

    settings = task_settings(task, profile)
    if not overrides:
        return [make_setting(task, setting, f"setting of {task}") for setting in settings]
    return [make_setting(task, {**settings[0], **settings_of(overrides)}, f"setting of {task}")]


def _list(console: Console, settings: dict[str, list[TaskSetting]], as_json: bool) -> None:
    import json

    from madbench.tasks import load_task

    content = [
        {"task": task, "description": load_task(task).description, "setting": dataclasses.asdict(of_task[0])}
        for task, of_task in settings.items()
    ]
    if as_json:
        print(json.dumps(content, indent=2))
        return
    for row in content:
        console.print(f"[bold]{row['task']}[/bold]")
        console.print(f"  {row['description']}")
    console.print(f"\nmadbench data {content[0]['task']} shows examples; --check checks the data of all tasks.")


def _print_check(
    console: Console, settings: dict[str, list[TaskSetting]], splits: tuple[Split, ...], seed: int, as_json: bool
) -> None:
    import json

    from rich import box
    from rich.table import Table

    rows, violations = _check(settings, splits, seed)
    if as_json:
        print(json.dumps({"checked": rows, "violations": violations}, indent=2))
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for i, heading in enumerate(("task", "split", "settings", "examples", "targets", "wrong", "seconds")):
            table.add_column(heading, justify="left" if i < 2 else "right", no_wrap=True)
        for row in rows:
            table.add_row(
                row["task"],
                row["split"],
                *(f"{row[name]:,}" for name in ("settings", "examples", "targets", "violations")),
                f"{row['seconds_generating'] + row['seconds_checking']:.2f}",
                style="red" if row["violations"] else None,
            )
        console.print(table)
    if violations:
        left_out = len(violations) - MOST_VIOLATIONS
        more = [f"and {left_out:,} more"] if left_out > 0 else []
        raise DataError(f"{len(violations):,} violations\n" + "\n".join(violations[:MOST_VIOLATIONS] + more))


def _check(
    settings: dict[str, list[TaskSetting]], splits: tuple[Split, ...], seed: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """A row of counts for each task and split, and every violation with the place where it is."""
    import time

    from madbench.tasks import IGNORE, generate, load_task
    from madbench.tasks.preview import find_violations

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    found: list[str] = []
    work = [(task, setting, split) for task, of_task in settings.items() for setting in of_task for split in splits]
    for task, setting, split in _with_progress(work):
        row = rows.setdefault((task, split), dict.fromkeys(_COUNTS, 0) | {"task": task, "split": split})
        started = time.perf_counter()
        examples = generate(task, setting, split, seed)
        generated = time.perf_counter()
        violations = find_violations(setting, examples, split)
        change = ", ".join(f"{name} {value}" for name, value in load_task(task).change_of(setting).items())
        found += [f"{task} ({change or 'baseline'}) {split}: {violation}" for violation in violations]
        row["settings"] += 1
        row["examples"] += len(examples.inputs)
        row["targets"] += int((examples.targets != IGNORE).sum())
        row["violations"] += len(violations)
        row["seconds_generating"] += generated - started
        row["seconds_checking"] += time.perf_counter() - generated
    return [{name: row[name] for name in ("task", "split", *_COUNTS)} for row in rows.values()], found


_COUNTS = ("settings", "examples", "targets", "violations", "seconds_generating", "seconds_checking")


def _with_progress(work: list[tuple[str, TaskSetting, Split]]) -> Iterator[tuple[str, TaskSetting, Split]]:
    """The items of ``work``; on a terminal a bar, weighted by tokens, once this has taken two seconds."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    sizes = [setting.count(split) * setting.input_len for _, setting, split in work]
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar = progress.add_task("checking", total=sum(sizes))
    started, shown = time.monotonic(), False
    try:
        for item, size in zip(work, sizes):
            if not shown and time.monotonic() - started > SECONDS_WITHOUT_PROGRESS:
                progress.start()
                shown = True
            progress.update(bar, description=f"{item[0]} {item[2]}")
            yield item
            progress.advance(bar, size)
    finally:
        if shown:
            progress.stop()


def add_to(app: typer.Typer) -> None:
    app.command()(data)
