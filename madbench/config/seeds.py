"""Conversion of seeds between text such as ``0-4`` and numbers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from madbench.config.settings import check_unique
from madbench.config.values import short_repr
from madbench.errors import ConfigError

MOST_SEEDS = 1000
MOST_SEED = 2**63 - 1


def parse_seeds(text: str, where: str = "--seeds") -> list[int]:
    """Parse text such as ``"0,1,2"`` or ``"0-4"`` into a list of seeds.

    Raises ``ConfigError`` for other text, for a repeated seed, and for more than ``MOST_SEEDS`` seeds. The message
    begins with ``where``, the name of the option or key.
    """
    seeds: list[int] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        if not numbers:
            of_length = " of at most 18 digits" if re.search("[0-9]{19}", part) else ""
            raise ConfigError(f"{where} {short_repr(text)}: expected whole numbers{of_length} such as 0,1,2 or 0-4")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last < first:
            raise ConfigError(f"{where} {short_repr(text)}: {first}-{last} counts down; did you mean '{last}-{first}'?")
        count = len(seeds) + last - first + 1
        if count > MOST_SEEDS:
            raise ConfigError(f"{where} {short_repr(text)}: {count:,} seeds; at most {MOST_SEEDS:,} are allowed")
        seeds += range(first, last + 1)
    check_unique(seeds, f"{where} {short_repr(text)}")
    return seeds


def seed_list(seeds: Collection[int]) -> str:
    """Write seeds in the form that ``--seeds`` accepts.

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
    """Return the seeds as a tuple. ``seeds`` may be a single number.

    Raises ``ConfigError`` unless every seed is a whole number from 0 to 2^63 - 1, and for a repeated seed.
    """
    seeds = tuple(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else (seeds,)
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            expected = "whole numbers of at least 0, such as 0-2 or [0, 1, 2]"
            raise ConfigError(f"seeds: expected {expected}, got {short_repr(seed)}")
        if seed > MOST_SEED:
            raise ConfigError(f"seeds: expected at most 2^63 - 1, got {short_repr(seed)}")
    check_unique(seeds, "seeds")
    return seeds
