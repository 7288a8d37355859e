"""Registries of extensions, which installed packages and packages in ``madbench/papers`` declare by entry points.

A broken extension does not affect the others. The reason why it is broken is kept for messages.
"""

from __future__ import annotations

import functools
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from madbench.config import PAPERS, short_repr
from madbench.errors import ConfigError, MadbenchError, did_you_mean
from madbench.identity.plugins import plugin_code, plugin_identity

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")
LONGEST_REASON = 300  # characters of a broken package's error message that are repeated


class Registry(Generic[T]):
    """The extensions of one kind by name, such as all families.

    The kinds are families, tasks, suites, papers, modules and checks. Built-in extensions come first, then those of
    installed packages. Nothing is imported before an extension is loaded. A broken extension does not affect the
    others.
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
        texts: Sequence[str] = ("name", "version", "title", "heading"),
    ):
        """
        Args:
            group: the group of the extensions' entry points, such as ``madbench.families``.
            noun: the kind of extension in messages, such as ``family``.
            fault_of_name: returns the reason why an extension cannot have a name. Empty for a valid name.
            load: maps the name and the value of an entry point to the extension. Raises ``error`` if it is broken.
            built_in: returns the entry point values of the extensions in madbench itself, by name.
            error: the class of the errors that are raised.
            texts: the members that, if an extension has them, must be texts of one line. Tables show these.
        """
        self.group, self.noun, self.error, self._texts = group, noun, error, texts
        self.fault_of_name, self._load, self._find_built_in = fault_of_name, load, built_in
        self.cache_clear()

    def cache_clear(self) -> None:
        """Forget the extensions that were found and loaded, so that they are searched for again."""
        self.__dict__.pop("built_in", None)
        self.__dict__.pop("_packages", None)
        self._outcomes: dict[str, T | MadbenchError] = {}

    @functools.cached_property
    def built_in(self) -> Mapping[str, str]:
        """The built-in extensions: name to entry point value.

        Extensions in madbench itself come first, then extensions of the packages in ``madbench/papers``.
        """
        core = self._find_built_in()
        return {
            **core,
            **{name: value for name, value in _values_of_shipped_packages(self.group).items() if name not in core},
        }

    @property
    def points(self) -> dict[str, EntryPoint]:
        """The entry points of installed packages that are not refused: name to entry point, in alphabetical order.

        Their code is not imported.
        """
        return self._packages[0]

    @property
    def refused(self) -> dict[str, str]:
        """The entry points that are not used because their name is invalid or taken: name to reason, as a sentence."""
        return self._packages[1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all extensions that are not refused, built-in ones first. Nothing is imported."""
        return (*self.built_in, *(name for name in self.points if name not in self.built_in))

    def where(self, name: str) -> str:
        """The words for an extension in messages, such as ``family 'lin' (madbench_linear:FAMILY)``."""
        return entry_point_name(self.noun, name, self._value(name))

    def check(self, name: str, where: str = "") -> None:
        """Raise ``self.error`` if no extension has this name, or if the extension is refused.

        The message begins with ``where``.
        """
        if name not in self.names:
            unknown = f"unknown {self.noun} {short_repr(name)}{did_you_mean(name, self.names)}"
            raise self.error(f"{where}{self.refused.get(name, unknown)}")

    def load(self, name: str, where: str = "") -> T:
        """Load the extension ``name``, which is one of :attr:`names`.

        Raises ``self.error`` if the extension is broken. The message begins with ``where``.
        """
        outcome = self._outcome(name)
        if isinstance(outcome, MadbenchError):
            raise type(outcome)(f"{where}{outcome}" if where else str(outcome))
        return outcome

    def loadable(self) -> Iterator[tuple[str, T]]:
        """Yield the name and the object of each extension that can be loaded.

        Each is imported only when it is reached.
        """
        for name in self.names:
            if not isinstance(outcome := self._outcome(name), MadbenchError):
                yield name, outcome

    def problem(self, name: str) -> str:
        """The reason why an extension cannot be used. Empty if it can be used, and for an unknown name.

        The extension is imported.
        """
        if name not in self.names:
            return self.refused.get(name, "")
        return str(outcome) if isinstance(outcome := self._outcome(name), MadbenchError) else ""

    def broken(self) -> dict[str, str]:
        """The extensions that are refused or cannot be loaded: name to reason.

        All extensions are imported to find them.
        """
        failed = {name: problem for name in self.names if (problem := self.problem(name))}
        return dict(sorted((failed | self.refused).items()))

    def identity(self, name: str) -> str:
        """The identity of the code of an installed package's extension. It enters the ids of jobs.

        Empty for a built-in extension.
        """
        return "" if name in self.built_in else plugin_identity(self.points[name])

    def code(self, name: str) -> dict[str, Any] | None:
        """The code listing (:mod:`madbench.identity.listing`) of an installed package's extension.

        None for a built-in extension and for an unknown name.
        """
        return None if name in self.built_in or name not in self.points else plugin_code(self.points[name])

    def _value(self, name: str) -> str:
        return self.built_in.get(name) or self.points[name].value

    def _outcome(self, name: str) -> T | MadbenchError:
        """The extension, or the error that loading it raised. Errors are kept too, so that no import is repeated."""
        if name not in self._outcomes:
            try:
                with wrap_load_errors(self.where(name), self.error, (self.error,)):
                    self._outcomes[name] = value = self._load(name, self._value(name))
                    if name not in self.built_in and (fault := _fault_of_texts(value, self._texts)):
                        raise self.error(f"{self.where(name)}: cannot be loaded: {fault}")
            except self.error as error:
                self._outcomes[name] = error
        return self._outcomes[name]

    @functools.cached_property
    def _packages(self) -> tuple[dict[str, EntryPoint], dict[str, str]]:
        points: dict[str, EntryPoint] = {}
        refused: dict[str, str] = {}
        for point in sorted(_entry_points(self.group), key=lambda point: (point.name, point.value)):
            where, other = entry_point_name(self.noun, point.name, point.value), points.get(point.name)
            built_in_value = self.built_in.get(point.name, point.value)
            if problem := self.fault_of_name(point.name):
                refused[point.name] = f"{where}: {problem}"
            elif built_in_value != point.value:
                refused[point.name] = f"{where}: {built_in_value} has this name already; the package has to be mended"
            elif other and other.value != point.value:
                refused[point.name] = f"{where}: {other.value} has this name already; uninstall one of the packages"
            else:
                points[point.name] = point
        return {name: point for name, point in points.items() if name not in refused}, refused


