"""Examples of a task on the screen: tokens, the role of each, and what is asked of the model."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from madbench.tasks import Split, TaskSetting

_STYLES = ("cyan", "green", "bold cyan", "bold green", "dim")


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
    roles = settings_class(content["task"]).roles
    looks = {role: (roles[role], style) for role, style in zip(roles, itertools.cycle(_STYLES)) if role in seen}

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
    from rich.text import Text

    ids = [position[key] for position in positions for key in ("token_id", "target")]
    cell = 1 + max(len(str(token)) for token in ids if token is not None)
    number = len(str(len(positions) - 1))
    per_block = max(1, (width - number - len("  target")) // cell)
    if per_block > 10:
        per_block -= per_block % 10
    for start in range(0, len(positions), per_block):
        lines = {name: Text.assemble((f"{'':{number}}  {name:<6}", "dim")) for name in ("token", "role", "target")}
        lines["token"] = Text.assemble((f"{start:>{number}}  token ", "dim"))
        for position in positions[start : start + per_block]:
            letter, style = looks[position["role"]]
            target = "" if position["target"] is None else position["target"]
            lines["token"].append(f"{position['token_id']:>{cell}}", style)
            lines["role"].append(f"{letter:>{cell}}", style)
            lines["target"].append(f"{target:>{cell}}", "bold yellow")
        if not any(position["target"] is not None for position in positions[start : start + per_block]):
            del lines["target"]
        yield Text("\n").join(lines.values())
