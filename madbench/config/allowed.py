"""Checks of the arguments of Python functions: their types, and the bounds that options of the same name declare."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from madbench.config.options import Parameter
from madbench.config.settings import check_bounds, convert
from madbench.config.values import plain_values, short_repr
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

_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_checked_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate ``function`` so that a call checks each argument against its annotation (:func:`check_argument`).

    Arguments of NumPy, torch and pandas are converted to Python's types first. Parameters without an annotation are
    not checked. The module of the function must import the types of its parameters; that of the result is not needed.
    """
    signature = inspect.signature(function)
    hints = functools.cache(lambda: parameter_types(function))

    @functools.wraps(function)
    def checked(*arguments: _P.args, **settings: _P.kwargs) -> _R:
        try:
            call = signature.bind(*arguments, **settings)
        except TypeError as error:
            raise TypeError(f"{function.__qualname__}() {error}") from None
        for name, value in call.arguments.items():
            if name in hints():
                call.arguments[name] = plain_values(value)
                check_argument(name, call.arguments[name], hints()[name])
        return function(*call.args, **call.kwargs)

    return checked


def parameter_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters with an annotation, by name. The type of the result need not be importable."""
    annotations = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return get_type_hints(types.SimpleNamespace(__annotations__=annotations), vars(sys.modules[function.__module__]))


def check_argument(name: str, value: Any, hint: Any, option: Parameter | None = None) -> None:
    """Check that the type ``hint`` allows ``value``, and that a number is within the bounds of ``option``.

    The items of lists and the values of mappings are checked too. The items of an iterator are not, because it can be
    read only once. ``option`` declares the argument on the command line. It is None for an argument that is no option.
    Raises ``ConfigError`` with the name of the argument, the value and what is allowed.
    """
    members = [*_members(hint)]
    fitting = [member for member in members if _fits(value, member)]
    if not fitting:
        if isinstance(value, str) and all(get_origin(each) is Literal for each in members if each is not type(None)):
            convert(value, hint, name)  # raises an error that suggests a choice
        *others, last = dict.fromkeys(word for member in members for word in _words_of(member))
        allowed = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"{name}: expected {allowed}, got {'None' if value is None else short_repr(value)}")
    _check_items(name, value, fitting[0])
    if option and isinstance(value, int | float):
        check_bounds(name, value, option.settings.get("min"), option.settings.get("max"))


def _members(hint: Any) -> Iterator[Any]:
    """The types that a union joins. A type that is no union is its own only member."""
    if get_origin(hint) in (Union, types.UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _fits(value: Any, member: Any) -> bool:
    """True if ``value`` has the type ``member``, which is not a union. True and False do not count as numbers."""
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


def _check_items(name: str, value: Any, member: Any) -> None:
    """Check the items of ``value``, which has the type ``member``, if it is a list or a mapping."""
    match get_origin(member), get_args(member):
        case collections.abc.Mapping, (_, of_value):
            for key, item in value.items():
                check_argument(f"{name}: {key}", item, of_value)
        case ((collections.abc.Sequence | collections.abc.Iterable), (of_item,)) if isinstance(value, Collection):
            for i, item in enumerate(value):
                check_argument(f"{name}[{i}]", item, of_item)


def _words_of(member: Any) -> Iterable[str]:
    """The words of an error message for the type ``member``: its name, or the choices of a ``Literal``."""
    if get_origin(member) is Literal:
        return [repr(choice) for choice in get_args(member)]
    kind = get_origin(member) or member
    return [_WORDS.get(kind) or f"a {kind.__name__}"]
