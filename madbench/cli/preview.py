"""Examples of a task on the screen: tokens, the role of each, and what is asked of the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from madbench.tasks import Split, TaskSetting

_COLOURS = ("cyan", "green", "magenta", "blue", "yellow")


def preview(task: str, setting: TaskSetting, split: Split, seed: int, count: int) -> dict[str, Any]:
    """The setting and the first ``count`` examples of ``split`` with roles and targets, as JSON has it."""
    from madbench.errors import ConfigError
    from madbench.tasks import IGNORE, ceiling, generate, load_task

    if count > setting.count(split):
        raise ConfigError(f"--examples {count}: the {split} split of {task} has {setting.count(split)} examples")
    examples = generate(task, setting, split, seed)
    asked = (examples.targets != IGNORE).sum(axis=1)
    rows = enumerate(zip(examples.inputs[:count].tolist(), examples.targets[:count].tolist()))
    return {
        "task": task,
        "description": load_task(task).description,
        "split": split,
        "setting": dataclasses.asdict(setting),
        "targets_per_sequence": {"mean": float(asked.mean()), "fewest": int(asked.min()), "most": int(asked.max())},
        "ceiling": ceiling(task, setting, seed),
        "examples": [{"index": index, "positions": _positions(setting, split, *row)} for index, row in rows],
    }


def _positions(setting: TaskSetting, split: Split, inputs: list[int], targets: list[int]) -> list[dict[str, Any]]:
    from madbench.tasks import IGNORE

    roles = setting.read(inputs, targets, split == "train").roles
    return [
        {"token_id": token, "role": role, "target": None if target == IGNORE else target}
        for token, role, target in zip(inputs, roles, targets, strict=True)
    ]


def print_preview(console: Console, content: dict[str, Any]) -> None:
    """Prints what :func:`preview` gave, readable without colours too."""
    from rich.text import Text

    from madbench.tasks import settings_class

    asked = content["targets_per_sequence"]
    targets = f"{asked['fewest']}"
    if asked["fewest"] < asked["most"]:
        targets = f"{asked['fewest']} to {asked['most']} ({asked['mean']:.1f} on average)"
    seen = {position["role"] for example in content["examples"] for position in example["positions"]}
    letters = {role: letter for role, letter in settings_class(content["task"]).roles.items() if role in seen}
    styles = _styles(letters)

    console.print(f"[bold]{content['task']}[/bold]: {content['description']}")
    console.print(", ".join(f"{name} {value}" for name, value in content["setting"].items()), style="dim")
    console.print(
        f"targets per sequence in the {content['split']} split: {targets};"
        f" highest test accuracy the data allow: {content['ceiling']:.2%}"
    )
    legend = Text(", ").join(Text(f"{letter} {role}", styles[role]) for role, letter in letters.items())
    console.print(Text("roles: ").append_text(legend))
    for example in content["examples"]:
        console.print(f"\n[bold]{content['split']} example {example['index']}[/bold]")
        for block in _blocks(example["positions"], letters, styles, console.width):
            console.print(block, no_wrap=True)


def _styles(letters: dict[str, str]) -> dict[str, str]:
    """A style for each role: a colour for a letter, bold where that is a capital, and dim for a sign."""
    alphabet = list(dict.fromkeys(letter.lower() for letter in letters.values() if letter.isalpha()))
    colours = {letter: _COLOURS[i % len(_COLOURS)] for i, letter in enumerate(alphabet)}
    return {
        role: f"{'bold ' * letter.isupper()}{colours[letter.lower()]}" if letter.isalpha() else "dim"
        for role, letter in letters.items()
    }


def _blocks(
    positions: list[dict[str, Any]], letters: dict[str, str], styles: dict[str, str], width: int
) -> Iterator[Text]:
    """Lines of tokens, roles and targets, as many positions in each block as fit into ``width``."""
    from rich.text import Text

    ids = [position[key] for position in positions for key in ("token_id", "target")]
    cell = 1 + max(len(str(token)) for token in ids if token is not None)
    number = len(str(len(positions) - 1))
    per_block = max(1, (width - number - len("  target")) // cell)
    if per_block > 10:
        per_block -= per_block % 10
    for start in range(0, len(positions), per_block):
        shown = [(p["token_id"], p["role"], p["target"]) for p in positions[start : start + per_block]]
        rows = {
            "token": [(token, styles[role]) for token, role, _ in shown],
            "role": [(letters[role], styles[role]) for _, role, _ in shown],
            "target": [("" if target is None else target, "bold yellow") for _, _, target in shown],
        }
        lines = [
            Text.assemble(
                (f"{start if name == 'token' else '':>{number}}  {name:<6}", "dim"),
                *((f"{text:>{cell}}", style) for text, style in cells),
            )
            for name, cells in rows.items()
            if name != "target" or any(target is not None for _, _, target in shown)
        ]
        yield Text("\n").join(lines)
