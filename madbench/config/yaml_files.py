"""Strict YAML: reading rejects duplicate keys and ambiguous numbers, and writing quotes texts such as 08."""

from __future__ import annotations

import functools
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from madbench.config.values import short_repr
from madbench.errors import ConfigError
from madbench.files import read_file


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that contains a mapping.

    Raises ``ConfigError`` if the file cannot be read or is too large, if its YAML is invalid or repeats a key, or if it
    contains anything but a mapping.
    """
    import yaml

    base: Any = loader()

    class UniqueKeyLoader(base):
        def construct_document(self, node: Any) -> Any:
            self.deep_construct = True  # so that a value that contains itself is an error, not an endless value
            return super().construct_document(node)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = set()
            for key_node, _ in node.value:
                key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
                if not isinstance(key, Hashable):
                    break  # the call below raises the error
                if key in keys:
                    raise ConfigError(f"{path}:{line}: key {short_repr(key)} appears twice")
                keys.add(key)
            return super().construct_mapping(node, deep)

    text = ""
    try:
        text = _read(path).decode()
        value = yaml.load(text, UniqueKeyLoader)
    except yaml.YAMLError as error:
        where, problem = str(path), getattr(error, "problem", None) or error
        if mark := getattr(error, "problem_mark", None):
            where += f":{mark.line + 1}:{mark.column + 1}"
            problem = f"{problem}{quotes_missing_in([*text.splitlines(), ''][mark.line])}"
        raise ConfigError(f"{where}: not valid YAML: {problem}") from error
    except UnclearNumber as error:
        raise ConfigError(f"{path}:{error.line + 1}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: lists and mappings are nested too deep") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: it is not text in UTF-8, so it is no YAML file") from error
    except (OSError, ValueError) as error:  # ValueError: a date such as 2024-13-45
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if _count_values(value, {}) > MOST_VALUES:
        raise ConfigError(f"{path}: has more than {MOST_VALUES:,} values, counting an alias as what it stands for")
    if not isinstance(value, dict):
        hint = "; write lines KEY: VALUE" if value is None else ""
        raise ConfigError(f"{path}: expected a mapping of keys to values, got {short_repr(value)}{hint}")
    return value


def _read(path: Path) -> bytes:
    """Read a regular file of at most ``MOST_YAML_BYTES`` bytes, or a whole pipe, such as ``<(COMMAND)``."""
    if str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        return path.read_bytes()
    return read_file(path, MOST_YAML_BYTES)


MOST_YAML_BYTES = 4 * 2**20
"""Largest size of a YAML file in bytes. Reading a file takes about a thousand times its size in memory."""


def _count_values(value: Any, known: dict[int, int]) -> int:
    """Count the numbers, texts, lists and mappings in a value read from YAML.

    A list or mapping to which several aliases refer is counted once per alias. ``known`` caches the count of each list
    or mapping by its ``id``.
    """
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count_values(item, known) for item in items)
    return known[id(value)]


MOST_VALUES = 1_000_000
"""Largest number of values in a YAML file. A few nested aliases can stand for more values than fit in memory."""


class UnclearNumber(ConfigError):
    """A YAML number that most people read differently, such as 010, which YAML 1.1 reads as 8."""

    line = 0


_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?([eE][-+]?[0-9]+)?")
_WITH_COLONS = re.compile(r"[-+]?[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?")


@functools.cache
def loader() -> type:
    """Return PyYAML's safe loader, changed to reject numbers with a leading zero or colons.

    YAML 1.1 reads 010 as 8 and 1:30 as 90. The loader uses libyaml if it is available, which is ten times as fast.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):
        def construct_scalar(self, node: Any) -> Any:
            if isinstance(node, yaml.ScalarNode) and not node.style and (why := unclear_number(node.value)):
                error = UnclearNumber(why)
                error.line = node.start_mark.line
                raise error
            return super().construct_scalar(node)

    return Loader


@functools.cache
def dumper() -> type:
    """Return PyYAML's safe dumper, changed to quote texts that :func:`loader` rejects, such as 08."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str) -> Any:
            quotes = "'" if unclear_number(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=quotes)

    Dumper.add_representer(str, Dumper.represent_str)
    return Dumper


def unclear_number(text: str) -> str:
    """The reason why ``text`` is an unclear number, such as 010 (:class:`UnclearNumber`). Empty if it is not."""
    if _LEADING_ZERO.fullmatch(text):
        plain = re.sub(r"^([-+]?)0[0_]*(?=[0-9])", r"\1", text)
        return f"the number {text} begins with a zero; write {plain}, or '{text}' if it is text"
    if _WITH_COLONS.fullmatch(text):
        return f"the number {text} has a colon, which YAML reads in base 60; write a plain number, or '{text}' for text"
    return ""


def quotes_missing_in(line: str) -> str:
    """Advice to quote the first word in ``line`` that begins with a special character of YAML, such as ``@``.

    Empty if there is no such word.
    """
    match = re.search(r"(?<![^\s\[,])(\{[^{}]*\}[^\s,\]]+|[@`%!*&][^\s,\]]*)", line)
    return f"; text that begins with {match[0][0]} needs quotes: '{match[0]}'" if match else ""
