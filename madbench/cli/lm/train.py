"""``madbench lm train``: train language models and print a table."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.training import train_labels
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument, option
from madbench.experiment.options import GridOptions


def train(
    words: Annotated[list[str], argument("LABEL|KEY=VALUE", options.LABELS_HELP + " KEY=VALUE changes the profile.")],
    profile: Annotated[
        str,
        option(
            "tiny, mini, gpt2, fineweb-340m, fineweb-1.3b, or a YAML file like those in tasks/language.",
            "--profile",
            "-p",
            completes="PROFILE",
        ),
    ] = "tiny",
    *,
    training: TrainingOptions,
    costs: CostsOptions,
    print_options: PrintOptions,
) -> None:
    """Train labels as language models and print the table.

    The same command again trains only missing runs. The word train may be left
    out. On several devices: torchrun --nproc-per-node 8 -m madbench lm LABEL; the
    profile still fixes the tokens per step. Ctrl-C keeps a checkpoint; the same
    command resumes. A change that affects no label is an error, as in madbench
    run. --dry-run also shows memory, and parameters by group.

    [bold]Examples[/bold]

      madbench lm G-cg-q-12o
      madbench lm S-p R-cg-q-12o --seeds 0,1,2 training.steps=600
      madbench lm S --corpus openwebtext model.n_head=12 model.positions=learned
      madbench lm @table1 --profile gpt2 --corpus openwebtext --dry-run
    """
    labels, overrides = labels_and_overrides(words)
    training = dataclasses.replace(training, details=training.dry_run)
    train_labels(labels, overrides, GridOptions(profile, ["language_model"]), training, print_options, costs)
