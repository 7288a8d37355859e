"""A search for the code that a user's class or function uses, by name and in all files outside of libraries.

Definitions and statements that the search finds are called reached. The names in a reached definition lead to other
definitions and statements of its file, and through imports to other files. In every imported file, statements that do
more than bind names are reached, such as ``torch.manual_seed(0)``. A whole file is reached if its code makes names at
run time (``globals()``, ``getattr(module, name)``, ``importlib``, ``import *``), or if it was loaded by such a name.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from madbench.identity import watch
from madbench.identity.listing import data_digest
from madbench.identity.text import WHOLE, Chain, SourceText, Statement, short_digest

_DYNAMIC = {"globals", "locals", "vars", "eval", "exec", "__import__", "import_module"}
_DYNAMIC_MODULES = {"importlib", "pkgutil", "inspect", "runpy", "imp"}
_SUBCLASSES = {"__init_subclass__", "__subclasses__", "__subclasshook__"}
_PLAIN_METACLASSES = {"ABCMeta", "type", "EnumMeta"}
_MOST_UP = 2  # most folders that a relative place goes up from the root; other places are absolute


class ReachedFile:
    """A file of users' code, and the names in it that the search for used code has found."""

    def __init__(self, file: str, name: str, text: SourceText):
        self.file, self.name, self.text = file, name, text
        self.names: set[str] = set()
        self.is_whole = False

    @property
    def statements(self) -> list[Statement]:
        """The used statements of the file.

        They are those that define, assign or import a name that was found, and those that do more than bind names.
        """
        return self.text.statements_of(WHOLE if self.is_whole else self.names)

    @property
    def package(self) -> str:
        """The full name of the package from which relative imports in the file start."""
        return self.name if Path(self.file).name == "__init__.py" else self.name.rpartition(".")[0]


