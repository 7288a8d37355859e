"""Labels: one spelling for every sequence mixer, the key of every table, file name and plot.

The text before a label's first colon names its family; one family, S/R/G, has no prefix, and so no name. A family is a
value of the protocol :class:`madbench.mixers.Family`: ``FAMILY`` of a ``family.py`` in ``madbench/mixers/``, named like
its folder, or of an installed package, an entry point of the group ``madbench.families`` named like the family. A set
of labels is written with ``{S,R}-c`` braces, as ``@table1``, a file, or as ``~LABEL``, a neighbourhood.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench import config
from madbench.config import from_mapping, read_yaml, source_identity
from madbench.errors import ConfigError, FamilyError, LabelError, did_you_mean
from madbench.labels import names
from madbench.labels.diagnosis import SHOWN, point_at, show
from madbench.labels.elsewhere import problem_elsewhere
from madbench.labels.plugins import Guarded, Installed, find_installed, load_value, place
from madbench.labels.protocol import ANSWERS, Explanation, fault_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "Explanation", "LabelSet", "available_sets", "broken_families", "contrast_order", "diff", "every_label", "expand",
    "explain", "factor_names", "factors", "factors_in", "families", "family_identity", "family_of",
    "installed_families", "label_identity", "levels", "loaded_families", "mixer_names", "parse", "text_of", "texts_of",
    "unreadable",
]  # fmt: skip

GROUP = "madbench.families"
MOST_LABELS = 10_000
WITHOUT_PREFIX = "srg"  # folder of the family whose labels have no prefix

Family = Any  # of madbench.mixers, a room above this one
Label = Any  # what a family's parser returns: frozen, hashable, its str is the canonical label


def families() -> tuple[str, ...]:
    """Names of the built-in and the installed families, sorted; S/R/G is ``""``. Imports none of them."""
    return tuple(sorted({*_built_in(), *_installed().points}))


def installed_families() -> Mapping[str, EntryPoint]:
    """Where the families of other packages are, by name."""
    return _installed().points


def loaded_families() -> dict[str, Family]:
    """The families that can be loaded, by name: a broken package matters to its own labels only."""
    return {name: family for name in families() if not isinstance(family := _load(name), LabelError)}


def broken_families() -> dict[str, str]:
    """Why other families cannot be used, by name."""
    failed = {name: str(error) for name in families() if isinstance(error := _load(name), LabelError)}
    return dict(sorted((failed | _installed().refused).items()))


def family_of(label: str | Label) -> Family:
    """The family of a label or of its text; a ``LabelError`` where it is not installed or cannot be loaded."""
    name, colon, _ = str(label).partition(":")
    if colon and name not in families():
        if name in _installed().refused:
            raise LabelError(_installed().refused[name])
        hint = did_you_mean(name[:SHOWN], filter(None, families())) or "; no families are installed"
        raise LabelError(point_at(str(label), 0, f"unknown family {show(name[:SHOWN])!r} before the colon{hint}"))
    family = _load(name if colon else "")
    if isinstance(family, LabelError):
        raise LabelError(*family.args)
    return family


def text_of(value: Any) -> str:
    """A label's text: as it is, or of a value that a family has labels for, as of the class of a user's module."""
    if isinstance(value, str):
        return value
    failed = None
    for family in loaded_families().values():
        try:
            if (text := getattr(family, "text_of", lambda value: None)(value)) is not None:
                return text
        except FamilyError as error:
            failed = error
    raise failed or LabelError(f"a label is text such as 'G-cg-q-12o', got {type(value).__name__}")


def texts_of(values: Any) -> tuple[str, ...]:
    """The texts of one label or set of labels, or of several (:func:`text_of`)."""
    is_one = isinstance(values, str) or not isinstance(values, Iterable)
    return tuple(map(text_of, (values,) if is_one else values))


def as_label(value: Any) -> Label:
    """The label of its text or of what stands for it, which may be it already."""
    return parse(value) if isinstance(value, str) or callable(value) else value


def parse(text: str) -> Label:
    """The label that a text names, by the parser of its family; ``str`` of it is the canonical text.

    Of a class that makes a user's module it is the label of that (:func:`text_of`).

    Raises ``LabelError``, whose message points at the character at fault.
    """
    text = text_of(text)
    try:
        return family_of(text).parse(text)
    except FamilyError:
        raise
    except LabelError:
        if problem := problem_elsewhere(text):
            raise LabelError(problem) from None
        raise


def unreadable(label: str) -> str:
    """Why a stored label cannot be read here, as its family is not installed or fails; empty where it can."""
    try:
        parsed = parse(label)
        factors(parsed), levels(parsed)
        if isinstance(family := family_of(parsed), Guarded):  # those of this package answer, some after measuring
            getattr(family, "traits", str)(parsed)
    except LabelError as error:
        return str(error).splitlines()[-1].strip()
    return ""


def factors(label: Label) -> Mapping[str, str]:
    """What the label is, factor by factor; a factor without a meaning for it is left out."""
    return family_of(label).factors(label)


def factors_in(family: Family, label: Label) -> Mapping[str, str] | None:
    """The factors of a label as a family has them: of its own labels, and of another's where it can, or None."""
    if family_of(label) is family:
        return family.factors(label)
    return getattr(family, "factors_of_other", lambda other: None)(label)


