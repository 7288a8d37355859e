"""``madbench plot``: draw figures of stored runs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from rich.console import Console

from madbench.analysis.figures import figure_names, suites_of_figure
from madbench.analysis.marked_text import Width
from madbench.cli.shared import options
from madbench.cli.shared.parameters import output_option
from madbench.cli.shared.print_options import NameOptions
from madbench.cli.shared.words import labels_and_overrides, names_and_labels
from madbench.config import short_repr
from madbench.config.options import EVERY_VERB, argument, option
from madbench.errors import ConfigError, StoreError, did_you_mean, no_effect
from madbench.labels import expand
from madbench.store.results_folder import training_command
from madbench.suites import suites
from madbench.suites.addressing import tasks_by_suite

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from madbench.analysis.figures.panels import Layout
    from madbench.analysis.scores import Results
    from madbench.analysis.selection import Selection
    from madbench.suites import Suite


@dataclass(frozen=True)
class LayoutOptions:
    """The options of every figure: its width, and if it has a title and a caption."""

    width: Annotated[
        Width | None,
        option(
            "single: a column of a paper, as pages of 3.3 x 2.5 inches and a text file with the caption. double: 6.9 "
            "in.",
            show_default="as wide as it needs",
            rare=EVERY_VERB,
        ),
    ] = None
    no_title: Annotated[
        bool, option("Leave out the title, also in the caption file of --width single.", "--no-title", rare=EVERY_VERB)
    ] = False
    no_caption: Annotated[
        bool,
        option(
            "Leave out the sentences below the figure, also in the caption file of --width single.",
            "--no-caption",
            rare=EVERY_VERB,
        ),
    ] = False

    @property
    def layout(self) -> Layout:
        from madbench.analysis.figures.panels import Layout

        return Layout(self.width, not self.no_title, not self.no_caption)


def plot(
    words: Annotated[
        list[str] | None,
        argument(
            "FIGURE|LABEL|KEY=VALUE",
            "Figures: scores, learning, loss, effects, budget, difficulty; all by default. "
            f"{options.LABELS_HELP} All labels in the store by default.",
        ),
    ] = None,
    y: Annotated[
        Literal["accuracy", "loss"] | None, option("Quantity of the learning curves.", show_default="accuracy")
    ] = None,
    x: Annotated[
        Literal["step", "tokens", "seconds"] | None, option("Quantity on the x axis of losses.", show_default="tokens")
    ] = None,
    log_x: Annotated[bool, option("Losses on a logarithmic x axis, with all first losses.", "--log-x")] = False,
    cost: Annotated[
        Literal["budget_ratio", "mixer_parameters", "flops_per_token", "state"] | None,
        option(
            "Quantity on the x axis of the budget figure.",
            show_default="budget_ratio",
        ),
    ] = None,
    *,
    stored_options: options.StoredOptions,
    name_options: NameOptions,
    shape: LayoutOptions,
    output: Annotated[
        Path | None,
        output_option(
            "Folder of the files. Or, for one figure, the file to write, such as fig.pdf or fig.png.",
            show_default="RESULTS/plots",
        ),
    ] = None,
    source: Annotated[Path | None, option("Draw from the CSV of an earlier plot, without the store.", "--from")] = None,
) -> None:
    """Draw figures of stored runs, under one protocol.

    Each figure is a PNG and a PDF, with a CSV of the data that it shows. With
    --output FILE.pdf or FILE.png only this file is written, of one figure.

    scores      results of every task by label, with intervals and every seed
    learning    accuracy or loss of the MAD runs against the step
    loss        losses of language models, on training batches and validation text
    effects     the effect of each factor of the labels, as in madbench attribute
    budget      accuracy and L5 against parameters, FLOPs or state (--cost),
                with the Pareto front
    difficulty  accuracy against length, vocabulary, examples and noise

    With more than eight labels, learning, loss and difficulty highlight the best
    eight, including S, and draw the others in gray.

    For a single column, further pages have the parts that do not fit on the first
    (scores-2.png and so on); title and caption are in scores.txt.

    [bold]Examples[/bold]

      madbench plot
      madbench plot scores effects @table1 --profile full
      madbench plot learning S-c R-cg-q-12o -t in_context_recall --y loss
      madbench plot loss -t language_model --x seconds --log-x
      madbench plot loss --from results/plots/loss_curves.csv --output slides
      madbench plot budget S-p KDA 3xKDA/S-p --cost state -p evening-4
      madbench plot scores S R-cg-q-12o --output scores.pdf
      madbench plot scores S R-cg-q-12o --width single --no-title --no-caption
    """
    from madbench.analysis.figures.registry import drawing_of

    requested_names, others = names_and_labels(words or [], figure_names(), "figure")
    choices = _choices({"learning": {"y": y}, "loss": {"x": x, "log_x": log_x}, "budget": {"x": cost}})
    flags = {"--y": (y, "learning"), "--x": (x, "loss"), "--log-x": (log_x, "loss"), "--cost": (cost, "budget")}
    _check_flags(flags, requested_names or figure_names())
    place = FigurePlace.from_option(output, stored_options.results)
    if place.format and len(requested_names) != 1:
        figures = " and ".join(requested_names) or "every figure"
        raise ConfigError(f"--output {output}: one file, but {figures} would be drawn; name one figure, or a folder")
    if source is None:
        _check_suites(requested_names, stored_options.tasks)
        selection = _with_usual_tasks(stored_options, requested_names).selection(others)
        _draw_stored(selection, requested_names, choices, shape.layout, place)
        return
    if len(requested_names) != 1:
        raise ConfigError(f"--from {source}: name the one figure whose CSV it is, such as loss")
    _check_no_choice(stored_options)
    (name,) = requested_names
    drawing, frame = drawing_of(name), _read_frame(source, name, others)
    figure = drawing.draw(frame, layout=shape.layout, **choices.get(name, {}))
    print(*place.write(figure, drawing.file), sep="\n")


Choices = Mapping[str, Mapping[str, Any]]
"""Keyword arguments for drawing figures: name of a figure to its arguments."""


def _choices(of_figures: Choices) -> Choices:
    """A copy of ``of_figures`` without the arguments that the user did not give, whose value is false, such as None."""
    return {name: {key: value for key, value in of_figure.items() if value} for name, of_figure in of_figures.items()}


def _check_flags(flags: Mapping[str, tuple[Any, str]], names: Sequence[str]) -> None:
    """Raise ``ConfigError`` for an option that the user gave for a figure that is not drawn.

    ``flags`` maps each option to its value and the name of its figure. ``names`` are the figures that are drawn.
    """
    for flag, (value, name) in flags.items():
        if value and name not in names:
            setting = flag if value is True else f"{flag} {value}"
            raise no_effect(setting, f"on {', '.join(names)}; it is for {name}")


def _draw_stored(
    selection: Selection,
    requested_names: Sequence[str],
    choices: Choices,
    layout: Layout,
    place: FigurePlace,
) -> None:
    """Draw figures of the selected runs and print the paths of their files.

    Without requested figures, every figure that has data is drawn. ``choices`` has arguments of the drawings, and
    ``place`` the folder or file to write. Raises ``StoreError`` for a requested figure without data, and if no figure
    has data.
    """
    from madbench.analysis.figures.files import NothingToDrawError
    from madbench.analysis.figures.registry import drawing_of, figure_frame

    rows, missing = selection.available()
    lacking = selection.lacking(missing)
    if lacking or not rows:
        raise (lacking or list(missing.values()))[0]
    results = selection.results_of(rows)
    store = results.store.root
    reason_by_suite = {name: str(error).removeprefix(f"{store}: ") for name, error in missing.items()}
    names, reasons = requested_names or figure_names(results.suites), {}
    for name in names:
        try:
            with Console(stderr=True).status(f"drawing {name}"):  # no printing here: it would go to stderr
                drawing = drawing_of(name)
                if choices.get(name, {}).get("x") == "seconds":
                    _check_times(results)
                frame = figure_frame(name, results, reason_by_suite)
                figure = drawing.draw(frame, layout=layout, **choices.get(name, {}))
                files = place.write(figure, drawing.file, frame)
        except NothingToDrawError as error:
            if requested_names:
                raise StoreError(f"{store}: {name}: {error}") from error
            reasons[name] = str(error)
        else:
            print(*files, sep="\n")
    for name, reason in reasons.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    if len(reasons) == len(names):
        raise StoreError(f"{store}: there is nothing to draw; {training_command(store)} makes some runs")


@dataclass(frozen=True)
class FigurePlace:
    """The place where figures are written: a folder for the files of any figures, or one file for one figure."""

    path: Path
    format: str = ""
    """The format of the file, ``png`` or ``pdf``. Empty if :attr:`path` is a folder."""

    @classmethod
    def from_option(cls, output: Path | None, results: Path) -> Self:
        """The place that ``output``, the value of ``--output``, names. By default the folder ``plots`` in ``results``.

        A path is a file if it has a suffix of letters, unlike ``two.v2``, and is not the path of a folder. Raises
        ``ConfigError`` for a file that is neither ``.png`` nor ``.pdf``.
        """
        if output is None or not output.suffix[1:].isalpha() or output.is_dir():
            return cls(output or results / "plots")
        if output.suffix not in (".pdf", ".png"):
            problem = f"no figure is written as {output.suffix}; name a .pdf or a .png file, or a folder"
            problem += f" without {output.suffix}"
            raise ConfigError(f"--output {output}: {problem}")
        return cls(output, output.suffix[1:])

    @classmethod
    def folder_from_option(cls, output: Path | None, results: Path) -> Self:
        """Like :meth:`from_option`, for a command that may draw several figures and therefore needs a folder.

        Raises ``ConfigError`` if ``--output`` names a file.
        """
        place = cls.from_option(output, results)
        if place.format:
            raise ConfigError(f"--output {output}: one file, but there may be several figures; name a folder")
        return place

    def write(self, figure: Figure, name: str, frame: pd.DataFrame | None = None) -> list[Path]:
        """Write the pages of a figure and return the paths.

        In a folder, the pages are PNG and PDF, and the files are called ``name``. ``frame`` is written as CSV beside
        them; None to write no CSV.
        """
        from madbench.analysis.figures.files import save_figure, write_frame

        if self.format:
            return save_figure(figure, self.path.with_suffix(""), [self.format], follow_links=True)
        paths = []
        if frame is not None:
            paths = [self.path / f"{name}.csv"]
            write_frame(frame, paths[0])
        return [*paths, *save_figure(figure, self.path / name)]


def _suites_of(figures: Sequence[str]) -> list[Suite]:
    """The suites whose results the figures show. Empty if one of the figures can show any suite."""
    owners = [suites_of_figure(name) for name in figures]
    return list(dict.fromkeys(suite for of_figure in owners for suite in of_figure)) if all(owners) else []


def _check_suites(figures: Sequence[str], tasks: Sequence[str] | None) -> None:
    """Raise ``ConfigError`` if one of ``tasks`` belongs to a suite whose results the figures do not show."""
    owners, names_text = _suites_of(figures), ", ".join(figures)
    if not owners:
        return
    titles = " and ".join(suite.title for suite in owners)
    if tasks is not None and (foreign := [name for name in tasks_by_suite(tasks) if suites()[name] not in owners]):
        of_these = [task for name in foreign for task in tasks_by_suite(tasks)[name]]
        raise no_effect(f"--tasks {','.join(of_these)}", f"on {names_text}, of {titles}")


def _with_usual_tasks(stored_options: options.StoredOptions, figures: Sequence[str]) -> options.StoredOptions:
    """Return the options, to which the usual tasks of the figures' suites are added if the user gave no tasks."""
    owners = _suites_of(figures) if stored_options.tasks is None and figures else []
    tasks = [task for suite in owners for task in suite.usual_tasks()]
    return dataclasses.replace(stored_options, tasks=tasks) if tasks else stored_options


