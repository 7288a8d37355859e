"""Sets of labels: braces, files and neighborhoods."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from madbench import config
from madbench.config import from_mapping, read_yaml
from madbench.errors import ConfigError, LabelError, did_you_mean
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.names import DisplayNames, typed_spelling
from madbench.labels.paper_folders import files_of_papers
from madbench.labels.parsing import parse, texts_of
from madbench.labels.patterns import is_pattern, join_pattern, split_pattern
from madbench.labels.registry import family_of

MOST_LABELS = 10_000


@dataclass(frozen=True)
class LabelSet:
    """A named set of labels: one file of ``variants/`` or of a paper."""

    description: str
    """A sentence on what the labels have in common."""
    labels: tuple[str, ...]
    """Labels, brace patterns, neighborhoods and other sets, in order."""
    names: dict[str, str] = field(default_factory=dict)
    """Display names in tables and figures, by label."""


def expand(specs: Iterable[str], folder: Path = Path()) -> list[str]:
    """Returns the canonical labels that ``specs`` name, in order and without duplicates. Paths start at ``folder``.

    A spec is one of these:

    - a label or an alias;
    - a pattern such as ``{S,R}-c{,-q}``, whose braces may be nested and may have empty alternatives;
    - ``@NAME``, for the first of these that exists: ``variants/NAME.yaml`` in the current folder, the shipped file of
      this name, the file of a paper;
    - ``@FILE.yaml``, for any other file;
    - a pattern over layers such as ``3x@few/S-p``, for one pattern per label of the set;
    - ``~LABEL``, for a label and every label that differs from it in one factor.

    Raises ``LabelError`` for the first wrong spec and for more than 10,000 labels. Raises ``ConfigError`` for a file
    that is no ``LabelSet``.
    """
    labels: dict[str, None] = {}
    found = _Found()
    for spec in texts_of(specs):
        labels |= dict.fromkeys(_labels_of(spec, folder, found))
        if len(labels) > MOST_LABELS:
            raise LabelError(f"more than {MOST_LABELS:,} labels in all; ask for fewer at a time")
    return list(labels)


def names_of(specs: Any, names: DisplayNames | None = None) -> DisplayNames:
    """Returns ``names`` with the names that ``specs`` give to their labels: names of sets, and spellings of labels.

    ``specs`` are those of :func:`expand`. They may contain words that are no labels, which give no names. Raises
    ``ConfigError`` for a set whose names cannot be used with the other names.
    """
    found = _Found(names or DisplayNames())
    with suppress(LabelError):  # the value is not a label
        for spec in texts_of(specs):
            if ":" in spec or "@" in spec:  # a label without a prefix has one spelling
                with suppress(LabelError):
                    _labels_of(spec, Path(), found)
    return found.names


class _Found:
    """The names that are found while specs are expanded."""

    def __init__(self, names: DisplayNames | None = None):
        names = names or DisplayNames()
        self.typed = dict(names.typed)
        self.names = replace(names, typed=self.typed)

    def add_spelling(self, label: str, text: str) -> None:
        self.typed |= typed_spelling(label, text, self.typed)


def available_sets() -> dict[str, Path]:
    """The files that ``@NAME`` can name, by name. A file in ``./variants`` replaces all others of its name."""
    files = files_of_papers("variants")
    for folder in (config.VARIANTS, Path("variants")):
        files |= {path.stem: path for path in folder.glob("*.yaml")}
    return dict(sorted(files.items()))


def _labels_of(spec: str, folder: Path, found: _Found, above: tuple[Path, ...] = ()) -> list[str]:
    """The labels of one spec, whose names are added to ``found``.

    File paths start at ``folder``; ``above`` are the enclosing sets, outermost first.
    """
    labels: list[str] = []
    for text in dict.fromkeys(_with_sets_in_patterns(expand_braces(spec), folder, found, above)):
        try:
            if text.startswith("@"):
                labels += _labels_in(find_set(text[1:], folder), found, above)
            elif text.startswith("~"):
                centre = parse(text[1:])
                found.add_spelling(str(centre), text[1:])
                labels += map(str, (centre, *family_of(centre).neighbours(centre)))
            else:
                labels.append(str(parse(text)))
                found.add_spelling(labels[-1], text)
        except LabelError as error:
            if text == spec:
                raise
            raise LabelError(f"{error}\nin the set '{_shorten(spec)}'") from None
    return labels


def _with_sets_in_patterns(texts: Iterable[str], folder: Path, found: _Found, above: tuple[Path, ...]) -> Iterator[str]:
    """The texts. A text with a set, such as ``3x@few/S-p``, is replaced by one pattern per label of the set."""
    for text in texts:
        if not is_pattern(text) or "@" not in text or text.startswith("@"):
            yield text
            continue
        parts, is_cut = split_pattern(text)
        choices = [
            _labels_of(part.text, folder, found, above) if part.text[0] == "@" else [part.text] for part in parts
        ]
        for part, of_part in zip(parts, choices):
            if hybrid := next(filter(is_pattern, of_part), None):
                what = f"{part.text} has the hybrid {hybrid}, and a part of a pattern is one label"
                raise LabelError(point_at(text, part.position, what, "set"))
        for labels in itertools.islice(itertools.product(*choices), MOST_LABELS + 1):
            layers = [label for part, label in zip(parts, labels) for _ in range(part.count)]
            yield join_pattern(layers, is_cut)


def find_set(name: str, folder: Path) -> Path:
    """The file that ``@name`` means, relative to ``folder``. Raises ``LabelError`` if there is none."""
    if name.endswith((".yaml", ".yml")):
        if os.path.isfile(folder / name):  # False, not an error, for a name that no file can have
            return folder / name
        raise LabelError(f"'@{_shorten(name)}': no such file{f' in {folder}' if folder != Path() else ''}")
    sets = available_sets()
    if name not in sets:
        close = did_you_mean(name[:SHOWN], sets) or "; there are no sets in variants/"
        raise LabelError(f"'@{_shorten(name)}': no such set in variants/{close}")
    return sets[name]


def _labels_in(path: Path, found: _Found, above: tuple[Path, ...]) -> list[str]:
    resolved = path.resolve()
    if resolved in above:
        circle = " -> ".join(file.name for file in (*above[above.index(resolved) :], resolved))
        raise LabelError(f"{path}: a set cannot contain itself: {circle}")
    content = from_mapping(LabelSet, read_yaml(path), str(path))
    specs = content.labels
    if not specs:
        raise LabelError(f"{path}: labels is empty")
    try:
        found.names = found.names.with_names(content.names, of_set=True)
    except LabelError as error:
        raise LabelError(f"{error}\nin {path}: names") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: names: {error}") from None
    labels = []
    for i, spec in enumerate(specs):
        try:
            labels += _labels_of(spec, path.parent, found, (*above, resolved))
        except LabelError as error:
            raise LabelError(f"{error}\nin {path}: labels[{i}]") from None
    return labels


def expand_braces(spec: str) -> list[str]:
    """Expands a brace pattern; the leftmost braces vary slowest. A pattern without braces is returned as it is."""
    texts = [""]  # texts of the alternative being read
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
        elif token[0] == "," and enclosing and texts[0].count("(") <= texts[0].count(")"):  # not within arguments
            enclosing[-1][1].extend(texts)
            texts = [""]
        else:
            texts = [text + token[0] for text in texts]
    if enclosing:
        raise LabelError(point_at(spec, enclosing[-1][2], "no '}' closes this '{'", "set"))
    return texts


def _shorten(text: str) -> str:
    return show(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")
