from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import argument, option
from madbench.cli.tables import Format


@options.with_groups
def train(
    words: argument(list[str], "LABEL|KEY=VALUE", options.LABELS_HELP + " KEY=VALUE changes the preset."),
    preset: option(str, "tiny, mini, gpt2, or a YAML file like those in tasks/presets.", "--preset", "-p") = "tiny",
    *,
    training: options.TrainingOptions,
    as_json: options.JsonOption = False,
) -> None:
    """Train labels as language models and print the table. The same command again does only what is missing.

    The word train may be left out. On several devices: torchrun
    --nproc-per-node 8 -m madbench lm LABEL; tokens per step stay what the
    preset says. Ctrl-C keeps a checkpoint; the same command resumes.
    --dry-run also shows memory, and parameters by what they are for.

    [bold]Examples[/bold]

      madbench lm G-cg-q-12o
      madbench lm S-p R-cg-q-12o --seeds 0,1,2 training.steps=600
      madbench lm S --corpus openwebtext model.n_head=12 model.positions=learned
      madbench lm @table1 --preset gpt2 --corpus openwebtext --dry-run
    """
    from madbench.cli.execution import carry_out
    from madbench.config import parse_seeds
    from madbench.execute.base import Policy
    from madbench.grid import LANGUAGE_MODEL, Grid, Row
    from madbench.labels import expand
    from madbench.suites.language import TASK

    labels, overrides = options.labels_and_overrides(words)
    own = (f"language_model={preset}", *(LANGUAGE_MODEL + word for word in overrides))
    rows, seeds = tuple(map(Row, expand(labels))), tuple(parse_seeds(training.seeds))
    grid = Grid(rows, tasks=(TASK,), seeds=seeds, budget=training.budget.value, overrides=own)
    format = Format.json if as_json else Format.terminal
    carry_out(grid, Policy(redo=training.force), training, details=training.dry_run, format=format)
