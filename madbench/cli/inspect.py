"""``madbench inspect``: what a trained model does inside its mixers, in numbers and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from madbench.cli import options
from madbench.cli.listings import setting_change
from madbench.cli.parameters import argument, option, output_option
from madbench.cli.plot import LayoutOptions
from madbench.cli.printing import counted, print_json, print_lines, table_lines
from madbench.cli.trained_models import TrainedModel
from madbench.errors import ConfigError
from madbench.jobs import Job
from madbench.suites import suite_of
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.inspection import Inspection

MOST_LAYERS = 3  # of which each has a number in a comparison
MOST_ROWS = 12  # of a table, a layer and head each; of more, only the means of a layer


def inspect(
    run: argument(
        str,
        "RUN",
        "A label with one run that has weights, the first digits of a run's id (madbench ls runs), or a file of "
        "weights: weights.safetensors or checkpoint.pt.",
    ),
    other: argument(str | None, "RUN2", "A second one, to compare with.") = None,
    task: option(
        str | None, "The task of the run, where a label has runs of several.", "--task", "-t", completes="TASK"
    ) = None,
    examples: option(int | None, "Inputs to look at.", min=1, show_default="up to 32, fewer of long ones") = None,
    corpus: option(Path | None, "Folder of a language model's corpus, where it has been moved.") = None,
    tokenizer: options.TokenizerOption = None,
    dtype: options.DtypeOption = None,
    output: output_option("Folder of the figures.", show_default="RESULTS/plots/inspect-ID") = None,
    no_figures: option(bool, "Print the numbers only.", "--no-figures") = False,
    *,
    shape: LayoutOptions,
    device: options.DeviceOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    as_json: options.JsonOption = False,
) -> None:
    """Look inside a trained model: active sets, weights by lag, gates, lag kernels; of two runs, side by side.

    Language models keep their weights; other runs do with the option
    --keep-weights of madbench run. The inputs are the first of the run's own
    test set or validation text, so the same command gives the same numbers.

    What the tables have, a layer and head a row, means over rows and examples:

    Active     share of the slots with a score above zero (R, G); scores symmetric
               about zero give one half (Proposition I.3). Overlap with the row
               before, by lag and by slot, beside what independent sets of these
               sizes have; and the slots that change sides when the input moves
               by 1%.
    Weights    how many keys a row effectively has; coefficients near zero (~0, at
               most 0.001), near one (~1, from 0.9) and negative, in percent; at
               which lags they are; what a row shares with the one before.
    Kernels    what R(1), R(2) learned: the size of p and of the low-rank part K
               against the identity; how much of K is a shift, an average over
               all tokens or a window of the newest, or depends on the offset
               alone (Appendix I). In percent, with the 95% quantile of random
               tables in brackets; * is above it. A shift is relative to the
               most that the rank can hold.
    Gates      mean, spread, and how many are nearly closed (0.1) or open (0.9).
    Matrices   learned interactions of hfa: and ha:, their effective rank, and how
               much of them is symmetric or on the diagonal.

    Of two runs a cell has a number a layer, means over heads.

    Figures: lags, maps, kernels, gates and matrices, as PNG and PDF.

    [bold]Examples[/bold]

      madbench run R-cg-q-12o S-p -t selective_copying --keep-weights
      madbench inspect R-cg-q-12o
      madbench inspect R-cg-q-12o S-p -t selective_copying --output slides
      madbench inspect 3f9a --examples 64 --json
    """
    from madbench.analysis.inspection import examples_for
    from madbench.analysis.inspection import inspect as measure

    if no_figures and (output is not None or shape != LayoutOptions()):
        raise ConfigError("--output, --width, --no-title and --no-caption have no effect with --no-figures")
    device = resolve_device(device)
    jobs: list[Job] = []
    models: list[Inspection] = []
    sizes: list[list[int]] = []  # of the inputs
    for name in [run] if other is None else [run, other]:
        trained = TrainedModel(name, results, is_of_text=False, task=task)
        job = trained.job
        if jobs and job.id == jobs[0].id:
            raise ConfigError(f"{name!r} is the same run as {run!r}; name two, or one alone")
        suite = suite_of(job)
        if suite.not_inspected:
            raise ConfigError(f"{name!r}, task {job.task}, {suite.not_inspected}")
        is_text = suite.takes_corpus
        for setting, value in {"corpus": corpus, "tokenizer": tokenizer, "dtype": dtype}.items():
            if value is not None and not is_text:
                raise ConfigError(f"--{setting} {value}: has no effect on task {job.task}")
        corpora = {job.setting["corpus"]: trained.corpus(corpus, tokenizer, dtype)} if is_text else {}
        draw = suite.Trial.examples
        inputs = draw(job, examples or examples_for(draw(job, 1, corpora).shape[1]), corpora)
        with Console(stderr=True).status(f"{job.label}: {len(inputs)} inputs of {inputs.shape[1]} tokens"):
            models.append(measure(trained.model.to(device), inputs.to(device)))
        jobs.append(job)
        sizes.append(list(inputs.shape))
    names = _names(jobs)
    written = []
    if not no_figures:
        from madbench.analysis.figures.files import save_figure
        from madbench.analysis.figures.inspection import figures

        folder = output or results / "plots" / f"inspect-{'-'.join(job.id[:8] for job in jobs)}"
        with Console(stderr=True).status("drawing"):
            drawn = figures(dict(zip(names, models)), shape.layout)
            written = [path for name, figure in drawn for path in save_figure(figure, folder / name)]
    if as_json:
        runs = [
            {"label": job.label, "id": job.id, "task": job.task, "seed": job.seed, "inputs": size} | model.tables
            for job, size, model in zip(jobs, sizes, models)
        ]
        print_json({"runs": runs, "figures": list(map(str, written))})
        return
    console = Console()
    for name, job, (count, length) in zip(names, jobs, sizes):
        what = f"{job.task} {setting_change(job)}, seed {job.seed}, run {job.id}"
        console.print(f"{name}: {what}; {counted(count, 'input')} of {length} tokens", markup=False, highlight=False)
    for lines in _page(models[0]) if other is None else [_comparison(names, models)]:
        console.print()
        print_lines(console, lines)
    print("\ncolumns: madbench inspect --help")
    if written:
        print(f"figures: {written[0].parent}/ {', '.join(path.stem for path in written if path.suffix == '.png')}")


def _names(jobs: Sequence[Job]) -> list[str]:
    """The labels, with the task, seed or id behind those that are not all different."""
    for more in ("", "task", "seed", "id"):
        names = [f"{job.label} {more} {getattr(job, more)}" if more else job.label for job in jobs]
        if len(set(names)) == len(names):
            break
    return names


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.2f}"


def _cell(row: Mapping[str, Any], name: str) -> str:
    """A number, a share in percent, or ``-1: 63 [4]*``: a head's place and share, that of random tables, * above."""
    value, random = row.get(name), row.get(f"{name}_random")
    if random is None or value is None:
        return (_number if name in _NUMBERS else _percent)(value)
    where = _PLACES.get(name, "").format(**row) if "head" in row else ""
    return f"{where}{100 * value:.0f} [{100 * random:.0f}]{'*' if value > random else ' '}"


