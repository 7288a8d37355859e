"""Extensions of installed packages and of the packages in ``madbench/papers``, found by their entry points.

A broken extension does not affect the others. The reason of its failure is kept for messages.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from madbench.config import PAPERS
from madbench.errors import ConfigError, MadbenchError, did_you_mean
from madbench.identity.plugins import plugin_code, plugin_identity

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
LONGEST_REASON = 300  # characters of a broken package's error message that are repeated


class Registry(Generic[T]):
    """The extensions of one kind by name: families, tasks, suites, papers or modules.

    Built-in extensions come first, then those of installed packages. Nothing is imported before an extension is loaded.
    A broken extension does not affect the others.
    """

    def __init__(
        self,
        group: str,
        noun: str,
        *,
        fault_of_name: Callable[[str], str],
        load: Callable[[str, str], T],
        built_in: Callable[[], Mapping[str, str]] = dict,
        error: type[MadbenchError] = ConfigError,
    ):
        """
        Args:
            group: the group of its entry points in packages.
            noun: the kind in messages, such as ``family``.
            fault_of_name: returns the fault of a name; empty for a valid name.
            load: loads the extension with a name and the value of its entry point. Raises ``error`` if it cannot.
            built_in: the entry point values of the extensions of the core, by name.
            error: the class of the errors that are raised.
        """
        self.group, self.noun, self.error = group, noun, error
        self._fault_of_name, self._load, self._find_built_in = fault_of_name, load, built_in
        self.cache_clear()

    def cache_clear(self) -> None:
        """Forget what was found and loaded."""
        self.__dict__.pop("built_in", None)
        self.__dict__.pop("_packages", None)
        self._outcomes: dict[str, T | MadbenchError] = {}

    @functools.cached_property
    def built_in(self) -> Mapping[str, str]:
        """The values of the built-in extensions, by name: those of the core, then those of shipped packages."""
        own = self._find_built_in()
        return {**own, **{name: value for name, value in _shipped(self.group).items() if name not in own}}

    @property
    def points(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages by name, sorted. They are not imported."""
        return self._packages[0]

    @property
    def refused(self) -> dict[str, str]:
        """The entry points that are refused because of their names: by name, a sentence that says why."""
        return self._packages[1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all extensions: built-in ones, then those of packages. Nothing is imported."""
        return (*self.built_in, *(name for name in self.points if name not in self.built_in))

    def where(self, name: str) -> str:
        """The name of an extension in messages: :func:`entry_point_name`."""
        return entry_point_name(self.noun, name, self._value(name))

    def check(self, name: str, where: str = "") -> None:
        """Raise an error unless there is an extension of this name. The message begins with ``where``."""
        if name not in self.names:
            unknown = f"unknown {self.noun} {name!r}{did_you_mean(name, self.names)}"
            raise self.error(f"{where}{self.refused.get(name, unknown)}")

    def load(self, name: str, where: str = "") -> T:
        """The extension of a name in :attr:`names`. Raises an error that begins with ``where`` if it is broken."""
        outcome = self._outcome(name)
        if isinstance(outcome, self.error):
            raise type(outcome)(f"{where}{outcome}" if where else str(outcome))
        return cast(T, outcome)

    def loadable(self) -> Iterator[tuple[str, T]]:
        """The extensions that can be loaded, with their names. Each is imported when it is asked for."""
        for name in self.names:
            if not isinstance(outcome := self._outcome(name), self.error):
                yield name, cast(T, outcome)

    def problem(self, name: str) -> str:
        """The reason why an extension cannot be used. Empty if it can be used, and for an unknown name."""
        if name not in self.names:
            return self.refused.get(name, "")
        return str(outcome) if isinstance(outcome := self._outcome(name), self.error) else ""

    def broken(self) -> dict[str, str]:
        """The broken and the refused extensions by name, each with the reason why it cannot be used."""
        failed = {name: problem for name in self.names if (problem := self.problem(name))}
        return dict(sorted((failed | self.refused).items()))

    def identity(self, name: str) -> str:
        """The identity of the code of a package's extension, as part of a job. Empty for a built-in one."""
        return "" if name in self.built_in else plugin_identity(self.points[name])

    def code(self, name: str) -> dict[str, Any] | None:
        """The list of code of a package's extension (:mod:`madbench.identity.listing`). None for a built-in one."""
        return None if name in self.built_in or name not in self.points else plugin_code(self.points[name])

    def _value(self, name: str) -> str:
        return self.built_in.get(name) or self.points[name].value

    def _outcome(self, name: str) -> T | MadbenchError:
        """The extension, or the error of loading it. It is kept, so a failed import is not repeated."""
        if name not in self._outcomes:
            try:
                self._outcomes[name] = self._load(name, self._value(name))
            except self.error as error:
                self._outcomes[name] = error
        return self._outcomes[name]

    @functools.cached_property
    def _packages(self) -> tuple[dict[str, EntryPoint], dict[str, str]]:
        points: dict[str, EntryPoint] = {}
        refused: dict[str, str] = {}
        for point in sorted(_entry_points(self.group), key=lambda point: (point.name, point.value)):
            where, other = entry_point_name(self.noun, point.name, point.value), points.get(point.name)
            own = self.built_in.get(point.name, point.value)
            if problem := self._fault_of_name(point.name):
                refused[point.name] = f"{where}: {problem}"
            elif own != point.value:
                refused[point.name] = f"{where}: {own} has this name already; the package has to be mended"
            elif other and other.value != point.value:
                refused[point.name] = f"{where}: {other.value} has this name already; uninstall one of the packages"
            else:
                points[point.name] = point
        return {name: point for name, point in points.items() if name not in refused}, refused


def entry_point_name(noun: str, name: str, value: str) -> str:
    """The name of an entry point in messages: ``family 'lin' (madbench_linear:FAMILY)``."""
    return f"{noun} {name!r} ({value})"


def resolve(value: str) -> Any:
    """Imports and returns the object of an entry point such as ``madbench_linear:FAMILY``."""
    return pkgutil.resolve_name(value.partition("[")[0].strip())  # older entry points have extras in brackets


def load_value(
    noun: str, name: str, value: str, kind: type[MadbenchError], expected: str, fault_of: Callable[[Any], str]
) -> Any:
    """Returns the object of the entry point ``value``. Raises an error of ``kind`` if it cannot be used.

    The object must have this ``name``, and ``fault_of`` must find no fault. ``expected`` describes the type for
    messages.
    """
    with wrap_load_errors(entry_point_name(noun, name, value), kind):
        loaded = resolve(value)
        called = getattr(loaded, "name", name)
        if called != name and not fault_of(loaded):
            raise kind(f"it calls itself {called!r}; both names must be the same")
        if fault := fault_of(loaded):
            raise kind(f"expected a {expected}, got {repr(loaded)[:100]}: {fault}")
    return loaded


@contextmanager
def wrap_load_errors(
    where: str, kind: type[MadbenchError], own: tuple[type[MadbenchError], ...] = ()
) -> Iterator[None]:
    """Turns any exception from loading a package into a one-line error of class ``kind`` that begins with ``where``.

    Errors of the classes ``own`` pass unchanged, as does Ctrl-C.
    """
    with wrap_errors(f"{where}: cannot be loaded", kind, own):
        yield


@contextmanager
def wrap_errors(where: str, kind: type[MadbenchError], own: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Turns any exception of a package's loaded code into a ``kind`` of error, as :func:`wrap_load_errors` does."""
    passed: tuple[type[BaseException], ...] = (KeyboardInterrupt, *own)
    try:
        yield
    except passed:
        raise
    except BaseException as error:  # importing a package may raise anything, even SystemExit
        words = " ".join(str(error).split())
        said = "".join(letter if letter.isprintable() else "?" for letter in words)  # no control codes for a terminal
        reason = said if isinstance(error, MadbenchError) else ": ".join(filter(None, (type(error).__name__, said)))
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[: LONGEST_REASON - 3]}..."
        raise kind(f"{where}: {reason}") from error


class Guarded:
    """A wrapper for an object of another package. Exceptions of its code become errors of class ``kind``.

    The message names the object and the method. ``answers`` maps each method name to a function that validates the
    method's result, and converts it or raises. Errors of madbench pass unchanged, as does ``MemoryError``, which is no
    fault of the package.
    """

    def __init__(self, value: Any, where: str, kind: type[MadbenchError], answers: Mapping[str, Callable[[Any], Any]]):
        self._value, self._where, self._kind, self._answers = value, where, kind, answers
        self.__module__ = type(value).__module__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        with self._errors_of(name, AttributeError):
            member = getattr(self._value, name)
        if name in self._answers:
            member = self.__dict__[name] = self._method(name, member)
        return member

    def _errors_of(self, name: str, *own: type[BaseException]) -> AbstractContextManager[None]:
        return wrap_errors(f"{self._where}: {name}", self._kind, (MadbenchError, MemoryError, *own))

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        answer_of = self._answers[name]

        def call(*arguments: Any, **choices: Any) -> Any:
            try:
                answer = answer_of(method(*arguments, **choices))
            except BaseException as error:  # not a context manager around every call, for speed
                with self._errors_of(f"{name}({', '.join(map(_short_text, arguments[:1]))})"):
                    raise error
            return self._steps(name, answer) if isinstance(answer, Iterator) else answer

        return call

    def _steps(self, name: str, answer: Iterator[Any]) -> Iterator[Any]:
        """Iterates over a lazy result of a method. Exceptions are converted as in a call."""
        with self._errors_of(name, GeneratorExit):
            yield from answer


def _short_text(argument: Any) -> str:
    """The text of an argument in a message: its label if it has one, such as an allocation."""
    try:
        return repr(str(getattr(argument, "label", argument)))[:60]
    except Exception:
        return type(argument).__name__


def _shipped(group: str) -> dict[str, str]:
    """The values of a group's entry points in shipped packages, by name. Nothing is imported.

    A shipped package has a file ``entry_points.txt`` of the same form as in the metadata of an installed package. Its
    code is part of madbench, so a run's id holds only the version that a family declares.
    """
    points: dict[str, str] = {}
    for file in sorted(PAPERS.glob("*/entry_points.txt")):
        section = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            name, equals, value = line.partition("=")
            if line.startswith("["):
                section = line.strip("[] ")
            elif equals and section == group:
                points[name.strip()] = value.strip()
    return points


def _entry_points(group: str) -> list[EntryPoint]:
    """The entry points of every package. A package with damaged metadata is skipped."""
    from importlib import metadata  # slow to import, and most labels need no package

    try:
        return list(metadata.entry_points(group=group))
    except Exception:
        points: list[EntryPoint] = []
        for distribution in metadata.distributions():
            try:
                points += distribution.entry_points.select(group=group)
            except Exception:
                continue
        return points
