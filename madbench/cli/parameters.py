"""Types of the options and arguments of verbs."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from madbench.labels import texts_of, trust
from madbench.labels.names import names_from_words, show
from madbench.labels.sets import names_of


@dataclass(frozen=True)
class Completes:
    """The shell completion of a parameter, as a metavar (:func:`madbench.cli.completion.completion_of`)."""

    words: str


@dataclass(frozen=True)
class Rare:
    """The verbs whose ``--help`` does not show an option. ``--help-all`` shows it."""

    verbs: str

    def includes(self, verb: str) -> bool:
        return self.verbs == EVERY_VERB or verb in self.verbs.split()


EVERY_VERB = "every verb"


def option(type_: Any, help: str, *names: str, completes: str = "", rare: str = "", **settings: Any) -> Any:
    """The type of an option. A ``bool`` without ``names`` also has a ``--no-`` form.

    ``rare`` has the names of the verbs whose ``--help`` does not show the option, or is :data:`EVERY_VERB`.
    """
    return Annotated[type_, typer.Option(*names, help=help, **settings), Completes(completes), Rare(rare)]


def argument(type_: Any, metavar: str, help: str, **settings: Any) -> Any:
    """The type of an argument. Its metavar selects the shell completion."""
    return Annotated[type_, typer.Argument(metavar=metavar, help=help, **settings), Completes(metavar)]


def output_option(help: str, **settings: Any) -> Any:
    """The type of the option for the file or folder that a command writes."""
    return option(Path | None, help, "--output", "--out", "-o", **settings)


VERBS_THAT_TRAIN = ("run", "sweep", "train")
"""The verbs that may import code of labels in files of labels that the user names."""


def with_groups(verb: Callable, completion_of: Callable[[str], Callable | None] = lambda words: None) -> Callable:
    """A command for ``verb`` with one option per field of its dataclass arguments.

    ``completion_of`` returns the completion for a :class:`Completes`. The user typed the labels among the words of the
    command, so the code of these labels may be imported (:mod:`madbench.labels.trust`). The command shows each label as
    it was typed, or by the name that its set or ``--rename`` gives.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    labelled = [name for name, hint in hints.items() if _takes_labels(hint)]

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        values.pop("help_all", None)
        trust.begin()
        words = [word for name in labelled for word in texts_of(values.get(name) or ())]
        trust.allow_typed(words, with_files=verb.__name__ in VERBS_THAT_TRAIN)
        show(names_of(words, names_from_words(values.get("rename") or ())))
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        verb(**values)

    parameters = []
    for parameter in inspect.signature(verb).parameters.values():
        if group := groups.get(parameter.name):
            types, members = get_type_hints(group, include_extras=True), inspect.signature(group).parameters.values()
        else:
            types, members = hints, [parameter]
        parameters += [member.replace(annotation=types[member.name], kind=parameter.kind) for member in members]
    parameters = [_of_verb(member, verb.__name__, completion_of) for member in parameters]
    if any(details.hidden for member in parameters for details in get_args(member.annotation)[1:2]):
        help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
        parameters.append(help_all)
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {member.name: member.annotation for member in parameters}
    return command


def _print_every_option(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        with context.command.every_option():
            print(context.get_help())
        raise typer.Exit


_HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show every option and exit.", is_eager=True, callback=_print_every_option)
]


def _takes_labels(hint: Any) -> bool:
    """True if the words of a parameter may be labels."""
    completes = [detail.words for detail in get_args(hint)[1:] if isinstance(detail, Completes)]
    return any("LABEL" in words or words.startswith("[PAPER") for words in completes)


def _of_verb(
    parameter: inspect.Parameter, verb: str, completion_of: Callable[[str], Callable | None]
) -> inspect.Parameter:
    """``parameter`` with its completion, hidden if it is rare in the verb. The shared type is not changed."""
    if not hasattr(parameter.annotation, "__metadata__"):
        return parameter
    type_, *details = get_args(parameter.annotation)
    info = copy.copy(details[0])
    for detail in details:
        if isinstance(detail, Completes):
            info.autocompletion = completion_of(detail.words)
        elif isinstance(detail, Rare):
            info.hidden = detail.includes(verb)
    return parameter.replace(annotation=Annotated[type_, info])
