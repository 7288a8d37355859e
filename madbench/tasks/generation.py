"""From (task, setting, split, seed) to examples: one stream of random numbers for each such combination."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING

from madbench.errors import ConfigError, did_you_mean
from madbench.tasks.base import IGNORE, SPLITS, Examples, Split, TaskSetting
from madbench.tasks.registry import settings_class

if TYPE_CHECKING:
    import numpy as np

TOKENS_PER_CHUNK = 1 << 17
"""Tokens drawn at a time: bounds memory and keeps the work in the processor's cache. Another value, other data."""


def generate(task: str, setting: TaskSetting, split: Split, seed: int) -> Examples:
    """The examples of ``split``, the same on every machine; training targets for "train", evaluation's for the others.

    Raises:
        ConfigError: unknown task or split.
        TypeError: ``setting`` belongs to another task.
    """
    import numpy as np

    rng = stream(task, setting, split, seed)
    count = setting.count(split)
    inputs = np.empty((count, setting.input_len), np.int64)
    targets = np.empty_like(inputs)
    rows = max(1, TOKENS_PER_CHUNK // setting.seq_len)
    for start in range(0, count, rows):
        stop = min(start + rows, count)
        inputs[start:stop], targets[start:stop] = setting.draw(rng, stop - start, training=split == "train")
    return Examples(inputs, targets)


def ceiling(task: str, setting: TaskSetting, seed: int) -> float:
    """The best test accuracy that the data allow, if every target that does not follow from them is missed.

    A lucky guess (1 in 8 for the first value token of fuzzy recall at the baseline) can lift a model above it.
    """
    return setting.ceiling(lambda split: generate(task, setting, split, seed))


def stream(task: str, setting: TaskSetting, split: Split, seed: int) -> np.random.Generator:
    """The generator that every draw of one split comes from, seeded by a hash of all four arguments.

    Every field of the setting enters the hash, the numbers of examples too: the settings of a protocol are then
    independent of each other, so that the mean over them does not carry one test set's luck several times.
    """
    import numpy as np

    if type(setting) is not settings_class(task):
        raise TypeError(f"task {task} needs a {settings_class(task).__name__}, got a {type(setting).__name__}")
    if split not in SPLITS:
        raise ConfigError(f"unknown split {split!r}{did_you_mean(split, SPLITS)}")
    content = {"task": task, "setting": dataclasses.asdict(setting), "split": split, "seed": int(seed)}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))


def find_violations(setting: TaskSetting, examples: Examples, split: Split) -> list[str]:
    """What breaks the rules of ``setting`` in ``examples``, one message a violation.

    Every example is worked out again from its tokens alone (:meth:`TaskSetting.read`), which shares no code with the
    generator.
    """
    shape = (setting.count(split), setting.input_len)
    if examples.inputs.shape != shape or examples.targets.shape != shape:
        return [f"inputs {examples.inputs.shape} and targets {examples.targets.shape}, expected {shape} for both"]
    violations = []
    for index, (inputs, targets) in enumerate(zip(examples.inputs.tolist(), examples.targets.tolist())):
        foreign = [token for token in {*inputs} | ({*targets} - {IGNORE}) if not 0 <= token < setting.vocab_size]
        if foreign:
            problems = [f"ids {sorted(foreign)} are outside 0..{setting.vocab_size - 1}"]
        else:
            reading = setting.read(inputs, targets, split == "train")
            unknown = {*reading.roles} - {*setting.roles}
            problems = [*reading.problems, *(f"role {role!r} is not among the task's roles" for role in unknown)]
            problems += [
                f"position {position}: target {target}, expected {expected}"
                for position, (target, expected) in enumerate(zip(targets, reading.targets, strict=True))
                if target != expected
            ]
        violations += [f"example {index}: {problem}" for problem in problems]
    return violations
