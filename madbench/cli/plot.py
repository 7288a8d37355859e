from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from madbench.cli.options import LABELS_HELP, argument, option, split_list, with_groups
from madbench.cli.selection import StoredOptions
from madbench.errors import ConfigError, StoreError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.figures.data import FigureData
    from madbench.analysis.stored import Selection

_FIGURES = ("mad", "learning", "loss", "effects", "budget", "difficulty")


@with_groups
def plot(
    words: argument(
        list[str] | None,
        "FIGURE|LABEL|KEY=VALUE",
        f"Figures: {', '.join(_FIGURES)}; all by default. {LABELS_HELP} All labels in the store by default.",
    ) = None,
    y: option(Literal["accuracy", "loss"] | None, "What learning curves show.", show_default="accuracy") = None,
    cost: option(
        Literal["budget_ratio", "mixer_parameters"] | None,
        "What the budget figure counts.",
        show_default="budget_ratio",
    ) = None,
    *,
    stored: StoredOptions,
    output: option(Path | None, "Folder of the files.", "--output", "-o", show_default="RESULTS/plots") = None,
) -> None:
    """Draw what the store holds under one protocol: every figure as PNG and PDF, with the CSV of exactly what it shows.

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
    from madbench.analysis.figures.data import figure_frame
    from madbench.analysis.figures.registry import FIGURES
    from madbench.analysis.frames import NothingToDrawError

    asked, others = _split(words or [])
    names = asked or _FIGURES
    choices = {"learning": {"y": y} if y else {}, "budget": {"x": cost} if cost else {}}
    for flag, value, name in (("--y", y, "learning"), ("--cost", cost, "budget")):
        if value and name not in names:
            raise ConfigError(f"{flag} {value}: has no effect on {', '.join(names)}; it is for {name}")
    suites = {suite for name in names for suite in FIGURES[name].suites}
    tasks = _tasks(names, suites, split_list(stored.tasks), stored.protocol)
    data = _data(dataclasses.replace(stored, tasks=tasks).selection(others), suites)
    reasons = {}
    for name in names:
        try:
            with Console(stderr=True).status(f"drawing {name}"):  # nothing may be printed within: it would go to stderr
                stem = (output or stored.results / "plots") / FIGURES[name].file
                written = write_figure(name, figure_frame(name, data), stem, **choices.get(name, {}))
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


def write_figure(name: str, frame: pd.DataFrame, stem: Path, with_csv: bool = True, **choices: Any) -> list[Path]:
    """Draws a figure of the registry and writes it, and ``frame`` first as CSV; gives the paths."""
    from madbench.analysis.figures.files import save_figure
    from madbench.analysis.figures.registry import FIGURES
    from madbench.analysis.frames import write_frame

    figure = FIGURES[name].draw(frame, **choices)
    csv = [stem.with_name(f"{stem.name}.csv")] if with_csv else []
    for path in csv:
        write_frame(frame, path)
    return [*csv, *save_figure(figure, stem)]


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """The figures among ``words``, each once, and the other words. Raises ``ConfigError`` for what is neither."""
    from madbench.labels import ALIASES

    others = [word for word in words if word not in _FIGURES]
    known = {name.lower() for name in ALIASES}
    for word in others:
        if re.fullmatch("[a-z]{2,}", word) and word not in known:
            raise ConfigError(f"{word!r} is neither a figure nor a label{did_you_mean(word, _FIGURES)}")
    return [name for name in _FIGURES if name in words], others


def _tasks(names: list[str], suites: set[str], tasks: list[str] | None, protocol: str | None) -> list[str] | None:
    """The tasks of the figures. Raises ``ConfigError`` where ``tasks`` or ``protocol`` have no effect on them."""
    from madbench.suites.language import TASK

    drawn = ", ".join(names)
    if protocol and "language" not in suites:
        raise ConfigError(f"--protocol {protocol}: has no effect on {drawn}, which are of MAD tasks")
    if suites == {"language"} and tasks and tasks != [TASK]:
        raise ConfigError(f"--tasks {','.join(tasks)}: has no effect on {drawn}, which is of {TASK}")
    if suites == {"mad"} and tasks == [TASK]:
        raise ConfigError(
            f"--tasks {TASK}: has no effect on {drawn}, of MAD tasks; madbench plot loss draws language models"
        )
    return [TASK] if suites == {"language"} else tasks


def _data(selection: Selection, suites: set[str]) -> FigureData:
    """The runs of the chosen protocols; a suite without runs is left out where the other one has some."""
    from madbench.analysis.figures.data import FigureData

    rows, missing = [], {}
    if "language" in suites and selection.has_language:
        rows = selection.language("there are no language-model runs as asked")
    if "mad" in suites and selection.has_mad:
        try:
            rows = [*selection.mad(), *rows]
        except StoreError as error:
            if not rows:
                raise
            missing = {"missing": str(error).removeprefix(f"{selection.results}: ")}
    return FigureData(selection.results_of(rows), **missing)
