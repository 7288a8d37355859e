"""Strict settings: turns a mapping into a dataclass, or raises an error that names the file, the key and the fix.

Settings are frozen dataclasses. A sentence of documentation follows each field and appears in the command line's help.
Nothing is ignored silently: an unknown key and a wrong type are errors.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import inspect
import math
import re
import reprlib
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from madbench.errors import ConfigError, did_you_mean
from madbench.files import read_file

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).resolve().parent
_ROOT = _PACKAGE / "_data" if (_PACKAGE / "_data").is_dir() else _PACKAGE.parent

VARIANTS = _ROOT / "variants"
TASKS = _ROOT / "tasks"
PROFILES = TASKS / "profiles"
LANGUAGE_PROFILES = TASKS / "language_models"
PAPERS = _PACKAGE / "papers"
EXAMPLES = _ROOT / "examples"

MOST = {"d_model": 65_536, "n_head": 65_536, "n_layer": 1_000, "seq_len": 1_000_000, "max_len": 1_000_000}
MOST |= {"vocab_size": 10_000_000} | {f"num_{split}_examples": 10_000_000 for split in ("train", "validation", "test")}
"""The largest allowed value of a field of this name."""
MOST_OTHERWISE = 1_000_000_000


def read_yaml(path: Path) -> dict[str, Any]:
    """Reads the mapping in a YAML file. Raises ``ConfigError`` for a duplicate key, bad syntax or another type."""
    import yaml

    class UniqueKeyLoader(_loader()):
        def construct_document(self, node):
            self.deep_construct = True  # so that a value that contains itself is an error, not an endless value
            return super().construct_document(node)

        def construct_mapping(self, node, deep=False):
            seen = set()
            for key_node, _ in node.value:
                key, line = self.construct_object(key_node, deep=True), key_node.start_mark.line + 1
                if not isinstance(key, Hashable):
                    break  # the call below raises the error
                if key in seen:
                    raise ConfigError(f"{path}:{line}: key {_shown(key)} appears twice")
                seen.add(key)
            return super().construct_mapping(node, deep)

    text = ""
    try:
        text = _read(path).decode()
        value = yaml.load(text, UniqueKeyLoader)
    except yaml.YAMLError as error:
        where, problem = str(path), getattr(error, "problem", None) or error
        if mark := getattr(error, "problem_mark", None):
            where += f":{mark.line + 1}:{mark.column + 1}"
            problem = f"{problem}{_quotes_missing_in([*text.splitlines(), ''][mark.line])}"
        raise ConfigError(f"{where}: not valid YAML: {problem}") from error
    except _UnclearNumber as error:
        raise ConfigError(f"{path}:{error.line + 1}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: lists and mappings are nested too deep") from None
    except (OSError, ValueError) as error:  # ValueError: bytes that are not text, or a date such as 2024-13-45
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if _count_values(value, {}) > MOST_VALUES:
        raise ConfigError(f"{path}: has more than {MOST_VALUES:,} values, counting an alias as what it stands for")
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: expected a mapping of keys to values, got {_shown(value)}")
    return value


def _read(path: Path) -> bytes:
    """Reads a file. A path that the user pipes in, as with ``<(COMMAND)``, may be a pipe."""
    if str(path).startswith(("/dev/stdin", "/dev/fd/", "/proc/self/fd/")):
        return path.read_bytes()
    return read_file(path, MOST_YAML_BYTES)


MOST_YAML_BYTES = 4 * 2**20
"""Largest size of a YAML file. Its values take about a thousand times this memory while they are read."""


def _count_values(value: Any, known: dict[int, int]) -> int:
    """Counts the values in a YAML value, with repeated parts counted each time. ``known`` caches counts by id."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in known:
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count_values(item, known) for item in items)
    return known[id(value)]


MOST_VALUES = 1_000_000
"""Most values of a YAML file. A few nested aliases can stand for more values than fit in memory."""


