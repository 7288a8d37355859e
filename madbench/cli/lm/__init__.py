"""``madbench lm``: language models; labels train, the other words are verbs of their own."""

from __future__ import annotations

import importlib

import typer
from typer.core import TyperGroup


class _TrainByDefault(TyperGroup):
    """A group whose first word, where it is none of its verbs, is a label to train."""

    def parse_args(self, ctx, args):
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["train", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_TrainByDefault,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Train labels as GPT-2-shaped language models, and read the runs.

[bold]Start here[/bold]

  madbench lm G-cg-q-12o             train one, a minute or two on a laptop
  madbench lm S-p R-cg-q --seeds 0-2 compare two; the same command resumes
  madbench lm table                  losses and steps to thresholds
  madbench lm plot                   loss curves as PNG, PDF and CSV
  madbench lm sample G-cg-q-12o      text from the trained model
  madbench lm prepare my_texts/      tokens from your own text
  madbench lm train --help           every option of training
""",
)

for _verb in ("train", "prepare", "table", "plot", "sample", "evaluate", "export"):
    app.command()(getattr(importlib.import_module(f"madbench.cli.lm.{_verb}"), _verb))
