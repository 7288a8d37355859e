from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from madbench.cli.options import RESULTS, labels_and_overrides, option, with_groups
from madbench.cli.plot import write_figure
from madbench.cli.selection import LanguageOptions, LanguageWordsArgument
from madbench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.stored import Selection


@with_groups
def plot(
    words: LanguageWordsArgument = None,
    x: option(Literal["step", "tokens", "seconds"], "What the losses are drawn against.") = "tokens",
    log_x: option(bool, "A logarithmic x axis, and all of the first losses.", "--log-x") = False,
    *,
    stored: LanguageOptions,
    results: option(Path | None, "Folder of the run store; results by default.") = None,
    out: option(Path | None, "Files to write, without their endings; RESULTS/plots/loss_curves by default.") = None,
    source: option(Path | None, "Draw the CSV that an earlier plot wrote, without the store.", "--from") = None,
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
    out = out or (results or RESULTS) / "plots" / "loss_curves"
    stem = out.with_suffix("") if out.suffix in (".png", ".pdf", ".csv") else out
    if source is None:
        frame = _stored(stored.selection(words, results or RESULTS), x)
    else:
        for option, value in {**vars(stored), "results": results}.items():
            if value is not None:
                raise ConfigError(f"--{option} has no effect with --from: the CSV holds what is drawn")
        frame = _read(source, words or [])
    print(*write_figure("loss", frame, stem, with_csv=source is None, x=x, log_x=log_x), sep="\n")


def _stored(selection: Selection, x: str) -> pd.DataFrame:
    """The curves of the stored runs. Raises ``ConfigError`` where these cannot be compared along ``x``."""
    from madbench.analysis.figures.data import FigureData, figure_frame
    from madbench.analysis.loss_curves import timing_differences

    found = selection.select()
    differing = ", ".join(timing_differences(found.language_runs)).replace("_", " ")
    if x == "seconds" and differing:
        raise ConfigError(
            f"--x seconds: the runs differ in {differing}, so their times cannot be compared; use --x tokens"
        )
    return figure_frame("loss", FigureData(found))


def _read(source: Path, words: list[str]) -> pd.DataFrame:
    """The curves in a CSV file; of the labels among ``words``, where there are any."""
    from madbench.analysis.figures.registry import FIGURES
    from madbench.labels import expand

    named, overrides = labels_and_overrides(words)
    if overrides:
        raise ConfigError(f"{overrides[0]!r} has no effect with --from: the CSV holds what is drawn")
    curves = FIGURES["loss"].read(source)
    labels = expand(named)
    for label in labels:
        if label not in set(curves.label):
            raise ConfigError(f"{source}: holds no curve of {label!r}{did_you_mean(label, curves.label.unique())}")
    return curves[curves.label.isin(labels)] if labels else curves
