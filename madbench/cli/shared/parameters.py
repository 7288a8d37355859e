"""Types of the options and arguments of verbs."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperOption
from typer.models import ParameterInfo

from madbench.labels import texts_of, trust
from madbench.labels.names import names_from_words, show
from madbench.labels.sets import names_of

EVERY_VERB = "every verb"


CompletionOf = Callable[[str], Callable[..., Any] | None]


@dataclass(frozen=True)
class Parameter:
    """An option or argument of a verb. It annotates the type of its values: ``Annotated[int, option("How many.")]``."""

    info: ParameterInfo
    completes: str = ""
    """The shell completion, as a metavar (:func:`madbench.cli.shared.completion.completion_of`)."""
    rare: str = ""
    """The verbs whose ``--help`` does not show it, or :data:`EVERY_VERB`. ``--help-all`` shows it."""

    def of_verb(self, verb: str, completion_of: CompletionOf) -> ParameterInfo:
        """The parameter for typer, with its completion, and hidden if it is rare in the verb."""
        info = copy.copy(self.info)
        info.autocompletion = completion_of(self.completes)
        info.hidden = self.rare == EVERY_VERB or verb in self.rare.split()
        return info


def option(help: str, *names: str, completes: str = "", rare: str = "", **settings: Any) -> Parameter:
    """An option. If its type is ``bool`` and it has no ``names``, it also has a ``--no-`` form.

    ``settings`` are arguments of :func:`typer.Option`. The other arguments are fields of :class:`Parameter`.
    """
    return Parameter(typer.Option(*names, help=help, **settings), completes, rare)


def argument(metavar: str, help: str, **settings: Any) -> Parameter:
    """An argument. Its metavar selects the shell completion."""
    return Parameter(typer.Argument(metavar=metavar, help=help, **settings), completes=metavar)


def output_option(help: str, **settings: Any) -> Parameter:
    """The option for the file or folder that a command writes."""
    return option(help, "--output", "--out", "-o", **settings)


VERBS_THAT_TRAIN = ("run", "sweep", "train")
"""The verbs that may import code of labels in files of labels that the user names."""


def with_groups(verb: Callable[..., None], completion_of: CompletionOf = lambda words: None) -> Callable[..., None]:
    """A command for ``verb`` with one option per field of its dataclass arguments.

    ``completion_of`` returns the completion for :attr:`Parameter.completes`. The user typed the labels among the words
    of the command, so the code of these labels may be imported (:mod:`madbench.labels.trust`). The command shows each
    label as it was typed, or by the name that its set or ``--rename`` gives.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)
    }
    labelled = [name for name, hint in hints.items() if _takes_labels(hint)]

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        values.pop("help_all", None)
        trust.begin()
        words = [word for name in labelled for word in texts_of(values.get(name) or ())]
        words = [word for word in words if ":" in word or "@" in word]  # others name no code and have one spelling
        trust.allow_typed(words, with_files=verb.__name__ in VERBS_THAT_TRAIN)
        names = names_from_words(values.get("rename") or ())
        show(names_of(words, names) if words else names)
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        verb(**values)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        if group := groups.get(parameter.name):
            types, members = get_type_hints(group, include_extras=True), [*inspect.signature(group).parameters.values()]
        else:
            types, members = hints, [parameter]
        parameters += [member.replace(annotation=types[member.name], kind=parameter.kind) for member in members]
    parameters = [_of_verb(member, verb.__name__, completion_of) for member in parameters]
    if any(details.hidden for member in parameters for details in get_args(member.annotation)[1:2]):
        help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
        parameters.append(help_all)
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {member.name: member.annotation for member in parameters}
    return command


@contextmanager
def every_option(command: Any) -> Iterator[None]:
    """A context in which help and completion of a command of typer show every option."""
    rare = [parameter for parameter in command.params if isinstance(parameter, TyperOption) and parameter.hidden]
    for parameter in rare:
        parameter.hidden = False
    try:
        yield
    finally:
        for parameter in rare:
            parameter.hidden = True


def _print_every_option(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        with every_option(context.command):
            print(context.get_help())
        raise typer.Exit


_HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show every option and exit.", is_eager=True, callback=_print_every_option)
]


def _takes_labels(hint: Any) -> bool:
    """True if the words of a parameter may be labels."""
    completes = [detail.completes for detail in get_args(hint)[1:] if isinstance(detail, Parameter)]
    return any("LABEL" in words or words.startswith("[PAPER") for words in completes)


def _of_verb(parameter: inspect.Parameter, verb: str, completion_of: CompletionOf) -> inspect.Parameter:
    """``parameter`` with an annotation that typer reads. Only options and arguments are changed."""
    type_, details = ([*get_args(parameter.annotation), None, None])[:2]
    if not isinstance(details, Parameter):
        return parameter
    return parameter.replace(annotation=Annotated[type_, details.of_verb(verb, completion_of)])
