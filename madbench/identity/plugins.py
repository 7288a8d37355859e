"""The code of plugins: families, tasks and suites that installed packages offer by entry points."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.identity.listing import data_digest, identity_of
from madbench.identity.reach import CodeSearch, import_root
from madbench.identity.watch import own

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_NO_DATA = (".py", ".pyc", ".pyi", ".md", ".rst")


@functools.cache
def plugin_code(point: EntryPoint) -> dict[str, Any]:
    """The code listing (:mod:`madbench.identity.listing`) of the code behind an entry point, with its data files.

    The listing has the definitions that the entry point's object uses, directly or through others, in the plugin's own
    package and in modules outside of libraries. If this code loads modules by names that are made at run time, the
    whole package is listed. No model is built or run, so it is unknown which data files the plugin reads. Therefore all
    files of the package that are neither code nor documentation are listed as data. The plugin is imported.
    """
    origin, package = _package(point)
    root = import_root(origin, point.module.partition(".")[0] if package else point.module)
    reach = CodeSearch(root, own(package or origin))
    module, attribute = point.module, point.value.partition(":")[2].partition("[")[0].strip().partition(".")[0]
    importlib.import_module(module)
    reach.start(module, attribute)
    files = sorted(path for path in package.rglob("*") if _counts(path, package)) if package else []
    if package and reach.is_dynamic:
        for path in files:
            if path.suffix == ".py":
                reach.whole_file(path, package)
    data = {reach.location(str(path)): data_digest(path) for path in files if path.suffix not in _NO_DATA}
    listing = reach.listing()
    return listing | {"data": listing["data"] | data}


@functools.cache
def plugin_identity(point: EntryPoint) -> str:
    """The identity of a plugin, ``VERSION+IDENTITY``: the version of its distribution, and the identity of its code."""
    return f"{point.dist.version if point.dist else 'unknown'}+{identity_of(plugin_code(point))}"


def _package(point: EntryPoint) -> tuple[Path, Path | None]:
    """The file of the outermost package that has the module of an entry point, and the folder of this package.

    For a module outside of any package: the file of the module, and None.
    """
    parts = point.module.split(".")
    modules = (importlib.util.find_spec(".".join(parts[: i + 1])) for i in range(len(parts)))
    places = ((spec.origin, spec.submodule_search_locations) for spec in modules if spec)
    file, is_package = next(
        (file, is_package) for file, is_package in places if file
    )  # a namespace package has no file
    origin = Path(file).resolve()
    return origin, origin.parent if is_package else None


def _counts(path: Path, package: Path) -> bool:
    hidden = any(part == "__pycache__" or part.startswith(".") for part in path.relative_to(package).parts)
    return path.is_file() and not hidden
