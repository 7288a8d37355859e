"""Display names of labels. They affect output only: jobs, files and programs use the canonical label.

Each command or Python call builds its names once, from the labels and ``--rename`` options that it was given
(:func:`madbench.labels.sets.names_of`). :func:`use_names` or :func:`using_names` makes them known to the code that
prints. Names do not change, and parsing a label adds no name.
"""

from __future__ import annotations

import contextlib
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from madbench.config import short_repr
from madbench.errors import ConfigError, MadbenchError
from madbench.labels.parsing import parse
from madbench.labels.registry import family_of

_TOKEN = re.compile(r"(?<![\w:.])[a-z]+:[\w.+-]*[\w!]")  # a label with a prefix, inside a sentence
_NO_TEXT = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories of control characters, surrogates, and line and paragraph separators."""


@dataclass(frozen=True)
class DisplayNames:
    """The names under which canonical labels are printed.

    The display name of a label is the first of these that exists:

    - the name that the user asked for;
    - the name in the file of a set of labels;
    - the label as the user typed it;
    - the label with its family's preset;
    - the label itself.
    """

    by_user: Mapping[str, str] = field(default_factory=dict)
    """Names that the user asked for, by label: ``--rename LABEL=NAME``, or ``rename`` of a Python function."""
    of_sets: Mapping[str, str] = field(default_factory=dict)
    """Names from the key ``names`` in the files of sets of labels, by label."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """The spellings of labels that the user typed, by canonical label. Only labels with a prefix have an entry."""
    shown: set[str] = field(default_factory=set, compare=False, repr=False)
    """The labels that :meth:`display` has shown under a name of :attr:`by_user` so far. Copies share this set."""

    @property
    def requested(self) -> tuple[str, ...]:
        """The names that the user asked for, then those from the files of sets of labels."""
        return (*self.by_user.values(), *self.of_sets.values())

    def display(self, label: str) -> str:
        """The name of a canonical label in tables, figures and messages."""
        if label in self.by_user:
            self.shown.add(label)
        return self.by_user.get(label) or self.of_sets.get(label) or self.spelling(label)

    @property
    def not_shown(self) -> dict[str, str]:
        """The names that the user asked for but that have not been shown so far, by label."""
        return {label: name for label, name in self.by_user.items() if label not in self.shown}

    def spelling(self, label: str) -> str:
        """The spelling of a canonical label that the user typed or, if there is none, the spelling with its preset.

        Every command accepts the result.
        """
        return self.typed.get(label) or _with_preset(label)

    def with_spelling(self, label: str, text: str) -> DisplayNames:
        """Return a copy of these names that records ``text`` as the spelling of the canonical ``label``."""
        return replace(self, typed={**self.typed, **typed_spelling(label, text, self.typed)})

    def with_names(self, names: Mapping[str, str], *, of_set: bool = False) -> DisplayNames:
        """Return a copy of these names with ``names`` added: display names by label, in any spelling of the label.

        If ``of_set`` is true, ``names`` come from the file of a set of labels, and names that the user asked for take
        precedence.

        Raises ``LabelError`` for a key that is no label. Raises ``ConfigError`` for a display name that is empty, has
        line breaks or control characters, belongs to two labels, or is itself another label.
        """
        by_user, of_sets = dict(self.by_user), dict(self.of_sets)
        into = of_sets if of_set else by_user
        for text, name in names.items():
            label = str(parse(text))
            if not name.strip():
                raise ConfigError(f"the name of {short_repr(text)} is empty; write {text[:99]}=NAME")
            if any(unicodedata.category(character) in _NO_TEXT for character in name):
                raise ConfigError(
                    f"the name of {short_repr(text)} has a line break or a control character: {short_repr(name)}"
                )
            if _label_of(name) not in (None, label):
                raise ConfigError(f"{short_repr(name)} cannot be the name of {text}: it is a label itself")
            into[label] = name
            all_names = of_sets | by_user
            if other := next(
                (
                    named_label
                    for named_label in all_names
                    if all_names[named_label] == all_names[label] and named_label != label
                ),
                None,
            ):
                raise ConfigError(
                    f"{short_repr(all_names[label])} cannot be the name of both {self.spelling(other)} and {text}"
                )
        return replace(self, by_user=by_user, of_sets=of_sets)

    def completed_by(self, others: DisplayNames) -> DisplayNames:
        """Return these names with the names in ``others`` added. If both name a label, the name here is kept."""
        by_user = {**others.by_user, **self.by_user}
        return DisplayNames(by_user, {**others.of_sets, **self.of_sets}, {**others.typed, **self.typed}, self.shown)


def typed_spelling(label: str, text: str, earlier: Mapping[str, str]) -> dict[str, str]:
    """The entry to add to :attr:`DisplayNames.typed` when a user typed the canonical ``label`` as ``text``.

    If ``text`` is the canonical label itself, its spelling in ``earlier`` is kept. Empty for a label without a prefix,
    which is always shown in its canonical spelling: HyperGLU is shown as G-cg-q-12o, whose letters say what the mixer
    does.
    """
    if ":" not in label:
        return {}
    return {label: text if text != label else earlier.get(label, label)}


_SHOWN: ContextVar[DisplayNames] = ContextVar("names", default=DisplayNames())  # noqa: B039  it is never changed


def names_in_use() -> DisplayNames:
    """The display names that :func:`use_names` or :func:`using_names` chose last.

    If neither was called, an object without names.
    """
    return _SHOWN.get()


def use_names(names: DisplayNames) -> None:
    """Use these display names from now on, also for errors that are printed after the end of the command."""
    _SHOWN.set(names)


@contextlib.contextmanager
def using_names(names: DisplayNames) -> Iterator[None]:
    """Use these display names within a ``with`` block, and restore the previous ones after it."""
    token = _SHOWN.set(names)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def display_name(label: str) -> str:
    """The name of a canonical label in tables, figures and messages, according to :func:`names_in_use`."""
    return _SHOWN.get().display(label)


def typed_label(label: str) -> str:
    """The spelling of a canonical label that the user typed or, if there is none, the spelling with its preset.

    Every command accepts the result.
    """
    return _SHOWN.get().spelling(label)


def file_name(label: str) -> str:
    """A name of at most 60 characters for the files of a label, made from the spelling that the user typed.

    Each character that is no letter, digit or one of ``_.+!-`` becomes ``-``.
    """
    return re.sub(r"[^\w.+!-]", "-", typed_label(label))[:60]


def row_display_name(name: str) -> str:
    """The name of a row, such as ``S-p  model.mix_rank=4``, with the display name of its label.

    The label ends before two spaces. A name that begins with no label is returned unchanged.
    """
    label, gap, changes = name.partition("  ")
    return f"{display_name(label)}{gap}{changes}"


def with_typed_labels(text: str) -> str:
    """Return ``text`` with every label that has a prefix replaced by the spelling that the user typed.

    The replaced labels are still valid, so commands in the text can be copied.
    """
    return _TOKEN.sub(lambda match: typed_label(match[0]), text)


def names_from_words(words: Iterable[str]) -> DisplayNames:
    """The display names that the values of ``--rename`` define, such as ``cd:gdn-cg=Gated DeltaNet``.

    Raises ``ConfigError`` for a word without ``=``, and the errors of :meth:`DisplayNames.with_names`.
    """
    names = DisplayNames()
    for word in words:
        label, equals, name = word.partition("=")
        if not equals:
            raise ConfigError(f"--rename {short_repr(word)}: expected LABEL=NAME, such as 'cd:gdn-cg=Gated DeltaNet'")
        names = names.with_names({label: name})
    return names


def _label_of(text: str) -> str | None:
    """The canonical label of a text. None if the text is no label."""
    try:
        return str(parse(text))
    except MadbenchError:
        return None


@functools.lru_cache(maxsize=10_000)
def _with_preset(label: str) -> str:
    if ":" not in label:
        return label
    try:
        parsed = parse(label)
        return family_of(label).preset_spelling(parsed) if str(parsed) == label else label
    except MadbenchError:  # the family is not installed here, or the text is no label
        return label
