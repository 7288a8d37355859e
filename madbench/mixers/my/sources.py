"""Search and import of the classes and functions that labels ``my:...`` name.

An entry gives a name to the dotted path of a class or function that makes a module. It is a line of ``mixers.yaml``, or
an entry point of an installed package.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from madbench.config import read_yaml, short_repr
from madbench.errors import ConfigError, LabelError, MadbenchError, UntrustedCodeError, did_you_mean
from madbench.identity.reach import import_root
from madbench.identity.watch import own, watch_files
from madbench.labels import trust
from madbench.mixers.my.arguments import dotted
from madbench.plugins.registry import Registry, wrap_load_errors

GROUP = "madbench.modules"
FILE = "mixers.yaml"
"""The file with the entries of the working folder, one per line: ``name: my_package:MyMixer``."""
SAMPLE = {"mean": "madbench.mixers.my.sample.GatedMean"}
"""The entry of the built-in sample: name to dotted path. An entry of the same name in ``mixers.yaml`` or a package
takes precedence."""

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_PATH = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"


def entries() -> dict[str, str]:
    """The dotted paths of users' classes and functions that have a name, by name.

    A name comes from a line of ``mixers.yaml`` or an entry point of an installed package. ``mixers.yaml`` takes
    precedence. In a results folder or an unpacked archive it is ignored, because it may come from somebody else. The
    built-in sample is not included. Raises ``ConfigError`` for an invalid file.
    """
    return _entries_of_packages() | _entries_of_file(Path(FILE))


def may_import(path: str) -> bool:
    """True if the code at a dotted path may be imported: its label was allowed, or a trusted entry names the path.

    :mod:`madbench.labels.trust` decides which labels are allowed, and if entries are trusted.
    """
    if trust.is_allowed(f"my:{path}"):
        return True
    if not trust.trusts_entries():
        return False
    of_file, _ = _readable_entries_of_file()  # the verbs that need the file report that it is invalid
    return dotted(path) in (SAMPLE | _entries_of_packages() | of_file).values()


def _entries_of_packages() -> dict[str, str]:
    return {name: _dotted(point.value) for name, point in REGISTRY.points.items()}


def names() -> tuple[str, ...]:
    """The names of all entries for labels ``my:NAME``: of the built-in sample, ``mixers.yaml`` and installed packages.

    Raises ``ConfigError`` for an invalid ``mixers.yaml``.
    """
    return tuple(dict.fromkeys((*SAMPLE, *entries())))


def entry_sources() -> dict[str, tuple[str, str]]:
    """The dotted path and the origin of each entry, by name of the entry.

    The origin is ``mixers.yaml``, or the first part of the path for an installed package and for the built-in sample.
    An invalid ``mixers.yaml`` counts as empty.
    """
    of_file, _ = _readable_entries_of_file()
    of_packages = SAMPLE | _entries_of_packages()
    from_packages = {name: (path, path.partition(".")[0]) for name, path in of_packages.items()}
    return from_packages | {name: (path, FILE) for name, path in of_file.items()}


def broken_modules() -> dict[str, str]:
    """The reasons why entries cannot be used, by name of the entry.

    An entry is a line of ``mixers.yaml``, or an entry point of an installed package. If the whole file ``mixers.yaml``
    cannot be used, because it is invalid, or lies in a results folder or an unpacked archive, its name stands in place
    of the name of an entry.
    """
    failed = dict(REGISTRY.refused)
    of_file, problem = _readable_entries_of_file()
    if problem:
        failed[FILE] = problem
    if Path(FILE).is_file() and trust.is_data_folder(Path.cwd()):
        failed[FILE] = f"{FILE} lies in a results folder or an unpacked archive, from which madbench imports nothing"
    for name, path in (_entries_of_packages() | of_file).items():
        try:
            source(path)
        except MadbenchError as error:
            failed[name] = f"module {short_repr(name)}: {error}"
    return dict(sorted(failed.items()))


def _entries_of_file(path: Path) -> dict[str, str]:
    if not path.is_file() or trust.is_data_folder(path.absolute().parent):
        return {}
    path_by_name = {}
    for name, value in read_yaml(path).items():
        if fault := fault_of_name(name):
            raise ConfigError(f"{path}: {fault}")
        if not isinstance(value, str) or not is_path(_dotted(value)):
            raise ConfigError(
                f"{path}: {name}: expected module:class, such as my_package:MyMixer, got {short_repr(value)}"
            )
        path_by_name[name] = _dotted(value)
    return path_by_name


def _readable_entries_of_file() -> tuple[dict[str, str], str]:
    """The entries of ``mixers.yaml`` in the working folder, and the reason why the file is invalid.

    There are no entries if the file is invalid. The reason is empty if it is valid or does not exist.
    """
    try:
        return _entries_of_file(Path(FILE)), ""
    except ConfigError as error:
        return {}, str(error)


def fault_of_name(name: Any) -> str:
    """The reason why an entry cannot have this name. Empty if the name is valid.

    Entries are lines of ``mixers.yaml`` and entry points of installed packages.
    """
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return ""
    return f"{short_repr(name)} is not a valid name of a module: use letters, digits, - and _, such as my_mixer"


def _load(name: str, value: str) -> Source:
    return source(_dotted(value))


REGISTRY: Registry[Source] = Registry(
    GROUP, "module", fault_of_name=fault_of_name, load=_load, error=LabelError, texts=()
)
"""The entries of installed packages. If ``mixers.yaml`` has an entry of the same name, that entry takes precedence."""


def _dotted(value: str) -> str:
    return value.strip().replace(":", ".")


def is_path(text: str) -> bool:
    """True if the text has the form of a dotted path to a class or function, such as ``my_mixers.MyMixer``."""
    return bool(re.fullmatch(_PATH, text))


def path_of(value: Any) -> str:
    """The dotted path by which other processes can import a class or function.

    Raises ``LabelError`` for objects that they cannot import: an instance, a lambda, and a class or function that is
    defined inside a function, at the prompt or in a notebook.
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
    """The module name by which other processes can import the running script, which defines the class ``name``.

    It is the script's path below the working folder, or else the file's name. Raises ``LabelError`` if there is no
    file, or if its path is not a valid module name.
    """
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return str(spec.name)
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
            f"{name}: the processes that train cannot import {file}, because its path is not a valid module name; "
            "rename it, or move the class to a file such as my_mixers.py"
        )
    return ".".join(parts)


