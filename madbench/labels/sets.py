"""Sets of labels: braces, files and neighbourhoods."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from madbench import config
from madbench.config import from_mapping, read_yaml
from madbench.errors import ConfigError, LabelError, did_you_mean
from madbench.labels import names
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.parsing import parse, texts_of
from madbench.labels.registry import family_of

MOST_LABELS = 10_000


@dataclass(frozen=True)
class LabelSet:
    """A named set, one file of ``variants/``."""

    description: str
    """What the labels have in common."""
    labels: tuple[str, ...]
    """Labels, brace patterns, neighbourhoods and other sets, in order."""
    names: dict[str, str] = field(default_factory=dict)
    """By label, what tables and figures call it."""


def expand(specs: Iterable[str]) -> list[str]:
    """The canonical labels that ``specs`` name, in order and each once.

    A spec is a label or an alias; a pattern such as ``{S,R}-c{,-q}``, whose braces may nest and hold empty
    alternatives; ``@NAME`` for ``variants/NAME.yaml`` of the current folder or else the shipped one, ``@FILE.yaml``
    for any other; ``~LABEL`` for a label and every label that differs from it in one factor. Raises ``LabelError``
    for the first spec that is wrong or when there would be more than 10,000 labels, and ``ConfigError`` for a file
    that is not a ``LabelSet``; nothing is returned then.
    """
    labels: dict[str, None] = {}
    for spec in texts_of(specs):
        labels |= dict.fromkeys(_labels_of(spec, Path()))
        if len(labels) > MOST_LABELS:
            raise LabelError(f"more than {MOST_LABELS:,} labels in all; ask for fewer at a time")
    return list(labels)


def available_sets() -> dict[str, Path]:
    """The files that ``@NAME`` can name, by name: those of ``./variants``, then the shipped ones."""
    shipped = {path.stem: path for path in sorted(config.VARIANTS.glob("*.yaml"))}
    return shipped | {path.stem: path for path in sorted(Path("variants").glob("*.yaml"))}


def _labels_of(spec: str, folder: Path, above: tuple[Path, ...] = ()) -> list[str]:
    """Labels of one spec; ``folder`` is where its file paths start, ``above`` are the sets that led to it."""
    labels = []
    for text in dict.fromkeys(expand_braces(spec)):
        try:
            if text.startswith("@"):
                labels += _labels_in(find_set(text[1:], folder), above)
            elif text.startswith("~"):
                centre = parse(text[1:])
                names.remember(str(centre), text[1:])
                labels += map(str, (centre, *family_of(centre).neighbours(centre)))
            else:
                labels.append(str(parse(text)))
                names.remember(labels[-1], text)
        except LabelError as error:
            if text == spec:
                raise
            raise LabelError(f"{error}\nin the set '{_shorten(spec)}'") from None
    return labels


def find_set(name: str, folder: Path) -> Path:
    """The file that ``@name`` means, seen from ``folder``. Raises ``LabelError`` if there is none."""
    if name.endswith((".yaml", ".yml")):
        if os.path.isfile(folder / name):  # False also for a name that no file can have
            return folder / name
        raise LabelError(f"'@{_shorten(name)}': no such file{f' in {folder}' if folder != Path() else ''}")
    sets = available_sets()
    if name not in sets:
        close = did_you_mean(name[:SHOWN], sets) or "; there are no sets in variants/"
        raise LabelError(f"'@{_shorten(name)}': no such set in variants/{close}")
    return sets[name]


def _labels_in(path: Path, above: tuple[Path, ...]) -> list[str]:
    place = path.resolve()
    if place in above:
        circle = " -> ".join(file.name for file in (*above[above.index(place) :], place))
        raise LabelError(f"{path}: a set cannot contain itself: {circle}")
    content = from_mapping(LabelSet, read_yaml(path), str(path))
    specs = content.labels
    if not specs:
        raise LabelError(f"{path}: labels is empty")
    try:
        names.ask(content.names, of_set=True)
    except LabelError as error:
        raise LabelError(f"{error}\nin {path}: names") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: names: {error}") from None
    labels = []
    for i, spec in enumerate(specs):
        try:
            labels += _labels_of(spec, path.parent, (*above, place))
        except LabelError as error:
            raise LabelError(f"{error}\nin {path}: labels[{i}]") from None
    return labels


def expand_braces(spec: str) -> list[str]:
    """The texts a brace pattern stands for, leftmost braces slowest; a pattern without braces stands for itself."""
    texts = [""]  # of the alternative being read
    enclosing: list[tuple[list[str], list[str], int]] = []  # texts before a brace, finished alternatives, its position
    for token in re.finditer("[{},]|[^{},]+", spec):
        if token[0] == "{":
            enclosing.append((texts, [], token.start()))
            texts = [""]
        elif token[0] == "}":
            if not enclosing:
                raise LabelError(point_at(spec, token.start(), "no '{' before this '}'", "set"))
            before, alternatives, _ = enclosing.pop()
            alternatives = list(dict.fromkeys(alternatives + texts))
            if len(before) * len(alternatives) > MOST_LABELS:
                raise LabelError(f"'{_shorten(spec)}' stands for more than {MOST_LABELS:,} labels; ask for fewer")
            texts = [text + ending for text in before for ending in alternatives]
        elif token[0] == "," and enclosing:
            enclosing[-1][1].extend(texts)
            texts = [""]
        else:
            texts = [text + token[0] for text in texts]
    if enclosing:
        raise LabelError(point_at(spec, enclosing[-1][2], "no '}' closes this '{'", "set"))
    return texts


def _shorten(text: str) -> str:
    return show(text[:SHOWN]) + "..." * (len(text) > SHOWN)
