"""Figures of what is stored: ``madbench plot`` and ``lm plot``."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from rich.console import Console

from madbench.analysis.marked_text import Width
from madbench.cli import options
from madbench.cli.options import argument, labels_and_overrides, option, output_option, split_list
from madbench.errors import ConfigError, StoreError, did_you_mean
from madbench.labels import expand
from madbench.suites.language import TASK

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from madbench.analysis.figures.panels import Layout
    from madbench.analysis.stored import Selection

FIGURE_NAMES = ("mad", "learning", "loss", "effects", "budget", "difficulty")


@dataclass(frozen=True)
class LayoutOptions:
    """Options of any figure."""

    width: option(
        Width | None,
        "Fill a column of a paper, in pages of 3.3 x 2.5 inches with the caption as a text beside them, or both (6.9).",
        show_default="as wide as it needs",
    ) = None
    no_title: option(bool, "Without the title above; of a single column, in the caption.", "--no-title") = False
    no_caption: option(bool, "Without the sentences below; of a single column, in the caption.", "--no-caption") = False

    @property
    def layout(self) -> Layout:
        from madbench.analysis.figures.panels import Layout

        return Layout(self.width, not self.no_title, not self.no_caption)


def plot(
    words: argument(
        list[str] | None,
        "FIGURE|LABEL|KEY=VALUE",
        f"Figures: {', '.join(FIGURE_NAMES)}; all by default. {options.LABELS_HELP} All labels in the store by "
        "default.",
    ) = None,
    y: option(Literal["accuracy", "loss"] | None, "What learning curves show.", show_default="accuracy") = None,
    cost: option(
        Literal["budget_ratio", "mixer_parameters"] | None,
        "What the budget figure counts.",
        show_default="budget_ratio",
    ) = None,
    *,
    stored: options.StoredOptions,
    named: options.NameOptions,
    shape: LayoutOptions,
    output: output_option("Folder of the files.", show_default="RESULTS/plots") = None,
) -> None:
    """Draw what the store holds under one protocol: every figure as PNG and PDF, with the CSV of exactly what it shows.

    mad         accuracy per task by label, with intervals and every seed
    learning    accuracy or loss of the MAD runs against the step
    loss        loss curves of the language models; more of it: madbench lm plot
    effects     what each factor of the labels is worth, as madbench attribute
    budget      accuracy and L5 against the parameters, with the Pareto front
    difficulty  accuracy against length, vocabulary, examples and noise

    Of more than eight labels, learning, loss and difficulty show eight in colour,
    the best and S, the others in grey.

    For a single column what finds no room on a page is on further ones
    (mad-2.png and so on), and title and sentences are in mad.txt.

    [bold]Examples[/bold]

      madbench plot
      madbench plot mad effects @table1 --profile full
      madbench plot learning S-c R-cg-q-12o -t in_context_recall --y loss
      madbench plot budget --cost mixer_parameters --output slides
      madbench plot mad S R-cg-q-12o --width single --no-title --no-caption
    """
    from madbench.analysis.figures.files import NothingToDrawError
    from madbench.analysis.figures.registry import FIGURES, figure_frame

    asked, others = options.names_and_labels(words or [], FIGURE_NAMES, "figure")
    names = asked or FIGURE_NAMES
    drawn = ", ".join(names)
    own = {"learning": {"y": y} if y else {}, "budget": {"x": cost} if cost else {}}
    for flag, value, name in (("--y", y, "learning"), ("--cost", cost, "budget")):
        if value and name not in names:
            raise ConfigError(f"{flag} {value}: has no effect on {drawn}; it is for {name}")
    suites = {suite for name in names for suite in FIGURES[name].suites}
    tasks = _tasks(drawn, suites, split_list(stored.tasks), stored.protocol)
    selection = dataclasses.replace(stored, tasks=tasks).selection(others)
    rows, missing = selection.available(suites)
    if missing and (not rows or "language" in missing):
        raise missing.get("language") or missing["mad"]
    why = {"missing": str(missing["mad"]).removeprefix(f"{stored.results}: ")} if missing else {}
    results = selection.results_of(rows)
    reasons = {}
    for name in names:
        try:
            with Console(stderr=True).status(f"drawing {name}"):  # nothing may be printed within: it would go to stderr
                stem = (output or stored.results / "plots") / FIGURES[name].file
                frame = figure_frame(name, results, **why)
                figure = FIGURES[name].draw(frame, layout=shape.layout, **own.get(name, {}))
                written = write_figure(figure, stem, frame)
        except NothingToDrawError as error:
            if asked:
                raise StoreError(f"{stored.results}: {name}: {error}") from error
            reasons[name] = str(error)
        else:
            print(*written, sep="\n")
    for name, reason in reasons.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    if len(reasons) == len(names):
        raise StoreError(f"{stored.results}: there is nothing to draw; madbench run G-cg-q-12o makes runs")


def language_plot(
    context: typer.Context,
    words: options.LanguageWordsArgument = None,
    x: option(Literal["step", "tokens", "seconds"], "What the losses are drawn against.") = "tokens",
    log_x: option(bool, "A logarithmic x axis, and all of the first losses.", "--log-x") = False,
    *,
    stored: options.LanguageOptions,
    named: options.NameOptions,
    shape: LayoutOptions,
    output: output_option("Files to write, without their endings.", show_default="RESULTS/plots/loss_curves") = None,
    source: option(Path | None, "Draw the CSV that an earlier plot wrote, without the store.", "--from") = None,
) -> None:
    """Draw the loss curves of stored language-model runs: a PNG, a PDF and the CSV they can be drawn again from.

    Left the losses on training batches, raw and smoothed; right those on
    validation text; seeds as a band. As in the table, only runs that can be
    compared are drawn together.

    [bold]Examples[/bold]

      madbench lm plot
      madbench lm plot S-p R-cg-q-12o G-cg-q-12o --x seconds
      madbench lm plot --from results/plots/loss_curves.csv --x step -o slide
    """
    from madbench.analysis.figures.registry import FIGURES

    output = output or stored.results / "plots" / "loss_curves"
    stem = output.with_suffix("") if output.suffix in (".png", ".pdf", ".csv") else output
    if source is None:
        frame = _stored_curves(stored.selection(words), x)
    else:
        for choice in vars(stored):
            if context.get_parameter_source(choice).name != "DEFAULT":
                raise ConfigError(f"--{choice} has no effect with --from: the CSV holds what is drawn")
        frame = _read_curves(source, words or [])
    figure = FIGURES["loss"].draw(frame, x=x, log_x=log_x, layout=shape.layout)
    print(*write_figure(figure, stem, frame if source is None else None), sep="\n")


def write_figure(figure: Figure, stem: Path, frame: pd.DataFrame | None = None) -> list[Path]:
    """Writes the figure's pages as PNG and PDF, and before them ``frame``, which it shows, as CSV; gives the paths."""
    from madbench.analysis.figures.files import save_figure, write_frame

    csv = [] if frame is None else [stem.with_name(f"{stem.name}.csv")]
    for path in csv:
        write_frame(frame, path)
    return [*csv, *save_figure(figure, stem)]


