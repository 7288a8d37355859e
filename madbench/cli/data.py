"""``madbench data``: show examples of a task, or check generated data."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from rich.console import Console
from rich.text import Text

from madbench import tasks as mad_tasks
from madbench.cli.shared.options import warn
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import first_of, print_json, print_lines, table_lines, track_progress
from madbench.cli.shared.words import labels_and_overrides
from madbench.config import MOST_SEED, Override, settings_of, short_repr
from madbench.config.options import argument, option
from madbench.errors import ConfigError, MadbenchError, did_you_mean, no_effect
from madbench.jobs import derived_seed
from madbench.suites import suite_of_task
from madbench.suites.addressing import has_profile, load_profile
from madbench.suites.options import ProfileOption
from madbench.suites.tokens import TokenProfile
from madbench.tasks import load_task
from madbench.tasks.base import IGNORE, SPLITS, Split, TaskSetting

MOST_VIOLATIONS = 5
DEFAULT_EXAMPLES = 2
NO_QUESTION = "the setting draws no question"
STYLES = ("cyan", "green", "bold cyan", "bold green", "dim")


class DataError(MadbenchError):
    """Generated data violate the rules of their task."""


def data(
    words: Annotated[list[str] | None, argument("TASK|KEY=VALUE", "A token task, and changes to its setting.")] = None,
    split: Annotated[
        str | None, option("train, validation or test.", show_default="test; all three with --check", completes="SPLIT")
    ] = None,
    seed: Annotated[int, option("Seed of the run whose data are shown.", min=0, max=MOST_SEED)] = 0,
    examples: Annotated[
        int | None, option("How many examples to show.", min=1, show_default=str(DEFAULT_EXAMPLES))
    ] = None,
    profile: ProfileOption = None,
    check: Annotated[bool, option("Check every example against the task's rules.", "--check")] = False,
    format: FormatOption = "terminal",
) -> None:
    """Show examples of a task, or check the data of all tasks.

    Below each token are a letter for its role and the target, if there is one.
    The data are those of a run with this profile and seed. Without a task it
    lists the tasks of the suites that have the profile.

    [bold]Examples[/bold]

      madbench data                                      all tasks
      madbench data in_context_recall                    two test examples
      madbench data selective_copying seq_len=48 --examples 1
      madbench data fuzzy_in_context_recall --split train --seed 3
      madbench data --check                              check all tasks
      madbench data memorization --check --profile full
    """
    as_json = format == "json"
    tasks, overrides = labels_and_overrides(words or [])
    if len(tasks) > 1:
        raise ConfigError(f"one task at a time, got {', '.join(tasks)}")
    if split is not None and split not in SPLITS:
        raise ConfigError(f"--split: unknown split {short_repr(split)}{did_you_mean(split, SPLITS)}")
    if check and examples is not None:
        raise no_effect("--examples", "with --check, which reads every example")
    if not tasks:
        flags = {} if check else {"--split": split, "--examples": examples, "--seed": seed}
        for name in [*map(str, overrides), *(flag for flag, value in flags.items() if value)]:
            raise no_effect(name, "without a task; see: madbench data")

    console = Console(highlight=False)
    data_seed = derived_seed(seed, "data")
    settings = {task: _settings(task, profile, overrides) for task in tasks or _listed_tasks(profile)}
    if check:
        splits = (split,) if split else SPLITS
        work = [(task, setting, split) for task, of_task in settings.items() for setting in of_task for split in splits]
        _print_check(console, work, data_seed, as_json)
    elif tasks:
        content = _preview(tasks[0], settings[tasks[0]][0], split or "test", data_seed, examples)
        if as_json:
            print_json({"seed": seed, **content})
        else:
            _print_preview(console, content)
    else:
        _print_tasks(console, settings, as_json)


def _listed_tasks(profile: str | None) -> Iterable[str]:
    """The tasks of the suites that have the profile, or all tasks if it is None. Warn about broken tasks."""
    for problem in mad_tasks.broken_tasks().values():
        warn(problem)
    loaded = mad_tasks.loaded_tasks()
    listed = [task for task in loaded if not profile or has_profile(suite_of_task(task), profile)]
    return listed or loaded  # no suite has the profile: loading it says so


def _settings(task: str, profile: str | None, overrides: Sequence[Override]) -> list[TaskSetting]:
    """The settings of a task in a profile. If there are ``overrides``, they change the first one, which is alone."""
    suite = suite_of_task(task)
    if not issubclass(suite.Profile, TokenProfile):
        raise ConfigError(
            f"{task} is a task of the suite {suite.name}, but madbench data shows only generated sequences of"
            f" tokens; madbench data lists their tasks, and madbench ls tasks describes {task}"
        )
    chosen_profile = load_profile(suite, profile or suite.default)
    assert isinstance(chosen_profile, TokenProfile)
    choices = chosen_profile.settings(task)
    if overrides:
        choices = [{**choices[0], **settings_of(overrides)}]
    return [mad_tasks.make_setting(task, setting, f"setting of {task}") for setting in choices]


def _print_tasks(console: Console, settings: Mapping[str, Sequence[TaskSetting]], as_json: bool) -> None:
    """Print the description of each task, and the scores that need no learning in its first setting."""
    rows = [
        {"task": task, "description": load_task(task).description, "setting": asdict(first), **_floors(task, first)}
        for task, (first, *_) in settings.items()
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        console.print(f"[bold]{row['task']}[/bold]\n  {row['description']}")
        floors = NO_QUESTION
        if row["heuristic"] is not None:
            floors = f"{row['heuristic']:.1%} without context, {row['chance']:.1%} by chance"
        console.print(f"  {floors}", style="dim")
    console.print("\nmadbench data TASK shows examples; --check checks the data of all tasks.", markup=False)


def _preview(task: str, setting: TaskSetting, split: Split, seed: int, count: int | None) -> dict[str, Any]:
    """The first ``count`` examples of a task's split, and facts about the task, for the JSON output.

    Each position of an example has its token, its role and its target. Raises ``ConfigError`` if the split has fewer
    examples, or if the setting draws no question.
    """
    if count is not None and count > setting.count(split):
        raise ConfigError(f"--examples {count}: the {split} split of {task} has {setting.count(split)} examples")
    floors = _floors(task, setting)
    if floors["heuristic"] is None:
        raise ConfigError(f"{task} with {mad_tasks.questions_text(setting)}: {NO_QUESTION}: no position has a target")
    data_split = mad_tasks.generate(task, setting, split, seed)
    num_targets = (data_split.targets != IGNORE).sum(axis=1)
    examples = []
    first = slice(count or DEFAULT_EXAMPLES)
    for index, (tokens, targets) in enumerate(
        zip(data_split.inputs[first].tolist(), data_split.targets[first].tolist())
    ):
        roles = setting.read(tokens, targets, split == "train").roles
        positions = [
            {"token_id": token, "role": role, "target": None if target == IGNORE else target}
            for token, role, target in zip(tokens, roles, targets, strict=True)
        ]
        examples.append({"index": index, "positions": positions})
    return {
        "task": task,
        "description": load_task(task).description,
        "split": split,
        "setting": asdict(setting),
        "targets_per_sequence": {
            "mean": float(num_targets.mean()),
            "fewest": int(num_targets.min()),
            "most": int(num_targets.max()),
        },
        **floors,
        "ceiling": mad_tasks.ceiling(task, setting, seed),
        "examples": examples,
    }


def _floors(task: str, setting: TaskSetting) -> dict[str, float | None]:
    """The accuracies (0 to 1) that a model reaches without learning the task.

    ``chance`` is the accuracy of a random answer. ``heuristic`` is the accuracy of the best rule that ignores the order
    of the context (:func:`madbench.tasks.heuristic`). It is None if the setting draws no question.
    """
    accuracy = mad_tasks.heuristic(task, setting)
    return {"chance": 1 / setting.num_answers, "heuristic": None if math.isnan(accuracy) else accuracy}


def _print_preview(console: Console, content: dict[str, Any]) -> None:
    """Print the content that :func:`_preview` returned, in a form that can also be read without colors."""
    counts = content["targets_per_sequence"]
    targets = str(counts["fewest"])
    if counts["fewest"] < counts["most"]:
        targets += f" to {counts['most']} ({counts['mean']:.1f} on average)"
    shown_roles = {position["role"] for example in content["examples"] for position in example["positions"]}
    roles = mad_tasks.settings_class(content["task"]).roles
    looks = {role: (roles[role], style) for role, style in zip(roles, itertools.cycle(STYLES)) if role in shown_roles}

    console.print(f"[bold]{content['task']}[/bold]: {content['description']}")
    console.print(", ".join(f"{name} {value}" for name, value in content["setting"].items()), style="dim")
    console.print(
        f"targets per sequence in the {content['split']} split: {targets};"
        f" highest test accuracy the data allow: {content['ceiling']:.2%}"
    )
    console.print(
        f"without learning the task: {content['heuristic']:.2%} (the best answer that ignores the context, mostly the"
        f" most frequent one so far); chance: {content['chance']:.2%}"
    )
    legend = Text(", ").join(Text(f"{letter} {role}", style) for role, (letter, style) in looks.items())
    console.print(Text("roles: ").append_text(legend))
    for example in content["examples"]:
        console.print(f"\n[bold]{content['split']} example {example['index']}[/bold]")
        for block in _blocks(example["positions"], looks, console.width):
            console.print(block, no_wrap=True)


def _blocks(positions: list[dict[str, Any]], looks: dict[str, tuple[str, str]], width: int) -> Iterator[Text]:
    """The lines of one example, in blocks of as many positions as fit into ``width`` characters.

    A block has a line of tokens, a line with the letters of their roles, and a line of targets if there are any.
    ``looks`` has the letter and the style of each role.
    """
    ids = [position[key] for position in positions for key in ("token_id", "target")]
    cell = 1 + max(len(str(token)) for token in ids if token is not None)
    number = len(str(len(positions) - 1))
    per_block = max(1, (width - number - len("  target")) // cell)
    if per_block > 10:
        per_block -= per_block % 10
    for start in range(0, len(positions), per_block):
        block = positions[start : start + per_block]
        starts = {"token": start, "role": "", "target": ""}
        lines = {name: Text.assemble((f"{place:>{number}}  {name:<6}", "dim")) for name, place in starts.items()}
        for position in block:
            letter, style = looks[position["role"]]
            target = "" if position["target"] is None else position["target"]
            lines["token"].append(f"{position['token_id']:>{cell}}", style)
            lines["role"].append(f"{letter:>{cell}}", style)
            lines["target"].append(f"{target:>{cell}}", "bold yellow")
        is_asked = any(position["target"] is not None for position in block)
        yield Text("\n").join([*lines.values()][: 3 if is_asked else 2])


def _print_check(console: Console, work: Sequence[tuple[str, TaskSetting, Split]], seed: int, as_json: bool) -> None:
    """Check generated data. Print the counts of each task and split. ``work`` has the settings and splits to check.

    Raises ``DataError`` with the first violations and their positions, if there are any.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    faults: list[str] = []
    for task, setting, split in track_progress(work):
        started = time.perf_counter()
        examples = mad_tasks.generate(task, setting, split, seed)
        violations = mad_tasks.find_violations(setting, examples, split)
        change = ", ".join(f"{name} {value}" for name, value in load_task(task).change_of(setting).items())
        faults += [f"{task} ({change or 'baseline'}) {split}: {violation}" for violation in violations]
        counts: dict[str, float] = {
            "settings": 1,
            "examples": len(examples.inputs),
            "targets": int((examples.targets != IGNORE).sum()),
        }
        counts |= {"violations": len(violations), "seconds": time.perf_counter() - started}
        row = rows.setdefault((task, split), {"task": task, "split": split, **dict.fromkeys(counts, 0)})
        row |= {name: row[name] + count for name, count in counts.items()}
    if as_json:
        print_json({"checked": list(rows.values()), "violations": faults})
    else:
        lines = []
        for row in rows.values():
            texts = {name: f"{value:,}" if isinstance(value, int) else value for name, value in row.items()}
            lines.append({"wrong" if name == "violations" else name: text for name, text in texts.items()})
        print_lines(console, table_lines(lines, right=tuple(lines[0])[2:]))
    if faults:
        raise DataError("\n".join([f"{len(faults):,} violations", *first_of(faults, MOST_VIOLATIONS, "and {:,} more")]))
