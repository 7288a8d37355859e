"""The place of a user's module: its dotted path from a class or an entry, and its import."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import read_yaml
from madbench.errors import ConfigError, LabelError, MadbenchError, UntrustedCodeError
from madbench.identity.reach import import_root
from madbench.identity.watch import own, watching
from madbench.labels import trust
from madbench.labels.plugins import Installed, find_installed, wrap_load_errors

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "madbench.modules"
FILE = "mixers.yaml"
"""Entries of the working folder, ``name: my_package:MyMixer``."""
SAMPLE = {"mean": "madbench.mixers.my.sample.GatedMean"}
"""The entry that is always there, unless another has its name."""

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_PATH = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"


def entries() -> dict[str, str]:
    """The dotted path of every entry, by its name: those of ``mixers.yaml``, then those of installed packages.

    A ``mixers.yaml`` in a results folder or in an unpacked archive is somebody's data and has no entries.

    Raises ``ConfigError`` for a file that is wrong.
    """
    return _entries_of_packages() | _entries_of_file(Path(FILE))


def may_import(path: str) -> bool:
    """True if the code at a dotted path may be imported: its label was allowed, or an entry names it.

    See :mod:`madbench.labels.trust`.
    """
    if trust.is_allowed(f"my:{path}"):
        return True
    if not trust.trusts_entries():
        return False
    try:
        return path in (SAMPLE | entries()).values()
    except ConfigError:  # a wrong mixers.yaml, of which the verbs that need it tell
        return path in (SAMPLE | _entries_of_packages()).values()


def importable(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels that are modules of a user and whose code may be imported."""
    paths = {label: label.removeprefix("my:") for label in labels if label.startswith("my:")}
    return tuple(sorted(label for label, path in paths.items() if may_import(path)))


def _entries_of_packages() -> dict[str, str]:
    return {name: _dotted(point.value) for name, point in installed_modules().items()}


def names() -> tuple[str, ...]:
    """Every name of an entry, the sample's included."""
    return tuple(dict.fromkeys((*SAMPLE, *entries())))


def places() -> dict[str, tuple[str, str]]:
    """By name of an entry its dotted path and where the entry is; none of a file that is wrong."""
    of_packages = _entries_of_packages()
    try:
        of_file = _entries_of_file(Path(FILE))
    except ConfigError:
        of_file = {}
    from_packages = {name: (path, path.partition(".")[0]) for name, path in (SAMPLE | of_packages).items()}
    return from_packages | {name: (path, FILE) for name, path in of_file.items()}


def installed_modules() -> Mapping[str, EntryPoint]:
    """Where the modules of other packages are, by name."""
    return _installed().points


def broken_modules() -> dict[str, str]:
    """Why entries cannot be used, by name; the file ``mixers.yaml`` is one where it cannot be read."""
    failed = dict(_installed().refused)
    try:
        paths = entries()
    except ConfigError as error:
        failed[FILE] = str(error)
        paths = _entries_of_packages()
    if Path(FILE).is_file() and trust.is_data(Path.cwd()):
        failed[FILE] = f"{FILE} lies in a results folder or an unpacked archive, of which madbench imports nothing"
    for name, path in paths.items():
        try:
            source(path)
        except MadbenchError as error:
            failed[name] = f"module {name!r}: {error}"
    return dict(sorted(failed.items()))


def _installed() -> Installed:
    return find_installed(GROUP, "module", {}, fault_of_name)


def _entries_of_file(path: Path) -> dict[str, str]:
    if not path.is_file() or trust.is_data(path.absolute().parent):
        return {}
    path_by_name = {}
    for name, value in read_yaml(path).items():
        if fault := fault_of_name(name):
            raise ConfigError(f"{path}: {fault}")
        if not isinstance(value, str) or not is_path(_dotted(value)):
            raise ConfigError(f"{path}: {name}: expected module:class, such as my_package:MyMixer, got {value!r}")
        path_by_name[name] = _dotted(value)
    return path_by_name


def fault_of_name(name: Any) -> str:
    """What is wrong with the name of an entry; empty for none."""
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return ""
    return f"{name!r} is no name of a module: letters, digits, - and _, such as my_mixer"


def _dotted(value: str) -> str:
    return value.strip().replace(":", ".")


def is_path(text: str) -> bool:
    """Whether a text can be the dotted path of a class or function in a module."""
    return bool(re.fullmatch(_PATH, text))


def path_of(value: Any) -> str:
    """The dotted path by which other processes import a class or function.

    Raises ``LabelError`` for what they cannot import: an instance, a lambda, what is made within a function, or at the
    prompt and in a notebook.
    """
    name = getattr(value, "__qualname__", None)
    is_of_object = inspect.ismethod(value) and not isinstance(value.__self__, type)
    if not isinstance(name, str) or not getattr(value, "__module__", None) or is_of_object:
        raise LabelError(
            f"an object of {type(value).__name__} has no name to import it by; give the class itself, or a function "
            "that returns a new module"
        )
    if "<" in name:
        what = "a lambda" if name.endswith("<lambda>") else f"{name.rpartition('.')[2]!r}, defined inside a function,"
        raise LabelError(
            f"{what} cannot be imported by the processes that train; define a class or a function at the top level of "
            "a file"
        )
    module = value.__module__ if value.__module__ not in ("__main__", "__mp_main__") else _name_of_main(name)
    return f"{module}.{name}"


