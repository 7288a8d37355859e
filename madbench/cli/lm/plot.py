from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.lm.selection import (
    BudgetFilterOption,
    CorpusNameOption,
    PresetFilterOption,
    ProtocolOption,
    WordsArgument,
    language_selection,
)
from madbench.cli.options import RESULTS
from madbench.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from madbench.store.runs import Run


class XAxis(str, enum.Enum):
    step = "step"
    tokens = "tokens"
    seconds = "seconds"


def plot(
    words: WordsArgument = None,
    x: Annotated[XAxis, typer.Option(help="What the losses are drawn against.")] = XAxis.tokens,
    log_x: Annotated[bool, typer.Option("--log-x", help="A logarithmic x axis, and all of the first losses.")] = False,
    protocol: ProtocolOption = None,
    corpus: CorpusNameOption = None,
    preset: PresetFilterOption = None,
    budget: BudgetFilterOption = None,
    results: Annotated[
        Path | None, typer.Option("--results", help="Folder of the run store; results by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Files to write, without their endings; RESULTS/plots/loss_curves by default.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Draw the CSV that an earlier plot wrote, without the store.")
    ] = None,
) -> None:
    """Draw the loss curves of stored language-model runs: a PNG, a PDF and the CSV they can be drawn again from.

    Left the losses on training batches, raw and smoothed; right those on
    validation text; seeds as a band. As in the table, only runs that can be
    compared are drawn together.

    [bold]Examples[/bold]

      madbench lm plot
      madbench lm plot S-p R-cg-q-12o G-cg-q-12o --x seconds
      madbench lm plot --from results/plots/loss_curves.csv --x step --out slide
    """
    from madbench.analysis.figures.files import save_figure
    from madbench.analysis.figures.loss import loss_figure
    from madbench.analysis.loss_curves import loss_curves, read_curves, write_curves

    stem = _stem(out or (results or RESULTS) / "plots" / "loss_curves")
    if source is None:
        selection = language_selection(results or RESULTS, words, protocol, corpus, preset, budget)
        runs = selection.select().language_runs
        if x is XAxis.seconds:
            _check_times(runs)
        source = stem.with_name(f"{stem.name}.csv")
        write_curves(loss_curves(runs), source)
        print(source)
        curves = read_curves(source)
    else:
        given = {"--protocol": protocol, "--corpus": corpus, "--preset": preset, "--budget": budget}
        for option, value in (given | {"--results": results}).items():
            if value is not None:
                raise ConfigError(f"{option} has no effect with --from: the CSV holds what is drawn")
        curves = _of_labels(read_curves(source), words, source)
    for path in save_figure(loss_figure(curves, x.value, log_x), stem):
        print(path)


def _stem(out: Path) -> Path:
    return out.with_suffix("") if out.suffix in (".png", ".pdf", ".csv") else out


def _check_times(runs: list[Run]) -> None:
    """Raises ``ConfigError`` where the runs' times cannot be compared."""
    from madbench.analysis.loss_curves import timing_differences

    if differing := timing_differences(runs):
        names = ", ".join(differing).replace("_", " ")
        raise ConfigError(f"--x seconds: the runs differ in {names}, so their times cannot be compared; use --x tokens")


def _of_labels(curves: pd.DataFrame, words: list[str] | None, source: Path) -> pd.DataFrame:
    """The rows of the labels among ``words``, all of them by default."""
    from madbench.cli.options import labels_and_overrides
    from madbench.errors import did_you_mean
    from madbench.labels import expand

    named, overrides = labels_and_overrides(words or [])
    if overrides:
        raise ConfigError(f"{overrides[0]!r} has no effect with --from: the CSV holds what is drawn")
    labels = expand(named)
    for label in labels:
        if label not in set(curves.label):
            raise ConfigError(f"{source}: holds no curve of {label!r}{did_you_mean(label, curves.label.unique())}")
    return curves[curves.label.isin(labels)] if labels else curves
