"""The normal form of code: what it leaves out and what it keeps."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from madbench.identity.text import SourceText, normal_text


def normal(text):
    return normal_text(ast.parse(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1  # one", "x=1"),
        ("f(a,\n  b,)", "f(a, b)"),
        ("x = 'a' 'b'", 'x = "ab"'),
        ("x = (1 + 2)", "x = 1 + 2"),
        ("def f():\n    '''Text.'''\n    return 1", "def f():\n    return 1"),
        ("class A:\n    x: int\n    '''Text.'''", "class A:\n    x: int"),
        ("x = f'a' f'{b}'", "x = f'a{b}'"),
        ("x = 0x10", "x = 16"),
    ],
)
def test_comments_formatting_and_docstrings_change_nothing(one, other):
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1", "x = 1.0"),
        ("x = 1", "x = True"),
        ("x = '1'", "x = b'1'"),
        ("x = None", "x = ..."),
        ("f(*a)", "f(a)"),
        ("f(a=1)", "f(b=1)"),
        ("x = f'{a!r}'", "x = f'{a}'"),
        ("x = a + b", "x = a - b"),
        ("x = a.b", "x = a.c"),
        ("def f(a, /): pass", "def f(a): pass"),
        ("def f(*, a): pass", "def f(a): pass"),
        ("async def f(): pass", "def f(): pass"),
        ("x = {**a}", "x = {None: a}"),
        ("x = a[1:]", "x = a[:1]"),
        ("x = a[::1]", "x = a[:1]"),
        ("@a\ndef f(): pass", "def f(): pass"),
        ("from .a import b", "from a import b"),
        ("for x in a:\n    pass\nelse:\n    b", "for x in a:\n    b"),
    ],
)
def test_different_code_has_a_different_normal_form(one, other):
    assert normal(one) != normal(other)


def test_docstrings_that_code_reads_change_the_digest():
    texts = ["def f():\n    'a'\n    return f.__doc__", "def f():\n    'b'\n    return f.__doc__"]
    first, second = (SourceText(text.encode(), Path(), Path()).digest("*") for text in texts)
    assert first != second


@pytest.mark.parametrize("content", [b"def f(:", b"\0", b"(" * 5000, b"x = " + b"-" * 100_000 + b"1", b"\xff"])
def test_files_that_are_not_python_have_digests_of_their_bytes(content):
    text, other = SourceText(content, Path(), Path()), SourceText(content + b" ", Path(), Path())
    assert text.digest("*") != other.digest("*")
