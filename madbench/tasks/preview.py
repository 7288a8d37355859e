"""Looking at data: one example with the part each token plays, and a check of all of them in plain Python."""

from __future__ import annotations

from typing import NamedTuple

from madbench.errors import ConfigError
from madbench.tasks.base import IGNORE, Examples, Role, Split, TaskSetting
from madbench.tasks.generation import generate


class AnnotatedToken(NamedTuple):
    """One position of an example."""

    token_id: int
    role: Role
    target: int | None
    """The token id asked for here; None where nothing is."""


def annotate(task: str, setting: TaskSetting, split: Split, seed: int, index: int) -> list[AnnotatedToken]:
    """Example ``index`` of ``split``, position by position; an index outside the split is a ``ConfigError``."""
    count = setting.count(split)
    if not 0 <= index < count:
        raise ConfigError(f"example {index}: the {split} split of {task} has examples 0..{count - 1}")
    examples = generate(task, setting, split, seed)
    inputs, targets = examples.inputs[index].tolist(), examples.targets[index].tolist()
    roles = setting.read(inputs, targets, split == "train").roles
    return [
        AnnotatedToken(token, role, None if target == IGNORE else target)
        for token, role, target in zip(inputs, roles, targets)
    ]


def check(task: str, setting: TaskSetting, split: Split, seed: int, limit: int | None = None) -> list[str]:
    """What breaks the task's rules in the generated ``split`` (its first ``limit`` examples); empty when all is well.

    Every example is worked out again from its tokens alone (:meth:`TaskSetting.read`), which shares no code with the
    generator.
    """
    return find_violations(setting, generate(task, setting, split, seed), split, limit)


def find_violations(setting: TaskSetting, examples: Examples, split: Split, limit: int | None = None) -> list[str]:
    """What breaks the rules of ``setting`` in ``examples``, one message a violation."""
    shape = (setting.count(split), setting.input_len)
    if examples.inputs.shape != shape or examples.targets.shape != shape:
        return [f"inputs {examples.inputs.shape} and targets {examples.targets.shape}, expected {shape} for both"]
    violations = []
    for index, (inputs, targets) in enumerate(zip(examples.inputs[:limit], examples.targets[:limit])):
        problems = _problems(setting, inputs.tolist(), targets.tolist(), split == "train")
        violations += [f"example {index}: {problem}" for problem in problems]
    return violations


def _problems(setting: TaskSetting, inputs: list[int], targets: list[int], training: bool) -> list[str]:
    ids = range(setting.vocab_size)
    foreign = sorted({token for token in {*inputs, *targets} - {IGNORE} | {*inputs} if token not in ids})
    if foreign:
        return [f"ids {foreign} are outside 0..{setting.vocab_size - 1}"]
    if targets[-1] == IGNORE:
        return ["the last position has no target"]
    reading = setting.read(inputs, targets, training)
    wrong = [
        f"position {position}: target {target}, expected {expected}"
        for position, (target, expected) in enumerate(zip(targets, reading.targets))
        if target != expected
    ]
    return reading.problems + wrong
