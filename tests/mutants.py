"""Plants bugs one at a time and counts those that tests notice: how much a group of tests sees.

    python tests/mutants.py madbench/mixers/srg/budget.py tests/mixers/srg/test_budget.py --count 20

A bug is one changed comparison, sum, product, ``and``, ``or``, ``not``, truth value or number, at places that a seed
draws. The tests, slow ones too, run in a copy of the checkout, up to their first failure. A bug that makes no
difference survives too.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    "madbench",
    "tests",
    "variants",
    "tasks",
    "examples",
    "docs",
    "studies",
    "results/measured",
    ".ci",
)
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def bugs(tree: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Possible bugs of a syntax tree: a node, the name of a field, and a wrong value.

    Annotations and strings are left out.
    """
    ignored = {id(part) for node in ast.walk(tree) for part in _without_effect(node)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "op", ast.UAdd()
        elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
            yield node, "value", not node.value if isinstance(node.value, bool) else node.value + 1


def _without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node without effect at run time."""
    for name in ("annotation", "returns"):
        if (part := getattr(node, name, None)) is not None:
            yield from ast.walk(part)


def plant(source: str, number: int) -> tuple[str, str]:
    """The source with bug number ``number``, and the changed line before and after."""
    tree = ast.parse(source)
    node, field, wrong = list(bugs(tree))[number]
    before = ast.unparse(copy.deepcopy(node))
    setattr(node, field, wrong)
    return ast.unparse(tree), f"line {node.lineno}: {before} -> {ast.unparse(node)}"


def run(folder: Path, tests: list[str], timeout: float | None) -> tuple[bool, float]:
    """Return True if the tests pass in the copy, and their seconds. Tests that exceed the time limit fail."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--slow", *tests]
    began = time.monotonic()
    try:
        ended = subprocess.run(command, cwd=folder, timeout=timeout, capture_output=True)
    except subprocess.TimeoutExpired:
        return False, time.monotonic() - began
    return ended.returncode == 0, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("module", help="the file that gets the bugs")
    parser.add_argument("tests", nargs="+", help="what pytest is given")
    parser.add_argument("--count", type=int, default=20, help="bugs (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the places (default: 0)")
    asked = parser.parse_args()
    source = (ROOT / asked.module).read_text(encoding="utf-8")
    places = range(len(list(bugs(ast.parse(source)))))
    chosen = sorted(random.Random(asked.seed).sample(places, min(asked.count, len(places))))
    with tempfile.TemporaryDirectory() as folder:
        for name in (*COPIED, "pyproject.toml", "README.md", "constraints.txt", "uv.lock", "cli.py", "CHANGELOG.md"):
            path, target = ROOT / name, Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
        passes, seconds = run(Path(folder), asked.tests, None)
        if not passes:
            sys.exit("the tests fail as they are")
        noticed = 0
        for place in chosen:
            wrong, change = plant(source, place)
            Path(folder, asked.module).write_text(wrong, encoding="utf-8")
            survived, _ = run(Path(folder), asked.tests, 60 + 5 * seconds)
            noticed += not survived
            print(f"{'SURVIVES' if survived else 'noticed '}  {change}", flush=True)
    print(f"{asked.module}: {noticed} of {len(chosen)} noticed by {' '.join(asked.tests)} ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
