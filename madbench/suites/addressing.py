"""The assignment of tasks, profiles and overrides to suites, for commands that train several suites at once.

The first suite that has one of the requested tasks is the leading suite. A profile or an override without a prefix
belongs to the leading suite. An override of another suite begins with the ``override_name`` of that suite:
``language_model=mini`` names its profile, and ``language_model.training.steps=600`` changes its profile.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from madbench.config import Override, short_repr
from madbench.errors import ConfigError, did_you_mean, no_effect, prefix_errors, suggestion
from madbench.suites import (
    TASKS_LISTED,
    broken_suites,
    find_suite,
    main_suite,
    suite_of_task,
    suites,
    task_suites,
    why_unusable,
)
from madbench.suites.base import Suite
from madbench.suites.profile import Profile, check_tasks_of


def tasks_by_suite(tasks: Iterable[str] | None) -> dict[str, list[str]]:
    """The requested tasks, by suite name. The tasks of a suite are in the order of its table.

    Each of ``tasks`` is a task, a task with its suite as prefix (``signals/digits``), or a suite. A suite stands for
    the tasks that it trains by default (:meth:`madbench.suites.base.Suite.usual_tasks`). If ``tasks`` is None, the
    result has these tasks of the main suite. Raises ``ConfigError`` for an unknown or broken task or suite.
    """
    if tasks is None:
        return {main_suite().name: list(main_suite().usual_tasks())}
    tasks_of: dict[str, set[str]] = {}
    for word in tasks:
        suite, named_tasks = _suite_and_tasks(word)
        tasks_of.setdefault(suite.name, set()).update(named_tasks)
    return {
        suite.name: [task for task in suite.tasks() if task in tasks_of[suite.name]]
        for suite in suites().values()
        if suite.name in tasks_of
    }


def qualified_tasks(tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks that :func:`tasks_by_suite` returns for ``tasks``, in one tuple of unambiguous names.

    A task has its suite as prefix, as in ``signals/digits``, if an earlier suite has a task of the same name.
    """
    by_task = task_suites()
    return tuple(
        task if by_task[task].name == suite else f"{suite}/{task}"
        for suite, task_names in tasks_by_suite(tasks).items()
        for task in task_names
    )


def _suite_and_tasks(word: str) -> tuple[Suite, Iterable[str]]:
    """The suite and the tasks that one word of ``--tasks`` names.

    The name of a suite stands for the tasks that the suite trains by default. Raises ``ConfigError`` for an unknown or
    broken task or suite, and for a value that is no text.
    """
    if not isinstance(word, str):  # an item of an iterator of a Python user
        raise ConfigError(f"tasks: expected text, got {short_repr(word)}")
    name, slash, task = word.rpartition("/")
    if slash and name in suites() and task in suites()[name].tasks():
        return suites()[name], [task]
    if any(word in suite.tasks() for suite in suites().values()) or why_unusable(word):
        return suite_of_task(word), [word]
    if word in suites() or word in broken_suites():
        return find_suite(word), find_suite(word).usual_tasks()
    hint = suggestion(word, [*task_suites(), *suites()])
    if not hint:
        hint = f"{did_you_mean(word, task_suites(), TASKS_LISTED)}; a suite stands for its tasks: {', '.join(suites())}"
    raise ConfigError(f"unknown task {short_repr(word)}{hint}")


def leading_suite(tasks: Iterable[str] | None) -> Suite:
    """The leading suite: the first suite that has one of the tasks. The main suite if ``tasks`` is None.

    Raises ``ConfigError`` for an unknown or broken task or suite.
    """
    return suites()[next(iter(tasks_by_suite(tasks)), main_suite().name)]


def parse_overrides(words: Iterable[str]) -> tuple[Override, ...]:
    """Parse overrides from texts such as ``training.epochs=20`` or ``language_model.training.steps=600``.

    A prefix such as ``language_model`` is recognized if it is the ``override_name`` of a suite. Raises ``ConfigError``
    for a text that is not ``KEY=VALUE``.
    """
    words = tuple(words)
    names = [suite.override_name for suite in suites().values()] if words else []
    return tuple(Override.parse(word, names) for word in words)


def nearest_key(word: Any, tasks: Any = None) -> str:
    """The key of the profile's setting that the user may have meant by ``word``, where no setting is expected.

    ``word`` is an argument of a function, the name of an option, or a key of a grid. ``tasks`` are the tasks that the
    user named; the setting is one of their leading suite. Empty if no setting is close, or if the tasks are unknown.
    """
    with suppress(ConfigError, TypeError):
        names = [tasks] if isinstance(tasks, str) else tasks
        return leading_suite(names).Profile.nearest_key(word) if isinstance(word, str) else ""
    return ""


def suite_of_override(override: Override, leading: Suite) -> Suite:
    """The suite that an override belongs to: the suite that its prefix names, or ``leading`` if it has no prefix."""
    named_suites = (suite for suite in suites().values() if suite.override_name == override.suite)
    return next(named_suites, leading)


def own_overrides(overrides: Iterable[Override], suite: Suite, leading: Suite) -> tuple[Override, ...]:
    """The overrides of settings in the profile of ``suite``, without the prefix that names the suite.

    Overrides that name a profile, such as ``language_model=mini``, are left out. An override without a prefix belongs
    to the suite ``leading``. Messages about a returned override still show its prefix.
    """
    changes = (override for override in overrides if not override.names_profile)
    return tuple(change.without_suite() for change in changes if suite_of_override(change, leading) is suite)


