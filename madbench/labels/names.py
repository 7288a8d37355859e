"""Display names of labels. They affect output only: jobs, files and programs use the canonical label.

The display name of a label is the first of these that exists: the name that the user asked for (``names`` in the file
of a set of labels or of a Python call, ``--rename LABEL=NAME``); the label as the user typed it; the label with the
name of its family's preset; the label itself. Typed spellings are kept for a whole command or call.
"""

from __future__ import annotations

import contextlib
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from madbench.errors import ConfigError, MadbenchError
from madbench.labels.parsing import parse
from madbench.labels.registry import family_of

_TOKEN = re.compile(r"(?<![\w:.])[a-z]+:[\w.+-]*[\w!]")  # a label with a prefix, inside a sentence
_NO_TEXT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of control characters, surrogates, and line and paragraph separators."""
_FIRST = re.compile(r"\S+(?=  |$)")  # the label at the start of a row's name, such as ``S-p  model.mix_rank=4``


@dataclass
class _Names:
    by_user: dict[str, str] = field(default_factory=dict)
    of_sets: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)


_OF_PROCESS = _Names()
_OF_CALL: ContextVar[_Names | None] = ContextVar("names", default=None)


def _names() -> _Names:
    return _OF_CALL.get() or _OF_PROCESS


def requested_names() -> tuple[str, ...]:
    """The names that the user asked for, including those from files of sets of labels."""
    names = _names()
    return (*names.by_user.values(), *names.of_sets.values())


def display_name(label: str) -> str:
    """The name of a canonical label in tables, figures and messages."""
    names = _names()
    return names.by_user.get(label) or names.of_sets.get(label) or typed_label(label)


def typed_label(label: str) -> str:
    """The label as the user typed it, or with its preset's name. Every verb accepts this spelling."""
    return _names().typed.get(label) or _with_preset(label)


def file_name(label: str) -> str:
    """The label as the user typed it, for use in a file name: colons become ``-``."""
    return re.sub(r"[^\w.+!-]", "-", typed_label(label))


def with_display_names(text: str) -> str:
    """Replaces labels in a text by their display names: a label at its start, and every label with a prefix."""
    return _TOKEN.sub(lambda match: display_name(match[0]), _FIRST.sub(lambda match: display_name(match[0]), text, 1))


def with_typed_labels(text: str) -> str:
    """Replaces labels in a message by their typed spelling, so that commands in the message stay valid."""
    return _TOKEN.sub(lambda match: typed_label(match[0]), text)


def remember(label: str, text: str) -> None:
    """Stores the typed spelling of a label that has a prefix. A spelling that is not canonical takes precedence."""
    if ":" not in label:  # HyperGLU is G-cg-q-12o, the name that says what it is
        return
    typed = _names().typed
    typed[label] = text if text != label else typed.get(label, label)


def add_names(names: Mapping[str, str], *, of_set: bool = False) -> None:
    """Stores display names by label, in any spelling. Names of a set yield to names that the user asked for.

    Raises ``LabelError`` for a text that is no label. Raises ``ConfigError`` for a name that is empty, has control
    characters, belongs to two labels, or is itself another label.
    """
    current = _names()
    into = current.of_sets if of_set else current.by_user
    for text, name in names.items():
        label = str(parse(text))
        if not name.strip():
            raise ConfigError(f"the name of {text!r} is empty; write {text}=NAME")
        if any(unicodedata.category(character) in _NO_TEXT for character in name):
            raise ConfigError(f"the name of {text!r} has a line break or a control character: {name!r}")
        if _label_of(name) not in (None, label):
            raise ConfigError(f"{name!r} cannot be the name of {text}: it is a label itself")
        into[label] = name
        every = current.of_sets | current.by_user
        if other := next((each for each in every if every[each] == every[label] and each != label), None):
            raise ConfigError(f"{every[label]!r} cannot be the name of both {typed_label(other)} and {text}")


def _label_of(text: str) -> str | None:
    """The canonical label of a text. None if the text is no label."""
    try:
        return str(parse(text))
    except MadbenchError:
        return None


def add_names_from_words(words: Iterable[str]) -> None:
    """Calls :func:`add_names` for words such as ``cd:gdn-cg=Gated DeltaNet``."""
    for word in words:
        label, equals, name = word.partition("=")
        if not equals:
            raise ConfigError(f"--rename {word!r}: expected LABEL=NAME, such as 'cd:gdn-cg=Gated DeltaNet'")
        add_names({label: name})


def begin() -> None:
    """Forgets the names and typed spellings of earlier commands. Called when a command begins."""
    _OF_CALL.set(_Names())


@contextlib.contextmanager
def names_of_call(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Limits display names and typed spellings to one call from Python."""
    token = _OF_CALL.set(_Names())
    try:
        add_names(names or {})
        yield
    finally:
        _OF_CALL.reset(token)


@functools.lru_cache(maxsize=10_000)
def _with_preset(label: str) -> str:
    if ":" not in label:
        return label
    try:
        preset_spelling = getattr(family_of(label), "preset_spelling", None)
        if preset_spelling is None or str(parse(label)) != label:
            return label
        return preset_spelling(parse(label))
    except MadbenchError:  # the family is not installed here, or the text is no label
        return label
