"""The command line: one file per verb. Heavy imports are inside the verbs.

A verb is a function, and its module has the same name: the file ``table.py`` for ``table``. The module of a verb with
parts of its own is a folder with an ``__init__.py``. The folder ``lm`` has the verbs of ``madbench lm``, and ``shared``
has what several verbs use.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from madbench import __version__
from madbench.cli.lm import app as lm_app
from madbench.cli.shared.completion import rejoin_options
from madbench.cli.shared.moved import MOVED
from madbench.cli.shared.terminal import finish_output, output_problem, use_sound_terminal
from madbench.cli.shared.verbs import VerbGroup
from madbench.errors import ConfigError, LabelError, MadbenchError
from madbench.labels.names import with_typed_labels

VERBS = {
    "Every day": "explain verify run table compare plot report paper",
    "More": "sweep lm findings register attribute inspect audit ls data validate bench new archive import again",
}
"""The verbs by heading of the help text."""
ALL_VERBS = {*" ".join(VERBS.values()).split()}


class _Verbs(VerbGroup):
    headings = VERBS
    package = "madbench.cli"


app = typer.Typer(
    name="madbench",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Which part of an attention-like operator does the work?

A label such as [bold]G-cg-q-12o[/bold] names one sequence mixer. madbench run trains it with as many \
parameters as softmax attention. Examples: madbench VERB --help.
""",
)


def _refuse_moved(words: Sequence[str]) -> None:
    """Raise ``ConfigError`` for a command of an earlier version, and for a paper or a kind of list in place of a verb.

    The message has the command to use instead.
    """
    for verb, command in MOVED.items():
        if [*words[: len(verb.split())]] == verb.split():
            raise ConfigError(f"madbench {verb} is now {command}")
    if words[:1] == ["ls"] and words[1:] and _names_suite_alone(words[1]):
        raise ConfigError(f"madbench ls {words[1]} is now madbench ls profiles {words[1]}")
    if words and not words[0].startswith("-") and words[0] not in ALL_VERBS:
        from madbench.cli.ls import KIND_ALIASES
        from madbench.cli.ls.listings import listings
        from madbench.cli.paper import check_no_paper

        check_no_paper(words[0])
        if words[0] in {*listings(), *KIND_ALIASES}:
            raise ConfigError(f"there is no command {words[0]!r}; did you mean madbench ls {words[0]}?")


def _names_suite_alone(kind: str) -> bool:
    """True if ``kind``, the word after ``madbench ls``, is the name of a suite.

    In earlier versions, ``madbench ls SUITE`` listed the suite's profiles.
    """
    from madbench.cli.ls.listings import listings
    from madbench.suites import suites

    return kind in suites() and kind not in listings()


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


app.add_typer(
    lm_app, name="lm", rich_help_panel=next(heading for heading, names in VERBS.items() if "lm" in names.split())
)


def main() -> None:
    """Run the command line. An error that a user can cause is printed as one message, and the exit code is 2."""
    gc.set_threshold(100_000, 20, 50)  # imports make many objects that stay; searching them takes a tenth of the time
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
        # the caret below a label has to stay below the same letter
        problem = str(error) if isinstance(error, LabelError) else with_typed_labels(str(error))
    except OSError as error:
        if error.filename is not None:
            problem = f"{error.filename}: {(error.strerror or str(error)).lower()}"
        elif (of_output := output_problem(error)) is not None:
            problem = of_output
        else:
            raise
    from rich.console import Console

    from madbench.cli.shared.printing import in_words

    problem = re.sub("(.{500}).{1000,}(.{500})", r"\1 ... \2", problem)
    print(in_words(problem, Console(stderr=True)), file=sys.stderr)
    sys.exit(2)
