"""The results folder: its default, its option, and commands on it for messages."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from madbench.config.options import option
from madbench.errors import StoreError

RESULTS = Path("results")
"""The default results folder."""
ResultsOption = Annotated[Path, option("Folder of the run store.")]


def no_results_folder(results: Path) -> StoreError:
    """The error of a results folder that does not exist, with a command that makes it."""
    return StoreError(f"{results}: there is no such results folder; {training_command(results)} makes it")


def command_on(results: Path, *words: str) -> str:
    """The shell command ``madbench WORDS`` on the results folder ``results``.

    It has the option ``--results``, unless this is the default folder.
    """
    where = [] if results == RESULTS else ["--results", str(results)]
    return shlex.join(["madbench", *words, *where])


def training_command(results: Path, *options: str, labels: Sequence[str] = ("G-cg-q-12o",)) -> str:
    """The ``madbench run`` command that trains ``labels``, by default an example, into the results folder."""
    return command_on(results, "run", *labels, *options)
