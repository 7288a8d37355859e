"""Sets of labels, written with braces, as a file (``@NAME``) or as a neighborhood (``~LABEL``)."""

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
from madbench.labels.diagnosis import SHOWN, escape, point_at
from madbench.labels.family import Label
from madbench.labels.names import DisplayNames, typed_spelling
from madbench.labels.parsing import Labels, parse, texts_of
from madbench.labels.patterns import is_pattern, join_pattern, split_pattern
from madbench.labels.registry import family_of
from madbench.plugins.paper_folders import files_of_papers

MOST_LABELS = 10_000


@dataclass(frozen=True)
class LabelSet:
    """The content of a file with a set of labels, from a folder ``variants/`` or from a paper."""

    description: str
    """A sentence on what the labels have in common."""
    labels: tuple[str, ...]
    """Labels, brace patterns, neighborhoods and other sets, in order."""
    names: dict[str, str] = field(default_factory=dict)
    """Display names in tables and figures, by label."""


def expand(specs: Labels | Iterable[str | type | Label], folder: Path = Path()) -> list[str]:
    """Return the canonical labels that ``specs`` name, in order and without duplicates.

    A spec is one of these, and paths in it are relative to ``folder``:

    - a label or an alias;
    - a pattern such as ``{S,R}-c{,-q}``, whose braces may be nested and may have empty alternatives;
    - ``@NAME``, for the labels in the first of these files that exists: ``variants/NAME.yaml`` in the current folder,
      the file of this name in madbench, the file of a paper;
    - ``@FILE.yaml``, for the labels in any other file;
    - a pattern over layers with a set in it, such as ``3x@few/S-p``, for one pattern per label of the set;
    - ``~LABEL``, for a label and every label that differs from it in one factor.

    Raises ``LabelError`` for the first wrong spec and for more than 10,000 labels. Raises ``ConfigError`` for a file
    that is no ``LabelSet``.
    """
    labels: dict[str, None] = {}
    collector = _NameCollector()
    for spec in texts_of(specs):
        labels |= dict.fromkeys(_labels_of(spec, folder, collector))
        if len(labels) > MOST_LABELS:
            raise LabelError(f"more than {MOST_LABELS:,} labels in all; ask for fewer at a time")
    return list(labels)


def names_of(specs: Any, names: DisplayNames | None = None) -> DisplayNames:
    """Return ``names`` with the display names that ``specs`` define.

    These are the names in the files of sets, and the spellings of labels as the user typed them. ``specs`` are specs of
    :func:`expand`. Specs that are no labels are ignored. Raises ``ConfigError`` for a file of a set whose names are
    invalid or contradict other names.
    """
    collector = _NameCollector(names or DisplayNames())
    with suppress(LabelError):  # the value is not a label
        for spec in texts_of(specs):
            if ":" in spec or "@" in spec:  # a label without a prefix has one spelling
                with suppress(LabelError):
                    _labels_of(spec, Path(), collector)
    return collector.names


class _NameCollector:
    def __init__(self, names: DisplayNames | None = None):
        names = names or DisplayNames()
        self.typed = dict(names.typed)
        self.names = replace(names, typed=self.typed)

    def add_spelling(self, label: str, text: str) -> None:
        self.typed |= typed_spelling(label, text, self.typed)


def available_sets() -> dict[str, Path]:
    """The files of sets of labels, sorted by the NAME in ``@NAME``.

    If several files have the same name, ``./variants`` takes precedence, then the folder of madbench, then papers.
    """
    files = files_of_papers("variants")
    for folder in (config.VARIANTS, Path("variants")):
        files |= {path.stem: path for path in folder.glob("*.yaml")}
    return dict(sorted(files.items()))


