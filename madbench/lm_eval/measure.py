"""Evaluation with tasks of lm-evaluation-harness. The scores become measurements ``benchmark`` of a run.

:mod:`madbench.store.benchmarks` reads them.
"""

from __future__ import annotations

import io
import itertools
import logging
import numbers
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
from lm_eval.api.model import CachingLM
from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from madbench.config import short_repr
from madbench.errors import ConfigError, MadbenchError, did_you_mean, no_effect
from madbench.lm_eval.model import HarnessModel
from madbench.store.format import Measurement
from madbench.text.documents import first_line
from madbench.training.devices import device_name, git_state, versions
from madbench.training.multiple_choice import MEASUREMENT
from madbench.training.multiple_choice import TASKS as OWN

LOCAL = {"arrow", "csv", "json", "pandas", "parquet", "text"}
"""Values of a task's ``dataset_path`` that stand for local files. Other values are data sets on huggingface.co."""


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of an evaluation."""

    shots: int | None = None
    """The number of examples shown with a question; None: the task's default."""
    limit: int | None = None
    """Only the first ``limit`` questions of a task; None: all."""
    cache: Path | None = None
    """The file of known answers, which are not computed again; ``.db`` is added to its name."""


class Tasks:
    """The requested tasks, found by name in a folder of YAML files or in the harness.

    To know its own tasks, the harness reads all of its 14,000 files, which takes a minute. This is skipped if the
    folder has all requested tasks.
    """

    def __init__(self, names: Sequence[str], folder: Path | None = None):
        """Find the tasks. Raises ``ConfigError`` for a name that is no task, group or tag."""
        self.names = list(dict.fromkeys(names))
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder of tasks")
        self.manager = TaskManager(include_path=folder and str(folder), include_defaults=False)
        if not self._unknown():
            return
        with _quiet():
            self.manager = TaskManager(include_path=folder and str(folder))
        for name in self._unknown():
            where = f" of lm-evaluation-harness{'' if folder is None else f' or of {folder}'}"
            suggestion = did_you_mean(name, [*OWN, *self.manager.all_tasks], "lm-eval ls tasks")
            raise ConfigError(f"task {short_repr(name)}: no such task{where}{suggestion}")

    def _unknown(self) -> list[str]:
        return [name for name in self.names if name not in self.manager.all_tasks]

    def load(self, name: str) -> dict[str, Any]:
        """Load a task and its data for the harness's ``evaluate``. Raises ``ConfigError`` if it cannot be loaded.

        The global random seeds are set first, because some tasks shuffle their data.
        """
        random.seed(DEFAULT_RANDOM_SEED)
        np.random.seed(DEFAULT_OTHER_SEED)
        try:
            with _quiet():
                loaded: dict[str, Any] = self.manager.load([name])
                return loaded
        except MadbenchError:
            raise
        except Exception as error:  # errors of the data's library, the network, or the task's code
            problem = f"task {name}: cannot be loaded ({type(error).__name__}: {first_line(error)})"
            raise ConfigError(f"{problem}{self._advice(name)}") from error

    def _advice(self, name: str) -> str:
        config = self.manager.task_index[name].cfg or {}
        source = config.get("dataset_path")
        if source in LOCAL and "://" not in str(config.get("dataset_kwargs")):
            return ""
        return (
            f"; its data{f', {source},' if source else ''} come from huggingface.co at the first use, which needs the "
            "network and the packages of the task"
        )


def measure(
    model: HarnessModel, tasks: Tasks, options: EvaluationOptions = EvaluationOptions()
) -> Iterator[Measurement]:
    """Evaluate ``model`` on tasks. Yield the measurements of each task as soon as it is done, without storing them.

    A group of tasks that has its own score gives one measurement, with the scores of its tasks as details. A group or
    tag without a score gives one measurement per task. Raises ``ConfigError`` for a task that cannot be loaded or
    evaluated.
    """
    answering = CachingLM(model, f"{options.cache}.db") if options.cache else model
    for name in tasks.names:
        loaded = tasks.load(name)
        for task_name, task in loaded["tasks"].items():
            _show_examples(task_name, task, options.shots)
        try:
            with _quiet():
                results = evaluate(lm=answering, task_dict=loaded, limit=options.limit, log_samples=False)
        except MadbenchError:
            raise
        except (ImportError, LookupError, ValueError) as error:
            raise ConfigError(f"task {name}: {type(error).__name__}: {first_line(error)}") from error
        yield from measurements_of(results, model, options)


