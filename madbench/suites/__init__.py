"""The registry of suites. Importing it imports neither torch nor pandas.

A suite is a set of tasks with a way to train labels on them and to score the results. Built-in suites are the folders
of this package that have a ``suite.py``, and the suites of the packages in ``madbench/papers``. Installed packages add
suites as entry points of the group ``madbench.suites``. A broken suite does not affect other suites;
:func:`broken_suites` says what is wrong with it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from madbench.config import from_mapping, short_repr
from madbench.errors import ConfigError, did_you_mean
from madbench.jobs import BlocksSettings, Job
from madbench.labels import Label
from madbench.labels.budgets import BUDGETS
from madbench.mixers import Check
from madbench.mixers.checks.package_checks import package_checks
from madbench.plugins.registry import Registry, fault_of_class, load_value, member_of
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column
from madbench.suites.profile import Profile
from madbench.tasks import settings_class, task_names, task_problem

GROUP = "madbench.suites"
FORMER_MEMBERS = {
    "abbreviation": "short_name",
    "check_corpus": "corpus_for",
    "judged_by": "shown_metric",
    "key": "override_name",
    "result": "shown_metric",
    "schedule_warning": "schedule",
    "shared_but_rates": "shared_without_rates",
}
"""Former names of members of suites, each with the present name. A suite that still defines a former name is refused,
because the definition would have no effect.
"""
TASKS_LISTED = "madbench ls tasks"
"""The command that lists all tasks. Error messages about an unknown task name it."""

__all__ = [
    "TASKS_LISTED",
    "Column",
    "JobSize",
    "Profile",
    "Suite",
    "block_count",
    "broken_suites",
    "find_suite",
    "has_blocks",
    "job_from_dict",
    "main_suite",
    "size_of",
    "suite_code",
    "suite_of",
    "suite_of_task",
    "suites",
    "task_suites",
]


def suites() -> dict[str, Suite]:
    """The suites that can be loaded, by name, sorted by ``sort_order`` and then by name."""
    loaded = (suite for _, suite in REGISTRY.loadable())
    return {suite.name: suite for suite in sorted(loaded, key=lambda suite: (suite.sort_order, suite.name))}


def suite_code(name: str) -> dict[str, Any] | None:
    """The listing of code files (:mod:`madbench.identity.listing`) of an installed suite. None for a built-in suite."""
    return REGISTRY.code(name)


def broken_suites() -> dict[str, str]:
    """The reason why each broken suite cannot be loaded, by suite name. Empty if no suite is broken."""
    return REGISTRY.broken()


def main_suite() -> Suite:
    """The suite that is used if none is named: the first suite of :func:`suites`."""
    return next(iter(suites().values()))


def default_suites() -> list[Suite]:
    """The suites that are trained if no suite is named.

    These are the main suite, and the suites that the key ``beside`` of its default profile names.
    """
    main = main_suite()
    beside = main.Profile.load(main.default).beside
    return [main, *(suite for suite in suites().values() if suite.override_name in beside)]


def checks_of(label: Label) -> Iterator[Check]:
    """The checks of a label's mixer that suites and installed packages add to the checks of its family."""
    of_suites = (suite.checks(label) for suite in suites().values())
    return itertools.chain(itertools.chain.from_iterable(of_suites), package_checks(label))


def default_headline() -> tuple[str, ...]:
    """The names of the columns by which labels are compared if no suite and no task is named."""
    return tuple(name for suite in default_suites() for name in suite.headline(suite.usual_tasks()))


def find_suite(name: str, where: str = "") -> Suite:
    """The suite with the name ``name``.

    Raises ``ConfigError`` if the suite is broken or not installed; the message begins with ``where``.
    """
    REGISTRY.check(name, where)
    return REGISTRY.load(name, where)


def suite_of(job: Job) -> Suite:
    """The suite that trains the job. Raises ``ConfigError`` if it is broken or not installed."""
    return find_suite(job.suite)


def task_suites() -> dict[str, Suite]:
    """Task name to suite. If several suites have a task of the same name, the first suite of :func:`suites` is used."""
    by_task: dict[str, Suite] = {}
    for suite in suites().values():
        for task in suite.tasks():
            by_task.setdefault(task, suite)
    return by_task


def suite_of_task(task: str, where: str = "") -> Suite:
    """The suite that has a task. If several suites have it, the first suite of :func:`suites`.

    Raises ``ConfigError`` if the task is unknown, or if the task or its suite is broken. The message begins with
    ``where``.
    """
    if found := next((suite for suite in suites().values() if task in suite.tasks()), None):
        return found
    if reason := why_unusable(task):
        raise ConfigError(f"{where}{reason}")
    raise ConfigError(f"{where}unknown task {short_repr(task)}{did_you_mean(task, task_suites(), TASKS_LISTED)}")


