"""Extensions, found by entry point: those of installed packages, and those of the packages in ``madbench/papers``.

A broken extension of an installed package fails alone, with its reason.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from madbench.config import PAPERS
from madbench.errors import MadbenchError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

E = TypeVar("E", bound=MadbenchError)
LONGEST_REASON = 300  # characters of a broken package's error message that are repeated


@dataclass(frozen=True)
class Installed:
    """The entry points of one group."""

    points: dict[str, EntryPoint]  # by name, sorted; not imported
    refused: dict[str, str]  # by name, a sentence on why an entry point is refused


@functools.cache
def shipped_entry_points(group: str) -> dict[str, str]:
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


def find_installed(group: str, noun: str, built_in: Mapping[str, str], fault: Callable[[str], str]) -> Installed:
    """Returns the entry points of ``group``. ``fault`` describes what is wrong with a name; empty for a valid name."""
    points: dict[str, EntryPoint] = {}
    refused: dict[str, str] = {}
    for point in sorted(_entry_points(group), key=lambda point: (point.name, point.value)):
        where, other = entry_point_name(noun, point.name, point.value), points.get(point.name)
        if problem := fault(point.name):
            refused[point.name] = f"{where}: {problem}"
        elif built_in.get(point.name, point.value) != point.value:
            refused[point.name] = f"{where}: {built_in[point.name]} has this name already; the package has to be mended"
        elif other and other.value != point.value:
            refused[point.name] = f"{where}: {other.value} has this name already; uninstall one of the packages"
        else:
            points[point.name] = point
    return Installed({name: point for name, point in points.items() if name not in refused}, refused)


def entry_point_name(noun: str, name: str, value: str) -> str:
    """The name of an entry point in messages: ``family 'lin' (madbench_linear:FAMILY)``."""
    return f"{noun} {name!r} ({value})"


def resolve(value: str) -> Any:
    """Imports and returns the object of an entry point such as ``madbench_linear:FAMILY``."""
    return pkgutil.resolve_name(value.partition("[")[0].strip())  # older entry points have extras in brackets


def load_value(
    noun: str, name: str, value: str, kind: type[E], expected: str, fault_of: Callable[[Any], str]
) -> Any | E:
    """Loads the object of the entry point ``value``. If it cannot be used, returns (not raises) an error of ``kind``.

    The object must have this ``name``, and ``fault_of`` must find no fault. ``expected`` describes the type for
    messages.
    """
    try:
        with wrap_load_errors(entry_point_name(noun, name, value), kind):
            loaded = resolve(value)
            called = getattr(loaded, "name", name)
            if called != name and not fault_of(loaded):
                raise kind(f"it calls itself {called!r}; both names must be the same")
            if fault := fault_of(loaded):
                raise kind(f"expected a {expected}, got {repr(loaded)[:100]}: {fault}")
    except kind as error:
        return error
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
            except BaseException as error:  # a context manager only after an exception: labels are parsed very often
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
