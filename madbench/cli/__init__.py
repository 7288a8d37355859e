"""The command line: heavy imports are inside the verbs."""

from __future__ import annotations

import gc
import math
import pkgutil
import re
import sys
from collections.abc import Sequence
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
    "Look at a label before it is trained": "explain verify bench",
    "Train": "run sweep paper",
    "Read what is stored": "table plot compare attribute findings inspect audit report",
    "Find, check, add and share": "ls data validate new archive",
}
"""The verbs, by their heading in the help text; each is in the module of its name."""
ALL_VERBS = {*" ".join(VERBS.values()).split(), "lm"}
"""All of them; click knows them only once every command is made, which takes a while."""
LANGUAGE_VERBS = {"Commands": "train prepare sample evaluate export"}
SHORT = {
    "budget": "explain --cost",
    "claim": "new claim",
    "doctor": "validate --machine",
    "import": "archive --import",
    "power": "findings --power",
    "register": "findings --register",
    "status": "ls sweeps",
}
"""Short forms of a verb with an option."""
MOVED = {
    "lm table": "madbench table -t language_model",
    "lm plot": "madbench plot loss",
    "principles": "madbench paper coefficients",
}
"""Verbs that moved, and the commands that now do what they did."""

app = typer.Typer(
    name="madbench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Which part of an attention-like operator does the work?

A label such as [bold]G-cg-q-12o[/bold] names one sequence mixer: a base activation (S, R, G, D, L), features (p RoPE, \
c convolution, g gates, k registers, a adapters), which rank is reduced to keep the budget (q, v; ! for neither), \
sequence mixing (1, 2, 12) and its layout (o). madbench chooses its ranks to match softmax attention's parameters, \
trains it on the six MAD tasks and as a language model, and tabulates it. Other families have a prefix, such as cd:gla \
or hfa:2; madbench ls families lists them.

[bold]Start here[/bold]

  madbench explain G-cg-q-12o          what every letter does
  madbench verify G-cg-q-12o           what the theory promises, measured
  madbench run G-cg-q-12o              train it, a few minutes on a laptop
  madbench sweep @quick --seeds 0-2    a table with confidence intervals
  madbench findings                    verdicts on the paper's claims
  madbench paper                       papers, and what can be reproduced
  madbench report                      everything in one HTML page
  madbench sweep @table1 --dry-run     what the paper's 33 labels would cost

Short forms: [bold]budget[/bold] for explain --cost, [bold]claim[/bold] for new claim, [bold]doctor[/bold] for \
validate --machine, [bold]import[/bold] for archive --import, [bold]power[/bold] for findings --power, \
[bold]register[/bold] for findings --register, [bold]status[/bold] for ls sweeps.
""",
)


def expand_short_form(words: list[str]) -> list[str]:
    """The words of a command, with a short form of :data:`SHORT` written out."""
    if not words:
        return words
    verb, *option = SHORT.get(words[0], words[0]).split()
    if {"-h", "--help"} & {*words[1:]} and option and option[0].startswith("-"):
        option = []  # which would take --help for its value
    return [verb, *option, *words[1:]]


def _refuse_moved(words: Sequence[str]) -> None:
    """Raises ``ConfigError`` for a verb that moved, and says where it is now."""
    for verb, command in MOVED.items():
        if " ".join(words[: len(verb.split())]) == verb:
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
    """A command that refuses an option given twice, an empty value, inf and NaN."""

    def parse_args(self, ctx, args):
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

A preset has sizes, schedule and corpus: madbench ls presets. By default it is
tiny, on the bytes of Python's own standard library.

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

for _group, _verbs in ((app, VERBS), (lm, LANGUAGE_VERBS)):
    for _heading, _names in _verbs.items():
        for _name in _names.split():
            _verb = pkgutil.resolve_name(f"madbench.cli.{_name}:{_name}")
            _group.command(_name, cls=_Verb, rich_help_panel=_heading)(with_groups(_verb, completion_of))
app.add_typer(lm, name="lm", rich_help_panel="Train")


def main() -> None:
    """Runs the command line; a user's error is one message and exit code 2."""
    gc.set_threshold(100_000, 20, 50)  # importing and reading make many objects that stay: searching them takes a tenth
    use_sound_terminal()
    rejoin_options()
    try:
        _refuse_moved(sys.argv[1:])
        try:
            app(expand_short_form(sys.argv[1:]), prog_name="madbench")
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
