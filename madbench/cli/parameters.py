"""Options and arguments of verbs, with their completion, alone and in groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from madbench.cli.completion import completion_of
from madbench.labels import names


def option(type_: Any, help: str, *names: str, completes: str = "", **settings: Any) -> Any:
    """The type of a parameter that is an option; a ``bool`` without ``names`` also has a ``--no-`` form.

    ``completes`` is what the shell completes its value with, as in :func:`madbench.cli.completion.completion_of`.
    """
    return Annotated[type_, typer.Option(*names, help=help, autocompletion=completion_of(completes), **settings)]


def argument(type_: Any, metavar: str, help: str, **settings: Any) -> Any:
    """The type of a parameter that is an argument; the shell completes what its metavar names."""
    complete = completion_of(metavar)
    return Annotated[type_, typer.Argument(metavar=metavar, help=help, autocompletion=complete, **settings)]


def output_option(help: str, **settings: Any) -> Any:
    """The type of the option that names what a command writes."""
    return option(Path | None, help, "--output", "--out", "-o", **settings)


def with_groups(verb: Callable) -> Callable:
    """``verb`` with an option for each field of its keyword arguments that are dataclasses."""
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        names.begin()
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        verb(**values)

    parameters = []
    for parameter in inspect.signature(verb).parameters.values():
        if group := groups.get(parameter.name):
            types, found = get_type_hints(group, include_extras=True), inspect.signature(group).parameters.values()
        else:
            types, found = hints, [parameter]
        parameters += [one.replace(annotation=types[one.name], kind=parameter.kind) for one in found]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command
