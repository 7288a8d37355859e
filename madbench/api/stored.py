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
from madbench.api.arguments import ChoiceArguments, field_values, with_arguments
from madbench.api.calls import public
from madbench.config.allowed import with_checked_arguments
from madbench.errors import no_effect
from madbench.labels import Label, Labels, expand

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class StoredResults:
    """A results folder that is open for reading. :func:`open` makes it."""

    results: Path

    @public
    @with_arguments(ChoiceArguments, Choice)
    def select(self, labels: Labels = (), **chosen: Unpack[ChoiceArguments]) -> Selection:
        """Select the stored runs of ``labels`` under one protocol per suite.

        The store is not read before a method of the selection, such as ``table``, is called.
        """
        choice = {"labels": expand(labels), **field_values(Choice, chosen)}
        return Selection(**choice, results=self.results, warn=functools.partial(warnings.warn, stacklevel=2))


@with_checked_arguments
def open(results: Path | str = "results") -> StoredResults:
    """Open the folder ``results`` for reading: ``madbench.open("results").select("@table1").table()``."""
    return StoredResults(Path(results))


@public
@with_arguments(ChoiceArguments, Choice)
def table(
    labels: Labels = (),
    *,
    results: Path | str = "results",
    ranks: bool = False,
    costs: bool = False,
    full_square: bool = False,
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The table of the stored runs, one row per label and column.

    The columns of the frame include the mean, its interval, the standard deviation (``spread``), the solved seeds, the
    published number, the score of a guess (``chance``) and the score of the best answer without context
    (``heuristic``). With ``ranks`` there are also ``rank``, ``rank_low`` and ``rank_high``: a simultaneous 95% interval
    for all labels of a column.

    With ``costs`` one row per label and cost follows, as with ``madbench table --costs``. ``task`` is then
    ``parameters``, ``flops_per_token``, ``state``, ``step_ms`` or ``memory_mib``. ``mean`` is the cost, in the unit
    that the column ``unit`` names, and ``ratio`` its ratio to the cost of the label in the column ``baseline``.

    With ``full_square``, FLOPs count the pairs of each token with all tokens of the sequence, instead of those with the
    token itself and earlier tokens.
    """
    from madbench.analysis.tables import TableOptions  # imports scipy

    _check_full_square(full_square, costs)
    selection = open(results).select(labels, **chosen)
    selected = selection.select()
    text_table = selection.table_of(selected, TableOptions(shows="rank" if ranks else "interval"))
    return ShownFrame.from_table(
        text_table, cost_tables(selected, full_square, list(text_table.rows)).values() if costs else ()
    )


@public
@with_arguments(ChoiceArguments, Choice)
def compare(
    labels: Sequence[str | type | Label],
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    within: float | Mapping[str, float] | None = None,
    costs: bool = False,
    full_square: bool = False,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """Compare the first label with each of the others. One row per label and column.

    A row has the difference, its interval, p and a verdict. ``within`` is a margin in points for all columns, or one
    margin per column, such as ``{"mad_average": 2, "loss_l5": 0.02}``. If it is given, a row also has the result of a
    test of whether the difference is within the margin: ``equivalence`` is ``equivalent``, ``no worse``, ``no better``
    or ``not shown``.

    With ``costs`` one row per label and cost follows, as for :func:`table`. With ``full_square`` FLOPs count all T
    pairs of a token, in place of the causal half.
    """
    _check_full_square(full_square, costs)
    selection = open(results).select(labels, **chosen)
    results_to_compare = selection.select_to_compare()
    text_table = selection.comparison_of(results_to_compare, within)
    return ShownFrame.from_table(text_table, cost_tables(results_to_compare, full_square).values() if costs else ())


@public
@with_arguments(ChoiceArguments, Choice)
def attribute(
    labels: Labels = (),
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """The mean effect of each factor of the labels on the main columns, and the interactions of every two factors.

    The effect of a factor is the mean difference between labels that differ in this factor only. The frame also has one
    row per such pair of labels. Raises ``StoreError`` if no two labels differ in exactly one factor.
    """
    selection = open(results).select(labels, **chosen)
    return ShownFrame.from_table(selection.attribute())


@public
@with_arguments(ChoiceArguments, Choice)
def audit(
    labels: Labels = (),
    *,
    results: Path | str = "results",
    against: str | None = None,
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """Audit how well each column of a profile's table ranks labels. One row per column.

    A row says how well the seeds agree on the order of the labels. It has the shares of labels that are at chance, that
    are at the heuristic (the best answer without context), and that solve the task. It has the rank correlations of the
    column with other columns and with published numbers.

    ``against`` is the name of another profile. If it is given, the frame instead says which orders and differences of
    labels also hold under that profile. Raises ``StoreError`` if no run of that profile is stored.
    """
    selection = open(results).select(labels, **chosen)
    if against is None:
        return ShownFrame.from_table(selection.audit())
    other: ChoiceArguments = {**chosen, "profile": against, "protocol": None}
    return ShownFrame.from_table(selection.audit(open(results).select(labels, **other)))


@public
@with_arguments(ChoiceArguments, Choice)
def findings(
    labels: Labels = (),
    *,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    claims: Path | str | None = None,
    unscaled: bool = False,
    **chosen: Unpack[ChoiceArguments],
) -> pd.DataFrame:
    """Test claims on the stored runs. The frame has one row per claim and quantity, with a verdict.

    Args:
        claims: a file of claims or the name of a paper. Default: every paper with claims on the stored labels.
        unscaled: True to use the published thresholds, in accuracy points, unchanged. By default a threshold that the
            paper states as a share of its accuracies is scaled to the accuracies that the profile can reach.
    """
    selection = open(results).select(labels, **chosen)
    return ShownFrame.from_table(selection.findings(claims, unscaled))


@public
@with_arguments(ChoiceArguments, Choice)
def plot(
    figure: str,
    labels: Labels = (),
    *,
    width: Width | None = None,
    title: bool = True,
    caption: bool = True,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    **chosen: Unpack[ChoiceArguments],
) -> Figure:
    """Draw a figure of the stored runs.

    ``figure`` is ``scores``, ``learning``, ``difficulty``, ``loss``, ``effects`` or ``budget``. ``width`` is ``single``
    for one column of a paper, 3.3 inches, or ``double`` for the page, 6.9 inches. By default the figure is as wide as
    its panels need. ``title`` and ``caption`` are False to leave out the title and the notes.

    A figure may have several pages: the attribute ``following`` of the first has the others. A page of a figure with
    the width ``single`` is 2.5 inches high. Its title and notes are not in the picture but in its attribute
    ``caption``.

    Raises ``NothingToDrawError`` if there is nothing to draw.
    """
    selection = open(results).select(labels, **chosen)
    return selection.plot(figure, width, title, caption)


def _check_full_square(full_square: bool, costs: bool) -> None:
    if full_square and not costs:
        raise no_effect("full_square=True", "without costs=True")
