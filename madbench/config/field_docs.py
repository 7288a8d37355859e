"""The documentation of settings: a sentence below each field, which the command line's help shows."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap

from madbench.config.settings import cached_by_class


@cached_by_class
def field_docs(cls: type) -> dict[str, str]:
    """The string below each field of a dataclass, by field name.

    The strings are read from the source of the class and its bases. A field is left out if it has no such string, or if
    the source of its class is not available.
    """
    docs: dict[str, str] = {}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        try:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):  # no source: a compiled package, or a class made at run time
            continue
        assert isinstance(definition, ast.ClassDef)
        for statement, following in zip(definition.body, definition.body[1:]):
            if not (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)):
                continue
            sentence = getattr(following.value, "value", None) if isinstance(following, ast.Expr) else None
            if isinstance(sentence, str):
                docs[statement.target.id] = inspect.cleandoc(sentence)
    return {field.name: docs[field.name] for field in dataclasses.fields(cls) if field.name in docs}
