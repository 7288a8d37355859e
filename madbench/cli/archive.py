"""``madbench archive``: put stored runs into one file."""

from __future__ import annotations

import functools
import shlex
from pathlib import Path
from typing import Annotated, Literal

from madbench.cli.shared import options
from madbench.cli.shared.options import StoredOptions, StoredWordsArgument
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.printing import count_text, track_progress
from madbench.config.options import option
from madbench.errors import ConfigError, StoreError, no_effect
from madbench.store.reading import StoredRuns
from madbench.store.results_folder import command_on


def archive(
    words: StoredWordsArgument = None,
    *,
    output: Annotated[
        Path | None, output_option("File or folder to write.", show_default="RESULTS.tar.xz, or RESULTS.parquet")
    ] = None,
    format: Annotated[
        Literal["archive", "parquet"],
        option(
            "archive: a file that madbench import reads. parquet: a folder of tables of runs, curves and measurements.",
        ),
    ] = "archive",
    weights: Annotated[bool, option("Also the weights of the runs that have them.", "--weights")] = False,
    no_source: Annotated[
        bool, option("Leave out the source code of your own modules, which is packed as text.", "--no-source")
    ] = False,
    folders: Annotated[
        bool, option("Keep the folders of this machine, such as those of corpora.", "--folders")
    ] = False,
    force: Annotated[bool, option("Replace an existing file.", "--force")] = False,
    stored_options: StoredOptions,
) -> None:
    """Put stored runs into one file.

    An archive is a compressed tar file of runs that have a result: their jobs,
    records, curves and measurements. By default it has all such runs of a results
    folder; with labels or options, those that madbench table would show for them.
    It has no name of a user, host or folder, and no command. The Python files of
    your own modules are packed as text, and the command prints their names;
    --no-source leaves them out. madbench import FILE adds the runs to another
    results folder. --format parquet needs the extra parquet; madbench import
    cannot read it.

    [bold]Examples[/bold]

      madbench archive --output my_runs.tar.xz
      madbench archive @table1 --profile evening --output evening.tar.xz
      madbench archive G-cg-q-12o -t language_model --weights
      madbench archive --format parquet --output tables
    """
    from madbench.store.archive import SUFFIX, pack

    if file := next((word for word in words or () if word.endswith((SUFFIX, ".parquet"))), ""):
        raise ConfigError(f"{file!r} is no label; --output {shlex.quote(file)} names the archive")
    if format == "parquet":
        flags = {"--weights": weights, "--no-source": no_source, "--folders": folders, "--force": force}
        if useless := [name for name, value in flags.items() if value]:
            raise no_effect(useless[0], "with --format parquet")
        _write_tables(words, stored_options, output or Path(f"{stored_options.results.resolve().name}.parquet"))
        return
    output = output or Path(f"{stored_options.results.resolve().name}{SUFFIX}")
    if not output.name.endswith(SUFFIX) or output.name == SUFFIX:
        raise ConfigError(f"{output}: expected a name that ends in {SUFFIX}")
    if output.exists() and not force:
        raise ConfigError(f"{output}: already exists; give --force to replace it, or another --output")
    store, ids = _chosen_runs(words, stored_options)
    track = functools.partial(track_progress, description="packing runs")
    report = pack(store, ids, output, weights, track, folders, not no_source)
    print(f"{output}: {count_text(len(ids), 'run')}, {output.stat().st_size / 1000:,.0f} kB")
    _print_other_code(store, ids)
    if report.sources:
        print(f"with source code as text: {', '.join(sorted(report.sources))}; --no-source leaves it out")
    if report.absent:
        options.warn(f"source code that changed or is missing was not packed: {', '.join(sorted(report.absent))}")
    print(f"read it with: madbench import {shlex.quote(str(output))}")


def _chosen_runs(words: list[str] | None, stored_options: StoredOptions) -> tuple[StoredRuns, list[str]]:
    """The store, and the ids of the runs to archive: those with a result among the runs that words and options choose.

    If the user gives neither words nor options, all runs are chosen. Raises ``StoreError`` if no chosen run has a
    result.
    """
    if words or set(stored_options.given) - {"results"}:
        results = stored_options.selection(words).select()
        store = results.store
        ids = [*dict.fromkeys(job.id for row in results.rows for job in row.jobs)]
    else:
        store = options.open_stored(stored_options.results)
        ids = [*store.jobs()]
        for problem in store.problems:
            options.warn(problem)
    with_result = [job_id for job_id, record in store.records(ids).items() if record.status != "failed"]
    if not with_result:
        why = command_on(stored_options.results, "ls", "sweeps")
        raise StoreError(f"{stored_options.results}: no run has a result; {why} says why")
    return store, with_result


def _write_tables(words: list[str] | None, stored_options: StoredOptions, output: Path) -> None:
    from madbench.store.parquet import write_parquet

    if output.exists():
        raise ConfigError(f"{output}: already exists; delete it, or give another --output")
    store, ids = _chosen_runs(words, stored_options)
    write_parquet(store, ids, output, functools.partial(track_progress, description="reading runs"))
    print(f"{output}: runs, curves and measurements of {count_text(len(ids), 'run')}")
    _print_other_code(store, ids)


def _print_other_code(store: StoredRuns, ids: list[str]) -> None:
    """Print sentences about runs that were trained by other code than the installed one, if there are any."""
    from madbench.suites.code_marks import CodeMarks

    jobs, records = store.jobs(), store.records(ids)
    marks = CodeMarks.from_runs(
        (jobs[job_id].label, store.run_code(jobs[job_id], records[job_id].details)) for job_id in ids
    )
    for sentence in marks.sentences:
        print(sentence)
