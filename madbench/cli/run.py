"""``madbench run``: train labels and print tables."""

from __future__ import annotations

from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.training import train_labels
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import argument
from madbench.experiment.options import GridOptions


def run(
    words: Annotated[
        list[str] | None,
        argument(
            "LABEL|KEY=VALUE",
            options.LABELS_HELP + " KEY=VALUE changes the profile. Default: the labels that the profile lists "
            "for --tasks; most profiles list none.",
        ),
    ] = None,
    *,
    grid: GridOptions,
    training: TrainingOptions,
    costs: CostsOptions,
    print_options: PrintOptions,
) -> None:
    """Train labels on tasks and as language models, and print tables.

    The same command again trains only missing runs. Ctrl-C keeps finished runs
    and checkpoints of the others; the same command resumes. madbench ls profiles
    mad lists every KEY. ls profiles language lists the keys of language models,
    which are written language_model.KEY=VALUE. A setting that does not apply to a
    label is ignored for it; a setting that applies to no label is an error. On
    several devices: torchrun --nproc-per-node 8 -m madbench run LABEL.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run S-p -t language_model language_model.training.steps=600
      madbench run -t colliding       interacting agents, with its own labels
      madbench run @table1 --profile full --device cuda --dry-run
    """
    labels, overrides = labels_and_overrides(words or [])
    train_labels(labels, overrides, grid, training, print_options, costs)