def why_unusable(task: str) -> str:
    """The reason why a task or its suite is broken. Empty if neither is broken, or if the task is unknown."""
    if reason := task_problem(task):
        return reason
    suite = settings_class(task).suite if task in task_names() else task.rpartition("/")[0]
    return broken_suites().get(suite, "")


def has_blocks(job: Job) -> TypeGuard[Job[BlocksSettings]]:
    """True if the job's model consists of blocks, each with a mixer."""
    return hasattr(job.model, "d_model")


def block_count(job: Job) -> int:
    """The number of blocks of a job's model. It is 1 if the model's configuration has no field ``n_layer``."""
    count: int = getattr(job.model, "n_layer", 1)
    return count


def size_of(job: Job) -> JobSize:
    """The size of a job: its parameters, steps, tokens and FLOPs.

    The size is cached. Jobs that differ only in seed, learning rate and weight decay share it.
    """
    key = repr(replace(job, training=replace(job.training, learning_rate=0.0, weight_decay=0.0), seed=0))
    if key not in _SIZES:
        _SIZES[key] = suite_of(job).size(job)
    return _SIZES[key]


_SIZES: dict[str, JobSize] = {}


def job_from_dict(mapping: Mapping[str, Any], where: str = "job") -> Job:
    """The job that ``mapping`` describes: the inverse of :meth:`Job.to_dict`.

    Raises ``ConfigError`` if ``mapping`` describes no valid job; the message begins with ``where``.
    """
    suite = find_suite(str(mapping.get("suite"))[:99], f"{where}: ")
    configs = {"model": suite.Profile.Model, "training": suite.Profile.Training}
    made = {
        key: from_mapping(configs[key], value, f"{where}: {key}") if key in configs else value
        for key, value in mapping.items()
    }
    job = from_mapping(Job, made, where)
    if job.steps < 0 or (job.steps > 0) != (job.budget in BUDGETS and BUDGETS[job.budget].chooses_steps):
        raise ConfigError(f"{where}: steps {job.steps} do not go with budget {job.budget}")
    suite.check_job(job, where)
    return job


def _load(name: str, value: str) -> Suite:
    suite: Suite = load_value("suite", name, value, ConfigError, "madbench.suites.Suite", _fault_of)
    return suite


def _fault_of(suite: Any) -> str:
    """The reason why an object is not a valid suite. Empty if it is valid.

    May raise ``ConfigError`` instead, if the default profile of a suite that is not built in cannot be loaded.
    """
    if not isinstance(suite, Suite):
        return fault_of_class(suite, Suite) or "it is not an instance of a subclass"
    for name, present in FORMER_MEMBERS.items():
        if member_of(suite, name, None) is not None:
            return f"its {name!r} has no effect; suites have {present!r} instead"
    needed = ("name", "title", "Profile", "default", "trial")
    lacking = [name for name in needed if member_of(suite, name, None) is None]
    if not lacking and not (isinstance(suite.Profile, type) and issubclass(suite.Profile, Profile)):
        return "its Profile is not a subclass of madbench.suites.Profile"
    if not lacking:
        names = ("folder", "noun", "Model", "Training")
        lacking = [f"Profile.{name}" for name in names if not hasattr(suite.Profile, name)]
    if lacking:
        return f"it has no {', '.join(lacking)}"
    if suite.name not in REGISTRY.built_in:  # a package cannot break a built-in suite
        if suite.default not in suite.Profile.names():
            return f"its default profile {short_repr(suite.default)} is not among {', '.join(suite.Profile.names())}"
        suite.Profile.load(suite.default)
        suite.columns(suite.tasks())
    return ""


def _built_in() -> dict[str, str]:
    """The entry point ``module:value`` of each suite that is a folder of this package, by suite name."""
    folders = sorted(file.parent.name for file in Path(__file__).parent.glob("*/suite.py"))
    return {name: f"madbench.suites.{name}.suite:SUITE" for name in folders}


def fault_of_name(name: str) -> str:
    """The reason why ``name`` is not allowed as the name of a suite. Empty if it is allowed."""
    return "" if re.fullmatch(r"[a-z][a-z0-9_]*", name) else "the name has to be of the form my_suite"


REGISTRY: Registry[Suite] = Registry(GROUP, "suite", fault_of_name=fault_of_name, load=_load, built_in=_built_in)