def _page(model: Inspection) -> list[list[str]]:
    """The tables of one model as lines; a row begins as ``R(1) 1.2`` for layer 1, head 2."""
    tables, found = _columns(), []
    for table, rows in model.tables.items():
        (first, columns), lines = tables[table], []
        for row in _means(rows) if len(rows) > MOST_ROWS and "head" in rows[0] else rows:
            place = f"{row['layer']}.{row['head']}" if "head" in row else str(row["layer"])
            cells = {heading: _cell(row, name) for heading, name in columns.items()}
            lines.append({first: f"{_kind(row)} {place}".strip()} | cells)
        found.append(table_lines(lines, right=list(columns)))
    return found


def _means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Means over the heads of each layer, and within it of each gate, kernel or matrix; NaN is left out."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    by = [name for name in ("layer", "gate", "kernel", "matrix") if name in frame]
    numbers = list(frame.select_dtypes("float"))
    return frame.groupby(by, sort=False)[numbers].mean().reset_index().to_dict("records")


def _kind(row: Mapping[str, Any]) -> str:
    """Which gate, kernel or matrix the row is about."""
    return row.get("gate") or row.get("kernel") or row.get("matrix") or ""


def _columns() -> dict[str, tuple[str, dict[str, str]]]:
    """By table the heading of its first column, and by the headings of the others the names of what they show."""
    from madbench.analysis.inspection import BANDS

    active = {"slots": "slots", "share %": "share", "lags <8": "share_recent", "older": "share_older"}
    active |= {"same lags": "same_lags", "same slots": "same_slots", "chance": "chance", "flips %": "flips"}
    weights = {"keys": "keys", "~0": "near_zero", "~1": "near_one", "neg.": "negative"}
    weights |= {band: band for band in BANDS} | {"same lag": "same_lags", "token": "same_tokens"}
    gates = {"mean": "mean", "sd": "sd", "sd over rows": "over_time", "closed %": "closed", "open %": "open"}
    kernels = {"size %": "size", "p %": "p", "shift 1": "shift_1", "best shift": "best_shift"}
    kernels |= {"average": "average", "window": "best_window", "by offset": "by_offset"}
    matrices = {"norm": "norm", "rank": "rank", "symmetric %": "symmetric", "diagonal %": "diagonal"}
    tables = {"active": ("Active", active), "weights": ("Weights", weights), "gates": ("Gate", gates)}
    return tables | {"kernels": ("Kernel", kernels), "matrices": ("Matrix", matrices)}