def _labels_of(spec: str, folder: Path, collector: _NameCollector, outer_files: tuple[Path, ...] = ()) -> list[str]:
    """The canonical labels of one spec (:func:`expand`). Their display names are added to ``collector``.

    Paths are relative to ``folder``. ``outer_files`` has the files of the enclosing sets, outermost first.
    """
    labels: list[str] = []
    for text in dict.fromkeys(_with_sets_in_patterns(expand_braces(spec), folder, collector, outer_files)):
        try:
            if text.startswith("@"):
                labels += _labels_in(find_set(text[1:], folder), collector, outer_files)
            elif text.startswith("~"):
                center = parse(text[1:])
                collector.add_spelling(str(center), text[1:])
                labels += map(str, (center, *family_of(center).neighbors(center)))
            else:
                labels.append(str(parse(text)))
                collector.add_spelling(labels[-1], text)
        except LabelError as error:
            if text == spec:
                raise
            raise LabelError(f"{error}\nin the set '{_shorten(spec)}'") from None
    return labels


def _with_sets_in_patterns(
    texts: Iterable[str], folder: Path, collector: _NameCollector, outer_files: tuple[Path, ...]
) -> Iterator[str]:
    """Yield ``texts``, with each pattern over layers that contains a set replaced by patterns of labels.

    For example, ``3x@few/S-p`` is replaced by one pattern per label of the set ``@few``.
    """
    for text in texts:
        if not is_pattern(text) or "@" not in text or text.startswith("@"):
            yield text
            continue
        parts, is_cut = split_pattern(text)
        choices = [
            _labels_of(part.text, folder, collector, outer_files) if part.text[0] == "@" else [part.text]
            for part in parts
        ]
        for part, of_part in zip(parts, choices):
            if hybrid := next(filter(is_pattern, of_part), None):
                what = f"{part.text} has the hybrid {hybrid}, and a part of a pattern is one label"
                raise LabelError(point_at(text, part.position, what, "set"))
        for labels in itertools.islice(itertools.product(*choices), MOST_LABELS + 1):
            layers = [label for part, label in zip(parts, labels) for _ in range(part.count)]
            yield join_pattern(layers, is_cut)


def find_set(name: str, folder: Path) -> Path:
    """The file of the set ``@name``. A name that ends in ``.yaml`` or ``.yml`` is a path relative to ``folder``.

    Raises ``LabelError`` if there is no such file.
    """
    if name.endswith((".yaml", ".yml")):
        if os.path.isfile(folder / name):  # False, not an error, for a name that no file can have
            return folder / name
        raise LabelError(f"'@{_shorten(name)}': no such file{f' in {folder}' if folder != Path() else ''}")
    sets = available_sets()
    if name not in sets:
        close = did_you_mean(name[:SHOWN], sets, "madbench ls variants")
        raise LabelError(f"'@{_shorten(name)}': no such set in variants/{close}")
    return sets[name]


def _labels_in(path: Path, collector: _NameCollector, outer_files: tuple[Path, ...]) -> list[str]:
    resolved = path.resolve()
    if resolved in outer_files:
        circle = " -> ".join(file.name for file in (*outer_files[outer_files.index(resolved) :], resolved))
        raise LabelError(f"{path}: a set cannot contain itself: {circle}")
    content = from_mapping(LabelSet, read_yaml(path), str(path))
    specs = content.labels
    if not specs:
        raise LabelError(f"{path}: labels is empty")
    try:
        collector.names = collector.names.with_names(content.names, of_set=True)
    except LabelError as error:
        raise LabelError(f"{error}\nin {path}: names") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: names: {error}") from None
    labels = []
    for i, spec in enumerate(specs):
        try:
            labels += _labels_of(spec, path.parent, collector, (*outer_files, resolved))
        except LabelError as error:
            raise LabelError(f"{error}\nin {path}: labels[{i}]") from None
    return labels


def expand_braces(spec: str) -> list[str]:
    """Return all texts that a pattern with braces stands for. The leftmost braces vary slowest.

    A pattern without braces stands for itself. Raises ``LabelError`` for braces without a partner, and for more than
    10,000 texts.
    """
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
    return escape(text[:SHOWN]) + ("..." if len(text) > SHOWN else "")
