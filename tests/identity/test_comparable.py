"""The normal form of a file for digests: what it leaves out and what it keeps."""

from __future__ import annotations

import ast

import pytest

from madbench.identity.comparable import untyped, without_places
from madbench.identity.text import normal_text

GUARDED = "try:\n    from triton import jit\n    x = 1\nexcept ImportError:\n    from slow import jit\n"


def normal(text):
    return normal_text(ast.parse(text))


def without_types(text):
    return normal_text(untyped(ast.parse(text)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a, *b, c=1, **d): return a", "def f(a: int, *b: str, c: int = 1, **d: float) -> int: return a"),
        ("async def f(a): pass", "async def f(a: int) -> None: pass"),
        ("class A:\n    def f(self, x): return x", "class A:\n    def f(self, x: int) -> int: return x"),
        ("x = {}", "x: dict[str, int] = {}"),
        ("def f():\n    x = []", "def f():\n    x: list[int] = []"),
        ("def f():\n    x, y = [], 1", "def f():\n    x: list[int]\n    x, y = [], 1"),
        ("class A:\n    def f(self):\n        self.x = 1", "class A:\n    def f(self):\n        self.x: int = 1"),
        ("def f(self):\n    self.x, y = g()", "def f(self):\n    self.x: int\n    self.x, y = g()"),
        ("x = 1", "from typing import Any\nx: Any = 1"),
        ("from torch import nn\ndef f(x): nn", "from torch import Tensor, nn\ndef f(x: Tensor): nn"),
        ("def f(x): pass", "from madbench.a import B\ndef f(x: B): pass"),
        ("x = 1", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import B\nx = 1"),
        ("x = f(1)", "from typing import cast\nx = cast(int, f(1))"),
        ("x = f(1)", "from typing import cast as c\nx = c('list[int]', f(c(int, 1)))"),
        ("import a", "if TYPE_CHECKING:\n    from a import B\nelse:\n    import a"),
    ],
)
def test_without_types_removes_annotations(one, other):
    assert without_types(one) == without_types(other) and normal(one) != normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a: int = 1): pass", "def f(a: int = 2): pass"),
        ("x: int = 1", "x: int = 2"),
        ("class A:\n    x: int = 1", "class A:\n    x: float = 1"),
        ("class A:\n    x: int", "class A:\n    x: float"),
        ("class A:\n    x = 1", "class A:\n    x: int = 1"),
        ("def f():\n    class A:\n        x: int", "def f():\n    class A:\n        x: float"),
        ("def f():\n    x: int\n    return x", "def f():\n    return x"),
        ("def f():\n    g().x: int", "def f():\n    pass"),
        ("class A:\n    if b:\n        x: int", "class A:\n    if b:\n        x: float"),
        ("def f():\n    x: int", "def f():\n    pass"),
        ("import torch", "import numpy"),
        ("from madbench.a import b", "from madbench.a import c"),
        ("from .a import b", "from .a import c"),
        ("from a import *", "from b import *"),
        ("from a import f\nf()", "from b import f\nf()"),
        ("from a import f\n__all__ = ['f']", "from b import f\n__all__ = ['f']"),
        ("from a import B\nclass A:\n    x: B", "from b import B\nclass A:\n    x: B"),
        ("from __future__ import annotations", ""),
        ("x = cast(int, 1)", "x = 1"),
        ("@triton.jit\ndef f(a): pass", "@triton.jit\ndef f(a: tl.constexpr): pass"),
        ("@library.custom_op('a')\ndef f(a): pass", "@library.custom_op('a')\ndef f(a: Tensor): pass"),
        ("from a import cast\nx = cast(int, 1)", "x = 1"),
        ("if a:\n    b = 1", "if a:\n    b = 2"),
        ("@torch.jit.script\ndef f(a): pass", "@torch.jit.script\ndef f(a: Tensor): pass"),
        ("@triton_op('a', mutates_args=())\ndef f(a): pass", "@triton_op('a', mutates_args=())\ndef f(a: int): pass"),
        ("@f.register\ndef _(a: int): pass", "@f.register\ndef _(a: str): pass"),
        ("@mine\ndef f(a): pass", "@mine\ndef f(a: int): pass"),
        ("@mine\nclass A:\n    def f(a): pass", "@mine\nclass A:\n    def f(a: int): pass"),
        ("def f(a): pass\ng = torch.jit.script(f)", "def f(a: int): pass\ng = torch.jit.script(f)"),
        ("def f(a): pass\ng = custom_op('a')(f)", "def f(a: int): pass\ng = custom_op('a')(f)"),
        ("class A:\n    def f(a): pass\nget_type_hints(A.f)", "class A:\n    def f(a: B): pass\nget_type_hints(A.f)"),
        ("def f(a): pass\nf.__annotations__", "def f(a: int): pass\nf.__annotations__"),
        (GUARDED, GUARDED.replace("triton", "cuda")),
        (GUARDED, GUARDED.replace("slow", "slower")),
        ("with suppress(ImportError):\n    from a import b", "with suppress(ImportError):\n    from c import b"),
    ],
)
def test_without_types_keeps_code_that_runs(one, other):
    assert without_types(one) != without_types(other)


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        ("from a.used import x\nfrom a.new import y, z\ndef f():\n    from a.late import w\n", True),
        ("from a.new import y, z\nfrom a.used import x\ndef f():\n    from a.sooner import w\n", True),
        ("from a.used import x\nfrom a.old import y\nfrom a.new import z\ndef f():\n    from a.late import w\n", True),
        ("from a.used import x\nfrom a.new import y, z as z0\ndef f():\n    from a.late import w\n", False),
        ("from a.used import x\nfrom a.new import y, z, w\ndef f():\n    pass\n", False),
        ("from a.other import x\nfrom a.old import y, z\ndef f():\n    from a.late import w\n", False),
        ("from a.used import x\nfrom b.old import y, z\ndef f():\n    from a.late import w\n", False),
    ],
)
def test_imports_from_outside_the_digested_parts_count_by_name_only(other, is_same):
    text = "from a.used import x\nfrom a.old import y, z\ndef f():\n    from a.late import w\n"
    one, two = (normal_text(without_places(ast.parse(each), "a", ("used", "other"))) for each in (text, other))
    assert (one == two) == is_same


def test_imports_in_a_try_block_count_with_their_module():
    text = "try:\n    from a.old import x\nexcept ImportError:\n    from a.older import x\n"
    texts = (text, text.replace("old ", "new "), text.replace("older", "oldest"))
    assert len({normal_text(without_places(ast.parse(each), "a", ("used",))) for each in texts}) == 3
