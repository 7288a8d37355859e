"""A Python file as text: its statements, the names that they bind and use, and digests of them."""

from __future__ import annotations

import ast
import copy
import functools
import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NORMAL = 1
"""The version of :func:`normal_text`, which is part of every digest."""
MOST_BYTES = 16 * 2**20
"""The most bytes of a Python file that is read."""
WHOLE = "*"
"""The value that stands for all names of a file, in place of a collection of names."""
Chain = tuple[str, ...]
"""A name and the attributes after it: ``helper.scale`` is ``("helper", "scale")``."""

_IGNORED = {"ctx", "kind", "type_comment", "type_ignores"}
_READS_DOCS = ("__doc__", "getdoc")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def normal_text(value: object, keeps_docs: bool = False) -> str:
    """A syntax tree as one line of text that is equal in all versions of Python. ``ast.dump`` differs between versions.

    Docstrings are left out, unless ``keeps_docs`` is True. ``value`` is a node, or a list or constant in a node.
    """
    if isinstance(value, ast.AST):
        fields = []
        for name, item in ast.iter_fields(value):
            if isinstance(item, list):
                if isinstance(value, ast.JoinedStr):
                    item = _joined(item)
                elif not keeps_docs and name == "body":
                    item = [child for child in item if not _is_text(child)]
            if name not in _IGNORED and item is not None and item != []:
                fields.append(f"{name}={normal_text(item, keeps_docs)}")
        return f"{type(value).__name__}({','.join(fields)})"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(normal_text(item, keeps_docs) for item in value)}]"
    if type(value) is int:
        return f"{value:x}"  # Python refuses thousands of digits in decimal
    return ascii(value)  # not repr, which depends on the version's table of printable characters


def _without_docs(node: ast.stmt, keeps_docs: bool) -> ast.stmt:
    """A copy of a statement without the docstrings and other bare strings inside it, unless ``keeps_docs`` is True."""
    copied = copy.deepcopy(node)
    for each in ast.walk(copied):
        body = getattr(each, "body", None)
        if isinstance(body, list) and not keeps_docs:
            body[:] = [child for child in body if not _is_text(child)] or [ast.Pass()]
    return copied


def _is_text(node: object) -> bool:
    """True if a statement is only a string, such as a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _joined(parts: list[ast.expr]) -> list[ast.expr]:
    """Join adjacent constant parts of an f-string, which versions of Python split differently."""
    joined: list[ast.expr] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            joined[-1] = ast.Constant(f"{last.value!s}{part.value!s}")
        else:
            joined.append(part)
    return joined


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a file. An import of several names counts as one statement per name.

    To bind a name is to define, assign or import it.
    """

    node: ast.stmt
    names: frozenset[str]
    """Names that the statement binds."""
    is_effect: bool
    """True if the statement does more at import than bind names, such as ``torch.manual_seed(0)``."""

    @functools.cached_property
    def chains(self) -> list[Chain]:
        """The names that the statement uses, each with the attributes after it, without duplicates."""
        return list(dict.fromkeys(_chains(self.node)))

    @functools.cached_property
    def imports(self) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
        """The import statements in the statement.

        Each comes with True if it is inside a function, otherwise with False.
        """
        return list(imports_in(self.node))

    @functools.cached_property
    def calls_at_import(self) -> bool:
        """True if the statement calls a function when the file is imported. Such a call could open a file."""
        return any(isinstance(node, (ast.Call, ast.With)) for node in _run_at_import(self.node))


