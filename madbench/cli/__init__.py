"""The command line: one verb a file, heavy imports inside the verb."""

from __future__ import annotations

import errno
import gc
import importlib
import sys
from typing import Annotated

import typer

from madbench import __version__
from madbench.errors import MadbenchError

VERBS = """
run sweep lm status table plot compare attribute findings report explain budget data ls validate doctor
""".split()

app = typer.Typer(
    name="madbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Which part of an attention-like operator does the work?

A label such as [bold]G-cg-q-12o[/bold] names one sequence mixer: a base activation (S, R, G), features (p RoPE, \
c convolution, g gates), where parameters are saved (q, v, or ! for nowhere), sequence mixing (1, 2, 12) and its \
layout (o). madbench solves its ranks for softmax attention's parameter budget, trains it on the six MAD tasks and as a language model, and tabulates it.

[bold]Start here[/bold]

  madbench explain G-cg-q-12o          what every letter does
  madbench run G-cg-q-12o              train it, a few minutes on a laptop
  madbench sweep @quick --seeds 0-2    a table with its noise
  madbench findings                    what that says of the paper's claims
  madbench report                      all of it in one page
  madbench sweep @table1 --dry-run     what the paper's 33 labels would cost
""",
)


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


for _verb in VERBS:  # modules with a function of the same name, or with verbs of their own
    _module = importlib.import_module(f"madbench.cli.{_verb}")
    app.add_typer(_module.app, name=_verb) if hasattr(_module, "app") else app.command()(getattr(_module, _verb))


def main() -> None:
    """Runs the command line; a user's error is one message and exit code 2."""
    gc.set_threshold(100_000, 20, 50)  # importing and reading make many objects that stay: searching them takes a tenth
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows '?' for what it lacks
    try:
        app(prog_name="madbench")
    except MadbenchError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        print("the output cannot be written: no space left where it goes", file=sys.stderr)
        sys.exit(2)