class _UnclearNumber(ConfigError):
    """A number that YAML 1.1 reads differently from most people."""

    line = 0


_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?([eE][-+]?[0-9]+)?")
_WITH_COLONS = re.compile(r"[-+]?[0-9][0-9_]*(:[0-9_]+)+(\.[0-9_]*)?")


def cached_by_class(function: F) -> F:
    """``functools.cache`` for a function of a class, with the type of ``function``: mypy rejects some dataclasses."""
    return typing.cast(F, functools.cache(function))


@functools.cache
def _loader() -> type:
    """Returns PyYAML's safe loader, changed to reject numbers with a leading zero or colons.

    YAML 1.1 reads 010 as 8 and 1:30 as 90. The loader uses libyaml, which is ten times as fast, if available.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        def construct_scalar(self, node):
            if isinstance(node, yaml.ScalarNode) and not node.style and (why := _unclear_number(node.value)):
                error = _UnclearNumber(why)
                error.line = node.start_mark.line
                raise error
            return super().construct_scalar(node)

    return Loader


@functools.cache
def _dumper() -> type:
    """Returns PyYAML's safe dumper, changed to quote texts that :func:`_loader` rejects, such as 08."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def represent_str(self, text: str):
            quotes = "'" if _unclear_number(text) else None
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=quotes)

    Dumper.add_representer(str, Dumper.represent_str)
    return Dumper


def _unclear_number(text: str) -> str:
    """The reason why YAML reads a number differently from most people. Empty for other numbers and other texts."""
    if _LEADING_ZERO.fullmatch(text):
        plain = re.sub(r"^([-+]?)0[0_]*(?=[0-9])", r"\1", text)
        return f"the number {text} begins with a zero; write {plain}, or '{text}' if it is text"
    if _WITH_COLONS.fullmatch(text):
        return f"the number {text} has a colon, which YAML reads in base 60; write a plain number, or '{text}' for text"
    return ""


def _quotes_missing_in(line: str) -> str:
    """Advice to quote the first text of a line that begins with a special character of YAML. Empty if there is none."""
    found = re.search(r"(?<![^\s\[,])(\{[^{}]*\}[^\s,\]]+|[@`%!*&][^\s,\]]*)", line)
    return f"; text that begins with {found[0][0]} needs quotes: '{found[0]}'" if found else ""