class SourceText:
    """A Python file that is parsed but never imported.

    ``folder`` is the folder of the file, and ``root`` the folder from which its package is imported. If the file cannot
    be parsed, it has no statements, and ``problem`` is the name of the error. Otherwise ``problem`` is empty.
    """

    def __init__(self, content: bytes, folder: Path, root: Path):
        self.content = content
        try:
            tree = ast.parse(content)
            self.keeps_docs = any(word.encode() in content for word in _READS_DOCS)
            self.statements = list(_statements(tree.body, (folder, root)))
            self.problem = ""
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.statements, self.problem = [], type(error).__name__
        self._digests: dict[Collection[str], str] = {}
        self.names = {name for statement in self.statements for name in statement.names}

    def statements_of(self, names: Collection[str]) -> list[Statement]:
        """The statements that bind one of ``names``, and all statements that do more than bind names.

        To bind a name is to define, assign or import it. If ``names`` is ``"*"``: all statements.
        """
        if names == WHOLE:
            return self.statements
        return [each for each in self.statements if each.is_effect or not each.names.isdisjoint(names)]

    def statement_at(self, line: int) -> Statement | None:
        """The top-level statement that contains the line ``line``, counted from 1. None if there is none."""
        for each in self.statements:
            if _first_line(each.node) <= line <= (each.node.end_lineno or 0):
                return each
        return None

    def digest(self, names: Collection[str]) -> str:
        """A digest, in 32 hexadecimal digits, of the statements that :meth:`statements_of` returns for ``names``.

        If the file cannot be parsed, it is the digest of its bytes.
        """
        key = names if names == WHOLE else frozenset(names)
        if key not in self._digests:
            self._digests[key] = self._digest(key)
        return self._digests[key]

    def code(self, names: Collection[str]) -> bytes | None:
        """The source of the statements that :meth:`statements_of` returns for ``names``, without comments.

        None if there are no statements, or if they are nested too deep. Files with equal :meth:`digest` have equal
        code.
        """
        try:
            nodes = [_without_docs(each.node, self.keeps_docs) for each in self.statements_of(names)]
            code = "\n\n".join(ast.unparse(node) for node in nodes)
        except RecursionError:
            return None
        return f"# code that trained the run; the rest of the file is left out\n{code}\n".encode() if code else None

    def _digest(self, names: Collection[str]) -> str:
        try:
            texts = [normal_text(each.node, self.keeps_docs) for each in self.statements_of(names)]
        except RecursionError:
            return short_digest(self.content)
        return short_digest(self.content if self.problem else "\n".join([f"normal {NORMAL}", *texts]).encode())


def short_digest(content: bytes) -> str:
    """The first 32 hexadecimal digits of the SHA-256 of ``content``."""
    return hashlib.sha256(content).hexdigest()[:32]


def source_text(path: Path, root: Path, most_bytes: int = MOST_BYTES) -> SourceText | None:
    """Parse the Python file at ``path``, whose package is imported from the folder ``root``.

    The result is cached until the file changes.

    None if there is no such regular file, or if it has more than ``most_bytes`` bytes.
    """
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(state.st_mode) or state.st_size > most_bytes:
        return None
    return _read(path, root, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=2000)
def _read(path: Path, root: Path, modified: int, size: int) -> SourceText | None:
    try:
        return SourceText(path.read_bytes(), path.parent, root)
    except OSError:
        return None


def _statements(body: Iterable[ast.stmt], folders: tuple[Path, ...]) -> Iterator[Statement]:
    nodes = [node for node in body if not _is_text(node) and not _is_main_guard(node)]
    bound_here = {name for node in nodes if not isinstance(node, (ast.Import, ast.ImportFrom)) for name in _bound(node)}
    local_names = bound_here | {name for node in nodes for name in _local_imports(node, folders)}
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                single: ast.Import | ast.ImportFrom = ast.Import([alias])
                if isinstance(node, ast.ImportFrom):
                    single = ast.ImportFrom(node.module, [alias], node.level)
                yield Statement(ast.copy_location(single, node), frozenset(_bound(single)), False)
        else:
            yield Statement(node, frozenset(_bound(node)), _has_effect(node, local_names))


