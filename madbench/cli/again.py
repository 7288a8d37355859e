"""``madbench again``: stored runs are trained again and compared."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from madbench.cli.shared import options
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import (
    PLAIN,
    first_of,
    in_words,
    print_json,
    print_lines,
    table_lines,
    track_progress,
)
from madbench.config.options import argument, option
from madbench.errors import ConfigError, StoreError
from madbench.labels.names import typed_label
from madbench.store.runs import Store

if TYPE_CHECKING:
    from madbench.bench.again import RepeatableRuns, RepeatedRun
    from madbench.cli.shared.progress import RunScreen

MOST_NAMED = 20
"""The largest number of damaged or differing runs that are listed."""


def again(
    file: Annotated[Path, argument("ARCHIVE", "An archive of madbench archive, or a results folder.")],
    share: Annotated[float, option("Share of the runs that is drawn at random, above 0 and at most 1.")] = 0.1,
    seed: Annotated[int, option("Seed of the draw.", min=0)] = 0,
    slots: Annotated[int, option("Jobs at a time.", min=1)] = 1,
    corpus: Annotated[
        Path | None, option("Folder of the corpus of language models, which are left out without it.")
    ] = None,
    keep: Annotated[
        Path | None, option("Results folder that keeps the new runs. By default they are not kept.")
    ] = None,
    alone: Annotated[bool, option("Leave out runs that shared a step with others.", "--alone")] = False,
    trust: Annotated[
        list[str] | None,
        option(
            "The label of a module of your own whose code may be imported, such as my:my_mixers.MyMixer; may be "
            "repeated.",
            "--trust",
            metavar="LABEL",
        ),
    ] = None,
    format: FormatOption = "terminal",
) -> None:
    """Train stored runs again, and compare them to the last bit.

    Check an archive of somebody else: some of its runs are drawn at random and
    trained here, on the CPU and with the number of threads in their records. Runs
    that shared a step share it again. Nothing in the archive is executed: runs of
    somebody's module (my:) are left out, unless --trust names their label and the
    module is here. The stored runs stay as they are.

    On the same kind of processor and with the same versions of libraries, numbers
    are equal to the last bit. Elsewhere they differ by rounding, which training
    can amplify. The table has, per task, the runs, those that are equal, the
    largest difference of a metric, and the seconds of training. Below it is every
    run that differs, and the exit code is then 1. With --keep the same command
    resumes where it was interrupted.

    [bold]Examples[/bold]

      madbench again theirs.tar.xz                 a tenth of its runs
      madbench again theirs.tar.xz --share 1 --slots 4 --keep theirs-again
      madbench again results --alone -f json
      madbench again small.tar.xz --corpus corpora/shakespeare
    """
    from madbench.bench.again import RepeatableRuns, repeat
    from madbench.labels.trust import allow_typed
    from madbench.text.corpus import open_corpus

    allow_typed(trust or ())
    if not file.exists():
        raise StoreError(f"{file}: there is no such archive or results folder")
    if not 0 < share <= 1:
        raise ConfigError(f"--share {share:g}: expected a number above 0 and at most 1")
    with tempfile.TemporaryDirectory(prefix="madbench-again-") as folder:
        stored_runs = _unpack(file, Path(folder, "stored")) if file.is_file() else Store.open(file, create=False)
        corpora = {opened.digest: opened for opened in ([open_corpus(corpus)] if corpus else [])}
        repeatable = RepeatableRuns.from_store(stored_runs, alone, corpora)
        if not repeatable.groups:
            raise StoreError(f"{file}: no run can be trained again. {repeatable.text}")
        new = Store.open(keep or Path(folder, "again"))
        drawn_groups = repeatable.draw(share, seed)
        with _screen(drawn_groups, file) as screen:
            try:
                repeats = repeat(drawn_groups, new, slots, corpora, screen.on_event)
            except KeyboardInterrupt:
                kept_text = f"finished runs are in {keep}, the same command resumes" if keep else "nothing was kept"
                screen.console.print(f"stopped; {kept_text}", **PLAIN)
                raise
    differing = sorted(
        (repeated_run for repeated_run in repeats if repeated_run.change),
        key=lambda repeated_run: -repeated_run.difference,
    )
    if format == "json":
        print_json(_content(repeats, differing, repeatable))
    else:
        _print(repeats, differing, repeatable)
    if differing:
        raise typer.Exit(1)


def _unpack(file: Path, folder: Path) -> Store:
    """Unpack the undamaged runs of an archive into a store in ``folder``. Warn of the other runs."""
    from madbench.store.archive import unpack

    store = Store.open(folder)
    report = unpack(file, store, functools.partial(track_progress, description="reading runs"))
    for problem in first_of(report.problems, MOST_NAMED, "and {:,} more problems"):
        options.warn(problem)
    return store


def _screen(groups: Sequence[Sequence[Any]], file: Path) -> RunScreen:
    from madbench.cli.shared.progress import RunScreen

    jobs = [run.job for group in groups for run in group]
    return RunScreen(jobs, f"trained again from {file}", Console(stderr=True))


def _print(repeats: Sequence[RepeatedRun], differing: Sequence[RepeatedRun], repeatable: RepeatableRuns) -> None:
    """Print a table with one row per task, then the number of runs that could be drawn, and each run that differs.

    ``repeats`` are the runs that were trained again, and ``differing`` those with other numbers. ``repeatable`` has all
    runs that could be drawn.
    """
    from madbench.bench.again import rows_by_task

    console, lines = Console(highlight=False), []
    for row in rows_by_task(repeats):
        largest = "-" if row["largest_difference"] is None else f"{row['largest_difference']:.3g}"
        line = {"task": row["task"], "runs": row["runs"], "equal to the last bit": row["equal"]}
        lines.append(line | {"largest difference": largest, "seconds": f"{row['seconds']:,.0f}"})
    print_lines(console, table_lines(lines, right={*lines[0]} - {"task"}))
    console.print()
    console.print(in_words(repeatable.text, console), **PLAIN)
    texts = []
    for repeat in differing:
        job = repeat.run.job
        label = typed_label(job.label)
        texts.append(f"{job.id} {label} {job.task} seed {job.seed}: {repeat.change}{repeat.machines}")
    for text in first_of(texts, MOST_NAMED, "and {:,} more; -f json has them all"):
        console.print(in_words(text, console), **PLAIN)


def _content(
    repeats: Sequence[RepeatedRun], differing: Sequence[RepeatedRun], repeatable: RepeatableRuns
) -> dict[str, Any]:
    """The result of ``madbench again`` as JSON content. The arguments are those of :func:`_print`."""
    from madbench.bench.again import rows_by_task

    runs = []
    for repeat in differing:
        job, (old, new) = repeat.run.job, repeat.processors
        run = {"id": job.id, "label": job.label, "task": job.task, "seed": job.seed, "change": repeat.change}
        run |= {"processor": old, "processor_again": new}
        old, new = repeat.products
        runs.append(run | {"products": old, "products_again": new})
    left_out = Counter(repeatable.left_out)
    return {"tasks": rows_by_task(repeats), "available": repeatable.count, "left_out": left_out, "differing": runs}
