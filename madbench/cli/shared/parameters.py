"""Turn the functions of verbs into commands of typer. A verb is a command of ``madbench``, such as ``run``.

Annotations of a function's parameters declare options and arguments. A parameter whose type is a dataclass declares one
option per field.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperOption

from madbench.cli.shared.completion import completion_of
from madbench.config.options import EVERY_VERB, Parameter, declared_parameter, option
from madbench.labels import trust
from madbench.labels.names import names_from_words, use_names
from madbench.labels.sets import names_of
from madbench.training.processes import is_first


def output_option(help: str, **settings: Any) -> Parameter:
    """Declare the option ``--output`` for the file or folder that a command writes."""
    return option(help, "--output", "--out", "-o", **settings)


VERBS_THAT_TRAIN = ("run", "sweep", "train")
"""The verbs that train. They may also import the code of labels in a set or file of labels that the user names. Other
verbs may only import the code of labels that the user typed."""


def with_groups(verb: Callable[..., None]) -> Callable[..., None]:
    """Turn the function of a verb into a command for typer.

    An argument of ``verb`` whose type is a dataclass becomes one option per field. A field that is a dataclass itself
    stands for its own fields. A field without a :class:`Parameter` keeps its default, except a field ``given``: it gets
    the names of the fields whose options the user gave.

    The command allows the import of the code of labels that the user typed (:mod:`madbench.labels.trust`). Its output
    shows each label as it was typed, or by the name that its set or ``--rename`` gives. At the end, the command warns
    of names in ``--rename`` that the output did not show.
    """
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if _is_group(hint)}
    context_name = next((name for name, hint in hints.items() if hint is typer.Context), None)
    label_parameters = [name for name, hint in hints.items() if _takes_labels(hint)]

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        values.pop("help_all", None)
        given = given_options(values[context_name] if context_name else values.pop("context"))
        trust.forget_allowed()
        typed = [values.get(name) or [] for name in label_parameters]
        words = [word for value in typed for word in ([value] if isinstance(value, str) else value)]
        words = [word for word in words if ":" in word or "@" in word]  # other words name no code and have one spelling
        names = names_from_words(values.get("rename") or ())
        if words:
            trust.allow_typed(words, with_files=verb.__name__ in VERBS_THAT_TRAIN)
            names = names_of(words, names)
        use_names(names)
        for name, group in groups.items():
            values[name] = _from_options(group, values, given)
        verb(**values)
        if names.not_shown and is_first():
            _warn_of_names(names.not_shown)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        if group := groups.get(parameter.name):
            members = [*_members(group)]
        else:
            members = [parameter.replace(annotation=hints[parameter.name])]
        parameters += [member.replace(kind=parameter.kind) for member in members]
    parameters = [_of_verb(member, verb.__name__) for member in parameters]
    if context_name is None:
        parameters.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    if any(details.hidden for member in parameters for details in get_args(member.annotation)[1:2]):
        help_all = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_HelpAll)
        parameters.append(help_all)
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {member.name: member.annotation for member in parameters}
    return command


def _warn_of_names(not_shown: Mapping[str, str]) -> None:
    """Print a warning for each name of ``--rename`` that the output does not show. ``not_shown`` maps label to name."""
    from madbench.cli.shared.options import warn

    for label, name in not_shown.items():
        reason = f"the output does not show {label}, or shows it as a label, as JSON and CSV do"
        warn(f"--rename {label}={name} has no effect: {reason}")


def given_options(context: typer.Context) -> frozenset[str]:
    """The names of the parameters that the user gave, even if with their default values."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in sources.items() if source is not None and source.name != "DEFAULT")


def _is_group(hint: Any) -> bool:
    """True if a type is a dataclass. Its fields then become options."""
    return isinstance(hint, type) and is_dataclass(hint)


def _members(group: type[Any]) -> Iterator[inspect.Parameter]:
    """The parameters for the fields of a dataclass that declare options, and for the fields of dataclasses in it."""
    types = get_type_hints(group, include_extras=True)
    for member in inspect.signature(group).parameters.values():
        hint = types[member.name]
        if _is_group(hint):
            yield from _members(hint)
        elif declared_parameter(hint):
            yield member.replace(annotation=hint)


def _from_options(group: type[Any], values: dict[str, Any], given: Collection[str]) -> Any:
    """Make the dataclass ``group`` from the options in ``values``, which are removed from ``values``.

    ``given`` are the names of the options that the user gave.
    """
    values_by_group: dict[str, Any] = {}
    types = get_type_hints(group, include_extras=True)
    for name, hint in types.items():
        if _is_group(hint):
            values_by_group[name] = _from_options(hint, values, given)
        elif name in values and declared_parameter(hint):
            values_by_group[name] = values.pop(name)
    if "given" in types:
        values_by_group["given"] = tuple(name for name in values_by_group if name in given)
    return group(**values_by_group)


@contextmanager
def every_option(command: Any) -> Iterator[None]:
    """A context in which the help and the completion of a command include the options that are usually hidden."""
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
    """True if the annotated type of a parameter declares words that may be labels."""
    details = declared_parameter(hint)
    return details is not None and ("LABEL" in details.completes or details.completes.startswith("[PAPER"))


def _of_verb(parameter: inspect.Parameter, verb: str) -> inspect.Parameter:
    """Replace the annotation of ``parameter`` by one that typer reads, if it declares an option or argument.

    ``verb`` decides if the option is hidden in ``--help``.
    """
    if not (details := declared_parameter(parameter.annotation)):
        return parameter
    settings: dict[str, Any] = {"help": details.help, **details.settings}
    if parser := settings.get("parser"):
        settings["parser"] = _with_usage_errors(parser)
    info: Any = typer.Argument(**settings) if details.is_argument else typer.Option(*details.flags, **settings)
    info.autocompletion = completion_of(details.completes)
    info.hidden = details.rare == EVERY_VERB or verb in details.rare.split()
    return parameter.replace(annotation=Annotated[details.reads or get_args(parameter.annotation)[0], info])


def _with_usage_errors(parser: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap ``parser`` so that typer shows its ``ValueError`` as a wrong use of the command."""

    @functools.wraps(parser)
    def parse(text: str) -> Any:
        try:
            return parser(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse
