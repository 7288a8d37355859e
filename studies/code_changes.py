"""The files and functions of madbench that changed since stored runs were trained, for ``equal_code.py``."""

from __future__ import annotations

import ast
import difflib
import io
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from madbench.identity.package import (
    KNOWN_EQUAL,
    file_of,
    files_of,
    gives_equal_bits,
    module_digest,
    modules_reached,
    package_digest,
)
from madbench.identity.text import normal_text
from madbench.jobs import Job
from madbench.suites.code import Modules, job_modules

ROOT = Path(__file__).resolve().parents[1]
COVERED = ("mixers", "models", "papers", "suites", "tasks", "text", "training")
"""The subpackages of madbench whose code a digest can cover."""
MOST_COMMITS = 40
"""The most commits in which the code of a digest is looked for."""
Code = dict[str, tuple[Path | None, str]]
"""The file and the digest of each module."""


class Difference(NamedTuple):
    """A code digest of stored runs that is not known to give the same numbers as the present code."""

    part: str
    stored: str
    here: str


class Function(NamedTuple):
    """A function or a method of a file."""

    file: str  # relative to the repository
    name: str  # with its class, such as ``KDA.forward``


@dataclass
class Changes:
    """The code that changed since stored runs were trained."""

    parts: dict[str, set[str]] = field(default_factory=dict)
    """The parts of the code that read a changed file, by the file's path in the repository."""
    functions: set[Function] = field(default_factory=set)
    """The new and the changed functions."""
    outside: dict[str, list[str]] = field(default_factory=dict)
    """The lines of :func:`changes_outside`, by the file's path. It is not known whether a run uses them."""
    commits: set[str] = field(default_factory=set)
    """The newest commits with the code of the stored runs."""
    unknown: set[Difference] = field(default_factory=set)
    """Differences whose stored digest is that of no recent commit."""

    @property
    def lines(self) -> list[str]:
        lines = [f"Changed since {' and '.join(sorted(self.commits))}:"] if self.commits else []
        lines += [f"  {file}  ({', '.join(sorted(parts))})" for file, parts in sorted(self.parts.items())]
        if self.unknown:
            what = ", ".join(sorted({each.part for each in self.unknown}))
            lines.append(f"The code of {what} of some stored runs is in none of the last {MOST_COMMITS} commits.")
        return lines

    def add(self, old: Code, new: Code, part: str) -> None:
        """Add the changes between the code of a part before and after."""
        for name in {*old, *new}:
            (before, old_digest), (after, digest) = (code.get(name, (None, "")) for code in (old, new))
            if old_digest != digest:
                file = after.relative_to(ROOT).as_posix() if after else f"{name.replace('.', '/')}.py"
                self.parts.setdefault(file, set()).add(part)
                self.functions |= {Function(file, each) for each in changed_functions(before, after)}
                if lines := changes_outside(before, after):
                    known = self.outside.setdefault(file, [])
                    known += [line for line in lines if line not in known]


def changes_since(jobs: Mapping[Difference, Job], folder: Path, equal: Path = KNOWN_EQUAL) -> Changes:
    """The code that changed since the newest commits that have the stored digests of ``jobs``.

    ``jobs`` has a stored job of each difference. Commits are unpacked in ``folder``.
    """
    changes, waiting = Changes(), dict(jobs)
    for commit in recent_commits():
        if not waiting:
            break
        home = unpack(commit, folder / commit)
        for difference, job in list(waiting.items()):
            part = difference.part
            with files_of(home):
                where = job_modules(job)[part]
                is_found = gives_equal_bits(part, difference.stored, package_digest(*where), equal)
                old = _code(where)
            if is_found:
                del waiting[difference]
                changes.commits.add(commit)
                changes.add(old, _code(job_modules(job)[part]), part)
    changes.unknown = set(waiting)
    return changes


def _code(where: Modules) -> Code:
    return {name: (file_of(name), module_digest(name)) for name in modules_reached(*where)}


def changed_functions(before: Path | None, after: Path | None) -> set[str]:
    """The names of the functions of a file ``after`` that the file ``before`` lacks, or has with other code."""
    old, new = (_functions(file) if file else {} for file in (before, after))
    return {name for name, text in new.items() if old.get(name) != text}


def changes_outside(before: Path | None, after: Path | None) -> list[str]:
    """The lines outside of functions that two versions of a file do not share, each after ``-`` or ``+``.

    These are constants, fields of classes, and other statements that run at import. Import statements are left out.
    """
    old, new = (_OutsideFunctions().lines(file) if file else [] for file in (before, after))
    return [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if not line.startswith(_HEADINGS)]


def _functions(file: Path) -> dict[str, str]:
    """The functions of a file and the methods of its classes, each with its code.

    If a name is defined several times, as in both branches of an ``if``, it has the code of all definitions.
    """
    functions: dict[str, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{prefix}{child.name}"
                functions[name] = functions.get(name, "") + normal_text(child)
            else:
                visit(child, f"{prefix}{child.name}." if isinstance(child, ast.ClassDef) else prefix)

    visit(_tree(file), "")
    return functions


_HEADINGS = ("---", "+++", "@@")
"""The beginnings of lines of a difference that are no lines of a file."""


class _OutsideFunctions(ast.NodeTransformer):
    """Removes functions, imports and docstrings from a file's syntax tree."""

    def lines(self, file: Path) -> list[str]:
        """The lines of a file that remain, without comments."""
        return ast.unparse(self.visit(_tree(file))).splitlines()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None: ...

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None: ...

    def visit_Import(self, node: ast.Import) -> None: ...

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None: ...

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def recent_commits() -> list[str]:
    """The present commit and the commits before each recent change of code that a digest can cover, newest first."""
    changes = _git("log", "--format=%h %p", f"-{MOST_COMMITS}", "--", *(f"madbench/{room}" for room in COVERED))
    parents = [line.split()[1] for line in changes.splitlines() if len(line.split()) > 1]
    return [*dict.fromkeys([_git("rev-parse", "--short", "HEAD").strip(), *parents])]


def unpack(commit: str, folder: Path) -> Path:
    """Write the package as of a commit into ``folder``, and return the folder of the package."""
    content = subprocess.run(["git", "-C", ROOT, "archive", commit, "madbench"], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "madbench"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout
