"""``madbench lm``: train and use language models. One file per verb."""

from __future__ import annotations

from typing import Any

import typer

from madbench.cli.shared.verbs import VerbGroup

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
            args = ["train", *args]
        return super().parse_args(ctx, args)


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
