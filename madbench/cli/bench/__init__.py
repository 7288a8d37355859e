"""``madbench bench``: speed and memory of mixers, training and decoding on this machine."""

from __future__ import annotations

import dataclasses
import datetime
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from madbench.cli.bench.setup_options import SetupOptions
from madbench.cli.shared import options
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import PLAIN, count_text, print_json, print_text_table
from madbench.cli.shared.words import names_and_labels
from madbench.config.options import argument, option
from madbench.errors import no_effect
from madbench.execute.journal import command_line
from madbench.files import explain_os_errors, write_atomically
from madbench.labels import check_code, expand
from madbench.training.devices import device_name

if TYPE_CHECKING:
    from madbench.bench.parts import BenchPart, BenchSetup, BenchTable

LABELS = ("G-cg-q-12o", "S", "R-cg-q-12o", "R-cg-q")
SHARES = {"mixers": 2, "length": 1, "training": 1, "table5": 3, "decode": 1, "costs": 1}  # shares of the time
PARTS = tuple(SHARES)
NOTES = (
    "Medians over rounds; in each round every candidate takes one pass. The first round does not count. The shortest "
    "and the longest times are of the same rounds. Before that, outputs and gradients are compared with the dense path "
    "in float64, and a compiled path with the same path uncompiled."
)
DESCRIPTION = f"Parts ({', '.join(PARTS)}) and labels. {options.LABELS_HELP}"


def bench(
    words: Annotated[list[str] | None, argument("PART|LABEL", DESCRIPTION, show_default=False)] = None,
    everything: Annotated[bool, option("All parts.", "--all")] = False,
    *,
    setup_options: SetupOptions,
    minutes: Annotated[
        float, option("Time for all parts; measurements that have not begun by then are left out.", min=0.1)
    ] = 8.0,
    output: Annotated[Path | None, output_option("Folder for CSV, PNG, PDF and a page with all results.")] = None,
    print_options: PrintOptions,
) -> None:
    """Measure speed and memory of mixers, training and decoding.

    mixers    forward and backward by path and length, memory kept, FLOPs
    length    the same on the automatic path, as a function of length
    training  steps of MAD training by task, and hours of the whole profile
    table5    the columns of the paper's Table 5 on a GPT-2-shaped model
    decode    a prompt, and tokens one by one, compared with softmax
    costs     parameters, FLOPs, state, times, memory; ratios to the first label

    Candidates are timed alternately, so that a busy machine slows them equally.
    The tables have medians. Each path is first compared with float64; the time of
    a wrong path is not shown.

    [bold]Examples[/bold]

      madbench bench                               mixers, of four labels
      madbench bench training S G-cg-q-12o --threads 2
      madbench bench training @quick --peer mad-lab --lengths 32 --compile always
      madbench bench G-cg-q-12o --paths dense,tiled --lengths 256 --threads 1
      madbench bench costs S-p KDA GDN 3xKDA/S-p   ratios to the costs of S-p
      madbench bench length R-cg-q R-cg-q-12o --lengths 512,1024,2048
      madbench bench --all --output bench-results  eight minutes
    """
    part_names, labels = names_and_labels(words or [], PARTS, "part")
    if everything and part_names:
        raise no_effect(part_names[0], "with --all; give one of the two")
    names, labels = list(PARTS) if everything else part_names or ["mixers"], expand(labels) or list(LABELS)
    check_code(labels)
    setup = setup_options.setup(labels, names)
    if output is not None:
        with explain_os_errors(output):  # before minutes of measuring
            output.mkdir(parents=True, exist_ok=True)
    _prepare_process(setup, setup_options.threads)
    where = _machine(setup)
    done: list[BenchTable] = []
    was_interrupted = False
    for table, was_interrupted in _measure(_parts(names), setup, minutes, where):
        done.append(table)
        if print_options.format != "json":
            print_text_table(table, print_options, len(done) - 1 if print_options.tex_label else 0)
        if output is not None:
            _write(output, table, where)
        if was_interrupted:
            Console(stderr=True).print("interrupted: what was measured is shown", **PLAIN)
    if print_options.format == "json":
        print_json({table.part.name: {"caption": table.below, "rows": table.json_rows()} for table in done})
    if output is not None:
        _write_page(output, done, setup, where)
        Console(stderr=True).print(f"written to {output}", **PLAIN)
    if was_interrupted:
        raise typer.Exit(130)


