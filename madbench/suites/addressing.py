"""The suite of a task, a profile or an override, for commands that train several suites side by side.

The first suite that has one of the requested tasks is the leading suite. A profile or an override without a prefix
belongs to the leading suite. Overrides of another suite begin with that suite's ``override_name``:
``language_model=mini`` names its profile, ``language_model.training.steps=600`` changes the profile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from madbench.config import Override, short_repr
from madbench.errors import ConfigError, did_you_mean, suggestion
from madbench.suites import TASKS_LISTED, broken_suites, find_suite, main_suite, suite_of_task, suites, task_suites
from madbench.suites.base import Suite
from madbench.suites.profile import check_tasks_of
from madbench.tasks import broken_tasks


def tasks_by_suite(tasks: Iterable[str] | None) -> dict[str, list[str]]:
    """The requested tasks by suite name, in the order of the suite's table.

    Each of ``tasks`` is a task, a task with its suite as prefix (``signals/digits``), or a suite, which stands for its
    usual tasks. If ``tasks`` is None, the result has the usual tasks of the main suite. Raises ``ConfigError`` for an
    unknown task or suite.
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
    """The tasks that :func:`tasks_by_suite` returns, in one tuple.

    A task name that several suites share means the first of these suites. For the other suites, the name has the suite
    as prefix, as in ``signals/digits``.
    """
    by_task = task_suites()
    return tuple(
        task if by_task[task].name == suite else f"{suite}/{task}"
        for suite, task_names in tasks_by_suite(tasks).items()
        for task in task_names
    )


def _suite_and_tasks(word: str) -> tuple[Suite, Iterable[str]]:
    """The suite and the tasks that one word of ``--tasks`` stands for. A suite stands for its usual tasks.

    Raises ``ConfigError`` for an unknown or broken task or suite.
    """
    name, slash, task = word.rpartition("/")
    if slash and name in suites() and task in suites()[name].tasks():
        return suites()[name], [task]
    if any(word in suite.tasks() for suite in suites().values()) or word in broken_tasks():
        return suite_of_task(word), [word]
    if slash and name in broken_suites():
        raise ConfigError(broken_suites()[name])
    if word in suites() or word in broken_suites():
        return find_suite(word), find_suite(word).usual_tasks()
    hint = suggestion(word, [*task_suites(), *suites()])
    if not hint:
        hint = f"{did_you_mean(word, task_suites(), TASKS_LISTED)}; a suite stands for its tasks: {', '.join(suites())}"
    raise ConfigError(f"unknown task {short_repr(word)}{hint}")


def leading_suite(tasks: Iterable[str] | None) -> Suite:
    """The first suite that has one of the tasks; the main suite if ``tasks`` is None."""
    return suites()[next(iter(tasks_by_suite(tasks)), main_suite().name)]


def parse_overrides(words: Iterable[str]) -> tuple[Override, ...]:
    """The overrides that texts such as ``language_model.training.steps=600`` stand for.

    Raises ``ConfigError`` for a text that is not ``KEY=VALUE``.
    """
    words = tuple(words)
    names = [suite.override_name for suite in suites().values()] if words else []
    return tuple(Override.parse(word, names) for word in words)


def suite_of_override(override: Override, leading: Suite) -> Suite:
    """The suite whose profile an override changes or names.

    This is the suite of the override's prefix, or ``leading`` if the override has no prefix.
    """
    named_suites = (suite for suite in suites().values() if suite.override_name == override.suite)
    return next(named_suites, leading)


def own_overrides(overrides: Iterable[Override], suite: Suite, leading: Suite) -> tuple[Override, ...]:
    """The overrides that change settings of the profile of ``suite``, without their prefix.

    Overrides that only name the profile are left out.
    """
    changes = (override for override in overrides if not override.names_profile)
    return tuple(change.without_suite() for change in changes if suite_of_override(change, leading) is suite)


@contextmanager
def with_prefixes(overrides: Iterable[Override], suite: Suite) -> Iterator[None]:
    """A context that adds prefixes to the overrides in messages of errors about the profile of ``suite``.

    A profile is loaded with overrides without a prefix, so that its errors have none. ``overrides`` are the overrides
    as they were typed.
    """
    try:
        yield
    except ConfigError as error:
        text = str(error)
        for override in overrides:
            if override.suite == suite.override_name and not override.names_profile:
                if text.startswith(f"override {short_repr(override.key)}: unknown key"):
                    text = text.replace("did you mean '", f"did you mean '{suite.override_name}.")
                text = re.sub(f"(?<=')(?={re.escape(override.key)}[='])", f"{suite.override_name}.", text)
        if text == str(error):
            raise
        raise ConfigError(text) from None


def profile_named(
    suite: Suite, overrides: Iterable[Override], leading: Suite, profile: str | None, is_asked: bool
) -> str:
    """The name of the profile with which ``suite`` is trained. Empty if the suite is not trained.

    ``profile`` is the requested profile of the suite ``leading``; None or empty stands for its default profile. Any
    other suite is trained in three cases: an override names its profile, the leading profile names it under ``beside``,
    or a task of the suite was requested (``is_asked``). Raises ``ConfigError`` if the leading suite has no such
    profile, but another suite has.
    """
    profile_names = [
        override.value for override in overrides if override.names_profile and override.suite == suite.override_name
    ]
    if suite is leading:
        name = profile_names[-1] if profile_names else profile or suite.default
        if name != suite.default and name not in suite.Profile.names():
            _refuse_profile_of_another(name, suite)
        return name
    profile_by_suite = leading.Profile.load(profile or leading.default).beside
    name = profile_names[-1] if profile_names else profile_by_suite.get(suite.override_name, "")
    return name or (suite.default if is_asked else "")


def tasks_in_order(suite: Suite, overrides: Collection[Override], tasks: Iterable[str] | None) -> list[str]:
    """The tasks in the order of the suite's table. The usual tasks if ``tasks`` is None.

    Raises ``ConfigError`` if an override changes a task that is not among them.
    """
    chosen_tasks = set(suite.usual_tasks() if tasks is None else tasks)
    ordered_tasks = [task for task in suite.tasks() if task in chosen_tasks]
    if overrides:
        check_tasks_of(overrides, ordered_tasks)
    return ordered_tasks


def _refuse_profile_of_another(name: str, suite: Suite) -> None:
    """Raise ``ConfigError`` if other suites have a profile of this name."""
    others = [other.name for other in suites().values() if name in other.Profile.names()]
    if others:
        noun, names = suite.Profile.noun, ", ".join(suite.Profile.names())
        raise ConfigError(
            f"{noun} {name!r}: no such {noun} of the suite {suite.name}; it belongs to {' and '.join(others)}; "
            f"leave it out for {noun} {suite.default!r}, or name one of: {names}"
        )


def overrides_outside(overrides: Iterable[Override], names: Collection[str], leading: Suite) -> list[Override]:
    """The overrides that belong to suites whose names are not in ``names``."""
    return [override for override in overrides if suite_of_override(override, leading).name not in names]