def from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """Builds the dataclass ``cls`` from ``mapping``. Error messages begin with ``where`` (a file or an option)."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a mapping of keys to values, got {_shown(mapping)}")
    types_by_name, required = _fields(cls)
    values = {}
    for key, value in mapping.items():
        if key not in types_by_name:
            raise ConfigError(f"{where}: unknown key {_shown(key)}{did_you_mean(key, types_by_name)}")
        values[key] = convert(value, types_by_name[key], f"{where}: {key}")
    for name in required:
        if name not in values:
            raise ConfigError(f"{where}: key {name!r} is missing")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def check_at_least(config: Any, least: int, *names: str) -> None:
    """Raises ``ConfigError`` for a field below ``least`` or above the largest size of fields with its name."""
    for name in names:
        value, most = getattr(config, name), MOST.get(name, MOST_OTHERWISE)
        if not least <= value <= most:
            bound = f"least {least:,}" if value < least else f"most {most:,}"
            raise ConfigError(f"{name} must be at {bound}, got {_shown(value)}")


def check_numbers(config: Any, *names: str) -> None:
    """Converts the fields to floats, so that 1 and 1.0 give one id. Raises ``ConfigError`` unless finite and >= 0."""
    for name in names:
        if not 0 <= getattr(config, name) < math.inf:
            raise ConfigError(f"{name} must be a number of at least 0, got {getattr(config, name)}")
        object.__setattr__(config, name, float(getattr(config, name)) + 0.0)  # turns -0.0 into 0.0


def parse_override(override: str) -> tuple[str, Any]:
    """Splits ``"model.d_model=64"`` into ``("model.d_model", 64)``. The value is read as YAML."""
    import yaml

    key, equals, text = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r}: expected KEY=VALUE, such as model.d_model=64")
    try:
        return key, yaml.load(text, _loader())
    except _UnclearNumber as error:
        raise ConfigError(f"override {override[:99]!r}: {error}") from None
    except (yaml.YAMLError, ValueError):  # ValueError: a date such as 2024-13-45
        advice = _quotes_missing_in(text[:99])
        raise ConfigError(f"override {override[:99]!r}: {text[:99]!r} is not a value{advice}") from None


def key_of(override: str) -> str:
    """The key of an override: ``"model.d_model"`` for ``"model.d_model=64"``."""
    return override.partition("=")[0]


def plain_values(value: Any) -> Any:
    """Converts numbers and arrays of NumPy, torch and pandas to Python's, also inside lists and mappings.

    The public functions convert their arguments once with this, so that the code behind them meets no other type.
    """
    if isinstance(value, Mapping):
        return {plain_values(key): plain_values(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_values, value))
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    return value


def override_of(key: str, value: Any, where: str) -> str:
    """Writes the override ``KEY=VALUE``, with the value as YAML on one line."""
    import yaml

    if isinstance(value, Mapping):
        inner = f"{key}.{next(iter(value), 'KEY')}"
        raise ConfigError(f"{where}: {key}: expected a value, got a mapping; write {inner}: ...")
    try:
        text = yaml.dump(value, Dumper=_dumper(), default_flow_style=True, width=float("inf"), allow_unicode=True)
    except yaml.representer.RepresenterError:
        kind = type(value).__name__
        raise ConfigError(f"{where}: {key}: expected a number, text or a list of them, got a {kind}") from None
    except (RecursionError, ValueError):  # thousands of digits or levels
        raise ConfigError(f"{where}: {key}: {_shown(value)} is too large to be written") from None
    return f"{key}={text.removesuffix('...' + chr(10)).strip()}"


def settings_of(overrides: Iterable[str]) -> dict[str, Any]:
    """Converts ``["model.mix_rank=4"]`` to ``{"model.mix_rank": 4}``. Raises ``ConfigError`` for a repeated key."""
    settings: dict[str, Any] = {}
    for key, value in map(parse_override, overrides):
        if key in settings:
            raise ConfigError(f"override {key!r} is given twice; only one value can hold")
        settings[key] = value
    return settings


def apply_override(mapping: Mapping[str, Any], override: str) -> dict[str, Any]:
    """Returns a copy of ``mapping`` with one change, written ``path.to.key=value`` with the value in YAML."""
    key, value = parse_override(override)
    changed = copy.deepcopy(dict(mapping))
    node, names = changed, key.split(".")
    for name in names[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise ConfigError(f"override {override!r}: {name!r} holds a value, not keys")
    node[names[-1]] = value
    return changed


def convert(value: Any, expected: Any, where: str) -> Any:
    """Converts ``value`` to the type ``expected``. An integer may be given for a float and a list for a tuple.

    Nothing else is converted. -0.0 becomes 0.0, so that both give one job id.
    """
    if expected is Any or type(value) is expected and value == value:
        return value + 0.0 if expected is float else value
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if dataclasses.is_dataclass(expected):
        return value if isinstance(value, expected) else from_mapping(expected, value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            near = did_you_mean(value, map(str, arguments))
            raise ConfigError(f"{where}: {_shown(value)} is not allowed{near}{_advice_on(value, type(arguments[0]))}")
        return value
    if origin is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(items))
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return convert(value, next(a for a in arguments if a is not type(None)), where)
    if origin is dict or expected is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected a mapping of keys to values, got {_shown(value)}")
        of_key, of_value = arguments or (Any, Any)
        return {convert(k, of_key, where): convert(v, of_value, f"{where}: {k}") for k, v in value.items()}
    if expected is float and type(value) in (int, str):  # YAML 1.1 reads 1e-3 (no point) as text
        with suppress(ValueError, OverflowError):
            value = float(value) + 0.0
    if not isinstance(value, expected) or (expected is not bool and isinstance(value, bool)) or value != value:
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        got = f"{_shown(value)}{_advice_on(value, expected)}"
        raise ConfigError(f"{where}: expected {names.get(expected, expected)}, got {got}")
    return value


def _advice_on(value: Any, expected: Any) -> str:
    """Advice to quote a truth value, such as off, if text is expected. Empty for other values."""
    is_for_text = isinstance(value, bool) and expected is str
    return "; YAML reads yes, no, on and off as true and false: put text in quotes" if is_for_text else ""


@functools.cache
def _fields(cls: type) -> tuple[dict[str, Any], list[str]]:
    """Types by field name, and the names of fields without a default. Fields marked ``internal`` are left out."""
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if not field.metadata.get("internal")]
    missing = dataclasses.MISSING
    required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    return {field.name: hints[field.name] for field in fields}, required


def _shown(value: Any) -> str:
    """The text of ``value`` for an error message, in at most one line. None is "nothing", as an empty value in YAML."""
    return "nothing" if value is None else _SHORT.repr(value)


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        """Avoids printing numbers of thousands of digits, such as YAML's ``1:1:1:...``: Python refuses to do so."""
        digits = round(x.bit_length() * math.log10(2))
        return super().repr_int(x, level) if digits < 1_000 else f"a number of about {digits} digits"