def _name_of_main(name: str) -> str:
    """The name by which the script that runs can be imported: below the working folder, or from its own."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return spec.name
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise LabelError(
            f"{name} is defined at the prompt or in a notebook, from where the processes that train cannot import it; "
            f"write it to a file (%%writefile my_mixers.py in a notebook) and import it: from my_mixers import {name}"
        )
    place = Path(file).resolve().with_suffix("")
    parts = place.relative_to(Path.cwd()).parts if place.is_relative_to(Path.cwd()) else (place.name,)
    if not all(part.isidentifier() for part in parts):
        raise LabelError(
            f"{name}: the processes that train cannot import {file}, whose path is no name of a module; rename it, or "
            "move the class to a file such as my_mixers.py"
        )
    return ".".join(parts)


class Source:
    """A class or function that makes a user's module, imported."""

    def __init__(self, path: str):
        with working_folder_on_path():
            _count_as_own(path)
            with watching(f"import of {path}"):
                module, self.make, count = _import(path)
        self.module = module.__name__
        self.name = path.split(".")[count]
        """Name in the module that leads to the class or function."""
        self.file = Path(file).resolve() if (file := getattr(module, "__file__", None)) else None
        self.root = import_root(self.file, ".".join(path.split(".")[:count])) if self.file else Path.cwd()
        """Folder from which the module is imported."""


def source(path: str) -> Source:
    """The class or function at a dotted path, imported.

    Raises ``UntrustedCodeError`` for code that may not be imported (:mod:`madbench.labels.trust`), and ``LabelError``
    if there is none.
    """
    if not may_import(path):
        module, _, name = path.rpartition(".")
        remedy = f"if it is yours, add the line 'NAME: {module}:{name}' to {FILE} in the working folder"
        raise UntrustedCodeError(f"my:{path}", f"{remedy}, or name the label on the command line")
    return _source(path)


@functools.cache
def _source(path: str) -> Source:
    return Source(path)


@contextmanager
def working_folder_on_path() -> Iterator[None]:
    """Lets code in the block import modules of the working folder, after all others, so that they hide none."""
    folder = os.getcwd()
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the user's code may have removed it
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def _count_as_own(path: str) -> None:
    """Counts the package of a dotted path as code of the user, though it may be installed among libraries.

    Of torch and madbench, whose versions are in every record, the file of the module alone is.
    """
    parts = path.split(".")
    with suppress(ImportError, ValueError, AttributeError):
        is_library = parts[0] in ("torch", "madbench")
        name = parts[0] if not is_library else ".".join(parts[:-1])
        origin = Path(importlib.util.find_spec(name).origin).resolve()
        own(origin.parent if origin.name == "__init__.py" and not is_library else origin)


def _import(path: str) -> tuple[Any, Callable[..., Any], int]:
    """The module that a dotted path leads through, the class or function at its end, and the parts of the first."""
    folder, where = os.getcwd(), f"my:{path}"
    parts = path.split(".")
    module, count = None, 0
    with wrap_load_errors(where, LabelError, own=(LabelError,)):
        for end in range(1, len(parts)):
            if (imported := _module(".".join(parts[:end]))) is None:
                break
            module, count = imported, end
        if module is None:
            raise LabelError(
                f"{where}: no module {parts[0]!r} in {folder} or on Python's path; run from the folder that has it, or "
                "set PYTHONPATH"
            )
        value = module
        for end in range(count, len(parts)):
            if not hasattr(value, parts[end]):
                raise LabelError(f"{where}: {'.'.join(parts[:end])} has no attribute {parts[end]!r}")
            value = getattr(value, parts[end])
    if not callable(value):
        raise LabelError(f"{where}: expected a class or a function that makes a module, got {repr(value)[:100]}")
    is_class = isinstance(value, type)
    if is_class and not _is_of_modules(value):
        raise LabelError(f"{where}: expected a class of torch.nn.Module, got {value.__name__}, which is none")
    if not is_class and _is_of_modules(type(value)):
        kind = type(value).__name__
        raise LabelError(
            f"{where}: expected a class or a function that makes a module, got one {kind} that is made already; every "
            f"block of a model needs its own: def {parts[-1]}(d_model): return {kind}(...)"
        )
    return module, value, count


def _is_of_modules(cls: type) -> bool:
    """Whether a class is of ``torch.nn.Module``, by its name, so that nothing imports torch."""
    return any((base.__module__, base.__name__) == ("torch.nn.modules.module", "Module") for base in cls.__mro__)


def _module(name: str) -> Any:
    """The module of this name, imported; None where there is none. The script that runs is not imported again."""
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # of one that is made by code, without a spec
        return sys.modules[name]
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    main = sys.modules["__main__"]
    if spec.origin and (file := getattr(main, "__file__", None)) and Path(file).resolve() == Path(spec.origin):
        return main
    return importlib.import_module(name)
