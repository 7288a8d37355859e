"""The part of a file of madbench that its digest covers: the code that runs when a model is trained.

Left out are docstrings, annotations that nothing reads and code for type checkers. If a name is imported from a room
that no digest covers, the name counts but the room does not. Everything else counts. In doubt code counts: a
needless mark on a stored run costs one training, but a missing mark lets wrong numbers be shown.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeGuard

from madbench.identity.text import is_for_types

_READ_NO_ANNOTATIONS = {
    "abstractmethod",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",  # reads those of fields, which always count
    "inference_mode",
    "lru_cache",
    "no_grad",
    "override",
    "property",
    "register_fake",
    "setter",
    "staticmethod",
}
"""The last names of decorators that do not read the annotations of functions. Any other decorator may read them, as
``triton.jit`` and ``torch.library.custom_op`` do.
"""
_READERS = {"custom_op", "get_annotations", "get_type_hints", "jit", "register", "script", "triton_op"}
"""The last names of functions that read the annotations of a function that is passed to them."""
_GUARDS = (ast.Try, ast.TryStar, ast.With)
"""Blocks that may catch the error of an import that fails."""


def untyped(tree: ast.Module) -> ast.Module:
    """Remove code that only type checkers read from a file's syntax tree. Return the changed tree.

    These are removed:

    - annotations of functions, and of attributes such as ``self.x``;
    - outside of class bodies, annotations of variables in statements that assign a value;
    - annotations of local variables in statements without a value, if the variable gets one elsewhere in its function;
    - the type in a call of :func:`typing.cast`;
    - blocks under ``if TYPE_CHECKING:``;
    - imported names that only removed code uses, and names from other packages that nothing uses.

    These stay, because they may have an effect at run time:

    - annotations of class fields, for classes such as dataclasses;
    - annotations of functions and classes with a decorator that is not in ``_READ_NO_ANNOTATIONS``;
    - annotations of functions that are passed to one of ``_READERS`` or whose ``__annotations__`` the file uses;
    - imports under ``try`` and ``with``, because whether they fail can decide what runs.
    """
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "typing"]
    casts = frozenset(alias.asname or alias.name for node in imports for alias in node.names if alias.name == "cast")
    named = _names(tree)
    _Untyping(casts, frozenset(_read_names(tree))).visit(tree)  # changes the tree itself, as below
    used = _names(tree)
    used |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    _ImportRemoval(used, named - used).visit(tree)
    return tree


def _names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def without_places(tree: ast.Module, package: str, parts: Collection[str]) -> ast.Module:
    """Remove the modules of ``package`` from imports in a syntax tree, and keep the names. Return the changed tree.

    A digest of the tree then does not change if a name moves to another module. ``from package.a.b import name``
    becomes ``from package import name``, at the start of its block. Imports from the subpackages ``parts`` are kept,
    and so are imports under ``try`` and ``with``.
    """
    guarded = {id(each) for node in ast.walk(tree) if isinstance(node, _GUARDS) for each in ast.walk(node)}
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if id(node) in guarded or not isinstance(block, list):
                continue
            if moved := [each for each in block if _is_elsewhere(each, package, parts)]:
                names = [alias for each in moved for alias in each.names]
                names.sort(key=lambda alias: (alias.name, alias.asname or ""))
                block[:] = [ast.ImportFrom(package, names, 0), *(each for each in block if each not in moved)]
    return tree


def _is_elsewhere(node: ast.stmt, package: str, parts: Collection[str]) -> TypeGuard[ast.ImportFrom]:
    """True if a statement is ``from package.x import ...``, where ``x`` is not one of the subpackages ``parts``."""
    first, _, rest = (node.module or "").partition(".") if isinstance(node, ast.ImportFrom) else ("", "", "")
    return first == package and bool(rest) and rest.partition(".")[0] not in parts


def _last_name(node: ast.AST) -> str:
    """The last part of the name of a decorator, a called function or an argument. Empty if it is not a name.

    For ``torch.library.custom_op("a")`` it is ``custom_op``.
    """
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _read_names(tree: ast.Module) -> Iterator[str]:
    """The names of functions whose annotations some code in the file reads.

    Such code passes the function to one of ``_READERS``, or uses its ``__annotations__``.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last_name(node.func) in _READERS:
            yield from map(_last_name, [*node.args, *(keyword.value for keyword in node.keywords)])
        elif isinstance(node, ast.Attribute) and node.attr == "__annotations__":
            yield _last_name(node.value)


class _Untyping(ast.NodeTransformer):
    """A transformer that removes annotations that nothing reads at run time, and blocks for type checkers.

    ``casts`` are the names under which the file imports :func:`typing.cast`. ``read`` are the names of functions and
    classes whose annotations are kept, because some code reads them.
    """

    def __init__(self, casts: Collection[str], read: Collection[str]):
        self.casts, self.read = casts, read
        self.in_class = False
        self.assigned: set[str] = set()  # names that the function around gives a value

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node if self._may_be_read(node) else self._visit_inside(node, in_class=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_function(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if self.in_class:
            return node
        if node.value is None:
            target = node.target
            is_of_name = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            return None if is_of_name or isinstance(target, ast.Name) and target.id in self.assigned else node
        return self.generic_visit(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        is_cast = isinstance(node.func, ast.Name) and node.func.id in self.casts and len(node.args) == 2
        return node.args[1] if is_cast else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if is_for_types(node) else node

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if self._may_be_read(node):
            return node
        node.returns = None
        around, self.assigned = self.assigned, _assigned(node)
        self._visit_inside(node, in_class=False)
        self.assigned = around
        return node

    def _may_be_read(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
        """True if code may read the annotations of a function, or those of all functions of a class."""
        return node.name in self.read or not {*map(_last_name, node.decorator_list)} <= _READ_NO_ANNOTATIONS

    def _visit_inside(self, node: ast.AST, in_class: bool) -> ast.AST:
        around, self.in_class = self.in_class, in_class
        self.generic_visit(node)
        self.in_class = around
        return node


def _assigned(function: ast.AST) -> set[str]:
    """The variables that a function assigns. A variable with an annotation but no value anywhere does not count."""
    bare = {id(each.target) for each in ast.walk(function) if isinstance(each, ast.AnnAssign) and each.value is None}
    names = (each for each in ast.walk(function) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return {name.id for name in names if id(name) not in bare}


class _ImportRemoval(ast.NodeTransformer):
    """A transformer that removes unused names from ``from ... import`` statements.

    ``used`` are the names that the file still uses. Other names are removed. Names of madbench are an exception: of
    them, only those in ``for_types`` are removed, the names that only removed code used. Imports under ``try`` and
    ``with`` are not changed.
    """

    def __init__(self, used: Collection[str], for_types: Collection[str]):
        self.used, self.for_types = used, for_types

    def visit(self, node: ast.AST) -> ast.AST | None:
        return node if isinstance(node, _GUARDS) else super().visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        if node.module == "__future__":
            return node
        is_own = node.level > 0 or (node.module or "").partition(".")[0] == "madbench"
        node.names = [alias for alias in node.names if self._stays(alias, is_own)]
        return node if node.names else None

    def _stays(self, alias: ast.alias, is_own: bool) -> bool:
        name = alias.asname or alias.name
        return name == "*" or name in self.used or (is_own and name not in self.for_types)
