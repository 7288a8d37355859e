"""Where a user's module is: its dotted path from a class or an entry, its import, and the identity of its source."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import read_yaml
from madbench.errors import ConfigError, LabelError, MadbenchError
from madbench.labels.plugins import Installed, find_installed, isolated

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "madbench.modules"
FILE = "mixers.yaml"
"""Entries of the working folder, ``name: my_package:MyMixer``."""
SAMPLE = {"mean": "madbench.mixers.my.sample.GatedMean"}
"""The entry that is always there, unless another has its name."""
WHOLE_BYTES = 4 * 2**20
"""Largest file of a package whose content is part of its identity; of a larger one its size is."""

_NAME = r"[A-Za-z][A-Za-z0-9_-]*"
_PATH = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+"


def entries() -> dict[str, str]:
    """The dotted path of every entry, by its name: those of ``mixers.yaml``, then those of installed packages.

    Raises ``ConfigError`` for a file that is wrong.
    """
    return _entries_of_packages() | _entries_of_file(Path(FILE))


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
    for name, path in paths.items():
        try:
            source(path)
        except MadbenchError as error:
            failed[name] = f"module {name!r}: {error}"
    return dict(sorted(failed.items()))


def _installed() -> Installed:
    return find_installed(GROUP, "module", {}, fault_of_name)


def _entries_of_file(path: Path) -> dict[str, str]:
    if not path.is_file():
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
    """A class or function that makes a user's module, imported, and the files that decide what it computes."""

    def __init__(self, path: str):
        self.path = path
        module, self.make = _import(path)
        self.module = module.__name__
        self.files = _files_of(module)
        self._stamp, self.digest = self._stamped(), _digest(self.files)

    @property
    def identity(self) -> str:
        """Hash of the source. Raises ``LabelError`` where it was edited after this process imported it."""
        if self._stamped() != self._stamp and _digest(self.files) != self.digest:
            raise LabelError(
                f"my:{self.path}: its source was edited after this process imported it; start Python, or the "
                "notebook's kernel, again"
            )
        return self.digest

    def _stamped(self) -> list[tuple[int, int]]:
        return [(stat.st_mtime_ns, stat.st_size) for file in self.files.values() if (stat := _stat(file))]


@functools.cache
def source(path: str) -> Source:
    """The class or function at a dotted path; a ``LabelError`` says why there is none."""
    return Source(path)


def _import(path: str) -> tuple[Any, Callable[..., Any]]:
    """The module that a dotted path leads through, and the class or function at its end."""
    folder, where = os.getcwd(), f"my:{path}"
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)  # as the command line has it not; last, so that it hides nothing
    parts = path.split(".")
    module, count = None, 0
    with isolated(where, LabelError, own=(LabelError,)):
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
        raise LabelError(f"{where}: expected a class or a function that makes a module, got {type(value).__name__}")
    is_class = isinstance(value, type)
    if is_class and not _is_of_modules(value):
        raise LabelError(f"{where}: expected a class of torch.nn.Module, got {value.__name__}, which is none")
    if not is_class and _is_of_modules(type(value)):
        kind = type(value).__name__
        raise LabelError(
            f"{where}: expected a class or a function that makes a module, got one {kind} that is made already; every "
            f"block of a model needs its own: def {parts[-1]}(d_model): return {kind}(...)"
        )
    return module, value


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


def _files_of(module: Any) -> dict[str, Path]:
    """The files of the module's package; of a module without one its file, and those beside it that it imports."""
    name = getattr(getattr(module, "__spec__", None), "name", None) or module.__name__
    top = sys.modules.get(name.partition(".")[0])
    if file := getattr(top, "__file__", None):
        if Path(file).name.startswith("__init__."):
            return _tree(Path(file).resolve().parent)
    file = getattr(module, "__file__", None)
    return _with_imports(Path(file).resolve()) if file else {}


def _tree(folder: Path) -> dict[str, Path]:
    places = ((path.relative_to(folder.parent).as_posix(), path) for path in folder.rglob("*") if path.is_file())
    hidden = ("__pycache__", ".")
    return {place: path for place, path in sorted(places) if not any(p.startswith(hidden) for p in place.split("/"))}


def _with_imports(file: Path) -> dict[str, Path]:
    """A file, and the modules and packages beside it or in the working folder that it imports, and they in turn."""
    files, todo, folders = {file.name: file}, [file], dict.fromkeys((file.parent, Path.cwd()))
    while todo:
        for name in _imported(todo.pop()):
            for folder in folders:
                package, single = folder / name, folder / f"{name}.py"
                new = _tree(package) if (package / "__init__.py").is_file() else {}
                new = new or ({single.name: single} if single.is_file() else {})
                new = {place: path for place, path in new.items() if place not in files}
                files |= new
                todo += [path for path in new.values() if path.suffix == ".py"]
    return dict(sorted(files.items()))


def _imported(file: Path) -> Iterable[str]:
    """The first names of the modules that a file imports."""
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError, OSError):
        return []
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
    return dict.fromkeys(name.partition(".")[0] for name in names)


def _digest(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for place, path in files.items():
        stat = _stat(path)
        size = stat.st_size if stat else -1
        content = path.read_bytes() if 0 <= size <= WHOLE_BYTES else b""
        digest.update(f"{place}\0{size}\0".encode() + content)
    return digest.hexdigest()


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
