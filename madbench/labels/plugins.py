"""What installed packages add to madbench, found by entry point. One that is broken fails alone and says why."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
    """Raises whatever a package's code raises in the block as a ``kind`` of error, one line opened by ``where``.

    Errors of the classes ``own`` say enough and pass as they are, as does Ctrl-C.
    """
    try:
        yield
    except (KeyboardInterrupt, *own):
        raise
    except BaseException as error:  # whatever a package does when it is imported, as a script does that exits
        said = " ".join(str(error).split())
        reason = said if isinstance(error, MadbenchError) else ": ".join(filter(None, (type(error).__name__, said)))
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[: LONGEST_REASON - 3]}..."
        raise kind(f"{where}: cannot be loaded: {reason}") from error


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