def diff(a: Label, b: Label) -> tuple[str, ...]:
    """The factors that both labels have and in which they differ; of two families, the family and all their factors.

    A family that has a place for labels of another one (``factors_of_other``) compares them as its own.
    """
    for family in (family_of(a), family_of(b)):
        mine, theirs = factors_in(family, a), factors_in(family, b)
        if mine is not None and theirs is not None:
            return tuple(name for name in mine if name in theirs and mine[name] != theirs[name])
    return ("family", *dict.fromkeys((*factors(a), *factors(b))))


def explain(label: Label) -> Sequence[Explanation]:
    """A row a letter, then what follows from the letters that are absent."""
    return family_of(label).explain(label)


def levels(label: Label) -> Mapping[str, str]:
    """What a contrast calls each factor of the label: its family's ``levels``, or else its ``factors``."""
    family = family_of(label)
    return getattr(family, "levels", family.factors)(label)


def factor_names(label: str | Label) -> Mapping[str, str]:
    """Names that people see, of the factors of the label's family that have another name inside."""
    return getattr(family_of(label), "factor_names", {})


def contrast_order() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Factors, and their levels, in the order in which contrasts are listed, of the families that have one."""
    ordered = loaded_families().values()
    return tuple(
        tuple(dict.fromkeys(name for family in ordered for name in getattr(family, order, ())))
        for order in ("factor_order", "level_order")
    )


def mixer_names() -> tuple[str, ...]:
    """Names of mixers that are read without a prefix, in any case: ``HyperGLU``."""
    return tuple(getattr(family_of(""), "mixers", {}))


@functools.cache
def every_label() -> tuple[str, ...]:
    """Every label without a prefix, in the order of its grammar."""
    return tuple(map(str, family_of("").labels()))


def family_identity(family: Family) -> str:
    """What a job says of the family that computes it: its version.

    Of an installed one also that of its distribution and a hash of its package's files: an edited operator is another.
    """
    if family.name in _built_in():
        return family.version
    return f"{family.version}+{source_identity(_installed().points[family.name])}"


def label_identity(label: str | Label) -> str:
    """What a job says of the label's operator: :func:`family_identity`, and what its family's ``identity`` adds.

    That is of one label alone, such as a hash of a user's module.
    """
    family = family_of(label)
    own = getattr(family, "identity", None)
    return f"{family_identity(family)}+{own(as_label(label))}" if own else family_identity(family)


@functools.cache
def _load(name: str) -> Family | LabelError:
    """The family, or why there is none: what failed to load is not tried again."""
    value = _built_in().get(name) or _installed().points[name].value
    family = load_value("family", name, value, LabelError, "madbench.mixers.Family", _fault_of_family)
    if name in _built_in() or isinstance(family, LabelError):
        return family
    return Guarded(family, place("family", name, value), FamilyError, ANSWERS)


def _fault_of_family(family: Any) -> str:
    """What is wrong with a family, whose settings every profile makes, whatever its labels; empty for a sound one."""
    if not (fault := fault_of(family)) and family.name not in _built_in():
        from_mapping(family.Settings, {}, "its Settings")
    return fault


@functools.cache
def _built_in() -> dict[str, str]:
    """Where each family of this package is, by name: the folders in ``mixers/`` that have a ``family.py``."""
    home = Path(__file__).parents[1] / "mixers"
    folders = [file.parent.relative_to(home).parts for file in sorted(home.rglob("family.py"))]
    return {
        "" if parts[-1] == WITHOUT_PREFIX else parts[-1]: f"madbench.mixers.{'.'.join(parts)}.family:FAMILY"
        for parts in folders
    }


@functools.cache
def _installed() -> Installed:
    return find_installed(GROUP, "family", _built_in(), fault_of_name)


def fault_of_name(name: str) -> str:
    """What is wrong with the name of a family; empty for none."""
    is_sound = re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name)
    return "" if is_sound else "the name is what its labels begin with, letters, digits, - and _, such as my_family"


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
    for text in dict.fromkeys(_expand_braces(spec)):
        try:
            if text.startswith("@"):
                labels += _labels_in(_find(text[1:], folder), above)
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


def _find(name: str, folder: Path) -> Path:
    if name.endswith((".yaml", ".yml")):
        if "\0" not in name and (folder / name).is_file():
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


def _expand_braces(spec: str) -> list[str]:
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