def _check_times(results: Results) -> None:
    """Raise ``ConfigError`` if the times of the runs cannot be compared, because they differ in machine or settings."""
    from madbench.suites.scoring import scoring_of  # imports pandas

    differing = [
        name
        for suite in results.suites_with_result
        for name in scoring_of(suite).timing_differences(results.runs(suite))
    ]
    if differing:
        differing_names = ", ".join(differing).replace("_", " ")
        problem = f"the runs differ in {differing_names}, so their times cannot be compared; use --x tokens"
        raise ConfigError(f"--x seconds: {problem}")


def _check_no_choice(stored_options: options.StoredOptions) -> None:
    """Raise ``ConfigError`` if the user gave an option that selects stored runs. It has no effect with ``--from``."""
    if stored_options.given:
        raise no_effect(f"--{stored_options.given[0]}", "with --from", "the CSV holds what is drawn")


def _read_frame(source: Path, name: str, words: list[str]) -> pd.DataFrame:
    """Read the data of the figure ``name`` from ``source``, the CSV file of an earlier plot.

    ``words`` are the labels to keep; without labels, all are kept. Raises ``ConfigError`` for overrides among the
    words, and for a label that the file does not have.
    """
    from madbench.analysis.figures.registry import drawing_of

    typed_labels, overrides = labels_and_overrides(words)
    if overrides:
        raise no_effect(short_repr(str(overrides[0])), "with --from", "the CSV holds what is drawn")
    frame = drawing_of(name).read(source)
    labels = expand(typed_labels)
    for label in labels:
        if label not in set(frame.label):
            raise ConfigError(
                f"{source}: holds no curve of {short_repr(label)}{did_you_mean(label, frame.label.unique())}"
            )
    return frame[frame.label.isin(labels)] if labels else frame
