"""Conversion of a mapping to a dataclass of settings. Errors name the file, the key and the fix.

Settings are frozen dataclasses. A sentence of documentation follows each field (:mod:`madbench.config.field_docs`).
Nothing is ignored silently: an unknown key and a wrong type are errors.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from madbench.config.values import short_repr
from madbench.errors import ConfigError, did_you_mean

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MOST = {"d_model": 65_536, "n_head": 65_536, "n_layer": 1_000, "seq_len": 1_000_000, "max_len": 1_000_000}
MOST |= {"vocab_size": 10_000_000} | {f"num_{split}_examples": 10_000_000 for split in ("train", "validation", "test")}
"""The largest allowed values of fields, by field name."""
MOST_OTHERWISE = 1_000_000_000


def cached_by_class(function: F) -> F:
    """Cache the results of a function whose argument is a class, like ``functools.cache``.

    mypy rejects some dataclasses as arguments of a cached function, so the result is declared with the type of
    ``function``.
    """
    return typing.cast(F, functools.cache(function))


def from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str, read_before: Sequence[str] = ()) -> T:
    """Build the dataclass ``cls`` from ``mapping``, which has field names as keys.

    Raises ``ConfigError`` for an unknown or missing key, a value of the wrong type, and a value that the class rejects.
    The message begins with ``where`` (a file or an option). ``read_before`` are keys of the file that the caller has
    already taken out of ``mapping``. The message about an unknown key may suggest them too.
    """
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a mapping of keys to values, got {short_repr(mapping)}")
    types_by_name, required = _fields(cls)
    values = {}
    for key, value in mapping.items():
        if key not in types_by_name:
            raise ConfigError(
                f"{where}: unknown key {short_repr(key)}{did_you_mean(key, [*read_before, *types_by_name])}"
            )
        values[key] = convert(value, types_by_name[key], f"{where}: {key}")
    if missing := [name for name in required if name not in values]:
        is_or_are = "key {} is" if len(missing) == 1 else "keys {} are"
        raise ConfigError(f"{where}: {is_or_are.format(', '.join(map(repr, missing)))} missing")
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def check_at_least(config: Any, least: float, *names: str) -> None:
    """Raise ``ConfigError`` if one of the fields ``names`` of ``config`` is below ``least`` or too large.

    The largest allowed value is ``MOST[name]``, or ``MOST_OTHERWISE`` if ``MOST`` does not have the name.
    """
    for name in names:
        check_bounds(name, getattr(config, name), least, MOST.get(name, MOST_OTHERWISE))


def check_bounds(name: str, value: float, least: float | None, most: float | None) -> None:
    """Raise ``ConfigError`` if ``value`` is not within its bounds. A bound that is None does not exist.

    The message begins with ``name``, which may be an option such as ``--slots``.
    """
    if least is not None and not value >= least:
        raise ConfigError(f"{name} must be at least {least:,}, got {short_repr(value)}")
    if most is not None and not value <= most:
        raise ConfigError(f"{name} must be at most {most:,}, got {short_repr(value)}")


def check_numbers(config: Any, *names: str) -> None:
    """Check that the fields ``names`` of ``config`` are finite numbers of at least 0.

    They are converted to floats in place, so that 1 and 1.0 give one job id. Raises ``ConfigError`` if a value is
    negative, infinite or NaN.
    """
    for name in names:
        if not 0 <= getattr(config, name) < math.inf:
            raise ConfigError(f"{name} must be a number of at least 0, got {getattr(config, name)}")
        object.__setattr__(config, name, float(getattr(config, name)) + 0.0)  # turns -0.0 into 0.0


def check_unique(values: Iterable[Hashable], where: str) -> None:
    """Raise ``ConfigError`` if a value occurs more than once. The message begins with ``where``."""
    earlier = set()
    for value in values:
        if value in earlier:
            raise ConfigError(f"{where}: {value} appears twice; leave one out")
        earlier.add(value)


def check_choices(config: Any, *names: str) -> None:
    """Raise ``ConfigError`` if one of the fields ``names`` of ``config`` has a value that its ``Literal`` does not."""
    types_by_name, _ = _fields(type(config))
    for name in names:
        convert(getattr(config, name), types_by_name[name], name)


def convert(value: Any, expected: Any, where: str) -> Any:
    """Check that ``value`` fits the type ``expected`` and convert it to this type.

    An integer, or a text such as ``1e-3``, becomes a float. A list or a single value becomes a tuple, and a mapping
    becomes a dataclass. -0.0 becomes 0.0, so that both give one job id. If ``expected`` is ``Any`` or a type variable
    of a generic dataclass, ``value`` is returned unchanged.

    Raises ``ConfigError`` for NaN, for a value that is not in a ``Literal``, and for any other value of a wrong type.
    The message begins with ``where``.
    """
    if expected is Any or isinstance(expected, TypeVar) or (type(value) is expected and value == value):
        return value + 0.0 if expected is float else value
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if isinstance(expected, type) and dataclasses.is_dataclass(expected):
        return value if isinstance(value, expected) else from_mapping(expected, value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            suggestion = did_you_mean(value, map(str, arguments))
            raise ConfigError(
                f"{where}: {short_repr(value)} is not allowed{suggestion}{_advice_on(value, type(arguments[0]))}"
            )
        return value
    if origin is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple(convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(items))
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) > 1:
            raise ConfigError(
                f"{where}: its type, {expected}, is ambiguous; a setting has one type, or one type or None"
            )
        return convert(value, others[0], where)
    if origin is dict or expected is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: expected a mapping of keys to values, got {short_repr(value)}")
        of_key, of_value = arguments or (Any, Any)
        return {convert(k, of_key, f"{where}: key"): convert(v, of_value, f"{where}: {k}") for k, v in value.items()}
    if expected is float and type(value) in (int, str):  # YAML 1.1 reads 1e-3 (no point) as text
        with suppress(ValueError, OverflowError):
            value = float(value) + 0.0
    if not isinstance(value, expected) or (expected is not bool and isinstance(value, bool)) or value != value:
        names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
        got = f"{short_repr(value)}{_advice_on(value, expected)}"
        raise ConfigError(f"{where}: expected {names.get(expected, expected)}, got {got}")
    return value


def _advice_on(value: Any, expected: Any) -> str:
    """Advice to quote a word such as ``off``, if ``expected`` is text and YAML has read a truth value.

    Otherwise empty.
    """
    is_for_text = isinstance(value, bool) and expected is str
    return "; YAML reads yes, no, on and off as true and false: put text in quotes" if is_for_text else ""


@cached_by_class
def _fields(cls: type) -> tuple[dict[str, Any], list[str]]:
    """Return the type of each field by name, and the names of the fields without a default.

    Fields marked ``internal`` are left out.
    """
    hints = typing.get_type_hints(cls)
    fields = [field for field in dataclasses.fields(cls) if not field.metadata.get("internal")]
    missing = dataclasses.MISSING
    required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
    return {field.name: hints[field.name] for field in fields}, required
