"""The check of an argument against its type, and against the bounds of the option with the same name."""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from madbench.config import convert, short_repr
from madbench.config.options import Parameter
from madbench.errors import ConfigError

_WORDS: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    Mapping: "a mapping",
    Sequence: "a list",
    Iterable: "a list",
    type(None): "None",
}
"""The names of types in error messages."""


def check_argument(name: str, value: Any, hint: Any, option: Parameter | None = None) -> None:
    """Check that the type ``hint`` allows ``value``, and that a number is within the bounds of ``option``.

    The items of lists and mappings are not checked. ``option`` declares the argument on the command line. It is None
    for an argument that is no option. Raises ``ConfigError`` with the name of the argument, the value and what is
    allowed.
    """
    members = [*_members(hint)]
    if not any(_fits(value, member) for member in members):
        if isinstance(value, str) and all(get_origin(each) is Literal for each in members if each is not type(None)):
            convert(value, hint, name)  # raises an error that suggests a choice
        *others, last = dict.fromkeys(word for member in members for word in _words_of(member))
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{name}: expected {allowed}, got {'None' if value is None else short_repr(value)}")
    bounds = option.settings if option and isinstance(value, int | float) else {}
    least, most = bounds.get("min"), bounds.get("max")
    if least is not None and not value >= least:
        raise ConfigError(f"{name} must be at least {least:,}, got {short_repr(value)}")
    if most is not None and not value <= most:
        raise ConfigError(f"{name} must be at most {most:,}, got {short_repr(value)}")


def _members(hint: Any) -> Iterator[Any]:
    """The types that a union joins. A type that is no union is its own only member."""
    if get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _fits(value: Any, member: Any) -> bool:
    """True if ``value`` has the type ``member``, which is no union. A truth value is no number."""
    origin = get_origin(member)
    if member is Any:
        return True
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(member))
    if origin in (Sequence, Iterable):
        return isinstance(value, origin) and not isinstance(value, str | bytes | Mapping)
    if member in (int, float):
        return isinstance(value, int if member is int else int | float) and not isinstance(value, bool)
    return isinstance(value, os.PathLike if member is Path else origin or member)


def _words_of(member: Any) -> Iterable[str]:
    """The words of an error message for the type ``member``: its name, or the choices of a ``Literal``."""
    if get_origin(member) is Literal:
        return [repr(choice) for choice in get_args(member)]
    return [_WORDS[get_origin(member) or member]]
