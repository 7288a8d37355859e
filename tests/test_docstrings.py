"""Docstrings of functions have one mood: they begin with a noun phrase or with a verb in the imperative."""

from __future__ import annotations

import ast
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
