"""Commands of typer for verbs. The module of a verb is imported only when the verb is called."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import itertools
import keyword
import math
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from madbench.cli.shared.moved import MOVED_OPTIONS, OTHER_OPTIONS, SYNONYMS
from madbench.cli.shared.parameters import every_option, with_groups
from madbench.config import check_bounds, short_repr
from madbench.errors import ConfigError, did_you_mean, suggestion


class Verb(TyperCommand):
    """A command that rejects repeated options, empty values, unknown choices, and numbers that are out of range.

    Every error of the parser becomes a ``ConfigError``, whose message is one line. Messages name an option as it was
    typed. Shell completion of the command also offers its hidden options.
    """

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        with every_option(self):
            return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            values, _, order = self.make_parser(ctx).parse_args(list(args))
        except Exception as error:  # typer may have a click of its own, so its class is not known here
            if (former := getattr(error, "option_name", None)) in MOVED_OPTIONS:
                raise ConfigError(f"{former} is now {MOVED_OPTIONS[former]}") from None
            if instead := OTHER_OPTIONS.get((str(self.name), str(former))):
                raise ConfigError(f"{former}: {ctx.command_path} has no such option; {instead}") from None
            if former:
                raise ConfigError(_option_problem(former, ctx, self.get_params(ctx))) from None
            raise
        options = [parameter for parameter in order if parameter.param_type_name == "option"]
        if ctx.resilient_parsing or any(option.is_eager for option in options):  # completion, or --help
            return super().parse_args(ctx, args)
        parameters = inspect.signature(self.callback).parameters if self.callback else {}
        for option in options:
            count, value = options.count(option), values[option.name]
            names = [*_typed_names(option, args), *[option.opts[0]] * count][:count]
            if count > 1 and not option.multiple:
                different = [*dict.fromkeys(names)]
                problem = ": given twice" if len(different) == 1 else " are one option"
                raise ConfigError(f"{' and '.join(different)}{problem}; give it once")
            for name, text in zip(names, map(str, value if option.multiple else [value])):
                if text == "" and option.default != "":
                    raise ConfigError(f"{name} '': expected a value; leave the option out for its default")
                if option.name in parameters:
                    _check_choice(name, text, parameters[option.name].annotation)
                    _check_number(name, text, parameters[option.name].annotation)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if message := getattr(error, "format_message", None):  # an error of click, see above
                raise ConfigError(f"{ctx.command_path}: {_usage_problem(error, message(), ctx)}") from None
            raise


def _usage_problem(error: Exception, message: str, ctx: Any) -> str:
    """The text of an ``error`` of the parser with this ``message``, such as an argument that is missing."""
    if type(error).__name__ == "MissingParameter":
        parameter: Any = vars(error)["param"]
        return f"expected {parameter.metavar or parameter.name}; {ctx.command_path} --help has examples"
    return (message[:1].lower() + message[1:].rstrip(".")).replace("argument(s)", "arguments")


def _option_problem(name: str, ctx: Any, parameters: Iterable[Any]) -> str:
    """The message for an error of the parser about the option ``name`` of a command with these ``parameters``.

    The parser refuses an unknown option, a value of an option that takes none, and an option without its value.
    """
    options = {opt: each for each in parameters for opt in (*each.opts, *each.secondary_opts) if opt.startswith("-")}
    if name in options:
        return f"{name}: takes no value" if options[name].is_flag else f"{name}: expected a value"
    synonym = SYNONYMS.get(name)
    others = [option for option in options if not option.startswith("--help")]
    advice = f"; did you mean {synonym!r}?" if synonym in options else suggestion(name, others)
    if not advice or ctx.info_name in WITH_SETTINGS:
        advice = _advice_on_settings(name, ctx.info_name) or advice or f"; {ctx.command_path} --help-all lists all"
    return f"{name}: {ctx.command_path} has no such option{advice}"


WITH_SETTINGS = ("run", "sweep", "train")
"""The commands that train, which take settings of the profile as words. ``train`` is ``madbench lm``."""


def _advice_on_settings(option: str, verb: str) -> str:
    """The word that changes the setting whose name was typed as an option, such as ``--lr``. Empty if there is none."""
    from madbench.suites.addressing import nearest_key

    if verb not in WITH_SETTINGS:
        return ""
    key = nearest_key(option.lstrip("-").replace("-", "_"), "language_model" if verb == "train" else None)
    return f"; settings of the profile have no dashes: {key}=VALUE" if key else ""


def _typed_names(option: Any, words: Iterable[str]) -> list[str]:
    """The names by which an option was typed in the command line ``words``, one per use, in order.

    An option may have several names, such as ``--budget`` and ``--match``. A use in a word that joins several short
    options, such as ``-yo``, is left out.
    """
    words = itertools.takewhile(lambda word: word != "--", words)
    names = (*option.opts, *option.secondary_opts)
    typed_words = (word.partition("=")[0] if word.startswith("--") else word[:2] for word in words)
    return [word for word in typed_words if word in names]


def _check_choice(name: str, text: str, hint: Any) -> None:
    """Raise ``ConfigError`` if a ``Literal`` in the type ``hint`` of the option ``name`` does not allow ``text``."""
    waiting = [hint]
    choices: list[str] = []
    while waiting:
        hint = waiting.pop(0)
        if get_origin(hint) is Literal:
            choices += get_args(hint)
        else:
            waiting += get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    if choices and text not in choices:
        raise ConfigError(f"{name} {short_repr(text)}: there is no such choice{did_you_mean(text, choices)}")


def _check_number(name: str, text: str, hint: Any) -> None:
    """Raise ``ConfigError`` if ``text`` is no number in the bounds of the option ``name``.

    ``hint`` is the type of the option. Options that are no numbers, or have a parser of their own, are not checked.
    """
    type_, info = get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, None)
    kinds = {kind for kind in (type_, *get_args(type_)) if kind in (int, float)}
    if not kinds or getattr(info, "parser", None):
        return
    is_whole = float not in kinds
    try:
        number = int(text) if is_whole else float(text)
    except ValueError:
        expected = "a whole number" if is_whole else "a number"
        raise ConfigError(f"{name} {short_repr(text)}: expected {expected}") from None
    if isinstance(number, float) and not math.isfinite(number):
        raise ConfigError(f"{name} {text}: expected a finite number")
    check_bounds(name, number, getattr(info, "min", None), getattr(info, "max", None))


class VerbGroup(TyperGroup):
    """A group of verbs, such as ``madbench`` or ``madbench lm``. Its help does not import the verbs."""

    headings: ClassVar[Mapping[str, str]]
    """The names of the verbs by heading of the help text. Spaces separate the names of one heading."""
    package: ClassVar[str]
    """The package of the verbs. The verb ``table``, for example, is the function ``table`` in its module ``table``."""
    commands: Any
    """The commands by name, a mapping that imports a verb only when it is looked up. Its type is ``Any`` because typer
    declares a ``dict``."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.commands = _Commands(self.headings, self.package, dict(self.commands))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if option := getattr(error, "option_name", None):  # an error of click, as in Verb.parse_args
                options = [name for parameter in self.get_params(ctx) for name in parameter.opts]
                advice = suggestion(option, options) or "; options of a command follow its name"
                raise ConfigError(f"{option}: {ctx.command_path} has no such option{advice}") from None
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing and args and args[0] not in self.commands:
            advice = suggestion(args[0], self.commands) or f"; {ctx.command_path} --help lists all"
            raise ConfigError(f"there is no command {short_repr(args[0])}{advice}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for parameter in self.params:
            if isinstance(parameter, TyperOption):  # so that the overview fits on one screen
                parameter.hidden = parameter.name in ("install_completion", "show_completion")
        commands, self.commands = self.commands, self.commands.summaries()
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = commands


class _Commands(Mapping[str, Any]):
    """The commands of a group by name, in the order of the help text. A verb is imported when it is looked up.

    ``groups`` maps names to commands that need no import, such as the group ``lm``.
    """

    def __init__(self, headings: Mapping[str, str], package: str, groups: Mapping[str, Any]):
        self.heading_of = {name: heading for heading, names in headings.items() for name in names.split()}
        self.package = package
        self.groups = groups

    def __getitem__(self, name: str) -> Any:
        if name not in self.heading_of:
            raise KeyError(name)
        return self.groups.get(name) or _command(self.package, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.heading_of)

    def __len__(self) -> int:
        return len(self.heading_of)

    def summaries(self) -> dict[str, Any]:
        """The commands for the group's help text, by name.

        A verb is replaced by an empty command with the verb's summary, so that it is not imported.
        """
        return {
            name: self.groups.get(name)
            or TyperCommand(name, help=_summary(self.package, name), rich_help_panel=heading)
            for name, heading in self.heading_of.items()
        }


def _module(verb: str) -> str:
    return f"{verb}_" if keyword.iskeyword(verb) else verb


@functools.cache
def _command(package: str, verb: str) -> Any:
    name = _module(verb)
    function = pkgutil.resolve_name(f"{package}.{name}:{name}")
    single_app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single_app.command(verb, cls=Verb)(with_groups(function))
    return typer.main.get_command(single_app)


def _summary(package: str, verb: str) -> str:
    """The first line of a verb's docstring, read from the source of its module without importing it."""
    name = _module(verb)
    spec = importlib.util.find_spec(f"{package}.{name}")
    source = Path(spec.origin).read_bytes() if spec and spec.origin else b""
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return (ast.get_docstring(next(functions)) or "").partition("\n")[0]
