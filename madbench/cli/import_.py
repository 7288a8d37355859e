"""``madbench import``: add the runs of an archive to a results folder."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from madbench.cli.shared import options
from madbench.cli.shared.printing import count_text, first_of, track_progress
from madbench.config.options import argument, option
from madbench.errors import StoreError
from madbench.store.runs import Store

PROBLEMS = 20
"""The largest number of problems of an archive that are listed."""


def import_(
    file: Annotated[Path, argument("FILE", "An archive made by madbench archive.")],
    results: options.ResultsOption = options.RESULTS,
    no_limits: Annotated[
        bool,
        option(
            "Read an archive of any size. By default more than 100,000 members, 2 GB, or 200 times the size of the "
            "file are refused.",
            "--no-limits",
        ),
    ] = False,
) -> None:
    """Add the runs of an archive to a results folder.

    Each run is verified to the last bit. No code is executed. Results that are
    already in the folder do not change.

    [bold]Examples[/bold]

      madbench import evening.tar.xz
      madbench import evening.tar.xz --results evening
    """
    from madbench.store.archive import unpack
    from madbench.store.tar import NO_LIMITS, UnpackingLimits

    limits = NO_LIMITS if no_limits else UnpackingLimits()
    with _no_empty_folder(results):
        report = unpack(file, Store.open(results), functools.partial(track_progress, description="adding runs"), limits)
    print(f"{results}: {count_text(len(report.added), 'run')} of {file} added")
    for ids, what in (
        (report.already_stored, "the same numbers"),
        (report.conflicts, "other numbers, which stay as they are"),
    ):
        if ids:
            print(f"{len(ids)} stored before with {what}")
    if report.conflicts:
        print(f"to see the others: madbench import {shlex.quote(str(file))} --results FOLDER, another folder")
    if report.problems:
        lines = first_of(report.problems, PROBLEMS, "and {:,} more problems")
        raise StoreError(
            "\n".join([f"{count_text(len(report.problems), 'problem')}; these runs are left out:", *lines])
        )


@contextmanager
def _no_empty_folder(results: Path) -> Iterator[None]:
    """A context that removes the results folder at the end if the block created it and stored no run.

    Parent folders that the block created are removed too.
    """
    missing = [folder for folder in (results, *results.parents) if not folder.exists()]
    try:
        yield
    finally:
        if missing:
            with suppress(OSError):  # a folder that is not empty stays
                for folder in (results / "runs", results / "work", *missing):
                    folder.rmdir()