_SHORT = _Short()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60


@cached_by_class
def field_docs(cls: type) -> dict[str, str]:
    """The sentence below each field of a settings dataclass, by field name, from the source of the class and its bases.

    Empty if there is no source.
    """
    docs = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        except (OSError, TypeError, SyntaxError):  # no source: a compiled package, or a class made at run time
            continue
        for statement, following in zip(body, body[1:]):
            sentence = getattr(getattr(following, "value", None), "value", None)
            if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr) and isinstance(sentence, str):
                docs[statement.target.id] = inspect.cleandoc(sentence)
    return {field.name: docs[field.name] for field in dataclasses.fields(cls) if field.name in docs}


MOST_SEEDS = 1000
MOST_SEED = 2**63 - 1


def parse_seeds(text: str, where: str = "--seeds") -> list[int]:
    """Parses seeds such as ``"0,1,2"`` or ``"0-4"``."""
    seeds: list[int] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part.strip())
        if not numbers:
            raise ConfigError(f"{where} {text!r}: expected whole numbers such as 0,1,2 or 0-4")
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if last < first:
            raise ConfigError(f"{where} {text!r}: {first}-{last} counts down; did you mean '{last}-{first}'?")
        count = len(seeds) + last - first + 1
        if count > MOST_SEEDS:
            raise ConfigError(f"{where} {text!r}: {count:,} seeds; at most {MOST_SEEDS:,} are allowed")
        seeds += range(first, last + 1)
    if len(set(seeds)) != len(seeds):
        raise ConfigError(f"{where} {text!r}: give each seed once")
    return seeds


def seed_list(seeds: Collection[int]) -> str:
    """Writes seeds in the form that ``--seeds`` accepts.

    >>> seed_list([0, 1, 2, 5])
    '0-2,5'
    """
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts)


def check_seeds(seeds: Sequence[int] | int) -> tuple[int, ...]:
    """Returns one seed or several as a tuple. Raises ``ConfigError`` for anything but whole numbers of at least 0."""
    seeds = tuple(seeds) if isinstance(seeds, Sequence) and not isinstance(seeds, str) else (seeds,)
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            wanted = "whole numbers of at least 0, such as 0-2 or [0, 1, 2]"
            raise ConfigError(f"seeds: expected {wanted}, got {_shown(seed)}")
        if seed > MOST_SEED:
            raise ConfigError(f"seeds: expected at most 2^63 - 1, got {_shown(seed)}")
    return seeds
