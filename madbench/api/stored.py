"""The functions that show stored runs, and the results folder that ``open`` opens."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import pandas as pd

from madbench.analysis.choice import Choice
from madbench.analysis.cost_table import cost_tables
from madbench.analysis.marked_text import Width
from madbench.analysis.selection import Selection
from madbench.analysis.shown_frame import ShownFrame
from madbench.api.arguments import ChoiceArguments, field_values, shows_arguments
from madbench.api.calls import public
from madbench.errors import ConfigError
from madbench.labels import expand

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StoredResults:
    """A results folder that is open for reading. :func:`open` makes it."""

    results: Path

    @public
    @shows_arguments(ChoiceArguments, Choice)
    def select(self, labels: str | Sequence[str] = (), **chosen: Unpack[ChoiceArguments]) -> Selection:
        """The stored runs of labels under one protocol. The arguments are those that all functions share.

        Nothing is read before a method of the selection asks for it.
        """
        choice = {"labels": expand(labels), **field_values(Choice, chosen)}
        return Selection(**choice, results=self.results, warn=functools.partial(warnings.warn, stacklevel=2))


def open(results: Path | str = "results") -> StoredResults:
    """Open a results folder for reading: ``madbench.open("results").select("@table1").table()``."""
    return StoredResults(Path(results))


@public
@shows_arguments(ChoiceArguments, Choice)
def table(
    labels: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    ranks: bool = False,
    costs: bool = False,
    full_square: bool = False,
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The table of the stored runs, one row per label and column.

    The columns are the mean, its interval, the standard deviation (``spread``), the solved seeds, the published number,
    and the scores of a guess (``chance``) and of the best answer without context (``heuristic``). With ``ranks`` there
    are also ``rank``, ``rank_low`` and ``rank_high``: a simultaneous 95% interval for all labels of a column.

    With ``costs`` a row per label and cost follows, as with ``madbench table --costs``: ``task`` is ``parameters``,
    ``flops_per_token``, ``state``, ``step_ms`` or ``memory_mib``, ``mean`` the cost in ``unit``, and ``ratio`` the
    ratio to the label ``baseline``. With ``full_square`` FLOPs count all T pairs of a token, in place of the causal
    half. The tables of costs are ``below`` of the frame, one per suite.
    """
    _check_full_square(full_square, costs)
    selection = open(results).select(labels, **chosen)
    selected = selection.select()
    text_table = selection.table_of(selected, shows="rank" if ranks else "interval")
    return ShownFrame.from_table(
        text_table, cost_tables(selected, full_square, list(text_table.rows)).values() if costs else ()
    )


@public
@shows_arguments(ChoiceArguments, Choice)
def compare(
    labels: Sequence[str],
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    within: float | Mapping[str, float] | None = None,
    costs: bool = False,
    full_square: bool = False,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The comparison of the first label with each of the others: difference, interval, p and verdict per column.

    ``within`` is a margin for all columns in points, or by column, such as ``{"mad_average": 2, "loss_l5": 0.02}``. If
    it is given, a test of whether the difference is within the margin is added (``equivalence``: equivalent, no worse,
    no better, not shown).

    With ``costs`` a row per label and cost follows, as for :func:`table`.
    """
    _check_full_square(full_square, costs)
    selection = open(results).select(labels, **chosen)
    results_to_compare = selection.select_to_compare()
    text_table = selection.comparison_of(results_to_compare, within)
    return ShownFrame.from_table(text_table, cost_tables(results_to_compare, full_square).values() if costs else ())


@public
@shows_arguments(ChoiceArguments, Choice)
def attribute(
    labels: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The mean effect of each factor of the labels on the main columns, and the interactions of every two factors.

    The effect of a factor is the difference between labels that differ in this factor only. The frame also has these
    pairs. Raises ``StoreError`` if no two labels differ in exactly one factor.
    """
    selection = open(results).select(labels, **chosen)
    return ShownFrame.from_table(selection.attribute())


@public
@shows_arguments(ChoiceArguments, Choice)
def audit(
    labels: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    against: str | None = None,
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """Audit how well each column of a profile's table ranks labels. One row per column.

    A row has the agreement of the seeds about the labels. It also has the shares of labels that are at chance, that are
    at the heuristic, and that solve the task, and the rank correlations with other columns and with published numbers.

    ``against`` is the name of another profile. If it is given, the frame instead says which orders and differences of
    labels also hold under that profile. Raises ``StoreError`` if no run of that profile is stored.
    """
    selection = open(results).select(labels, **chosen)
    if against is None:
        return ShownFrame.from_table(selection.audit())
    other: ChoiceArguments = {**chosen, "profile": against, "protocol": None}
    return ShownFrame.from_table(selection.audit(open(results).select(labels, **other)))


@public
@shows_arguments(ChoiceArguments, Choice)
def findings(
    labels: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    claims: Path | str | None = None,
    unscaled: bool = False,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The verdicts of the stored runs on claims: one row per claim and quantity.

    Args:
        claims: a file of claims or the name of a paper. Default: every paper with claims on the stored labels.
        unscaled: True to keep thresholds that are shares of published accuracies in the paper's points. By default
            these thresholds are scaled to the profile.
    """
    selection = open(results).select(labels, **chosen)
    return ShownFrame.from_table(selection.findings(claims, unscaled))


@public
@shows_arguments(ChoiceArguments, Choice)
def plot(
    figure: str,
    labels: str | Sequence[str] = (),
    *,
    width: Width | None = None,
    title: bool = True,
    caption: bool = True,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> Figure:
    """A Matplotlib figure of the stored runs: ``scores``, ``learning``, ``difficulty``, ``loss``, ``effects`` or
    ``budget``.

    ``width`` is ``single`` for one column of a paper, 3.3 inches, or ``double`` for the page, 6.9 inches. By default
    the figure is as wide as it needs. A figure of a single column is 2.5 inches high; its attribute ``following`` has
    further pages, and ``caption`` has the title and the sentences.

    Raises ``NothingToDrawError`` if there is nothing to draw.
    """
    selection = open(results).select(labels, **chosen)
    return selection.plot(figure, width, title, caption)


def _check_full_square(full_square: bool, costs: bool) -> None:
    if full_square and not costs:
        raise ConfigError("full_square=True has no effect without costs=True")
