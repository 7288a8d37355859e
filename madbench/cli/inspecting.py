"""``madbench inspect``: what a trained model does inside its mixers, in numbers and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from madbench.cli.ls import setting_change
from madbench.cli.options import RESULTS, DeviceOption, JsonOption, ResultsOption, argument, option, with_groups
from madbench.cli.plots import LayoutOptions
from madbench.cli.printing import print_json, print_lines, table_lines
from madbench.cli.trained_models import TrainedModel
from madbench.errors import ConfigError
from madbench.suites import LANGUAGE, suite_of
from madbench.training.devices import resolve_device

if TYPE_CHECKING:
    from madbench.analysis.inspection import Inspection

_RUN = "A label with one run that has weights, the first digits of a run's id (madbench ls runs), or a file of weights"
MOST_LAYERS = 3  # of which each has a number in a comparison
MOST_ROWS = 12  # of a table, a layer and head each; of more, only the means of a layer


@with_groups
def inspect(
    run: argument(str, "RUN", f"{_RUN}: weights.safetensors or checkpoint.pt."),
    other: argument(str | None, "RUN2", "A second one, to compare with.") = None,
    task: option(str | None, "The task of the run, where a label has runs of several.", "--task", "-t") = None,
    examples: option(int | None, "Inputs to look at.", min=1, show_default="up to 32, fewer of long ones") = None,
    corpus: option(Path | None, "Folder of a language model's corpus, where it has been moved.") = None,
    output: option(
        Path | None, "Folder of the figures.", "--output", "-o", show_default="RESULTS/plots/inspect-ID"
    ) = None,
    no_figures: option(bool, "Print the numbers only.", "--no-figures") = False,
    *,
    shape: LayoutOptions,
    device: DeviceOption = "auto",
    results: ResultsOption = RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Look inside a trained model: active sets, weights by lag, gates, lag kernels; of two runs, side by side.

    Language models keep their weights; MAD runs do with madbench run --keep-weights.
    The inputs are the first of the run's own test set or validation text, so the
    same command gives the same numbers.

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

    device = resolve_device(device)
    found: list[tuple[TrainedModel, Inspection]] = []
    lengths = []
    for name in [run] if other is None else [run, other]:
        trained = TrainedModel(name, results, suite=None, task=task)
        if any(trained.job.id == one.job.id for one, _ in found):
            raise ConfigError(f"{name!r} is the same run as {run!r}; name two, or one alone")
        is_text = trained.job.suite == LANGUAGE.name
        if corpus is not None and not is_text:
            raise ConfigError(f"--corpus {corpus}: has no effect on task {trained.job.task}")
        corpora = {trained.job.setting["corpus"]: trained.corpus(corpus)} if is_text else {}
        draw = suite_of(trained.job).Trial.examples
        count = examples or examples_for(draw(trained.job, 1, corpora).shape[1])
        inputs = draw(trained.job, count, corpora)
        lengths.append(list(inputs.shape))
        with Console(stderr=True).status(f"{trained.job.label}: {len(inputs)} inputs of {inputs.shape[1]} tokens"):
            found.append((trained, measure(trained.model.to(device), inputs.to(device))))
    names = _names([trained for trained, _ in found])
    written = []
    if not no_figures:
        from madbench.analysis.figures.files import save_figure
        from madbench.analysis.figures.inspection import figures

        ids = "-".join(trained.job.id[:8] for trained, _ in found)
        folder = output or results / "plots" / f"inspect-{ids}"
        models = dict(zip(names, (model for _, model in found)))
        with Console(stderr=True).status("drawing"):
            written = [
                path for name, figure in figures(models, shape.layout) for path in save_figure(figure, folder / name)
            ]
    heads = [
        {"label": one.job.label, "id": one.job.id, "task": one.job.task, "seed": one.job.seed, "inputs": size}
        for (one, _), size in zip(found, lengths)
    ]
    if as_json:
        runs = [head | model.tables() for head, (_, model) in zip(heads, found)]
        print_json({"runs": runs, "figures": list(map(str, written))})
        return
    console = Console()
    for name, head, (trained, _) in zip(names, heads, found):
        what = f"{head['task']} {setting_change(trained.job)}, seed {head['seed']}, run {head['id']}"
        console.print(f"{name}: {what}; {size_of_inputs(head['inputs'])}", markup=False, highlight=False)
    for lines in _page(found[0][1]) if other is None else [_comparison(names, [model for _, model in found])]:
        console.print()
        print_lines(console, lines)
    if written:
        print(f"\nfigures: {written[0].parent}/ {', '.join(path.stem for path in written if path.suffix == '.png')}")


def size_of_inputs(shape: Sequence[int]) -> str:
    """``32 inputs of 63 tokens``."""
    return f"{shape[0]} input{'s' * (shape[0] != 1)} of {shape[1]} tokens"


def _names(models: Sequence[TrainedModel]) -> list[str]:
    """The labels, with the task, seed or id behind those that are not all different."""
    jobs = [one.job for one in models]
    for more in ("", "task", "seed", "id"):
        names = [f"{job.label} {more} {getattr(job, more)}" if more else job.label for job in jobs]
        if len(set(names)) == len(names):
            break
    return names


def _percent(value: float | None) -> str:
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None or value != value else f"{value:.2f}"


def _share(row: Mapping[str, Any], name: str, place: str = "") -> str:
    """``-1: 63 [4]*``: where, unless it is a mean, a share, that of random tables, and whether it is above."""
    where = place.format(**row) if "head" in row else ""
    mark = "*" if row[name] > row[f"{name}_random"] else " "
    return f"{where}{100 * row[name]:.0f} [{100 * row[f'{name}_random']:.0f}]{mark}"


def _page(model: Inspection) -> list[list[str]]:
    """The tables of one model as lines."""
    tables = {name: _condensed(rows) for name, rows in model.tables().items()}
    return [_PAGES[name](rows) for name, rows in tables.items()]


def _condensed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, or of too many the means over the heads of each layer."""
    if len(rows) <= MOST_ROWS or "head" not in rows[0]:
        return rows
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["layer"], _kind(row)), []).append(row)
    names = ("layer", "kernel", "matrix")
    return [{name: one[0][name] for name in names if name in one[0]} | _means(one) for one in groups.values()]


