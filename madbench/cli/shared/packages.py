"""The kinds of extensions that packages can add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from madbench import labels, papers, suites, tasks
from madbench.mixers.checks import package_checks
from madbench.mixers.my import sources
from madbench.plugins import paper_folders
from madbench.plugins.registry import Registry


@dataclass(frozen=True)
class Kind:
    """One kind of extension, such as ``family``."""

    registry: Registry[Any]
    broken: Callable[[], Mapping[str, str]]
    """Returns the extensions that cannot be used: name to reason. An example is a task whose file is invalid."""
    names: Callable[[], Iterable[str]]
    """Returns all names that are taken by an extension of this kind, in madbench or in a package."""


KINDS = {
    "family": Kind(labels.REGISTRY, labels.broken_families, labels.families),
    "task": Kind(tasks.REGISTRY, tasks.broken_tasks, suites.task_suites),
    "suite": Kind(suites.REGISTRY, suites.broken_suites, suites.suites),
    "paper": Kind(paper_folders.REGISTRY, lambda: papers.loaded_papers()[1], lambda: paper_folders.REGISTRY.names),
    "module": Kind(sources.REGISTRY, sources.broken_modules, sources.names),
    "checks": Kind(package_checks.REGISTRY, package_checks.REGISTRY.broken, lambda: package_checks.REGISTRY.names),
}