def entry_point_name(noun: str, name: str, value: str) -> str:
    """The words for an entry point in messages, such as ``family 'lin' (madbench_linear:FAMILY)``."""
    return f"{noun} {name!r:.100} ({value})"


def resolve(value: str) -> Any:
    """Import and return the object that the value of an entry point names, such as ``madbench_linear:FAMILY``."""
    return pkgutil.resolve_name(value.partition("[")[0].strip())  # older entry points have extras in brackets


def load_value(
    noun: str, name: str, value: str, kind: type[MadbenchError], expected: str, fault_of: Callable[[Any], str]
) -> Any:
    """Import and return the object of an entry point. Raises an error of class ``kind`` if it cannot be used.

    Args:
        noun: the kind of extension in messages, such as ``family``.
        name: the name of the entry point. If the object has an attribute ``name``, both must be equal.
        value: the value of the entry point, such as ``madbench_linear:FAMILY``.
        kind: the class of errors.
        expected: the words for the expected kind of object in messages.
        fault_of: returns the reason why the object cannot be used. Empty if it can be used.
    """
    with wrap_load_errors(entry_point_name(noun, name, value), kind):
        loaded_object = resolve(value)
        if fault := fault_of(loaded_object):
            raise kind(f"expected a {expected}, got {repr(loaded_object)[:100]}: {fault}")
        if (name_in_code := getattr(loaded_object, "name", name)) != name:
            raise kind(f"it calls itself {short_repr(name_in_code)}; both names must be the same")
    return loaded_object


