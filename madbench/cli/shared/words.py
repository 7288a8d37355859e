"""Words of a command line: labels, settings, and lists with commas."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

from madbench.config import Override, short_repr
from madbench.errors import ConfigError, suggestion
from madbench.labels import mixer_names


def names_and_labels(words: list[str], names: Collection[str], noun: str) -> tuple[list[str], list[str]]:
    """Split words into those in ``names`` and labels. The names are in the order of ``names``, each once.

    Raises ``ConfigError`` for a word that looks like a misspelled name. ``noun`` says in the message what the names
    are.
    """
    others = [word for word in words if word not in names]
    families = {name.lower() for name in mixer_names()}
    for word in others:
        if re.fullmatch("[a-z]{2,}", word) and word not in families:
            what = f"neither a {noun} ({', '.join(names)}) nor a label"
            raise ConfigError(f"{short_repr(word)} is {what}{suggestion(word, names)}")
    return [name for name in names if name in words], others


def labels_and_overrides(words: Iterable[str]) -> tuple[list[str], tuple[Override, ...]]:
    """Split the words ``LABEL... KEY=VALUE...`` into labels and overrides.

    A label may have a '=' after a colon or a parenthesis. Raises ``ConfigError`` for a file, and for a key without a
    value.
    """
    from madbench.suites.addressing import parse_overrides

    labels: list[str] = []
    overrides: list[str] = []
    for word in words:
        if re.fullmatch(r"[^@=:][^=:]*\.ya?ml", word):
            advice = f"madbench sweep {word[:99]} trains a grid, @{word[:99]} is a set of labels"
            raise ConfigError(f"{short_repr(word)} is no label; {advice}")
        if re.fullmatch(r"[^@=:]+\.\w+", word) and os.path.isfile(word):
            what = f"a class in it is my:{word[:-3]}.CLASS" if word.endswith(".py") else "a label is text, such as S-p"
            raise ConfigError(f"{short_repr(word)} is a file, no label; {what}")
        if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", word):
            advice = f"to change the profile write {word[:99]}=VALUE, and for a module of your own my:{word[:99]}"
            raise ConfigError(f"{short_repr(word)} is no label; {advice}")
        key, equals, _ = word.partition("=")
        (overrides if equals and not re.search("[:(]", key) else labels).append(word)
    return labels, parse_overrides(overrides)


def parse_margins(text: str) -> float | dict[str, float]:
    """Parse the margins of ``--within``: ``2``, or ``mad_average=2,loss_l5=0.02``.

    Raises ``ConfigError`` for other text.
    """
    parts = [part.strip().partition("=") for part in text.split(",")]
    try:
        if len(parts) == 1 and not parts[0][1]:
            return float(text)
        if all(name and equals for name, equals, _ in parts):
            return {name: float(number) for name, _, number in parts}
    except ValueError:
        pass
    raise ConfigError(f"--within {text}: expected a number, or COLUMN=NUMBER, such as 2 or mad_average=2,loss_l5=0.02")
