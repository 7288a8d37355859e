"""What installed packages add to madbench, found by entry point. One that is broken fails alone and says why."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from madbench.errors import MadbenchError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

E = TypeVar("E", bound=MadbenchError)
LONGEST_REASON = 300  # characters of what a broken package said


@dataclass(frozen=True)
class Installed:
    """The entry points of one group."""

    points: dict[str, EntryPoint]  # by name, sorted; nothing of them is imported
    refused: dict[str, str]  # why there is none of a name, or none besides the built-in one: a sentence


def find_installed(group: str, noun: str, built_in: Mapping[str, str], fault: Callable[[str], str]) -> Installed:
    """The entry points of ``group``; ``fault`` says of a name what is wrong with it, and nothing where it is sound."""
    points: dict[str, EntryPoint] = {}
    refused: dict[str, str] = {}
    for point in sorted(_entry_points(group), key=lambda point: (point.name, point.value)):
        where, other = place(noun, point.name, point.value), points.get(point.name)
        if problem := fault(point.name):
            refused[point.name] = f"{where}: {problem}"
        elif built_in.get(point.name, point.value) != point.value:
            refused[point.name] = f"{where}: {built_in[point.name]} has this name already; the package has to be mended"
        elif other and other.value != point.value:
            refused[point.name] = f"{where}: {other.value} has this name already; uninstall one of the packages"
        else:
            points[point.name] = point
    return Installed({name: point for name, point in points.items() if name not in refused}, refused)


def place(noun: str, name: str, value: str) -> str:
    """How messages name an entry point: ``family 'lin' (madbench_linear:FAMILY)``."""
    return f"{noun} {name!r} ({value})"


def resolve(value: str) -> Any:
    """What the entry point ``value``, such as ``madbench_linear:FAMILY``, names; it is imported."""
    return pkgutil.resolve_name(value.partition("[")[0].strip())  # extras, once allowed, stand in brackets


def load_value(
    noun: str, name: str, value: str, kind: type[E], expected: str, fault_of: Callable[[Any], str]
) -> Any | E:
    """What the entry point ``value`` names, or the error of class ``kind`` that says why it cannot be used.

    It has to be an ``expected`` of this ``name``, in which ``fault_of`` finds no fault.
    """
    try:
        with isolated(place(noun, name, value), kind):
            loaded = resolve(value)
            called = getattr(loaded, "name", name)
            if called != name and not fault_of(loaded):
                raise kind(f"it calls itself {called!r}; both names have to be the same")
            if fault := fault_of(loaded):
                raise kind(f"expected a {expected}, got {repr(loaded)[:100]}: {fault}")
    except kind as error:
        return error
    return loaded


@contextmanager
def isolated(where: str, kind: type[MadbenchError], own: tuple[type[MadbenchError], ...] = ()) -> Iterator[None]:
    """Raises whatever a package's code raises while it is loaded as a ``kind`` of error, one line opened by ``where``.

    Errors of the classes ``own`` say enough and pass as they are, as does Ctrl-C.
    """
    with named(f"{where}: cannot be loaded", kind, own):
        yield


@contextmanager
def named(where: str, kind: type[MadbenchError], own: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """:func:`isolated`, of code that is loaded already."""
    try:
        yield
    except (KeyboardInterrupt, *own):
        raise
    except BaseException as error:  # whatever a package does when it is imported, as a script does that exits
        words = " ".join(str(error).split())
        said = "".join(letter if letter.isprintable() else "?" for letter in words)  # nothing that turns a terminal
        reason = said if isinstance(error, MadbenchError) else ": ".join(filter(None, (type(error).__name__, said)))
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[: LONGEST_REASON - 3]}..."
        raise kind(f"{where}: {reason}") from error


class Guarded:
    """A value of another package. What its code raises when it is used is a ``kind`` of error that names both.

    ``answers`` has the methods, and of each what makes its answer one that can be used, or raises. Errors of madbench
    pass as they are, as do those of memory, which are no fault of the code.
    """

    def __init__(self, value: Any, where: str, kind: type[MadbenchError], answers: Mapping[str, Callable[[Any], Any]]):
        self._value, self._where, self._kind, self._answers = value, where, kind, answers
        self.__module__ = type(value).__module__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        with self._naming(name, AttributeError):
            member = getattr(self._value, name)
        if name in self._answers:
            member = self.__dict__[name] = self._method(name, member)
        return member

    def _naming(self, name: str, *own: type[BaseException]) -> AbstractContextManager[None]:
        return named(f"{self._where}: {name}", self._kind, (MadbenchError, MemoryError, *own))

    def _method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        answer_of = self._answers[name]

        def call(*arguments: Any, **choices: Any) -> Any:
            try:
                answer = answer_of(method(*arguments, **choices))
            except BaseException as error:  # no context manager where nothing is raised: labels are parsed very often
                with self._naming(f"{name}({', '.join(map(_shown, arguments[:1]))})"):
                    raise error
            return self._steps(name, answer) if isinstance(answer, Iterator) else answer

        return call

    def _steps(self, name: str, answer: Iterator[Any]) -> Iterator[Any]:
        """An answer that is worked out while it is read."""
        with self._naming(name, GeneratorExit):
            yield from answer


def _shown(argument: Any) -> str:
    """An argument in a message: a label, or an allocation, by its text."""
    try:
        return repr(str(getattr(argument, "label", argument)))[:60]
    except Exception:
        return type(argument).__name__


def _entry_points(group: str) -> list[EntryPoint]:
    """Entry points of every package; one whose list of entry points is damaged has none."""
    from importlib import metadata  # slow to import, and most labels need no package

    try:
        return list(metadata.entry_points(group=group))
    except Exception:
        points = []
        for distribution in metadata.distributions():
            try:
                points += distribution.entry_points.select(group=group)
            except Exception:
                continue
        return points