_NUMBERS = ("slots", "keys", "mean", "sd", "over_time", "norm", "rank")
"""What is shown as it is; everything else is a share, shown in percent."""
_PLACES = {"best_shift": "{shift:+d}: ", "best_window": "{window}: "}
"""Where the largest of a head is."""

_COMPARED = {
    "active": {"share": "active slots, %", "same_lags": "overlap at the same lags, %", "flips": "flips at 1% noise, %"},
    "weights": {"keys": "effective keys", "near_zero": "coefficients near zero, %", "near_one": "near one, %"}
    | {"same_lags": "weights at the same lags, %", "same_tokens": "on the same tokens, %"},
    "gates": {"mean": "gate", "closed": "closed, %", "open": "open, %"},
    "kernels": {"size": "size, %", "best_shift": "best shift, %", "average": "average, %", "by_offset": "by offset, %"},
    "matrices": {"rank": "rank", "symmetric": "symmetric, %"},
}


def _comparison(names: Sequence[str], models: Sequence[Inspection]) -> list[str]:
    """What the models have, a measure a row: means over heads, of each layer where they are few."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for i, model in enumerate(models):
        for table, rows in model.tables.items():
            for row in _means(rows):
                for name, heading in _COMPARED[table].items():
                    named = f"{_kind(row)} {heading}".strip()
                    found.setdefault((table, named), [[] for _ in models])[i].append(row.get(name, math.nan))
    lines = []
    for (_, heading), values in sorted(found.items(), key=lambda item: [*_COMPARED].index(item[0][0])):
        show = _percent if heading.endswith("%") else _number
        means = [sum(of_layers) / len(of_layers) if of_layers else math.nan for of_layers in values]
        shown = [of_layers if 0 < len(of_layers) <= MOST_LAYERS else [mean] for of_layers, mean in zip(values, means)]
        cells = {name: "  ".join(map(show, numbers)) for name, numbers in zip(names, shown)}
        lines.append({"Layer by layer": heading, **cells, "mean difference": show(means[1] - means[0])})
    return table_lines(lines, right=[*names, "mean difference"])