def profile_named(
    suite: Suite, overrides: Iterable[Override], leading: Suite, profile: str | None, is_asked: bool
) -> str:
    """The name of the profile with which ``suite`` is trained. Empty if the suite is not trained.

    ``leading`` is the leading suite, and ``profile`` is the profile that was requested for it. If ``profile`` is None
    or empty, this is its default profile. For the leading suite, the result is the profile that an override names, or
    else ``profile``. For any other suite, it is the first of these that exists:

    - the profile that an override names for the suite, as in ``language_model=mini``;
    - the profile of the suite that the key ``beside`` of ``profile`` names. This case is left out if an override names
      an empty profile for the suite;
    - the default profile of the suite, if one of its tasks was requested (``is_asked``).

    Raises ``ConfigError`` if the leading suite has no profile of the requested name but another suite has, and if a
    user's file names wrong suites (:func:`check_suites_in`).
    """
    profile_names = [
        override.value for override in overrides if override.names_profile and override.suite == suite.override_name
    ]
    if suite is leading:
        name = profile_names[-1] if profile_names else profile or suite.default
        if name != suite.default and name not in suite.Profile.names():
            _refuse_profile_of_another(name, suite)
    else:
        name = profile_names[-1] if profile_names else beside_profiles(leading, profile).get(suite.override_name, "")
        name = name or (suite.default if is_asked else "")
    if name.endswith((".yaml", ".yml")) and os.path.isfile(name):
        load_profile(suite, name)
    return name


def beside_profiles(leading: Suite, profile: str | None) -> Mapping[str, str]:
    """The profiles of other suites that the key ``beside`` of a profile names, by ``override_name`` of the suite.

    ``profile`` is a profile of the suite ``leading``. If it is None or empty, the default profile is read. Raises
    ``ConfigError`` if the profile cannot be loaded, or if it names wrong suites (:func:`check_suites_in`).
    """
    return load_profile(leading, profile or leading.default).beside


def has_profile(suite: Suite, name: str) -> bool:
    """True if ``name`` can be loaded as a profile of ``suite``, and its key ``suite`` names no other suite."""
    with suppress(ConfigError):
        return suite.Profile.load(name).suite in ("", suite.name)
    return False


def load_profile(suite: Suite, name: str) -> Profile[Any]:
    """Load the profile ``name`` of ``suite``. Unless it is a shipped one, check the suites that it names."""
    profile = suite.Profile.load(name)
    if not profile.is_shipped:  # madbench validate checks shipped files
        with prefix_errors(name):
            check_suites_in(profile, suite)
    return profile


def check_suites_in(profile: Profile[Any], suite: Suite) -> None:
    """Check the keys ``suite`` and ``beside`` of ``profile``, which is used as a profile of ``suite``.

    ``beside`` maps the ``override_name`` of other suites to names of their profiles. Raises ``ConfigError`` if the key
    ``suite`` names another suite than ``suite``, if a key in ``beside`` belongs to no other suite, or if a profile
    named in ``beside`` cannot be loaded.
    """
    if profile.suite and (owner := find_suite(profile.suite, "suite: ")) is not suite:
        what = f"this file is used as a profile of the suite {suite.name}"
        raise ConfigError(
            f"suite: {profile.suite!r}: {what}; choose a task of {owner.name}, such as {owner.tasks()[0]}"
        )
    others = {other.override_name: other for other in suites().values() if other is not suite}
    for key, name in profile.beside.items():
        if key == suite.override_name:
            raise no_effect(f"beside: {key}", because="it is the suite of this profile")
        if reason := broken_suites().get(key):
            raise ConfigError(f"beside: {reason}")
        if key not in others:
            raise ConfigError(f"beside: no other suite {short_repr(key)}{did_you_mean(key, others)}")
        if name and name not in others[key].Profile.names():  # an empty name leaves out the suite
            with prefix_errors(f"beside: {key}"):
                others[key].Profile.load(name)


def tasks_in_order(suite: Suite, overrides: Collection[Override], tasks: Iterable[str] | None) -> list[str]:
    """The tasks in the order of the suite's table. If ``tasks`` is None, the tasks that the suite trains by default.

    Raises ``ConfigError`` if one of ``overrides`` changes a task that the result does not contain.
    """
    chosen_tasks = set(suite.usual_tasks() if tasks is None else tasks)
    ordered_tasks = [task for task in suite.tasks() if task in chosen_tasks]
    if overrides:
        check_tasks_of(overrides, ordered_tasks)
    return ordered_tasks


def _refuse_profile_of_another(name: str, suite: Suite) -> None:
    """Raise ``ConfigError`` if a suite other than ``suite`` has a profile named ``name``.

    The caller has checked that ``suite`` itself has none.
    """
    others = [other.name for other in suites().values() if name in other.Profile.names()]
    if others:
        noun, names = suite.Profile.noun, ", ".join(suite.Profile.names())
        raise ConfigError(
            f"{noun} {name!r}: no such {noun} of the suite {suite.name}; it belongs to {' and '.join(others)}; "
            f"leave it out for {noun} {suite.default!r}, or name one of: {names}"
        )


def overrides_outside(overrides: Iterable[Override], names: Collection[str], leading: Suite) -> list[Override]:
    """The overrides that belong to suites whose names are not in ``names``.

    ``leading`` is the suite of overrides without a prefix.
    """
    return [override for override in overrides if suite_of_override(override, leading).name not in names]