def fault_of_class(value: Any, base: type) -> str:
    """The fault of an entry point that names a class, ``base`` or a subclass of it, in place of an instance.

    The text advises to name an instance. Empty if ``value`` is no such class.
    """
    if not (isinstance(value, type) and issubclass(value, base)):
        return ""
    name = value.__name__[:60]
    return f"it is a class; name an instance in the entry point, made by {name.upper()} = {name}()"


def member_of(value: Any, name: str, *default: Any) -> Any:
    """The member ``name`` of an extension's object, or ``default`` if it has no such member.

    Raises ``ConfigError`` if the member's code fails, or if it is missing and no default is given. The message names
    the member.
    """
    with wrap_errors(f"its {name!r} cannot be read", ConfigError):
        return getattr(value, name, *default)


def _fault_of_texts(value: Any, names: Iterable[str]) -> str:
    """The reason why a member of an extension is not valid, as a sentence. Empty if all members are valid.

    Each of the members ``names`` must be a printable text of one line, if it exists.
    """
    for name in names:
        text = member_of(value, name, "absent")
        if not isinstance(text, str) or not text.strip() or not text.isprintable():
            return f"its {name!r} must be a text of one line that is not empty, got {text!r:.100}"
    return ""


@contextmanager
def wrap_load_errors(
    where: str, kind: type[MadbenchError], own: tuple[type[MadbenchError], ...] = ()
) -> Iterator[None]:
    """A context for loading a package: :func:`wrap_errors` with a message that says that loading failed.

    The message is ``WHERE: cannot be loaded: REASON``. Errors of the classes ``own`` and ``KeyboardInterrupt`` pass
    unchanged.
    """
    with wrap_errors(f"{where}: cannot be loaded", kind, own):
        yield


@contextmanager
def wrap_errors(where: str, kind: type[MadbenchError], own: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """A context in which any exception that a package's code raises becomes a one-line error of class ``kind``.

    The message is ``WHERE: REASON``. Errors of the classes ``own`` and ``KeyboardInterrupt`` pass unchanged.
    """
    own_and_interrupts: tuple[type[BaseException], ...] = (KeyboardInterrupt, *own)
    try:
        yield
    except own_and_interrupts:
        raise
    except BaseException as error:  # importing a package may raise anything, even SystemExit
        words = " ".join(str(error).split())
        printable = "".join(
            letter if letter.isprintable() else "?" for letter in words
        )  # no control codes for a terminal
        reason = (
            printable
            if isinstance(error, MadbenchError)
            else ": ".join(filter(None, (type(error).__name__, printable)))
        )
        if len(reason) > LONGEST_REASON:
            reason = f"{reason[: LONGEST_REASON - 3]}..."
        raise kind(f"{where}: {reason}") from error


def _values_of_shipped_packages(group: str) -> dict[str, str]:
    """The entry points of a group in shipped packages: name to value. No package is imported.

    A shipped package is a folder of ``madbench/papers/`` with a file ``entry_points.txt``, in the format that installed
    packages have. Its code is part of madbench. So a family in it enters the ids of jobs by its declared version only,
    and not by a hash of its code.
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


@functools.cache
def installed_folders(group: str) -> tuple[Path, ...]:
    """The folders of the modules that installed packages name in entry points of ``group``, sorted.

    Nothing is imported. Entry points of refused extensions are included.
    """
    folders = {folder_of(point) for point in _entry_points(group)}
    return tuple(sorted(folder for folder in folders if folder is not None))


def folder_of(point: EntryPoint) -> Path | None:
    """The folder of the module that an entry point names. None if it cannot be found without an import."""
    first, *rest = point.value.partition("[")[0].partition(":")[0].strip().split(".")
    try:
        spec = importlib.util.find_spec(first)
    except (ImportError, ValueError):
        return None
    for location in (spec and spec.submodule_search_locations) or ():
        path = Path(location, *rest)
        if path.is_dir():
            return path
        if rest and path.with_suffix(".py").is_file():
            return path.parent
    return Path(spec.origin).parent if spec and spec.origin and not rest else None


def _entry_points(group: str) -> list[EntryPoint]:
    """The entry points of a group in all installed packages. A package with damaged metadata is skipped."""
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
