"""Overrides: changes of settings, written ``path.to.key=value`` with the value in YAML."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from madbench.config.values import short_repr
from madbench.config.yaml_files import UnclearNumber, dumper, loader, quotes_missing_in
from madbench.errors import ConfigError


@dataclass(frozen=True)
class Override:
    """A changed setting of a suite's profile, such as ``training.epochs=20``.

    Words of the command line, keys of YAML files and arguments of the Python API become overrides when they are read.
    ``str`` gives the word again. Two overrides are equal if their words are equal.
    """

    key: str
    """The dotted key in the profile, without the suite. Empty if the override names the profile of its suite."""
    value: Any = field(compare=False)
    """The value as YAML reads it. For an override that names a profile, the name of the profile, or empty to leave out
    the suite."""
    text: str
    """The value as it was written."""
    suite: str = ""
    """The ``override_name`` of the suite whose profile is changed, such as ``language_model``. Empty without a prefix:
    the override then belongs to the leading suite, the first suite that has one of the requested tasks."""
    prefix: str = field(default="", compare=False)
    """The prefix that :meth:`without_suite` removed, such as ``language_model.``. Messages show it to the user."""

    @classmethod
    def parse(cls, word: str, suites: Iterable[str] = ()) -> Override:
        """Parse a word such as ``"model.d_model=64"``. The value is read as YAML.

        ``suites`` are prefixes of keys, one per suite. A key that begins with such a prefix and a dot belongs to that
        suite. A key that equals a prefix names the suite's profile, as in ``language_model=mini``. Raises
        ``ConfigError`` if there is no key or no ``=``, or if the value is not valid YAML.
        """
        path, equals, text = word.partition("=")
        if not equals or not path or path.endswith("."):
            raise ConfigError(f"override {short_repr(word)}: expected KEY=VALUE, such as model.d_model=64")
        suite = next((name for name in suites if f"{path}.".startswith(f"{name}.")), "")
        key = f"{path}.".removeprefix(f"{suite}.").removesuffix(".") if suite else path
        return cls(key, _read(word, text) if key else _profile_name(word, text), text, suite)

    @classmethod
    def of(cls, key: str, value: Any, text: str | None = None) -> Override:
        """Make the override of ``key`` by ``value``, without a suite. By default its text is ``str(value)``."""
        return cls(key, value, str(value) if text is None else text)

    @property
    def path(self) -> str:
        """The key with the prefix of the suite, such as ``language_model.training.steps``."""
        return ".".join(filter(None, (self.suite, self.key)))

    @property
    def names_profile(self) -> bool:
        """True if the override names the profile of a suite, as in ``language_model=mini``."""
        return not self.key

    def without_suite(self) -> Override:
        """The override without its suite. Messages still show the prefix of the suite (:attr:`prefix`)."""
        return replace(self, suite="", prefix=f"{self.suite}.") if self.suite else self

    @property
    def user_path(self) -> str:
        """The key as the user wrote it, for messages. It has the prefix that :meth:`without_suite` removed."""
        return f"{self.prefix}{self.path}"

    @property
    def user_word(self) -> str:
        """The word as the user wrote it, for messages. It has the prefix that :meth:`without_suite` removed."""
        return f"{self.prefix}{self}"

    def __str__(self) -> str:
        return f"{self.path}={self.text}"


def _profile_name(word: str, text: str) -> str:
    """The name of a profile: ``text`` without a pair of quotes around it.

    Raises ``ConfigError`` if the quotes do not match; the message names ``word``, the whole override.
    """
    quoted = re.fullmatch(r"""(['"])(.*)\1""", text, re.DOTALL)
    name = quoted[2] if quoted else text
    if name.strip("'\"") != name:
        path = word.partition("=")[0]
        raise ConfigError(f"override {short_repr(word)}: the quotes do not match; write {path}=NAME")
    return name


def _read(word: str, text: str) -> Any:
    """Read the text of a value as YAML. Raises ``ConfigError``, whose message names ``word``, the whole override."""
    import yaml

    try:
        return yaml.load(text, loader())
    except UnclearNumber as error:
        raise ConfigError(f"override {short_repr(word)}: {error}") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date such as 2024-13-45
        advice = quotes_missing_in(text[:99])
        raise ConfigError(f"override {short_repr(word)}: {short_repr(text)} is not a value{advice}") from None


def override_text(key: str, value: Any, where: str) -> str:
    """Write the text ``KEY=VALUE`` of an override, with the value as YAML on one line.

    Raises ``ConfigError`` for a mapping, and for a value that YAML cannot write. The message begins with ``where``.
    """
    import yaml

    if isinstance(value, Mapping):
        first = str(next(iter(value), "KEY"))[:60]
        raise ConfigError(f"{where}: {key}: expected a value, got a mapping; write {key}.{first}: ...")
    try:
        text = yaml.dump(value, Dumper=dumper(), default_flow_style=True, width=float("inf"), allow_unicode=True)
    except yaml.representer.RepresenterError:
        kind = type(value).__name__
        raise ConfigError(f"{where}: {key}: expected a number, text or a list of them, got a {kind}") from None
    except (RecursionError, ValueError):  # thousands of digits or levels
        raise ConfigError(f"{where}: {key}: {short_repr(value)} is too large to be written") from None
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"


def settings_of(overrides: Iterable[Override]) -> dict[str, Any]:
    """The value of each override, by its key with the suite's prefix. Raises ``ConfigError`` for a repeated key."""
    settings: dict[str, Any] = {}
    for override in overrides:
        if override.path in settings:
            raise ConfigError(f"override {short_repr(override.path)} is given twice; only one value can hold")
        settings[override.path] = override.value
    return settings


def apply_override(mapping: Mapping[str, Any], override: Override) -> dict[str, Any]:
    """Return a copy of ``mapping``, a profile with nested mappings, in which ``override`` sets one value.

    The parts of the override's dotted key are keys of nested mappings, which are added if missing. Raises
    ``ConfigError`` if a part of the key holds a value and no mapping.
    """
    copied = copy.deepcopy(dict(mapping))
    node, names = copied, override.path.split(".")
    for name in names[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {short_repr(override.user_word)}: {short_repr(name)} holds a value, not keys")
    node[names[-1]] = copy.deepcopy(override.value)
    return copied
