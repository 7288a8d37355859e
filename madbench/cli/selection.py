"""Which stored runs a verb shows: those of one protocol of either half, by the options that verbs share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from madbench.cli.options import Counting, Fidelity
from madbench.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from madbench.experiment import Experiment
    from madbench.jobs import ModelConfig
    from madbench.runs import Run


def mad_tasks_of(
    asked: list[str] | None, overrides: list[str], profile: str, fidelity: Fidelity, protocol: str | None
) -> list[str] | None:
    """The MAD tasks among those ``asked`` for, None for all; options without effect on the rest are a ``ConfigError``."""
    from madbench.language_jobs import TASK

    mad_tasks = asked and [task for task in asked if task != TASK]
    if mad_tasks == []:
        unused = [*overrides, *["--profile"] * (profile != "quick"), *["--fidelity"] * (fidelity != Fidelity.corrected)]
        if unused:
            raise ConfigError(f"{unused[0]}: has no effect on language models; --protocol chooses among those")
    if protocol and asked and TASK not in asked:
        raise ConfigError(f"--protocol {protocol}: has no effect, the tasks are {', '.join(asked)}")
    return mad_tasks


def runs_of_one_protocol(
    results: Path,
    labels: list[str],
    budget: Counting,
    protocol: str | None,
    is_asked: bool,
    is_enough: Callable[[set[str]], bool],
    nothing: str,
) -> tuple[list[Run], list[str]]:
    """The language-model runs, with their curves, of the one protocol whose labels are enough, and its sentence.

    None where there is no such protocol, or several, unless ``is_asked``: then that is a ``MadbenchError``, which says
    ``nothing`` where there is none. Without ``labels`` all in the store count.
    """
    from madbench.analysis.language_runs import by_protocol, describe, language_runs, only_protocol, protocol_list
    from madbench.runs import Store

    store = Store.open(results, create=False)
    stored = [run for run in language_runs(store) if not labels or run.job.label in labels]
    groups = by_protocol(run for run in stored if run.job.counting == budget.value)
    shared = {
        found: runs
        for found, runs in groups.items()
        if is_enough({run.job.label for run in runs}) and protocol in (None, found.id)
    }
    runs = [run for of_protocol in shared.values() for run in of_protocol]
    if is_asked and not runs:
        has = f"; it has:\n{protocol_list(stored)}" if stored else ""
        raise StoreError(f"{results}: {nothing}{has}")
    if is_asked:
        only_protocol(runs)
    elif len(shared) > 1:
        found = protocol_list(runs)
        print(f"warning: language models are left out; choose a protocol with --protocol ID:\n{found}", file=sys.stderr)
    if len(shared) != 1:
        return [], []
    ((found, runs),) = shared.items()
    return [store.read(run.job.id) for run in runs], [f"Language model: {describe(found, runs[0])}."]


def stored_experiment(
    named: list[str],
    overrides: list[str],
    profile: str,
    tasks: list[str] | None,
    fidelity: Fidelity,
    budget: Counting,
    results: Path,
) -> Experiment:
    """The experiment of the ``named`` labels, or of all labels in the store, as far as it has begun.

    Names on stderr every damaged run, and every label that is left out because it does not fit. Raises ``StoreError``
    where nothing of the protocol is stored and ``ConfigError`` where it is stored in two precisions.
    """
    from madbench.experiment import prepare
    from madbench.jobs import Job, Precision
    from madbench.runs import Store
    from madbench.sweeps.plan import task_settings
    from madbench.sweeps.profile import load_profile
    from madbench.tasks import TASK_NAMES

    store = Store.open(results, create=False)
    jobs = store.jobs()
    stored = {job_id: job for job_id, job in jobs.items() if isinstance(job, Job)}
    for problem in store.problems:
        print(f"warning: {problem}", file=sys.stderr)
    if not stored:
        instead = "; its language models are in madbench lm table" if jobs else ""
        raise StoreError(f"{results}: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some{instead}")
    protocol = (fidelity.value, budget.value)
    of_protocol = [job for job in stored.values() if (job.fidelity, job.counting) == protocol]
    labels = named or in_grammar_order({job.label for job in of_protocol})
    precisions = {job.training.precision for job in of_protocol}
    choices = {
        "profile": profile,
        "overrides": overrides,
        "tasks": tasks,
        "seeds": sorted({job.seed for job in stored.values()}),
        "fidelity": fidelity.value,
        "counting": budget.value,
        "device": "cpu",
        "results": results,
    }
    if not named:
        loaded = load_profile(profile, overrides)
        settings = {task: task_settings(task, loaded) for task in tasks or TASK_NAMES}
        labels = [label for label in labels if _fits(label, loaded.model, settings, budget.value)]
    tried = [precision for precision in get_args(Precision) if precision in precisions or not of_protocol]
    candidates = [prepare(labels, **choices, precision=precision) for precision in tried if labels]
    present = {made.precision: made for made in candidates if any(job.id in stored for job in made.jobs)}
    if len(present) > 1:
        raise ConfigError(f"{results}: runs in float32 and in bfloat16; add precision=float32 or precision=bfloat16")
    if not present:
        raise StoreError(
            f"{results}: none of its {len(stored)} runs belongs to profile {profile}, fidelity {fidelity.value}, "
            f"budget {budget.value}; madbench ls runs shows what is there"
        )
    return next(iter(present.values())).begun(stored, all_labels=bool(named))


def _fits(label: str, model: ModelConfig, settings: Mapping[str, Sequence[dict]], counting: str) -> bool:
    """Whether the label has ranks on every task; it may be stored for one task, or for other sizes, alone."""
    from madbench.errors import BudgetError
    from madbench.labels import parse
    from madbench.sweeps.plan import check_budgets

    try:
        check_budgets(parse(label), model, settings, counting)
    except BudgetError as error:
        print(f"warning: {label} is left out; {error}", file=sys.stderr)
        return False
    return True


def in_grammar_order(labels: set[str]) -> list[str]:
    from madbench.labels import all_labels

    position = {label: i for i, label in enumerate(all_labels())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))