def _parts(names: Sequence[str]) -> list[BenchPart]:
    """The parts of the benchmark with these names, in the order of ``names``."""
    from madbench.bench import costs, language, mixer, training

    parts = (mixer.MIXERS, mixer.LENGTH, training.TRAINING, language.TABLE5, language.DECODE, costs.COSTS_PART)
    by_name = {part.name: part for part in parts}
    return [by_name[name] for name in names]


def _prepare_process(setup: BenchSetup, threads: int | None) -> None:
    """Set the number of threads, and change settings of torch, memory and warnings for the whole process."""
    import torch

    from madbench.bench import timing

    if threads:
        torch.set_num_threads(threads)
    if setup.is_cpu:
        timing.keep_freed_memory()
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # from the thread of backward passes, once
    if setup.compiles:
        torch._dynamo.config.recompile_limit = 64  # every model of table5 compiles the code of the same block


def _measure(
    parts: Sequence[BenchPart], setup: BenchSetup, minutes: float, where: str
) -> Iterator[tuple[BenchTable, bool]]:
    """Yield the table of each part of the benchmark, with True if the user interrupted it and False otherwise.

    An interrupted table is partial, and no further table follows. ``minutes`` is the time for all parts together.
    ``where`` is a sentence on the machine for the caption.
    """
    from madbench.bench.parts import BenchTable

    console, shares = Console(stderr=True), [SHARES[part.name] for part in parts]
    end = time.perf_counter() + 60 * minutes
    for i, part in enumerate(parts):
        now, count = time.perf_counter(), part.count(setup)
        limits = dataclasses.replace(setup.limits, end=now + (end - now) * shares[i] / sum(shares[i:]))
        rows, was_stopped, groups = [], False, set()
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(part.name, total=count)
            try:
                for row in part.measure(dataclasses.replace(setup, limits=limits)):
                    rows.append(row)
                    groups.add(tuple(row[key] for key in part.group))
                    progress.update(task, completed=len(groups), description=f"{part.name} {row['label']}")
            except KeyboardInterrupt:
                was_stopped = True
        missing = f" {len(groups)} of {count} measured in the time (--minutes)." if len(groups) < count else ""
        label = f"tab:bench-{part.name}"
        yield BenchTable(part, rows, f"{part.caption} {where}{missing}", NOTES, latex_label=label), was_stopped
        if was_stopped:
            return


def _machine(setup: BenchSetup) -> str:
    """A sentence on the device, the threads and the precision of the measurements."""
    import torch

    threads = f", {count_text(torch.get_num_threads(), 'thread')}" if setup.is_cpu else ""
    compile_note = ", compiled" if setup.compiles else ""
    return f"{device_name(setup.device)}{threads}, {setup.precision}{compile_note}, torch {torch.__version__}."


def _write(folder: Path, table: BenchTable, where: str) -> None:
    """Write the rows of a table as CSV, and its figure if there is one. ``where`` is the sentence on the machine."""
    import pandas as pd

    from madbench.analysis.figures.files import save_figure, write_frame
    from madbench.bench.figures import draw

    write_frame(pd.DataFrame(table.json_rows()).assign(machine=where), folder / f"{table.part.name}.csv")
    if (figure := draw(table.part, table.rows, where)) is not None:
        save_figure(figure, folder / table.part.name)


def _write_page(folder: Path, tables: Sequence[BenchTable], setup: BenchSetup, where: str) -> None:
    """Write ``README.md`` in the folder: the speed targets with measured values, and all tables and figures.

    ``where`` is the sentence on the machine.
    """
    from madbench.bench import targets

    date = datetime.datetime.now().isoformat(timespec="minutes")
    lines = targets.targets_table({table.part.name: table.rows for table in tables}, "cpu" if setup.is_cpu else "gpu")
    parts = [f"# madbench bench\n\n`{command_line()}`, {date}. {where}\n", "## Targets\n", *lines, ""]
    for table in tables:
        picture = f"\n![]({table.part.name}.png)\n" if (folder / f"{table.part.name}.png").is_file() else ""
        parts.append(f"## {table.part.name}: {table.part.what}\n\n{table.to_markdown()}{picture}")
    write_atomically(folder / "README.md", "\n".join(parts).encode())
