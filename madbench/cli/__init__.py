"""The command line: heavy imports are inside the verbs."""

from __future__ import annotations

import gc
import keyword
import math
import pkgutil
import re
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup

from madbench import __version__
from madbench.cli.completion import completion_of, rejoin_options
from madbench.cli.parameters import with_groups
from madbench.cli.terminal import finish_output, output_problem, use_sound_terminal
from madbench.errors import ConfigError, LabelError, MadbenchError
from madbench.labels.names import spelled_in

VERBS = {
    "Every day": "explain verify run table compare plot report paper",
    "More": "sweep lm findings register attribute inspect audit ls data validate bench new archive import",
}
"""The verbs by heading of the help text. Each is in the module of its name."""
ALL_VERBS = {*" ".join(VERBS.values()).split()}
"""All verbs. click knows them only once every command is made, which takes a while."""
LANGUAGE_VERBS = "train prepare sample evaluate export"
MOVED = {
    "budget": "madbench explain --cost",
    "claim": "madbench new claim",
    "doctor": "madbench validate --machine",
    "power": "madbench findings --power",
    "principles": "madbench paper coefficients",
    "status": "madbench ls sweeps",
    "ls presets": "madbench ls profiles",
    "lm table": "madbench table -t language_model",
    "lm plot": "madbench plot loss",
}
"""Former commands, and the commands that do the same now."""
MOVED_OPTIONS = {
    "--import": "madbench import FILE",
    "--json": "-f json",
    "--label": "--tex-label",
    "--name": "--rename",
    "--preset": "--profile",
    "--register": "madbench register FILE.yaml",
}
"""Former options, and what does the same now."""


class _Verbs(TyperGroup):
    """The verbs. Their help fits on one screen: it leaves out the options that install shell completion."""

    def format_help(self, ctx, formatter):
        for parameter in self.params:
            parameter.hidden = parameter.name in ("install_completion", "show_completion")
        super().format_help(ctx, formatter)


app = typer.Typer(
    name="madbench",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Which part of an attention-like operator does the work?

A label such as [bold]G-cg-q-12o[/bold] names one sequence mixer. madbench run trains it with as many \
parameters as softmax attention, on small tasks. madbench VERB --help has examples.
""",
)


def _refuse_moved(words: Sequence[str]) -> None:
    """Raises ``ConfigError`` for a former command, and names the one that does the same now."""
    for verb, command in MOVED.items():
        if [*words[: len(verb.split())]] == verb.split():
            raise ConfigError(f"madbench {verb} is now {command}")
    if words and not words[0].startswith("-") and words[0] not in ALL_VERBS:
        from madbench.cli.paper import check_no_paper

        check_no_paper(words[0])


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"madbench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


class _Verb(TyperCommand):
    """A command that refuses an option given twice, an empty value, inf and NaN, and whose help is in two lengths."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.rare = [parameter for parameter in self.params if getattr(parameter, "hidden", False)]

    @contextmanager
    def every_option(self):
        """Within this block the help and the completion have every option."""
        for parameter in self.rare:
            parameter.hidden = False
        try:
            yield
        finally:
            for parameter in self.rare:
                parameter.hidden = True

    def shell_complete(self, ctx, incomplete):
        with self.every_option():
            return super().shell_complete(ctx, incomplete)

    def parse_args(self, ctx, args):
        self._refuse_moved_options(args)
        values, _, order = self.make_parser(ctx).parse_args(list(args))
        options = [parameter for parameter in order if parameter.param_type_name == "option"]
        if ctx.resilient_parsing or any(option.is_eager for option in options):  # completion, or --help
            return super().parse_args(ctx, args)
        for option in options:
            name, value = option.opts[0], values[option.name]
            if options.count(option) > 1 and not option.multiple:
                raise ConfigError(f"{name}: given twice; give it once")
            if "" in (value if option.multiple else [value]) and option.default != "":
                raise ConfigError(f"{name} '': expected a value; leave the option out for its default")
        rest = super().parse_args(ctx, args)
        for option in options:
            value = ctx.params[option.name]
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{option.opts[0]} {value}: expected a finite number")
        return rest

    def _refuse_moved_options(self, args: Sequence[str]) -> None:
        """Raises ``ConfigError`` for a former option, and names what does the same now."""
        own = {name for parameter in self.params for name in parameter.opts}
        for word in args:
            option = word.partition("=")[0]
            if option in MOVED_OPTIONS and option not in own:
                raise ConfigError(f"{option} is now {MOVED_OPTIONS[option]}")


class _TrainByDefault(TyperGroup):
    """A group that takes its first word for a label to train, unless it is one of its verbs."""

    def shell_complete(self, ctx, incomplete):
        of_train = self.commands["train"].params
        words = next(parameter for parameter in of_train if parameter.param_type_name == "argument")
        return [*super().shell_complete(ctx, incomplete), *words.shell_complete(ctx, incomplete)]

    def parse_args(self, ctx, args):
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["train", *args]
        return super().parse_args(ctx, args)


lm = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Train labels as GPT-2-shaped language models, and use them.

A profile has sizes, schedule and corpus: madbench ls profiles. By default it
is tiny, on the bytes of Python's own standard library.

[bold]Start here[/bold]

  madbench lm G-cg-q-12o               train one, a minute or two on a laptop
  madbench lm S-p R-cg-q --seeds 0-2   compare two; the same command resumes
  madbench table -t language_model     losses and steps to thresholds
  madbench plot loss                   loss curves as PNG, PDF and CSV
  madbench lm sample G-cg-q-12o        text from the trained model
  madbench lm prepare my_texts/        tokens from your own text
  madbench lm train --help             every option of training
""",
)


def _add_verb(group: typer.Typer, name: str, heading: str) -> None:
    function = f"{name}_" if keyword.iskeyword(name) else name
    verb = pkgutil.resolve_name(f"madbench.cli.{function}:{function}")
    group.command(name, cls=_Verb, rich_help_panel=heading)(with_groups(verb, completion_of))


for _heading, _names in VERBS.items():
    for _name in _names.split():
        if _name == "lm":
            app.add_typer(lm, name=_name, rich_help_panel=_heading)
        else:
            _add_verb(app, _name, _heading)
for _name in LANGUAGE_VERBS.split():
    _add_verb(lm, _name, "Commands")


def main() -> None:
    """Runs the command line; a user's error is one message and exit code 2."""
    gc.set_threshold(100_000, 20, 50)  # importing and reading make many objects that stay: searching them takes a tenth
    use_sound_terminal()
    rejoin_options()
    try:
        _refuse_moved(sys.argv[1:])
        try:
            app(sys.argv[1:], prog_name="madbench")
        except SystemExit:
            finish_output()
            raise
    except MadbenchError as error:
        text = str(error) if isinstance(error, LabelError) else spelled_in(str(error))  # below a label is a caret
        problem = re.sub("(.{500}).{1000,}(.{500})", r"\1 ... \2", text)
    except OSError as error:
        if error.filename is not None:
            problem = f"{error.filename}: {(error.strerror or str(error)).lower()}"
        elif (problem := output_problem(error)) is None:
            raise
    from rich.console import Console

    from madbench.cli.printing import in_words

    print(in_words(problem, Console(stderr=True)), file=sys.stderr)
    sys.exit(2)
