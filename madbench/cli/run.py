"""``madbench run``: labels are trained and tabulated."""

from __future__ import annotations

from madbench.cli import options
from madbench.cli.options import PrintOptions, TrainingOptions
from madbench.cli.parameters import argument
from madbench.cli.training import train_labels
from madbench.cli.words import labels_and_overrides, split_list


def run(
    words: argument(
        list[str] | None,
        "LABEL|KEY=VALUE",
        options.LABELS_HELP + " KEY=VALUE changes the profile. Without a label those that the profile has of --tasks.",
    ) = None,
    profile: options.ProfileOption = None,
    tasks: options.TasksOption = None,
    fidelity: options.FidelityOption = "corrected",
    *,
    training: TrainingOptions,
    keep_weights: options.KeepWeightsOption = False,
    details: options.DetailsOption = False,
    as_json: options.JsonOption = False,
    notes: options.NotesOption = False,
) -> None:
    """Train labels on the MAD tasks and as language models, and print the tables.

    The same command again does only what is missing. Ctrl-C keeps what is done
    and checkpoints of the rest; the same command resumes. madbench ls profiles
    lists what KEY can be, madbench ls presets what it can be after
    language_model, the suite that --tasks names like a task. A label about which
    a change decides nothing is trained, and stored, as without it; a change that
    decides nothing about any label is an error. On several devices: torchrun
    --nproc-per-node 8 -m madbench run LABEL.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run S-p -t language_model language_model.training.steps=600
      madbench run -t colliding
      madbench run @table1 --profile full --device cuda --dry-run
    """
    labels, overrides = labels_and_overrides(words or [])
    asked = split_list(tasks)
    choices = {"profile": profile or "", "tasks": asked and tuple(asked), "fidelity": fidelity}
    printed = PrintOptions(as_json=as_json, notes=notes)
    train_labels(labels, overrides, training, details, printed, keep_weights, **choices)
