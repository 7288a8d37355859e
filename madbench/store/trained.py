"""Loading of trained models from a results folder, by label or id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.config import short_repr
from madbench.config.allowed import with_checked_arguments
from madbench.errors import StoreError
from madbench.jobs import WEIGHTS
from madbench.labels import parse
from madbench.store.reading import Snapshot, StoredRuns
from madbench.store.results_folder import command_on
from madbench.suites import suite_of
from madbench.suites.addressing import tasks_by_suite
from madbench.suites.changes import setting_change

if TYPE_CHECKING:
    from torch import nn


@with_checked_arguments
def load(
    run: str | Path,
    *,
    tasks: str | Iterable[str] | None = None,
    results: Path | str = "results",
    trust: str | type | Iterable[str | type] | None = None,
) -> nn.Module:
    """Load the trained model of a run, on the CPU and in eval mode. The module takes token ids (B, T).

    Language models are stored with their weights. Runs of other suites have weights if they were trained with
    ``keep_weights=True``. Loading does not change the state of the random number generators.

    Args:
        run: a label with exactly one stored run that has weights, the first digits of a run's id, or a file of weights.
        tasks: tasks or suites. Only runs on these tasks are found.
        results: the results folder.
        trust: the label or labels of your own modules whose code may be imported to build the model, such as
            ``"my:my_mixers.MyMixer"`` or the class itself.

    Raises ``StoreError`` if ``run`` matches no finished run with weights, or more than one, and if ``tasks`` is given
    for a file. Raises ``TrainingError`` for a damaged file, for a file without a model, and for the model of a module
    that is not trusted.
    """
    from madbench.mixers.random_state import kept_random_state
    from madbench.training.checkpoints import load_model

    if not os.path.isfile(run):
        task_names = [tasks] if isinstance(tasks, str) else tasks if tasks is None else list(tasks)
        run = stored_weights(str(run), Snapshot.open(Path(results)), is_of_text=False, tasks=task_names)
    elif tasks is not None:
        raise StoreError(f"{run}: a file of one run, of which tasks={short_repr(tasks)} chooses nothing")
    with kept_random_state():
        model, _ = load_model(Path(run), trust or ())
    return model


def stored_weights(name: str, store: StoredRuns, is_of_text: bool, tasks: Sequence[str] | None) -> Path:
    """The file with the weights of the only stored run that matches ``name``, a label or the start of a run's id.

    Runs without weights do not match. If ``is_of_text`` is true, only language models match. If ``tasks`` is given,
    only runs on these tasks match. Raises ``ConfigError`` for unknown tasks, ``LabelError`` if ``name`` is neither a
    label nor the start of an id, and ``StoreError`` unless exactly one run matches.
    """
    results, chosen_tasks = store.root, None if tasks is None else tasks_by_suite(tasks)
    stored_runs = [
        run
        for run in store.runs(with_curves=False)
        if chosen_tasks is None or run.job.task in chosen_tasks.get(run.job.suite, ())
    ]
    stored_runs = [run for run in stored_runs if not is_of_text or suite_of(run.job).corpus_of(run.job)]
    runs_with_name = [run for run in stored_runs if run.job.id.startswith(name)]
    runs_with_name = runs_with_name or [run for run in stored_runs if run.job.label == str(parse(name))]
    usable = [run for run in runs_with_name if store.has_weights(run.job.id)]
    if not usable and runs_with_name and not is_of_text:
        command = "repeat the command that trained it with --keep-weights --force"
        raise StoreError(f"{results}: {short_repr(name)} is stored without weights; {command}")
    if not usable:
        label = runs_with_name[0].job.label if runs_with_name else name
        task = ",".join(tasks) if tasks else "TASK"
        words = ["lm", label] if is_of_text else ["run", label, "-t", task, "--keep-weights"]
        command = command_on(results, *words)
        elsewhere = f"{command} trains one, and an unfinished one is in {results}/work/ID/checkpoint.pt"
        raise StoreError(
            f"{results}: no finished {'language model' if is_of_text else 'run'} {short_repr(name)}; {elsewhere}"
        )
    if len(usable) > 1:
        lines = [f"  {run.job.id}  {run.job.task} {setting_change(run.job)}, seed {run.job.seed}" for run in usable]
        raise StoreError(
            f"{results}: {len(usable)} runs are {short_repr(name)}; name one by its id:\n" + "\n".join(lines)
        )
    return store.kept_file(usable[0].job.id, WEIGHTS)
