"""Docstrings of functions and fields: their first words and places, and references in madbench/ name what exists."""

from __future__ import annotations

import ast
import io
import pydoc
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import madbench

ROOT = Path(madbench.__file__).parents[1]
FOLDERS = ("madbench", "tests", "studies", "docs", "examples")
THIRD_PERSON = set(
    """
    Adds Allows Applies Asks Asserts Builds Calls Chooses Combines Compares Computes Converts Creates Decides Decodes
    Deletes Divides Does Draws Expands Extends Fills Finds Forgets Gives Hides Initializes Joins Keeps Launches Lets
    Loads Makes Measures Merges Multiplies Opens Parses Prepares Prints Puts Raises Reads Registers Removes Renames
    Repeats Replaces Restores Returns Rotates Selects Sends Shows Skips Solves Splits Stands Starts Stops Takes Tells
    Trains Turns Updates Verifies Waits Wraps Writes Yields
    """.split()
)
"""Verbs in the third person, without forms that are also nouns in the plural, such as ``Names`` and ``Stores``."""

REFERENCE = r":(?:attr|class|data|exc|func|meth|mod):`~?([^`]+)`"


def descriptions(source: str) -> list[str]:
    """The docstrings of the functions of a module that begin with a verb in the third person, as ``line: verb``."""
    functions = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    first_words = [(node.lineno, (ast.get_docstring(node) or "").split(maxsplit=1)[:1]) for node in functions]
    return [f"{line}: {word}" for line, words in first_words for word in words if word in THIRD_PERSON]


@pytest.mark.parametrize(
    ("first_line", "verbs"),
    [("Returns it.", ["1: Returns"]), ("Return it.", []), ("The runs. Raises ``E`` if none.", []), ("", [])],
)
def test_a_docstring_in_the_third_person_is_found(first_line, verbs):
    assert descriptions(f'def f():\n    """{first_line}"""') == verbs


@pytest.mark.slow
def test_no_docstring_of_a_function_begins_with_a_verb_in_the_third_person():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): descriptions(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 100 and not {path: verbs for path, verbs in found.items() if verbs}


def commented_fields(source: str) -> list[str]:
    """The fields of public dataclasses of a module that have a comment behind them, as ``class.field``."""
    lines = io.StringIO(source).readline
    commented = {
        token.start[0]
        for token in tokenize.generate_tokens(lines)
        if token.type == tokenize.COMMENT and not re.match(r"# (noqa|type:|fmt:)", token.string)
    }
    return [
        f"{node.name}.{field.target.id}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.end_lineno in commented
        if not field.target.id.startswith("_")
    ]


def test_a_field_with_a_comment_is_found():
    source = '''
@dataclass(frozen=True)
class NAME:
    a: int  # the number
    b: int = 0
    """The "# number"."""
    c: int = 1  # noqa: E501
    _d: int = 2  # private
'''
    assert commented_fields(source.replace("NAME", "Named")) == ["Named.a"]
    assert commented_fields(source.replace("NAME", "_Named")) == []
    assert commented_fields(source.replace("@dataclass(frozen=True)", "").replace("NAME", "Named")) == []


@pytest.mark.slow
def test_fields_of_public_dataclasses_are_described_by_strings():
    found = {path: commented_fields(path.read_text(encoding="utf-8")) for path in (ROOT / "madbench").rglob("*.py")}
    assert not {str(path.relative_to(ROOT)): names for path, names in found.items() if names}


def bound_names(nodes: Iterator[ast.AST]) -> Iterator[str]:
    """The names that statements define, assign or import, and the attributes that methods assign."""
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.asname or name.name.partition(".")[0] for name in node.names)


def lost_references(sources: Mapping[str, str]) -> list[str]:
    """The references such as :func:`ast.walk` in a package to names that do not exist, as ``module: name``.

    ``sources`` has the source of each module. A short name must be bound in its module or be a member of a class of
    this module. Classes have the members of all classes of the package with the same name, and of their bases.
    """
    trees = {module: ast.parse(source) for module, source in sources.items()}
    names = {module: set(bound_names(ast.walk(tree))) for module, tree in trees.items()}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    members: dict[str, set[str]] = {}
    for node in classes:
        members.setdefault(node.name, set()).update(bound_names(ast.walk(node)))
    bases = {(node.name, base) for node in classes for base in map(last_name, node.bases)}
    while any(not members.get(base, set()) <= members[name] for name, base in bases):
        for name, base in bases:
            members[name] |= members.get(base, set())

    def exists(module: str, reference: str) -> bool:
        """True if the reference names a module or a name of one, or a member of a class."""
        owner, _, name = reference.rpartition(".")
        own_classes = names[module] & members.keys()
        return (
            reference in sources
            or name in names.get(owner, ())
            or name in members.get(owner.rpartition(".")[2], ())
            or (not owner and (name in names[module] or any(name in members[each] for each in own_classes)))
            or (not reference.startswith("madbench") and pydoc.locate(reference) is not None)
        )

    references = ((module, each) for module, source in sources.items() for each in re.findall(REFERENCE, source))
    return [f"{module}: {each}" for module, each in references if not exists(module, each)]


def last_name(base: ast.expr) -> str:
    """The name of the class that a base such as ``nn.Module`` or ``Paths[Job]`` refers to."""
    return ast.unparse(base).partition("[")[0].rpartition(".")[2]


@pytest.mark.parametrize(
    ("reference", "lost"),
    [
        (":meth:`one`", []),
        (":meth:`other`", []),
        (":meth:`Base.one`", []),
        (":meth:`Base.other`", ["p.b: Base.other"]),
        (":attr:`value`", []),
        (":data:`p.a.LIMIT`", []),
        (":data:`LIMIT`", ["p.b: LIMIT"]),
        (":mod:`p.a`", []),
        (":mod:`p.c`", ["p.b: p.c"]),
        (":func:`ast.walk`", []),
        (":func:`ast.run`", ["p.b: ast.run"]),
    ],
)
def test_a_reference_to_a_name_that_does_not_exist_is_found(reference, lost):
    base = "LIMIT = 1\nclass Base:\n    value: int\n    def one(self): ..."
    subclass = f'from p.a import Base\nclass Child(Base):\n    """{reference}"""\n    def other(self): ...'
    assert lost_references({"p.a": base, "p.b": subclass}) == lost


@pytest.mark.slow
def test_every_reference_in_the_package_names_something_that_exists():
    paths = list((ROOT / "madbench").rglob("*.py"))
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    assert len(paths) > 100
    assert not lost_references({name: path.read_text(encoding="utf-8") for name, path in zip(modules, paths)})