def _show_examples(name: str, task: Any, shots: int | None) -> None:
    """Set the number of examples that ``task`` shows with a question, as the harness's ``simple_evaluate`` does.

    ``shots`` is the requested number, None for the task's default. Raises ``ConfigError`` if examples are requested for
    a task whose file sets the number to 0.
    """
    usual = task.get_config("num_fewshot")
    if usual == 0 and shots:
        raise no_effect(f"--shots {shots}", f"on task {name}, whose questions show none")
    if usual is None or shots is not None:
        task.set_config(key="num_fewshot", value=shots or 0)
    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)


def measurements_of(
    results: Mapping[str, Any], model: HarnessModel, options: EvaluationOptions
) -> Iterator[Measurement]:
    """The measurements in ``results``, which the harness's ``evaluate`` returned: one per task or group with scores.

    A task whose group has a score gives no measurement of its own.
    """
    groups = results.get("group_subtasks", {})
    numbers_of = {name: metrics_of(values) for name, values in results["results"].items()}
    summed = {task for group in groups if numbers_of.get(group) for task in _members(group, groups)}
    for name, values in numbers_of.items():
        if not values or name in summed:
            continue
        members = [task for task in _members(name, groups) if task not in groups] or [name]
        settings: dict[str, Any] = {"task": name, "shots": _shots(name, members, results)}
        if options.limit is not None:
            settings["limit"] = options.limit
        if model.max_length != model.job.model.seq_len:
            settings["seq_len"] = model.max_length
        counts = [results["n-samples"][task] for task in members]
        details: dict[str, Any] = {"device": device_name(model.device_name), "versions": versions(), "git": git_state()}
        details |= {"lm_eval": lm_eval.__version__, "precision": model.job.training.precision}
        details |= {"task_version": _version(members, results["versions"]), "seq_len": model.max_length}
        details["examples"] = sum(count["effective"] for count in counts)
        details["examples_of_task"] = sum(count["original"] for count in counts)
        details["higher_is_better"] = results["higher_is_better"].get(name, {})
        if members != [name]:
            details["tasks"] = {task: numbers_of[task] for task in members}
        yield Measurement(MEASUREMENT, values, details, settings)


def metrics_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The scores of a task, by metric. ``values`` is the task's entry in the harness's results.

    The harness names a metric with its filter. ``acc,none`` becomes ``acc``, and other filters are in parentheses.

    >>> metrics_of({"alias": "a", "acc,none": 0.5, "acc_stderr,none": "N/A", "em,strict": 0.2, "em_stderr,strict": 0.1})
    {'acc': 0.5, 'em (strict)': 0.2, 'em (strict)_stderr': 0.1}
    """
    metrics = {}
    for key, value in values.items():
        name, _, filter_name = key.partition(",")
        if not filter_name or isinstance(value, bool) or not isinstance(value, numbers.Real):
            continue
        suffix = "_stderr" if name.endswith("_stderr") else ""
        brackets = f" ({filter_name})" if filter_name != "none" else ""
        metrics[name.removesuffix("_stderr") + brackets + suffix] = float(value)
    return metrics


def _members(name: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The members of a group, and the members of groups in it.

    ``groups`` maps the name of each group to its members.
    """
    members = groups.get(name, ())
    return [*members, *itertools.chain.from_iterable(_members(member, groups) for member in members)]


def _shots(name: str, members: Sequence[str], results: Mapping[str, Any]) -> int | None:
    """The number of examples shown per question of a task or group. None if the tasks of a group differ."""
    shots_by_task: Mapping[str, int | None] = results["n-shot"]
    shots = {shots_by_task.get(task) for task in members}
    return shots_by_task.get(name, shots.pop() if len(shots) == 1 else None)


def _version(members: Sequence[str], versions: Mapping[str, Any]) -> Any:
    """The version of the tasks ``members`` if it is the same for all, otherwise their versions by task."""
    versions_of = {task: versions.get(task) for task in members}
    distinct = {str(version) for version in versions_of.values()}
    return versions_of if len(distinct) > 1 else versions_of[members[0]]


@contextmanager
def _quiet() -> Iterator[None]:
    """A context that suppresses progress bars and messages of the harness and of its data library.

    Errors are raised.
    """
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)
