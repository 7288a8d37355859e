"""Seeds as they are written on the command line, ``0,1,2`` or ``0-4``, and given to functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from madbench.errors import ConfigError

MOST_SEEDS = 1000


def parse_seeds(text: str, where: str = "--seeds") -> list[int]:
    """``"0,1,2"`` or ``"0-4"`` -> seeds."""
    seeds: list[int] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        if not numbers:
            raise ConfigError(f"{where} {text!r}: expected whole numbers such as 0,1,2 or 0-4")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last - first >= MOST_SEEDS:
            raise ConfigError(f"{where} {text!r}: {last - first + 1:,} seeds; at most {MOST_SEEDS:,} are allowed")
        seeds += range(first, last + 1)
    if not seeds or len(set(seeds)) != len(seeds):
        raise ConfigError(f"{where} {text!r}: give each seed once, at least one")
    return seeds


def seed_list(seeds: Collection[int]) -> str:
    """As ``--seeds`` takes them.

    >>> seed_list([0, 1, 2, 5])
    '0-2,5'
    """
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def check_seeds(seeds: Sequence[int] | int) -> tuple[int, ...]:
    """The seeds, of which there may be one alone; raises ``ConfigError`` for anything but whole numbers from 0."""
    seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            raise ConfigError(f"seeds: expected whole numbers of at least 0, got {seed!r}")
    return seeds
