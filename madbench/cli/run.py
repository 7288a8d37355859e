from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import argument
from madbench.cli.tables import Format


@options.with_groups
def run(
    words: argument(list[str], "LABEL|KEY=VALUE", options.LABELS_HELP + " KEY=VALUE changes the profile."),
    profile: options.ProfileOption = "quick",
    tasks: options.TasksOption = None,
    fidelity: options.FidelityOption = options.Fidelity.corrected,
    *,
    training: options.TrainingOptions,
    details: options.DetailsOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Train labels on the MAD tasks and as language models, and print the tables.

    The same command again does only what is missing. Ctrl-C keeps what is done
    and checkpoints of the rest; the same command resumes. madbench ls profiles
    lists what KEY can be, madbench ls presets what it can be after
    language_model, the suite that --tasks names like a task. On several devices:
    torchrun --nproc-per-node 8 -m madbench run LABEL.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run S-p -t language_model language_model.training.steps=600
      madbench run @table1 --profile full --device cuda --dry-run
    """
    from madbench.cli.execution import carry_out
    from madbench.config import parse_seeds
    from madbench.execute.base import Policy
    from madbench.grid import Grid, Row
    from madbench.labels import expand

    labels, overrides = options.labels_and_overrides(words)
    asked = options.split_list(tasks)
    grid = Grid(
        tuple(map(Row, expand(labels))),
        profile=profile,
        tasks=asked and tuple(asked),
        seeds=tuple(parse_seeds(training.seeds)),
        fidelity=fidelity.value,
        budget=training.budget.value,
        overrides=tuple(overrides),
    )
    format = Format.json if as_json else Format.terminal
    carry_out(grid, Policy(redo=training.force), training, details=details, format=format)
