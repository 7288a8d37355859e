"""The protocol of a task: its baseline, and the settings with one variable changed at a time (``tasks/*.yaml``)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from madbench.config import from_mapping, read_yaml
from madbench.errors import ConfigError
from madbench.tasks.base import TaskSetting
from madbench.tasks.registry import check_task, settings_class, task_path


@dataclass(frozen=True)
class TaskContent:
    """The keys of a task file; :func:`load_task_file` makes it a :class:`TaskFile`."""

    task: str
    description: str
    baseline: dict
    vary: dict = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class TaskFile:
    """One task file: what is asked, the baseline setting, and the settings that differ from it in one field."""

    path: Path
    """Where the file is."""
    task: str
    """Name of the task."""
    description: str
    """What the task asks, for a reader."""
    settings: tuple[TaskSetting, ...]
    """The baseline, then the settings that differ from it in one field, in the order of the file."""

    @property
    def baseline(self) -> TaskSetting:
        """The setting every change starts from."""
        return self.settings[0]

    def change_of(self, setting: TaskSetting) -> dict[str, Any]:
        """The fields in which ``setting`` differs from the baseline, with its values; empty for the baseline."""
        baseline = dataclasses.asdict(self.baseline)
        return {name: value for name, value in dataclasses.asdict(setting).items() if value != baseline[name]}


def load_task_file(path: Path | str) -> TaskFile:
    """Reads a task file; anything in it that is unknown, of a wrong type or without effect is a ``ConfigError``."""
    return parse_task_file(read_yaml(Path(path)), Path(path))


def parse_task_file(mapping: Mapping[str, Any], path: Path) -> TaskFile:
    """What the file at ``path`` holds if its content is ``mapping``; raises as :func:`load_task_file` does."""
    content = from_mapping(TaskContent, mapping, str(path))
    check_task(content.task, f"{path}: task: ")
    cls = settings_class(content.task)
    settings = [from_mapping(cls, content.baseline, f"{path}: baseline")]
    for name, values in content.vary.items():
        where = f"{path}: vary"
        if not isinstance(values, list) or not values:
            raise ConfigError(f"{where}: {name}: expected a list of values, got {values!r}")
        for value in values:
            setting = from_mapping(cls, {**content.baseline, name: value}, where)
            if setting in settings:
                raise ConfigError(f"{where}: {name}: {value!r} gives a setting that the file has already")
            settings.append(setting)
    return TaskFile(path, content.task, content.description.strip(), tuple(settings))


@functools.cache
def load_task(task: str) -> TaskFile:
    """The file that comes with ``task``."""
    path = task_path(task)
    file = load_task_file(path)
    if file.task != task:
        raise ConfigError(f"{path}: task: expected {task!r}, got {file.task!r}")
    return file


def all_settings(task: str) -> list[TaskSetting]:
    """Every setting of ``task`` in the whole protocol, the baseline first."""
    return list(load_task(task).settings)


def make_setting(task: str, mapping: Mapping[str, Any], where: str) -> TaskSetting:
    """The baseline of ``task`` with the fields in ``mapping`` replaced; ``where`` opens every error message.

    Raises:
        ConfigError: an unknown task or field, a value of the wrong type, or one the task cannot have.
    """
    check_task(task, f"{where}: ")
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{where}: expected a mapping of keys to values, got {type(mapping).__name__}")
    return from_mapping(settings_class(task), {**dataclasses.asdict(load_task(task).baseline), **mapping}, where)
