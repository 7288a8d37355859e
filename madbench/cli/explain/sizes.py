"""The sizes and settings at which ``madbench explain --cost`` counts the mixers of labels."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from madbench.config import Override, from_mapping, short_repr
from madbench.errors import ConfigError, did_you_mean, no_effect
from madbench.jobs import Budget
from madbench.labels import family_of
from madbench.labels.patterns import part_texts
from madbench.mixers import used_settings
from madbench.rows import Grid, Row
from madbench.suites import Suite, find_suite, has_blocks, main_suite, size_of, suites
from madbench.suites.addressing import has_profile, tasks_by_suite


@dataclass(frozen=True, eq=False)
class CountedMixer:
    """A label with the size and the settings at which the costs of its mixer are counted."""

    label: str
    d_model: int
    n_head: int
    max_len: int
    settings: Mapping[str, Any]
    """The settings of the label's family, by name."""
    tasks: tuple[str, ...] = ()
    """The tasks of the profile whose longest sequence is ``max_len``. Empty if the user gives the length."""


def mixers_at_size(
    labels: Sequence[str], settings: Mapping[str, Any], d_model: int, n_head: int, max_len: int
) -> list[CountedMixer]:
    """Each label at one size, with those of ``settings`` that it uses.

    Raises ``ConfigError`` for a setting that is unknown, invalid, or used by no label.
    """
    _refuse_other_settings(labels, settings)
    for label in labels:
        from_mapping(family_of(label).Settings, settings, f"settings of {label}")
    used = _refuse_unused_settings(labels, settings)
    return [
        CountedMixer(
            label, d_model, n_head, max_len, {name: value for name, value in settings.items() if name in used[label]}
        )
        for label in labels
    ]


def mixers_of_profile(
    labels: Sequence[str],
    settings: Mapping[str, Any],
    profile: str | None,
    tasks: Sequence[str] | None,
    budget: Budget,
    max_len: int | None,
) -> list[CountedMixer]:
    """Each label at the sizes at which a profile trains it: one entry per length of the tasks' longest sequences.

    ``settings`` are changes to the profile's ``model``, by name, and ``tasks`` the tasks that the user named. Without
    them, the tasks are those of the suite that has the profile. If ``max_len`` is given, it replaces the lengths of the
    tasks. Raises ``ConfigError`` for a setting that changes no mixer, and for tasks of several suites.
    """
    from madbench.experiment import ExperimentOptions, prepare

    suite = _suite_of(profile, tasks)
    sizes = {"d_model", "n_head", "seq_len"} & {field.name for field in fields(suite.Profile.Model)}
    if any(len(part_texts(label)) > 1 for label in labels):
        sizes.add("n_layer")
    own_settings = {name: value for name, value in settings.items() if name not in sizes}
    _refuse_other_settings(labels, own_settings)
    _refuse_unused_settings(labels, own_settings)
    overrides = tuple(Override.of(f"model.{name}", value) for name, value in settings.items())
    grid = Grid(
        tuple(map(Row, labels)),
        tuple(tasks or [suite.name]),
        profile=profile or "",
        budget=budget,
        overrides=overrides,
    )
    experiment = prepare(grid, ExperimentOptions(device="cpu", is_plan=True))
    counted: dict[tuple[str, int], CountedMixer] = {}
    for job in experiment.jobs:
        if not has_blocks(job):
            raise ConfigError(f"explain --cost counts the mixers of labels; the {suite.title.lower()} have none")
        size = size_of(job)
        length = max_len or (size.mixers.blocks[0].size.max_len if size.mixers else size.seq_len)
        first = CountedMixer(job.label, job.model.d_model, job.model.n_head, length, job.mixer)
        entry = counted.get((job.label, length), first)
        tasks = () if max_len else tuple(dict.fromkeys([*entry.tasks, job.task]))
        counted[job.label, length] = replace(entry, tasks=tasks)
    return sorted(counted.values(), key=lambda entry: (labels.index(entry.label), entry.max_len))


def _suite_of(profile: str | None, tasks: Sequence[str] | None) -> Suite:
    """The suite of ``tasks``. Without tasks, the first suite that has the profile, the main suite before the others."""
    if tasks:
        names = list(tasks_by_suite(tasks))
        if len(names) > 1:
            raise ConfigError(f"explain --cost counts mixers of one suite; give tasks of {' or '.join(names)}")
        return find_suite(names[0])
    main = main_suite()
    candidates = [main, *(suite for suite in suites().values() if suite is not main)]
    return next((suite for suite in candidates if profile and has_profile(suite, profile)), main)


def _refuse_other_settings(labels: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise ``ConfigError`` for a setting that no mixer of these labels has.

    The message names the command that counts a whole model with this setting.
    """
    known_names = dict.fromkeys(field.name for label in labels for field in fields(family_of(label).Settings))
    for name, value in settings.items():
        if name not in known_names:
            suggestion = did_you_mean(name, known_names)
            word = f"{name if '.' in name else f'model.{name}'}={value}"
            command = f"madbench run {shlex.quote(labels[0])} {shlex.quote(word)} --dry-run"
            hint = "" if suggestion.endswith("?") else f"\na model is counted by: {command}"
            raise ConfigError(
                f"explain --cost counts one mixer, and {short_repr(name)} is no setting of it{suggestion}{hint}"
            )


def _refuse_unused_settings(labels: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """The settings that each label uses. Raises ``ConfigError`` for a setting that no label uses."""
    used: dict[str, Sequence[str]] = {label: used_settings(label) for label in labels}
    for name in settings:
        if labels and not any(name in names for names in used.values()):
            has = ", ".join(f"model.{setting}" for setting in dict.fromkeys(itertools.chain(*used.values()))) or "none"
            raise no_effect(name, f"on {', '.join(labels[:4])}; settings of their mixers: {has}")
    return used