class Source:
    """A user's class or function that makes a module, imported from a dotted path, and the location of its code."""

    def __init__(self, path: str):
        with working_folder_on_path():
            self.own = own(*_package_of(path))
            """The files and folders that count as the user's code because they are the package of the path. Without
            this set, a package that is installed among libraries would not count."""
            with watch_files(f"import of {path}"):
                module, self.make, count = _import(path)
        self.module = module.__name__
        self.name = path.split(".")[count]
        """The part of the path after the Python module: the class or function, or the outermost class that contains
        it."""
        self.file = Path(file).resolve() if (file := getattr(module, "__file__", None)) else None
        self.root = import_root(self.file, ".".join(path.split(".")[:count])) if self.file else Path.cwd()
        """The folder from which Python imports the module."""


def source(path: str) -> Source:
    """Import and return the class or function at a dotted path. Arguments after the path are ignored.

    Raises ``UntrustedCodeError`` for code that may not be imported (:mod:`madbench.labels.trust`). Raises
    ``LabelError`` if the path names no class or function that makes a module, or if its import fails.
    """
    if not may_import(path):
        module, _, name = dotted(path).rpartition(".")
        remedy = f"if it is yours, add the line 'NAME: {module}:{name}' to {FILE} in the working folder"
        raise UntrustedCodeError(f"my:{path}", f"{remedy}, or name the label on the command line")
    return _source(dotted(path))


@functools.cache
def _source(path: str) -> Source:
    return Source(path)


@contextmanager
def working_folder_on_path() -> Iterator[None]:
    """A context in which code can import modules of the working folder.

    The folder is searched last, so that it hides no other module.
    """
    folder = os.getcwd()
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the user's code may have removed the entry
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]


def _package_of(path: str) -> list[Path]:
    """The folders or files that count as the user's code: the top-level package or module of a dotted path.

    For torch and madbench, it is only the file of the module, because records have the versions of both. A namespace
    package may have several folders. Empty if nothing is found.
    """
    parts = path.split(".")
    is_library = parts[0] in ("torch", "madbench")
    try:
        spec = importlib.util.find_spec(".".join(parts[:-1]) if is_library else parts[0])
    except (ImportError, ValueError, AttributeError):
        return []
    if spec is None:
        return []
    if spec.origin is None:  # a folder without __init__.py
        return [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
    origin = Path(spec.origin).resolve()
    return [origin.parent if origin.name == "__init__.py" and not is_library else origin]


def _import(path: str) -> tuple[Any, Callable[..., Any], int]:
    """Import a dotted path.

    Return the Python module, the class or function, and how many parts of the path name the module.

    Raises ``LabelError`` if the path names nothing that makes a torch module, or if the import fails.
    """
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
                problem = f"{'.'.join(parts[:end])} has no attribute {parts[end]!r}"
                raise LabelError(f"{where}: {problem}{did_you_mean(parts[end], _modules_in(value))}")
            value = getattr(value, parts[end])
    if not callable(value):
        raise LabelError(f"{where}: expected a class or a function that makes a module, got {repr(value)[:100]}")
    is_class = isinstance(value, type)
    if is_class and not _is_of_modules(value):
        raise LabelError(f"{where}: expected a subclass of torch.nn.Module, but {value.__name__} is none")
    if not is_class and _is_of_modules(type(value)):
        kind = type(value).__name__
        raise LabelError(
            f"{where}: expected a class or a function that makes a module, got one {kind} that exists already; every "
            f"block of a model needs its own: def {parts[-1]}(d_model): return {kind}(...)"
        )
    return module, value, count


def _modules_in(module: Any) -> list[str]:
    """The names of the subclasses of ``torch.nn.Module`` that a Python module defines. Empty for any other value."""
    values = getattr(module, "__dict__", {}).items()
    classes = [(name, value) for name, value in values if isinstance(value, type) and _is_of_modules(value)]
    return [name for name, value in classes if value.__module__ == getattr(module, "__name__", "")]


def _is_of_modules(cls: type) -> bool:
    """True if a class derives from ``torch.nn.Module``. Names are compared, so that torch is not imported."""
    return any((base.__module__, base.__name__) == ("torch.nn.modules.module", "Module") for base in cls.__mro__)


def _module(name: str) -> Any:
    """Import and return a Python module by name. None if there is no such module.

    The running script is returned without importing it again.
    """
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, made at run time
        return sys.modules[name]
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    main = sys.modules["__main__"]
    if spec.origin and (file := getattr(main, "__file__", None)) and Path(file).resolve() == Path(spec.origin):
        return main
    return importlib.import_module(name)
