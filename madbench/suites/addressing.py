"""Which suite a task, a profile or an override means, where several are trained side by side.

One suite leads: the first that has a task. A profile and overrides without more are its own. Those of another begin
with its name: ``language_model=mini`` names its profile, ``language_model.training.steps=600`` changes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from madbench.config import key_of
from madbench.errors import ConfigError, did_you_mean
from madbench.suites import TASKS_LISTED, broken_suites, main_suite, suite_called, suite_of_task, suites, task_suites
from madbench.suites.base import Suite
from madbench.tasks import broken_tasks


def tasks_by_suite(tasks: Iterable[str] | None) -> dict[str, list[str]]:
    """The tasks of each suite that has some, in the order of its table; of the main suite alone without ``tasks``.

    A task may have its suite before it: ``interactions/hunters``. A suite alone means its usual tasks. Raises
    ``ConfigError`` for an unknown one.
    """
    if tasks is None:
        return {main_suite().name: list(main_suite().usual_tasks())}
    chosen: dict[str, set[str]] = {}
    for word in tasks:
        suite, named = _suite_and_tasks(word)
        chosen.setdefault(suite.name, set()).update(named)
    return {
        suite.name: [task for task in suite.tasks() if task in chosen[suite.name]]
        for suite in suites().values()
        if suite.name in chosen
    }


def task_names(tasks: Iterable[str]) -> tuple[str, ...]:
    """The tasks one by one, read as :func:`tasks_by_suite` reads them; a name that two suites have with its suite."""
    by_task = task_suites()
    return tuple(
        task if by_task[task].name == suite else f"{suite}/{task}"
        for suite, named in tasks_by_suite(tasks).items()
        for task in named
    )


def _suite_and_tasks(word: str) -> tuple[Suite, Iterable[str]]:
    """The suite that a word of ``--tasks`` is about, and which of its tasks it means."""
    name, slash, task = word.rpartition("/")
    if slash and name in suites() and task in suites()[name].tasks():
        return suites()[name], [task]
    if word in task_suites() or word in broken_tasks():
        return suite_of_task(word), [word]
    if slash and name in broken_suites():
        raise ConfigError(broken_suites()[name])
    if word in suites() or word in broken_suites():
        return suite_called(word), suite_called(word).usual_tasks()
    guess = did_you_mean(word, [*task_suites(), *suites()])
    if guess.startswith("; expected"):
        guess = f"{did_you_mean(word, task_suites())}, or all of a suite: {', '.join(suites())}"
    raise ConfigError(f"unknown task {word!r}{guess}{TASKS_LISTED}")


def leading_suite(tasks: Iterable[str] | None) -> Suite:
    """The first suite that has one of the tasks."""
    return suites()[next(iter(tasks_by_suite(tasks)), main_suite().name)]


def suite_of_override(override: str, leading: Suite) -> Suite:
    """The suite that an override concerns, or whose profile it names."""
    named = (suite for suite in suites().values() if f"{key_of(override)}.".startswith(suite.prefix))
    return next(named, leading)


def names_profile(override: str) -> bool:
    """True if an override names the profile of a suite, as in ``language_model=mini``."""
    return any(f"{key_of(override)}." == suite.prefix for suite in suites().values())


def own_overrides(overrides: Iterable[str], suite: Suite, leading: Suite) -> tuple[str, ...]:
    """Overrides that change the profile of a suite, as that profile has them."""
    concerned = (word for word in overrides if suite_of_override(word, leading) is suite and not names_profile(word))
    return tuple(word.removeprefix(suite.prefix) for word in concerned)


def plain(override: str) -> str:
    """An override as the profile of its suite has it."""
    prefixes = (suite.prefix for suite in suites().values() if override.startswith(suite.prefix))
    return override.removeprefix(next(prefixes, ""))


def profile_named(suite: Suite, overrides: Iterable[str], leading: Suite, profile: str | None, is_asked: bool) -> str:
    """The name of the profile of a suite under overrides, of which ``profile`` is the leading suite's; "" for none.

    A suite that does not lead and is not asked for has one where the leading profile names one beside it. Raises
    ``ConfigError`` where the leading suite has none of that name and another suite does.
    """
    named = [word.partition("=")[2] for word in overrides if f"{key_of(word)}." == suite.prefix]
    if suite is leading:
        name = named[-1] if named else profile or suite.default
        if name not in suite.Profile.names():
            _refuse_profile_of_another(name, suite)
        return name
    beside = leading.Profile.load(profile or leading.default).beside
    name = named[-1] if named else beside.get(suite.address, "")
    return name or (suite.default if is_asked else "")


def _refuse_profile_of_another(name: str, suite: Suite) -> None:
    """Raises ``ConfigError`` for the name of a profile that other suites ship."""
    others = [other.name for other in suites().values() if name in other.Profile.names()]
    if others:
        noun, names = suite.Profile.noun, ", ".join(suite.Profile.names())
        raise ConfigError(
            f"{noun} {name!r}: no such {noun} of the suite {suite.name}, it is one of {' and '.join(others)}; leave it"
            f" out for {noun} {suite.default!r}, or name one of: {names}"
        )


def written(overrides: Iterable[str], profile: str, suite: Suite) -> list[str]:
    """A profile and changes of it as overrides beside another suite's: ``language_model=mini`` and so on."""
    return [f"{suite.address}={profile}", *(suite.prefix + word for word in overrides)]


def concerned(overrides: Iterable[str], names: Collection[str], leading: Suite) -> list[str]:
    """The overrides of suites that are none of ``names``."""
    return [word for word in overrides if suite_of_override(word, leading).name not in names]
