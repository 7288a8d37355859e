"""``madbench lm``: train and use language models. One file per verb."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer

from madbench.cli.shared.verbs import VerbGroup
from madbench.config import short_repr
from madbench.errors import ConfigError, MadbenchError, suggestion

VERBS = {"Commands": "train prepare sample evaluate export"}


class _TrainByDefault(VerbGroup):
    """A group of verbs whose default verb is ``train``.

    A first word that is not a verb is taken as a label to train.
    """

    headings = VERBS
    package = "madbench.cli.lm"

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        of_train = self.commands["train"].params
        words = next(parameter for parameter in of_train if parameter.param_type_name == "argument")
        return [*super().shell_complete(ctx, incomplete), *words.shell_complete(ctx, incomplete)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            if advice := _advice_on_command(args[0], self.commands):
                raise ConfigError(f"there is no command or label {short_repr(args[0])}{advice}")
            args = ["train", *args]
        return super().parse_args(ctx, args)


def _advice_on_command(word: str, commands: Iterable[str]) -> str:
    """The advice that ``word`` may be a misspelled command. Empty if it resembles none, or may be a label or a set."""
    if not re.fullmatch("[a-z]+", word) or not (advice := suggestion(word, commands)):
        return ""
    from madbench.labels.sets import expand

    try:
        expand([word])
    except MadbenchError:
        return advice
    return ""


app = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Train labels as GPT-2-shaped language models, and use them.

A profile has sizes, schedule and corpus: madbench ls profiles. The default is
tiny, on the bytes of Python's standard library.

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


@app.callback()
def _no_options() -> None:
    pass