def _has_effect(node: ast.stmt, local_names: set[str]) -> bool:
    """True if a statement does more than bind names, such as a call or an assignment to an attribute.

    ``local_names`` are the names that users' code defines. A definition with a decorator among these names also counts,
    because the decorator may register the definition in a table, where code finds it without its name.
    """
    if isinstance(node, _DEFINITION):
        return any(chain[0] in local_names for decorator in node.decorator_list for chain in _chains(decorator))
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stores = [each for target in targets for each in ast.walk(target)]
        return any(isinstance(each, (ast.Attribute, ast.Subscript)) for each in stores)
    if is_for_types(node):
        return False
    return any(_has_effect(child, local_names) for child in _blocks(node) if not _is_text(child))


def _is_main_guard(node: ast.stmt) -> bool:
    """True if a statement is ``if __name__ == "__main__":``, whose block does not run when the file is imported."""
    return isinstance(node, ast.If) and not node.orelse and ast.unparse(node.test) == "__name__ == '__main__'"


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _blocks(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly inside a compound statement: those of all its blocks, such as ``if`` and ``else``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
            else:
                yield from _blocks(child)


def _bound(node: ast.AST) -> Iterator[str]:
    """The global names that a statement binds, including names that a function in it declares ``global``."""
    if isinstance(node, _DEFINITION):
        yield node.name
    if isinstance(node, (_FUNCTION, ast.ClassDef)):
        for child in ast.walk(node):
            yield from child.names if isinstance(child, ast.Global) else ()
        return
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
        yield node.id
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def _chains(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[Chain]:
    """The names that a node uses, each with the attributes after it. Local names of functions are left out.

    ``local`` are the local names of the functions that contain the node.
    """
    inner, attributes = node, []
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        if inner.id not in local:
            yield (inner.id, *reversed(attributes))
        return
    if isinstance(node, _FUNCTION):
        inside = local | _locals(node)
        body = node.body if isinstance(node.body, list) else [node.body]
        for child in ast.iter_child_nodes(node):
            yield from _chains(child, inside if child in body else local)
        return
    for child in ast.iter_child_nodes(node):
        yield from _chains(child, local)


def _locals(function: ast.AST) -> frozenset[str]:
    """The local names of a function: its arguments, and the names that it assigns or defines.

    Names that it imports are left out, and so are names that it declares ``global``.
    """
    names, shared = set(), set()
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, _DEFINITION):
            names.add(node.name)
        elif isinstance(node, ast.Global):
            shared |= {*node.names}
        if not isinstance(node, (*_FUNCTION, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return frozenset(names - shared)


def imports_in(node: ast.AST, in_function: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The import statements in a node, except those under ``if TYPE_CHECKING:``.

    Each comes with True if it is inside a function, otherwise with False. ``in_function`` is True if the node itself is
    inside a function.
    """
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node, in_function
    if not is_for_types(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):  # expressions contain no statements
                yield from imports_in(child, in_function or isinstance(node, _FUNCTION))


def _local_imports(node: ast.AST, folders: tuple[Path, ...]) -> Iterator[str]:
    """The names that imports in a node bind, if they import from users' code.

    Such an import is relative, or its first package is a file or a folder in one of ``folders``.
    """
    for each, _ in imports_in(node):
        for alias in each.names:
            module = (each.module or "") if isinstance(each, ast.ImportFrom) else alias.name
            top = module.partition(".")[0]
            is_relative = isinstance(each, ast.ImportFrom) and each.level > 0
            if is_relative or any((folder / f"{top}.py").is_file() or (folder / top).is_dir() for folder in folders):
                yield alias.asname or alias.name.partition(".")[0]


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes in ``node`` that run when the file is imported: all except the bodies of functions."""
    yield node
    body = node.body if isinstance(node, _FUNCTION) else []
    bodies: list[ast.AST] = [*body] if isinstance(body, list) else [body]
    for child in ast.iter_child_nodes(node):
        if child not in bodies:
            yield from _run_at_import(child)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])
