"""The names that labels are shown by. They decide nothing: jobs, files and programs know the canonical label alone.

A label is shown by the name that was asked for (``--rename LABEL=NAME``, ``names`` of a set's file or of a call from
Python), else as it was typed, else by the name of its family's preset where it has one, else as it is. What is typed
holds for a command, or a call, as a whole.
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

_TOKEN = re.compile(r"(?<![\w:.])[a-z]+:[\w.+-]*[\w!]")  # of a label with a prefix, in a sentence
_NO_TEXT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of characters and separators of lines and paragraphs."""
_FIRST = re.compile(r"\S+(?=  |$)")  # the label that begins a row's name, such as ``S-p  model.mix_rank=4``


@dataclass
class _Names:
    by_user: dict[str, str] = field(default_factory=dict)
    of_sets: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)


_OF_PROCESS = _Names()
_OF_CALL: ContextVar[_Names | None] = ContextVar("names", default=None)


def _names() -> _Names:
    return _OF_CALL.get() or _OF_PROCESS


def asked_names() -> tuple[str, ...]:
    """The names that were asked for, also by sets of labels."""
    names = _names()
    return (*names.by_user.values(), *names.of_sets.values())


def shown(label: str) -> str:
    """The name of a canonical label for people."""
    names = _names()
    return names.by_user.get(label) or names.of_sets.get(label) or spelled(label)


def spelled(label: str) -> str:
    """The label as it was typed, or with its preset's name: a spelling that every verb takes."""
    return _names().typed.get(label) or _with_preset(label)


def file_name(label: str) -> str:
    """The label as it was typed, as a part of a file's name: with ``-`` in place of colons."""
    return re.sub(r"[^\w.+!-]", "-", spelled(label))


def shown_in(text: str) -> str:
    """A text for people with its labels as they are shown: the one that begins it, and all with a prefix."""
    return _TOKEN.sub(lambda match: shown(match[0]), _FIRST.sub(lambda match: shown(match[0]), text, count=1))


def spelled_in(text: str) -> str:
    """A message with its labels as they were typed, so that commands in it stay commands."""
    return _TOKEN.sub(lambda match: spelled(match[0]), text)


def remember(label: str, text: str) -> None:
    """Keeps how a label of a family with a prefix was typed; of two spellings the one that is not canonical."""
    if ":" not in label:  # HyperGLU is G-cg-q-12o, the name that says what it is
        return
    typed = _names().typed
    typed[label] = text if text != label else typed.get(label, label)


def ask(names: Mapping[str, str], *, of_set: bool = False) -> None:
    """Keeps names by label, in any spelling; those of a set where none was asked for besides.

    Raises ``LabelError`` for a text that is no label, ``ConfigError`` for an empty name, for one with control
    characters, for one of two labels and for one that is another label.
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
            raise ConfigError(f"{every[label]!r} cannot be the name of both {spelled(other)} and {text}")


def _label_of(text: str) -> str | None:
    """The canonical label that a text is, or None."""
    try:
        return str(parse(text))
    except MadbenchError:
        return None


def ask_words(words: Iterable[str]) -> None:
    """:func:`ask` for words such as ``cd:gdn-cg=Gated DeltaNet``."""
    for word in words:
        label, equals, name = word.partition("=")
        if not equals:
            raise ConfigError(f"--rename {word!r}: expected LABEL=NAME, such as 'cd:gdn-cg=Gated DeltaNet'")
        ask({label: name})


def begin() -> None:
    """Forgets what was asked for and typed: a command begins."""
    _OF_CALL.set(_Names())


@contextlib.contextmanager
def of_call(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Names of one call from Python: none but those it asks for and types."""
    token = _OF_CALL.set(_Names())
    try:
        ask(names or {})
        yield
    finally:
        _OF_CALL.reset(token)


@functools.lru_cache(maxsize=10_000)
def _with_preset(label: str) -> str:
    if ":" not in label:
        return label
    try:
        preset_spelling = getattr(family_of(label), "preset_spelling", None)
        is_canonical = preset_spelling and str(parse(label)) == label
        return preset_spelling(parse(label)) if is_canonical else label
    except MadbenchError:  # a family that is not installed here, or no label
        return label
