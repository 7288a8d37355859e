"""The six synthetic tasks of MAD: settings, examples, and the protocol they are run in. Imports no numpy."""

from __future__ import annotations

from madbench.tasks.base import IGNORE, SPLITS, Examples, Split, TaskSetting
from madbench.tasks.generation import generate
from madbench.tasks.protocol import TaskFile, all_settings, load_task, load_task_file, make_setting
from madbench.tasks.registry import TASK_NAMES, settings_class

__all__ = [
    "IGNORE",
    "SPLITS",
    "TASK_NAMES",
    "Examples",
    "Split",
    "TaskFile",
    "TaskSetting",
    "all_settings",
    "generate",
    "load_task",
    "load_task_file",
    "make_setting",
    "settings_class",
]
