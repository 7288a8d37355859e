from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from madbench.cli.options import JsonOption, ProfileOption, argument, labels_and_overrides, option
from madbench.cli.printing import first_of, print_lines, table_lines, tracked
from madbench.errors import ConfigError, MadbenchError, did_you_mean

if TYPE_CHECKING:
    from madbench.tasks import Split, TaskSetting

    Work = list[tuple[str, TaskSetting, Split]]

MOST_VIOLATIONS = 5
DEFAULT_EXAMPLES = 2
STYLES = ("cyan", "green", "bold cyan", "bold green", "dim")


class DataError(MadbenchError):
    """Generated data break the rules of their task."""


def data(
    words: argument(list[str] | None, "TASK|KEY=VALUE", "A MAD task, and changes to its setting.") = None,
    split: option(str | None, "train, validation or test.", show_default="test; all three with --check") = None,
    seed: option(int, "Seed of the run whose data are shown.") = 0,
    examples: option(int | None, "How many examples to show.", min=1, show_default=str(DEFAULT_EXAMPLES)) = None,
    profile: ProfileOption = "quick",
    check: option(bool, "Check every example against the task's rules.", "--check") = False,
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
        content = _preview(tasks[0], setting, shown, data_seed, count)
        if as_json:
            print(json.dumps({"seed": seed, **content}, indent=2))
        else:
            _print_preview(console, content)
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


def _preview(task: str, setting: TaskSetting, split: Split, seed: int, count: int) -> dict[str, Any]:
    """The setting and the first ``count`` examples of ``split`` with roles and targets, as JSON has it."""
    from madbench.tasks import IGNORE, ceiling, generate, load_task

    if count > setting.count(split):
        raise ConfigError(f"--examples {count}: the {split} split of {task} has {setting.count(split)} examples")
    examples = generate(task, setting, split, seed)
    asked = (examples.targets != IGNORE).sum(axis=1)
    shown = []
    for index, row in enumerate(zip(examples.inputs[:count].tolist(), examples.targets[:count].tolist())):
        roles, targets = setting.read(*row, split == "train").roles, (None if t == IGNORE else t for t in row[1])
        positions = zip(row[0], roles, targets, strict=True)
        named = [dict(zip(("token_id", "role", "target"), position)) for position in positions]
        shown.append({"index": index, "positions": named})
    return {
        "task": task,
        "description": load_task(task).description,
        "split": split,
        "setting": asdict(setting),
        "targets_per_sequence": {"mean": float(asked.mean()), "fewest": int(asked.min()), "most": int(asked.max())},
        "ceiling": ceiling(task, setting, seed),
        "examples": shown,
    }


def _print_preview(console: Console, content: dict[str, Any]) -> None:
    """Prints what :func:`_preview` gave, readable without colours too."""
    from madbench.tasks import settings_class

    asked = content["targets_per_sequence"]
    targets = f"{asked['fewest']}"
    if asked["fewest"] < asked["most"]:
        targets = f"{asked['fewest']} to {asked['most']} ({asked['mean']:.1f} on average)"
    seen = {position["role"] for example in content["examples"] for position in example["positions"]}
    roles = settings_class(content["task"]).roles
    looks = {role: (roles[role], style) for role, style in zip(roles, itertools.cycle(STYLES)) if role in seen}

    console.print(f"[bold]{content['task']}[/bold]: {content['description']}")
    console.print(", ".join(f"{name} {value}" for name, value in content["setting"].items()), style="dim")
    console.print(
        f"targets per sequence in the {content['split']} split: {targets};"
        f" highest test accuracy the data allow: {content['ceiling']:.2%}"
    )
    legend = Text(", ").join(Text(f"{letter} {role}", style) for role, (letter, style) in looks.items())
    console.print(Text("roles: ").append_text(legend))
    for example in content["examples"]:
        console.print(f"\n[bold]{content['split']} example {example['index']}[/bold]")
        for block in _blocks(example["positions"], looks, console.width):
            console.print(block, no_wrap=True)


def _blocks(positions: list[dict[str, Any]], looks: dict[str, tuple[str, str]], width: int) -> Iterator[Text]:
    """Lines of tokens, roles and targets, as many positions in each block as fit into ``width``."""
    ids = [position[key] for position in positions for key in ("token_id", "target")]
    cell = 1 + max(len(str(token)) for token in ids if token is not None)
    number = len(str(len(positions) - 1))
    per_block = max(1, (width - number - len("  target")) // cell)
    if per_block > 10:
        per_block -= per_block % 10
    for start in range(0, len(positions), per_block):
        starts = {"token": start, "role": "", "target": ""}
        lines = {name: Text.assemble((f"{place:>{number}}  {name:<6}", "dim")) for name, place in starts.items()}
        for position in positions[start : start + per_block]:
            letter, style = looks[position["role"]]
            target = "" if position["target"] is None else position["target"]
            lines["token"].append(f"{position['token_id']:>{cell}}", style)
            lines["role"].append(f"{letter:>{cell}}", style)
            lines["target"].append(f"{target:>{cell}}", "bold yellow")
        if not any(position["target"] is not None for position in positions[start : start + per_block]):
            del lines["target"]
        yield Text("\n").join(lines.values())


def _print_check(console: Console, work: Work, seed: int, as_json: bool) -> None:
    """Prints a row of counts for each task and split; raises ``DataError`` with the first violations and their places."""
    from madbench.tasks import IGNORE, find_violations, generate, load_task

    rows: dict[tuple[str, str], dict[str, Any]] = {}
    found: list[str] = []
    for task, setting, split in tracked(work):
        started = time.perf_counter()
        examples = generate(task, setting, split, seed)
        violations = find_violations(setting, examples, split)
        change = ", ".join(f"{name} {value}" for name, value in load_task(task).change_of(setting).items())
        found += [f"{task} ({change or 'baseline'}) {split}: {violation}" for violation in violations]
        counts = {"settings": 1, "examples": len(examples.inputs), "targets": int((examples.targets != IGNORE).sum())}
        counts |= {"violations": len(violations), "seconds": time.perf_counter() - started}
        row = rows.setdefault((task, split), {"task": task, "split": split, **dict.fromkeys(counts, 0)})
        row |= {name: row[name] + count for name, count in counts.items()}
    if as_json:
        print(json.dumps({"checked": list(rows.values()), "violations": found}, indent=2))
    else:
        shown = [row | {name: f"{row[name]:,}" for name in row if isinstance(row[name], int)} for row in rows.values()]
        shown = [{"wrong" if name == "violations" else name: row[name] for name in row} for row in shown]
        print_lines(console, table_lines(shown, right=tuple(shown[0])[2:]))
    if found:
        raise DataError("\n".join([f"{len(found):,} violations", *first_of(found, MOST_VIOLATIONS, "and {:,} more")]))
