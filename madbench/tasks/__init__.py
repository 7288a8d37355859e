"""The tasks by name: their settings, examples and protocols. Importing this imports no numpy."""

from __future__ import annotations

from madbench.tasks.base import IGNORE, SPLITS, Examples, Split, TaskSetting
from madbench.tasks.generation import ceiling, generate
from madbench.tasks.registry import (
    MAD_TASKS,
    TaskFile,
    check_task,
    heading,
    load_task,
    load_task_file,
    make_setting,
    settings_class,
    task_names,
    task_source,
    title,
)

__all__ = [
    "IGNORE", "MAD_TASKS", "SPLITS", "Examples", "Split", "TaskFile", "TaskSetting", "ceiling", "check_task", "generate",
    "heading", "load_task", "load_task_file", "make_setting", "settings_class", "task_names", "task_source", "title",
]  # fmt: skip
