"""Write the digests of madbench's files at a commit, with and without annotations and names of imported modules.

    python studies/annotated.py 1ec67de0   # writes madbench/identity/annotated.json

Digests of madbench's code covered both up to this commit (:data:`madbench.identity.package.ANNOTATED`). The
file has an entry for each module that a job of any suite, task, family or named operator can train with.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from madbench.files import write_atomically
from madbench.identity.package import ANNOTATED, DIGITS, comparable, file_of, modules_reached
from madbench.identity.text import normal_text, short_digest
from madbench.labels import loadable_families, own_modules
from madbench.mixers.named.operators import OPERATORS
from madbench.suites import suites
from madbench.suites.code import package_modules

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    former = former_paths(commit)
    files = {file.relative_to(ROOT).as_posix() for module in training_modules() if (file := file_of(module))}
    pairs = dict(sorted(filter(None, (digests_of(former.get(file, file), commit) for file in files))))
    if not pairs:
        parser.error(f"{commit} is no commit with files of madbench")
    write_atomically(ANNOTATED, (json.dumps(pairs, indent=0) + "\n").encode())
    print(f"{ANNOTATED}: {len(pairs)} files")


def training_modules() -> Iterator[str]:
    """The modules whose digests are part of records."""
    families = [family.name for family in loadable_families()]
    own = [module for name in OPERATORS for module in own_modules(name)]
    for suite in suites().values():
        for task in suite.tasks():
            for part in package_modules(suite.name, task, families, own).values():
                yield from modules_reached(*part)


def former_paths(commit: str) -> dict[str, str]:
    """The paths at a commit of the files that have been renamed since, by present path."""
    command = ["git", "-C", str(ROOT), "diff", "--name-status", "--diff-filter=R", "-M", commit, "--", "madbench"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return {new: old for _, old, new in (line.split("\t") for line in lines)}


def digests_of(path: str, commit: str) -> tuple[str, str] | None:
    """The digests of a file at a commit: of its comparable code, and of all its code.

    None if they are equal, or if the commit has no such file.
    """
    shown = subprocess.run(["git", "-C", str(ROOT), "show", f"{commit}:{path}"], capture_output=True)
    if shown.returncode:
        return None
    tree = ast.parse(shown.stdout)
    short, whole = (short_digest(normal_text(each).encode()) for each in (comparable(tree), tree))
    return (short[:DIGITS], whole) if short != whole else None


if __name__ == "__main__":
    main()
