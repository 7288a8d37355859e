"""Examples of a task on the screen: tokens, the part each plays, and what is asked of the model."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from madbench.tasks import Split, TaskSetting
    from madbench.tasks.preview import AnnotatedToken

LETTERS = {
    "key": ("k", "cyan"),
    "value": ("v", "green"),
    "probe key": ("K", "bold cyan"),
    "probe value": ("V", "bold green"),
    "token": ("t", "green"),
    "noise": ("n", "dim"),
    "blank": (".", "dim"),
    "copy": ("C", "bold magenta"),
    "compress": ("C", "bold magenta"),
    "insert": ("i", "magenta"),
    "pad": ("_", "dim"),
}
"""Letter and colour of every role an input position can have."""


def preview(task: str, setting: TaskSetting, split: Split, seed: int, count: int) -> dict[str, Any]:
    """The setting and the first ``count`` examples of ``split`` with roles and targets, as JSON has it."""
    from madbench.errors import ConfigError
    from madbench.tasks import IGNORE, generate, load_task
    from madbench.tasks.ceiling import ceiling
    from madbench.tasks.preview import annotate

    if count > setting.count(split):
        raise ConfigError(f"--examples {count}: the {split} split of {task} has {setting.count(split)} examples")
    asked = (generate(task, setting, split, seed).targets != IGNORE).sum(axis=1)
    return {
        "task": task,
        "description": load_task(task).description,
        "split": split,
        "setting": dataclasses.asdict(setting),
        "targets_per_sequence": {"mean": float(asked.mean()), "fewest": int(asked.min()), "most": int(asked.max())},
        "ceiling": ceiling(task, setting, seed),
        "examples": [
            {"index": index, "positions": [token._asdict() for token in annotate(task, setting, split, seed, index)]}
            for index in range(count)
        ],
    }


def print_preview(console: Console, content: dict[str, Any]) -> None:
    """Prints what :func:`preview` gave; it can be read without colours too."""
    from rich.text import Text

    from madbench.tasks.preview import AnnotatedToken

    asked = content["targets_per_sequence"]
    targets = f"{asked['fewest']}" if asked["fewest"] == asked["most"] else f"{asked['fewest']}-{asked['most']}"
    mean = "" if asked["fewest"] == asked["most"] else f", {asked['mean']:.1f} on average"
    examples = [[AnnotatedToken(**position) for position in example["positions"]] for example in content["examples"]]

    console.print(f"[bold]{content['task']}[/bold]: {content['description']}")
    console.print(", ".join(f"{name} {value}" for name, value in content["setting"].items()), style="dim")
    console.print(
        f"{targets} targets a sequence{mean} in the {content['split']} split;"
        f" best test accuracy the data allow {content['ceiling']:.2%}"
    )
    roles = [role for role in LETTERS if any(token.role == role for tokens in examples for token in tokens)]
    legend = Text("roles: ")
    legend.append_text(Text(", ").join(Text(f"{LETTERS[role][0]} {role}", LETTERS[role][1]) for role in roles))
    console.print(legend)
    for example, tokens in zip(content["examples"], examples):
        console.print(f"\n[bold]{content['split']} example {example['index']}[/bold]")
        for block in _blocks(tokens, console.width):
            console.print(block, no_wrap=True)


def _blocks(tokens: list[AnnotatedToken], width: int) -> list[Text]:
    """Lines of tokens, roles and targets, as many positions in each block as fit into ``width``."""
    from rich.text import Text

    ids = [token.token_id for token in tokens] + [token.target for token in tokens if token.target is not None]
    cell = len(str(max(ids))) + 1
    number = len(str(len(tokens) - 1))
    margin = number + len("  target")
    per_block = max(1, (width - margin) // cell)
    if per_block > 10:
        per_block -= per_block % 10
    blocks = []
    for start in range(0, len(tokens), per_block):
        shown = tokens[start : start + per_block]
        block = Text.assemble((f"{start:>{number}}", "dim"), "  ", ("token ", "dim"))
        for token in shown:
            block.append(f"{token.token_id:>{cell}}", LETTERS[token.role][1])
        block.append(f"\n{'':{number}}  ").append("role  ", "dim")
        for token in shown:
            letter, style = LETTERS[token.role]
            block.append(f"{letter:>{cell}}", style)
        if any(token.target is not None for token in shown):
            block.append(f"\n{'':{number}}  ").append("target", "dim")
            for token in shown:
                block.append(f"{'' if token.target is None else token.target:>{cell}}", "bold yellow")
        blocks.append(block)
    return blocks
