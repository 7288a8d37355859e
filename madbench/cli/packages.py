"""Kinds of additions that packages make to madbench: what is installed, what is broken, which names are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from madbench import labels, papers, suites, tasks
from madbench.labels import paper_folders
from madbench.mixers import package_checks
from madbench.mixers.my import sources

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class Kind:
    """The entry points of one group."""

    installed: Callable[[], Mapping[str, EntryPoint]]
    """Entry points by name; none is imported."""
    broken: Callable[[], Mapping[str, str]]
    """Reasons why others cannot be used, by name."""
    names: Callable[[], Iterable[str]]
    """All taken names, those of madbench itself included."""
    fault_of_name: Callable[[str], str]
    """What is wrong with a name; empty for none."""


KINDS = {
    "family": Kind(labels.installed_families, labels.broken_families, labels.families, labels.fault_of_name),
    "task": Kind(tasks.installed_tasks, tasks.broken_tasks, suites.task_suites, tasks.fault_of_name),
    "suite": Kind(suites.installed_suites, suites.broken_suites, suites.suites, suites.fault_of_name),
    "paper": Kind(
        lambda: paper_folders.installed().points,
        lambda: papers.loaded_papers()[1],
        lambda: (*paper_folders.built_in(), *paper_folders.installed().points),
        paper_folders.fault_of_name,
    ),
    "module": Kind(sources.installed_modules, sources.broken_modules, sources.names, sources.fault_of_name),
}
"""The kinds that ``madbench new`` writes."""
EVERY_KIND = KINDS | {
    "checks": Kind(
        package_checks.installed_checks,
        package_checks.broken_checks,
        package_checks.check_names,
        package_checks.fault_of_name,
    )
}
