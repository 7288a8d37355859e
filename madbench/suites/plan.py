"""Labels x settings x (learning rate, weight decay) x seeds -> jobs. Everything is checked before anything trains."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

from madbench.errors import BudgetError
from madbench.jobs import Counting, Fidelity, Job, ModelConfig, Precision, TrainingConfig
from madbench.labels import FamilyLabel, Variant, parse
from madbench.mixers.srg.budget import solve
from madbench.suites.profile import Profile, TaskPlan
from madbench.tasks import TASK_NAMES, make_setting
from madbench.tasks.protocol import all_settings
from madbench.tasks.registry import check_task


def plan(
    labels: Iterable[str],
    profile: Profile,
    *,
    tasks: Iterable[str] = TASK_NAMES,
    seeds: Iterable[int] = (0,),
    fidelity: Fidelity = "corrected",
    counting: Counting = "strict",
    precision: Precision = "float32",
) -> list[Job]:
    """All the jobs, in the order label, task, setting, learning rate, weight decay, seed, none twice.

    Raises ``LabelError``, ``ConfigError`` or ``BudgetError`` for anything that could not be trained.
    """
    settings = {task: task_settings(task, profile) for task in tasks}
    seeds = tuple(seeds)
    templates = [
        Job("", task, setting, profile.model, training, fidelity=fidelity, counting=counting)
        for task, of_task in settings.items()
        for setting, training in itertools.product(of_task, _trainings(profile, task, precision))
    ]
    jobs = {}
    for label in labels:
        variant = parse(label)
        check_budgets(variant, profile.model, settings, counting)
        canonical = str(variant)
        for template, seed in itertools.product(templates, seeds):
            job = template.copy(canonical, seed)
            jobs[job.id] = job
    return list(jobs.values())


def _trainings(profile: Profile, task: str, precision: Precision) -> list[TrainingConfig]:
    """By learning rate, then weight decay."""
    rates_and_decays = itertools.product(profile.rates(task), profile.weight_decays)
    return [profile.training_config(task, rate, decay, precision) for rate, decay in rates_and_decays]


def check_budgets(
    variant: Variant | FamilyLabel, model: ModelConfig, settings: Mapping[str, Sequence[dict]], counting: Counting
) -> None:
    """Raises ``BudgetError`` for the first of the ``settings``, by task, at which the label has no ranks."""
    task_of_length: dict[int, str] = {}
    for task, of_task in settings.items():
        for setting in of_task:
            task_of_length.setdefault(setting["seq_len"], task)
    for seq_len, task in task_of_length.items():
        check_budget(variant, model, seq_len, counting, task)


def task_settings(task: str, profile: Profile) -> list[dict]:
    """The settings of one task under ``profile``, each as the mapping of its fields."""
    check_task(task)
    if profile.difficulty == "all":
        return [dataclasses.asdict(setting) for setting in all_settings(task)]
    changes = profile.tasks.get(task, TaskPlan()).setting
    return [dataclasses.asdict(make_setting(task, changes, f"setting of {task}"))]


def check_budget(variant: Variant | FamilyLabel, model: ModelConfig, max_len: int, counting: str, task: str) -> None:
    """Raises ``BudgetError``, naming the task, where the label has no ranks at this size and length."""
    if not isinstance(variant, Variant):
        return
    try:
        solve(variant, model.d_model, model.n_head, max_len, counting, model.mix_rank, model.rank_multiple)
    except BudgetError as error:
        raise BudgetError(f"{task} at seq_len {max_len}: {error}") from None
