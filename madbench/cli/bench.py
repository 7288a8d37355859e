"""``madbench bench``: speed and memory of mixers, training and decoding on this machine."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from madbench.cli.shared import options
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import PrintOptions
from madbench.cli.shared.printing import PLAIN, count_text, print_json, print_text_table
from madbench.cli.shared.words import names_and_labels
from madbench.config import parse_seeds, short_repr
from madbench.config.options import EVERY_VERB, argument, option
from madbench.errors import ConfigError, MadbenchError, did_you_mean
from madbench.execute.journal import command_line
from madbench.files import explain_os_errors, write_atomically
from madbench.labels import check_code, expand
from madbench.suites import main_suite
from madbench.training.devices import device_name, resolve_device

if TYPE_CHECKING:
    from madbench.bench.parts import BenchTable, Part, Setup

LABELS = ("G-cg-q-12o", "S", "R-cg-q-12o", "R-cg-q")
SHARES = {"mixers": 2, "length": 1, "training": 1, "table5": 3, "decode": 1, "costs": 1}  # shares of the time
PARTS = tuple(SHARES)
OWNERS = {
    "--peer": ["training"],
    "--profile": ["training", "costs"],
    "--paths": ["mixers", "length"],
    "--d-model": ["mixers", "length", "table5", "decode", "costs"],
}
"""The parts on which an option has an effect, by option."""
NOTES = (
    "Medians over rounds; in each round every candidate takes one pass. The first round does not count. The shortest "
    "and the longest times are of the same rounds. Before that, outputs and gradients are compared with the dense path "
    "in float64, and a compiled path with the same path uncompiled."
)
DESCRIPTION = f"Parts ({', '.join(PARTS)}) and labels. {options.LABELS_HELP}"


def bench(
    words: Annotated[list[str] | None, argument("PART|LABEL", DESCRIPTION, show_default=False)] = None,
    everything: Annotated[bool, option("All parts.", "--all")] = False,
    lengths: Annotated[
        str | None,
        option(
            "Lengths such as 128,512,1024; for training, tasks of these lengths, or all.",
            show_default="per part",
        ),
    ] = None,
    batch: Annotated[
        int | None, option("Number of sequences.", min=1, show_default="per part", rare=EVERY_VERB)
    ] = None,
    d_model: Annotated[
        int | None, option("Width of mixers and language models.", min=8, show_default="per part")
    ] = None,
    profile: Annotated[
        str,
        option("Profile of MAD training: full, evening, quick or a YAML file.", "--profile", "-p", completes="PROFILE"),
    ] = "full",
    paths: Annotated[
        str | None,
        option("Paths of mixers such as dense,fused.", show_default="all that run here", completes="PATH,..."),
    ] = None,
    peer: Annotated[Path | None, option("Checkout of github.com/athms/mad-lab, whose model is also timed.")] = None,
    *,
    device: options.DeviceOption = "auto",
    threads: Annotated[int | None, option("Threads on a CPU.", min=1, show_default="all cores")] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        option(
            "Arithmetic of matrix products; auto: bfloat16 on a GPU, else float32.",
            rare=EVERY_VERB,
        ),
    ] = "auto",
    compile: Annotated[
        Literal["auto", "never", "always"],
        option(
            "torch.compile for all models of table5, for those of training on a CPU, and once more for the chunked "
            "path of mixers; auto: on a GPU.",
            rare=EVERY_VERB,
        ),
    ] = "auto",
    repeats: Annotated[
        int, option("Number of rounds, after a first one that does not count.", min=2, rare=EVERY_VERB)
    ] = 5,
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
    import torch

    from madbench.bench import costs, language, mixer, timing, training
    from madbench.bench.parts import Setup
    from madbench.bench.timing import Limits

    parts_by_name = {
        part.name: part
        for part in (
            mixer.MIXERS,
            mixer.LENGTH,
            training.TRAINING,
            language.TABLE5,
            language.DECODE,
            costs.COSTS_PART,
        )
    }
    part_names, labels = names_and_labels(words or [], PARTS, "part")
    if everything and part_names:
        raise ConfigError(f"{part_names[0]}: has no effect with --all; give one of the two")
    names, labels = list(PARTS) if everything else part_names or ["mixers"], expand(labels) or list(LABELS)
    check_code(labels)
    flags = {"--peer": peer, "--paths": paths, "--d-model": d_model}
    flags |= {"--profile": profile} if profile != "full" else {}
    for flag, value in flags.items():
        if value is not None and not {*OWNERS[flag]} & {*names}:
            raise ConfigError(f"{flag} {value}: has no effect without the part {' or '.join(OWNERS[flag])}")
    if peer:
        importlib.import_module(main_suite().reference).check_checkout(peer)
    device = resolve_device(device)
    if threads and device != "cpu":
        raise ConfigError(f"--threads {threads}: has no effect on {device}")
    if threads:
        torch.set_num_threads(threads)
    chosen_precision = precision if precision != "auto" else "float32" if device == "cpu" else "bfloat16"
    seq_lens = parse_seeds(lengths, "--lengths") if lengths else ()
    if 0 in seq_lens:
        raise ConfigError(f"--lengths {lengths}: a sequence has at least one token")
    if len(seq_lens) > 1 and {*names} <= {"table5", "decode", "costs"}:
        raise ConfigError(f"--lengths {lengths}: the part {' or '.join(names)} has one length")
    requested_paths = tuple(dict.fromkeys(path.strip() for path in paths.split(","))) if paths else ()
    compiles = compile == "always" or (compile == "auto" and device != "cpu")
    if output is not None:
        with explain_os_errors(output):  # before minutes of measuring
            output.mkdir(parents=True, exist_ok=True)
    setup = Setup(
        labels,
        device,
        chosen_precision,
        Limits(repeats),
        profile,
        seq_lens,
        batch,
        d_model,
        peer,
        requested_paths,
        compiles,
    )
    if requested_paths:
        _check_paths(setup)
    if device == "cpu":
        timing.keep_freed_memory()
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS")  # from the thread of backward passes, once
    if compiles:
        torch._dynamo.config.recompile_limit = 64  # every model of table5 compiles the code of the same block
    where = _machine(setup)
    done: list[BenchTable] = []
    for table, was_interrupted in _measure([parts_by_name[name] for name in names], setup, minutes, where):
        done.append(table)
        if print_options.format != "json":
            print_text_table(table, print_options, len(done) - 1 if print_options.tex_label else 0)
        if output is not None:
            _write(output, table, where)
        if was_interrupted:
            Console(stderr=True).print("interrupted: what was measured is shown", **PLAIN)
    if print_options.format == "json":
        print_json({table.part.name: {"caption": table.below, "rows": table.records()} for table in done})
    if output is not None:
        _write_page(output, done, setup, where)
        Console(stderr=True).print(f"written to {output}", **PLAIN)
    if was_interrupted:
        raise typer.Exit(130)


def paths_offered(setup: Setup) -> list[str]:
    """The paths that at least one of the labels has."""
    from madbench.bench.mixer import Shape, make, paths_of

    paths = ["auto", "reference"]
    for label in setup.labels:
        with suppress(MadbenchError):  # a label that cannot be built is a row with its reason
            paths += paths_of(make(label, Shape(1, 8, setup.d_model or 128), setup))
    return list(dict.fromkeys(paths))


def _check_paths(setup: Setup) -> None:
    """Raise ``ConfigError`` for a path that no label has."""
    known_paths = paths_offered(setup)
    for path in setup.paths:
        if path not in known_paths:
            problem = f"these labels have no path {short_repr(path)}{did_you_mean(path, known_paths)}"
            raise ConfigError(f"--paths {','.join(setup.paths)}: {problem}")


def _measure(parts: Sequence[Part], setup: Setup, minutes: float, where: str) -> Iterator[tuple[BenchTable, bool]]:
    """Yield the table of each part, and True if it was interrupted: then it is partial and the last one."""
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


def _machine(setup: Setup) -> str:
    """A sentence on the machine and the arithmetic of the measurements."""
    import torch

    threads = f", {count_text(torch.get_num_threads(), 'thread')}" if setup.is_cpu else ""
    compile_note = ", compiled" if setup.compiles else ""
    return f"{device_name(setup.device)}{threads}, {setup.precision}{compile_note}, torch {torch.__version__}."


def _write(folder: Path, table: BenchTable, where: str) -> None:
    """Write the rows as CSV, and the figure."""
    import pandas as pd

    from madbench.analysis.figures.files import save_figure, write_frame
    from madbench.bench.figures import draw

    write_frame(pd.DataFrame(table.records()).assign(machine=where), folder / f"{table.part.name}.csv")
    if (figure := draw(table.part, table.rows, where)) is not None:
        save_figure(figure, folder / table.part.name)


def _write_page(folder: Path, tables: Sequence[BenchTable], setup: Setup, where: str) -> None:
    """Write one page with all parts, and the targets beside the measurements."""
    from madbench.bench import targets

    date = datetime.datetime.now().isoformat(timespec="minutes")
    lines = targets.lines({table.part.name: table.rows for table in tables}, "cpu" if setup.is_cpu else "gpu")
    parts = [f"# madbench bench\n\n`{command_line()}`, {date}. {where}\n", "## Targets\n", *lines, ""]
    for table in tables:
        picture = f"\n![]({table.part.name}.png)\n" if (folder / f"{table.part.name}.png").is_file() else ""
        parts.append(f"## {table.part.name}: {table.part.what}\n\n{table.to_markdown()}{picture}")
    write_atomically(folder / "README.md", "\n".join(parts).encode())