def _tasks(drawn: str, suites: set[str], tasks: list[str] | None, protocol: str | None) -> list[str] | None:
    """The tasks of the figures. Raises ``ConfigError`` where ``tasks`` or ``protocol`` have no effect on them."""
    if protocol and "language" not in suites:
        raise ConfigError(f"--protocol {protocol}: has no effect on {drawn}, which are of MAD tasks")
    if suites == {"language"} and tasks not in (None, [TASK]):
        raise ConfigError(f"--tasks {','.join(tasks)}: has no effect on {drawn}, which is of {TASK}")
    if suites == {"mad"} and tasks == [TASK]:
        problem = f"has no effect on {drawn}, of MAD tasks; madbench plot loss draws language models"
        raise ConfigError(f"--tasks {TASK}: {problem}")
    return [TASK] if suites == {"language"} else tasks


def _stored_curves(selection: Selection, x: str) -> pd.DataFrame:
    """The curves of the stored runs. Raises ``ConfigError`` where these cannot be compared along ``x``."""
    from madbench.analysis.figures.registry import figure_frame
    from madbench.analysis.loss_curves import timing_differences

    found = selection.select()
    differing = ", ".join(timing_differences(found.language_runs)).replace("_", " ")
    if x == "seconds" and differing:
        problem = f"the runs differ in {differing}, so their times cannot be compared; use --x tokens"
        raise ConfigError(f"--x seconds: {problem}")
    return figure_frame("loss", found)


def _read_curves(source: Path, words: list[str]) -> pd.DataFrame:
    """The curves in a CSV file; of the labels among ``words``, where there are any."""
    from madbench.analysis.figures.registry import FIGURES

    named, overrides = labels_and_overrides(words)
    if overrides:
        raise ConfigError(f"{overrides[0]!r} has no effect with --from: the CSV holds what is drawn")
    curves = FIGURES["loss"].read(source)
    labels = expand(named)
    for label in labels:
        if label not in set(curves.label):
            raise ConfigError(f"{source}: holds no curve of {label!r}{did_you_mean(label, curves.label.unique())}")
    return curves[curves.label.isin(labels)] if labels else curves