def _means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Of every number that is one in all rows; NaN is left out."""
    found = {}
    for name in rows[0]:
        values = [row[name] for row in rows if isinstance(row[name], float) and row[name] == row[name]]
        if values:
            found[name] = sum(values) / len(values)
    return found


def _lines(rows: Sequence[Mapping[str, Any]], first: str, columns: Mapping[str, Any]) -> list[str]:
    """A table with ``columns`` {heading: cell of a row}, behind a first one such as ``R(1) 1.2`` for layer 1, head 2."""
    cells = []
    for row in rows:
        place = f"{row['layer']}.{row['head']}" if "head" in row else str(row["layer"])
        named = {first: f"{_kind(row)} {place}".strip()}
        cells.append(named | {heading: cell(row) for heading, cell in columns.items()})
    return table_lines(cells, right=list(columns))


def _kind(row: Mapping[str, Any]) -> str:
    """Which gate, kernel or matrix the row is about."""
    return row.get("gate") or row.get("kernel") or row.get("matrix") or ""


def _of(name: str, show: Any = _percent) -> Any:
    return lambda row: show(row.get(name))


def _active(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {"slots": _of("slots", _number), "share %": _of("share"), "lags <8": _of("share_recent")}
    columns |= {"older": _of("share_older"), "same lags": _of("same_lags"), "same slots": _of("same_slots")}
    return _lines(rows, "Active", columns | {"chance": _of("chance"), "flips %": _of("flips")})


def _weights(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    from madbench.analysis.inspection import BANDS

    columns = {"keys": _of("keys", _number), "~0": _of("near_zero"), "~1": _of("near_one")}
    columns |= {"neg.": _of("negative")} | {band: _of(band) for band in BANDS}
    return _lines(rows, "Weights", columns | {"same lag": _of("same_lags"), "token": _of("same_tokens")})


def _kernels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {"size %": _of("size"), "p %": _of("p")}
    columns["shift 1"] = lambda row: _share(row, "shift_1")
    columns["best shift"] = lambda row: _share(row, "best_shift", "{shift:+d}: ")
    columns["average"] = lambda row: _share(row, "average")
    columns["window"] = lambda row: _share(row, "best_window", "{window}: ")
    columns["by offset"] = lambda row: _share(row, "by_offset")
    return _lines(rows, "Kernel", columns)


def _gates(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {"mean": _of("mean", _number), "sd": _of("sd", _number)}
    columns |= {"sd over rows": _of("over_time", _number), "closed %": _of("closed"), "open %": _of("open")}
    return _lines(rows, "Gate", columns)


def _matrices(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {"norm": _of("norm", _number), "rank": _of("rank", _number)}
    return _lines(rows, "Matrix", columns | {"symmetric %": _of("symmetric"), "diagonal %": _of("diagonal")})


_PAGES = {"active": _active, "weights": _weights, "gates": _gates, "kernels": _kernels, "matrices": _matrices}

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
        for table, rows in model.tables().items():
            layers: dict[tuple[str, int], list[dict[str, Any]]] = {}
            for row in rows:
                layers.setdefault((_kind(row), row["layer"]), []).append(row)
            for (kind, _), of_layer in layers.items():
                means = _means(of_layer)
                for name, heading in _COMPARED[table].items():
                    values = found.setdefault((table, f"{kind} {heading}".strip()), [[] for _ in models])[i]
                    values.append(means.get(name, math.nan))
    lines = []
    for (_, heading), values in sorted(found.items(), key=lambda item: [*_COMPARED].index(item[0][0])):
        show = _percent if heading.endswith("%") else _number
        means = [sum(of_layers) / len(of_layers) if of_layers else math.nan for of_layers in values]
        shown = [of_layers if 0 < len(of_layers) <= MOST_LAYERS else [mean] for of_layers, mean in zip(values, means)]
        cells = {name: "  ".join(map(show, numbers)) for name, numbers in zip(names, shown)}
        lines.append({"Layer by layer": heading, **cells, "mean difference": show(means[1] - means[0])})
    return table_lines(lines, right=[*names, "mean difference"])
