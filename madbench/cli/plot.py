from __future__ import annotations

import enum
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    LanguageProtocolOption,
    ProfileOption,
    ResultsOption,
    StoredTasksOption,
    split_list,
)
from madbench.cli.selection import Selection
from madbench.errors import ConfigError, StoreError, did_you_mean

if TYPE_CHECKING:
    from madbench.analysis.figures.data import FigureData

_KINDS = ("mad", "learning", "loss", "effects", "budget", "difficulty")


class LearningQuantity(str, enum.Enum):
    accuracy = "accuracy"
    loss = "loss"


class Cost(str, enum.Enum):
    budget_ratio = "budget_ratio"
    mixer_parameters = "mixer_parameters"


def plot(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND|LABEL|KEY=VALUE",
            help="Kinds of figures: mad, learning, loss, effects, budget, difficulty; all by default. "
            + LABELS_HELP
            + " All labels in the store by default.",
        ),
    ] = None,
    y: Annotated[
        LearningQuantity | None, typer.Option("--y", help="What learning curves show.", show_default="accuracy")
    ] = None,
    cost: Annotated[
        Cost | None, typer.Option("--cost", help="What the budget figure counts.", show_default="budget_ratio")
    ] = None,
    profile: ProfileOption = "quick",
    tasks: StoredTasksOption = None,
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    protocol: LanguageProtocolOption = None,
    results: ResultsOption = RESULTS,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the files.", show_default="RESULTS/plots")
    ] = None,
) -> None:
    """Draw what the store holds under one protocol: a PNG, a PDF and the CSV of exactly what is drawn, a kind each.

    mad         accuracy per task by label, with intervals and every seed
    learning    accuracy or loss of the MAD runs against the step
    loss        loss curves of the language models; more of it: madbench lm plot
    effects     what each factor of the labels is worth, as madbench attribute
    budget      accuracy and L5 against the parameters, with the Pareto front
    difficulty  accuracy against length, vocabulary, examples and noise

    Of more than eight labels, learning, loss and difficulty show eight in colour, the best and S, the others in grey.

    [bold]Examples[/bold]

      madbench plot
      madbench plot mad effects @table1 --profile full
      madbench plot learning S-c R-cg-q-12o -t in_context_recall --y loss
      madbench plot budget --cost mixer_parameters --output slides
    """
    from rich.console import Console

    from madbench.analysis.figures.data import figure_frame
    from madbench.analysis.figures.files import save_figure
    from madbench.analysis.figures.registry import FIGURES
    from madbench.analysis.frames import NothingToDrawError, write_frame

    asked, rest = _split(words or [])
    kinds = asked or list(FIGURES)
    choices: dict[str, dict[str, str]] = {}
    for option, name, value, kind in (("--y", "y", y, "learning"), ("--cost", "x", cost, "budget")):
        if value is not None and kind not in kinds:
            raise ConfigError(f"{option} {value.value}: has no effect on {', '.join(kinds)}; it is for {kind}")
        if value is not None:
            choices[kind] = {name: value.value}
    suites = {half for kind in kinds for half in FIGURES[kind].suites}
    tasks = _tasks(kinds, suites, tasks, protocol)
    console = Console(stderr=True)
    data = _data(suites, Selection.of(rest, profile, tasks, fidelity, budget, protocol, results))
    styles = data.styles
    reasons = {}
    for kind in kinds:
        stem = (output or results / "plots") / FIGURES[kind].file
        path = stem.with_name(f"{stem.name}.csv")
        try:
            with console.status(f"drawing {kind}"):  # nothing may be printed within: it would go to stderr
                frame = figure_frame(kind, data)
                figure = FIGURES[kind].draw(frame, styles=styles, **choices.get(kind, {}))
                write_frame(frame, path)
                written = [path, *save_figure(figure, stem)]
        except NothingToDrawError as error:
            if asked:
                raise StoreError(f"{results}: {kind}: {error}") from error
            reasons[kind] = str(error)
        else:
            print(*written, sep="\n")
    for kind, reason in reasons.items():
        print(f"left out: {kind}: {reason}", file=sys.stderr)
    if len(reasons) == len(kinds):
        raise StoreError(f"{results}: there is nothing to draw; madbench run G-cg-q-12o makes runs")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The kinds among ``words``, each once, and the other words. Raises ``ConfigError`` for a kind that is none."""
    from madbench.labels import ALIASES

    kinds = [word for word in words if word in _KINDS]
    others = [word for word in words if word not in _KINDS]
    known = {name.lower() for name in ALIASES}
    for word in others:
        if re.fullmatch("[a-z]{2,}", word) and word not in known:
            raise ConfigError(f"{word!r} is neither a kind of figure nor a label{did_you_mean(word, _KINDS)}")
    return [kind for kind in _KINDS if kind in kinds], others


def _tasks(kinds: list[str], suites: set[str], tasks: list[str] | None, protocol: str | None) -> list[str] | None:
    """What ``tasks`` mean to ``kinds``. Raises ``ConfigError`` where they, or ``protocol``, have no effect on these."""
    from madbench.language_jobs import TASK

    names = ", ".join(kinds)
    asked = split_list(tasks)
    if protocol and "language" not in suites:
        raise ConfigError(f"--protocol {protocol}: has no effect on {names}, which are of MAD tasks")
    if suites == {"language"}:
        if asked and asked != [TASK]:
            raise ConfigError(f"--tasks {','.join(asked)}: has no effect on {names}, which is of {TASK}")
        return [TASK]
    if asked == [TASK] and "language" not in suites:
        raise ConfigError(
            f"--tasks {TASK}: has no effect on {names}, of MAD tasks; madbench plot loss draws language models"
        )
    return tasks


def _data(suites: set[str], selection: Selection) -> FigureData:
    """The runs of the chosen protocols; a half without runs is left out where the other one has some."""
    from madbench.analysis.figures.data import FigureData

    store = selection.store
    runs, sentences = [], []
    if "language" in suites and selection.has_language:
        runs, sentences = selection.language("there are no language-model runs as asked")
    if "mad" not in suites or not selection.has_mad:
        return FigureData(store, None, runs, sentences)
    try:
        made = selection.experiment()
    except StoreError as error:
        if not runs:
            raise
        return FigureData(store, None, runs, sentences, str(error).removeprefix(f"{selection.results}: "))
    return FigureData(store, made, runs, sentences)


def add_to(app: typer.Typer) -> None:
    app.command()(plot)