class CodeSearch:
    """The search for the code that a label, a task or a suite uses, and its result.

    ``root`` is the folder from which this code is imported. ``own`` are library files that count as users' code here. A
    file or a statement is called reached once the search has found that it is used.
    """

    def __init__(self, root: Path, own: watch.Own = watch.NO_LIBRARY):
        self.root, self.own = root, own
        self.files: dict[str, ReachedFile] = {}
        self.data: dict[str, None] = {}
        self.is_dynamic = False  # True if a module loads modules or takes names made at run time
        self.is_registry = False  # True if a class may enumerate its subclasses, which then need no name
        self._waiting: list[tuple[ReachedFile, Statement]] = []
        self._done: set[tuple[str, int]] = set()
        self._followed: set[tuple[str, str, Chain]] = set()

    def start(self, module: str, name: str) -> None:
        """Search for the code that ``name``, a definition in ``module``, uses.

        If no statement of the module binds the name, the whole module is marked as used.
        """
        if reached := self._module(module):
            if name in reached.text.names:
                self._name(reached, (name,))
            else:
                self._whole(reached)
            self._work()

    def whole_file(self, path: Path, package: Path) -> None:
        """Mark all statements of a file as used, and search for the code that they use.

        ``path`` is the file, and ``package`` the folder of its package.
        """
        parts = path.relative_to(package.parent).with_suffix("").parts
        if reached := self._file(str(path), ".".join(parts[:-1] if parts[-1] == "__init__" else parts)):
            self._whole(reached)
            self._work()

    def hear(self, events: Iterable[watch.FileEvent], during: str) -> bool:
        """Add the files that used code opened or ran, and search for the code that these files use.

        ``events`` are the files that any users' code opened or ran. An event counts if it happened while used code was
        imported, or during the watched action with the name ``during``.

        Return True if events may be missing. This is so if a module was imported before files were watched. It is also
        so if the same code opened a file during another action, because it may then not open it again during this one.
        """
        events = list(dict.fromkeys(events))
        before = -1
        while before != (before := self._count()):
            for event in events:
                owner = self.files.get(event.owner)
                if owner and (self._runs_at_import(owner, event) if event.line else event.during == during):
                    self._take(event)
            self._work()
        others = [each for each in events if each.owner in self.files and not each.line and each.during != during]
        is_unheard = any(each.opens or each.path not in self.files for each in others)
        return is_unheard or any(map(self._may_have_opened, self.files.values()))

    def listing(self) -> dict[str, Any]:
        """The code that the search found, as a code listing (:mod:`madbench.identity.listing`)."""
        files, data, content = {}, {}, {}
        for each in self.files.values():
            names = WHOLE if each.is_whole else sorted(each.names)
            if each.statements or each.text.problem:
                files[self.location(each.file)] = [each.text.digest(names), names]
                content[self.location(each.file)] = short_digest(each.text.content)
        for path in self.data:
            if digest := data_digest(Path(path)):
                data[self.location(path)] = digest
        first = dict(list(files.items())[:1])  # the root is found from the first file
        listed = first | dict(sorted(files.items()))
        return {"files": listed, "data": dict(sorted(data.items())), "content": dict(sorted(content.items()))}

    def location(self, file: str) -> str:
        """The path of a file relative to ``root``. The absolute path if it is more than two folders above ``root``."""
        location = os.path.relpath(file, self.root)
        return file if location.startswith(f"..{os.sep}" * (_MOST_UP + 1)) else Path(location).as_posix()

    def _count(self) -> int:
        return len(self.data) + len(self._done) + len(self.files)

    @staticmethod
    def _runs_at_import(owner: ReachedFile, event: watch.FileEvent) -> bool:
        statement = owner.text.statement_at(event.line)
        if statement is None or isinstance(statement.node, (ast.Import, ast.ImportFrom)):
            return not event.opens
        return any(statement is each for each in owner.statements)

    def _take(self, event: watch.FileEvent) -> None:
        if event.opens and not event.path.endswith(".py"):
            self.data[event.path] = None
        elif event.path not in self.files:
            names = (name for name in list(sys.modules) if _file_of_module(name) == event.path)
            if reached := self._file(event.path, next(names, Path(event.path).stem)):
                self._whole(reached)

    @staticmethod
    def _may_have_opened(reached: ReachedFile) -> bool:
        is_here = _file_of_module(reached.name) == reached.file
        return is_here and reached.file not in watch.watched and any(s.calls_at_import for s in reached.statements)

    def _work(self) -> None:
        while self._waiting:
            self._statement(*self._waiting.pop())
            if self.is_registry:
                for reached in list(self.files.values()):
                    self._whole(reached)

    def _add(self, reached: ReachedFile, statement: Statement) -> None:
        if (reached.file, id(statement)) not in self._done:
            self._done.add((reached.file, id(statement)))
            self._waiting.append((reached, statement))

    def _module(self, name: str, is_lazy: bool = False) -> ReachedFile | None:
        """Add the file of a module, and those of its parent packages, to the used files. Return the module's file.

        ``is_lazy`` is True for an import inside a function, whose module may not be loaded yet. Otherwise only loaded
        modules are found. None if the module is not found or belongs to a library.
        """
        parts = name.split(".")
        for end in range(1, len(parts)):
            parent = ".".join(parts[:end])
            if file := self._file_of(parent, is_lazy):
                self._file(file, parent)
        file = self._file_of(name, is_lazy)
        return self._file(file, name) if file else None

    def _file_of(self, name: str, is_lazy: bool) -> str:
        """The file of a module of users' code, given by its full name.

        Empty for a library, and for a module that is not loaded. With ``is_lazy``, for an import inside a function, the
        module need not be loaded yet: the file is the one that an import would load.
        """
        if name in sys.modules or not is_lazy:
            file = _file_of_module(name)
        else:
            file = _importable_file(name)
        return file if file and watch.is_outside(file, self.own) else ""

    def _file(self, file: str, name: str) -> ReachedFile | None:
        if file not in self.files:
            content = watch.executed.get(file)
            try:
                content = Path(file).read_bytes() if content is None else content
            except OSError:
                return None
            reached = self.files[file] = ReachedFile(file, name, SourceText(content, Path(file).parent, self.root))
            if reached.text.problem:
                reached.is_whole = True
            for statement in reached.text.statements:
                for node, in_function in statement.imports:
                    if not in_function:
                        self._imported(reached, node)
                if statement.is_effect:
                    self._add(reached, statement)
        return self.files[file]

    def _imported(self, reached: ReachedFile, node: ast.Import | ast.ImportFrom) -> None:
        """Add the modules that an import statement of ``reached`` runs to the used files."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._module(alias.name)
            return
        module = _absolute(reached, node)
        target = self._module(module)
        for alias in node.names:
            if alias.name == "*":
                if target:
                    self._whole(reached)
                    self._whole(target)
            elif target is None or alias.name not in target.text.names:
                self._module(f"{module}.{alias.name}")

    def _whole(self, reached: ReachedFile) -> None:
        if not reached.is_whole:
            reached.is_whole = True
            for statement in reached.text.statements:
                self._add(reached, statement)

    def _name(self, reached: ReachedFile, chain: Chain) -> None:
        """Mark the statements of ``reached`` that bind the first name of ``chain`` as used.

        If such a statement is an import, mark the imported definition in its file, too. The other names of ``chain``
        are attributes: ``("helper", "scale")`` stands for ``helper.scale``.
        """
        key = (reached.file, "", chain)
        if key in self._followed:
            return
        self._followed.add(key)
        reached.names.add(chain[0])
        for statement in reached.text.statements:
            if chain[0] in statement.names:
                self._add(reached, statement)
                for node, in_function in statement.imports:
                    if not in_function:
                        self._through_import(reached, node, chain, is_lazy=False)

    def _statement(self, reached: ReachedFile, statement: Statement) -> None:
        """Mark the definitions of all names that ``statement``, a used statement of ``reached``, uses.

        If the statement makes names at run time, such as by ``globals()``, its whole file is marked.
        """
        lazy = [node for node, in_function in statement.imports if in_function]
        local = {alias.asname or alias.name.partition(".")[0] for node in lazy for alias in node.names}
        for chain in statement.chains:
            if chain[0] in _DYNAMIC or chain[:2] == ("sys", "modules") or chain[-1] in _SUBCLASSES:
                self.is_registry |= chain[-1] in _SUBCLASSES
                self.is_dynamic = True
                self._whole(reached)
            if chain[0] in local:
                for node in lazy:
                    self._through_import(reached, node, chain, is_lazy=True)
            if chain[0] in reached.text.names:
                self._name(reached, chain)
        for node, _ in statement.imports:
            if isinstance(node, ast.Import):
                tops = {alias.name.partition(".")[0] for alias in node.names}
            else:
                tops = set() if node.level else {(node.module or "").partition(".")[0]}
            if tops & _DYNAMIC_MODULES:
                self.is_dynamic = True
                self._whole(reached)
        for part in ast.walk(statement.node):
            if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)) and part.name in _SUBCLASSES:
                self.is_registry = True
            if isinstance(part, ast.keyword) and part.arg == "metaclass":
                self.is_registry |= ast.unparse(part.value).rpartition(".")[2] not in _PLAIN_METACLASSES

    def _through_import(
        self, reached: ReachedFile, node: ast.Import | ast.ImportFrom, chain: Chain, is_lazy: bool
    ) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                if alias.asname == chain[0]:
                    self._follow(alias.name, chain[1:], is_lazy)
                elif alias.asname is None and alias.name.partition(".")[0] == chain[0]:
                    self._module(alias.name, is_lazy)
                    self._follow(chain[0], chain[1:], is_lazy)
            elif alias.name == "*" or (alias.asname or alias.name) == chain[0]:
                self._follow(_absolute(reached, node), (alias.name, *chain[1:]), is_lazy)

    def _follow(self, module: str, chain: Chain, is_lazy: bool) -> None:
        """Mark a definition as used that is given by the full name of a module and the names after it, ``chain``.

        The first names of ``chain`` may be submodules, the others are attributes. If ``chain`` is empty, the whole
        module is marked. ``is_lazy`` is True for an import inside a function, whose module may not be loaded yet.
        """
        key = ("", module, chain)
        if key in self._followed:
            return
        self._followed.add(key)
        reached = self._module(module, is_lazy)
        below = f"{module}.{chain[0]}" if chain else ""
        if reached and chain and chain[0] in reached.text.names:
            self._name(reached, chain)
        elif below and (self._file_of(below, is_lazy) or (reached is None and _is_namespace(below))):
            self._follow(below, chain[1:], is_lazy)
        elif reached and not (chain and chain[0].startswith("__") and chain[0].endswith("__")):
            self._whole(reached)


def import_root(file: Path, module: str) -> Path:
    """The folder from which a module is imported. ``file`` is its file, and ``module`` its full name."""
    ups = module.count(".") + (file.name == "__init__.py")
    return file.parents[ups]


def _absolute(reached: ReachedFile, node: ast.ImportFrom) -> str:
    """The full name of the module in the statement ``from ... import`` of a file. The statement may be relative."""
    if not node.level:
        return node.module or ""
    parts = reached.package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join(filter(None, (*parts, node.module)))


def _file_of_module(name: str) -> str:
    module = sys.modules.get(name)
    file = getattr(getattr(module, "__spec__", None), "origin", None) or getattr(module, "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) and file.endswith(".py") else ""


def _importable_file(name: str) -> str:
    """The ``.py`` file that an import of the full name ``name`` would load, found without importing.

    Empty if there is none.
    """
    parts, path, spec = name.split("."), None, None
    for end in range(1, len(parts) + 1):
        try:
            spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:end]), path)
        except Exception:
            return ""
        if spec is None:
            return ""
        path = spec.submodule_search_locations
    origin = spec.origin if spec else None
    return os.path.realpath(origin) if origin and origin.endswith(".py") else ""


def _is_namespace(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and hasattr(module, "__path__") and not getattr(module, "__file__", None)
