"""Options of verbs that print results: format and display names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from madbench.analysis.marked_text import Width
from madbench.cli.shared.printing import FORMATS
from madbench.config.options import EVERY_VERB, option
from madbench.errors import no_effect

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results

FormatOption = Annotated[Literal["terminal", "json"], option("json: for programs.", "--format", "-f")]
NotesOption = Annotated[
    bool,
    option("Explain below the table how the numbers were computed and tested.", "--notes", rare="sweep paper bench"),
]


@dataclass(frozen=True)
class NameOptions:
    """The options of every verb that shows results of labels."""

    rename: Annotated[
        list[str] | None,
        option(
            "Show a label under another name: --rename 'cd:gdn-cg=Gated DeltaNet'. Repeat the option for each label. "
            "A set's file can also give names.",
            rare=EVERY_VERB,
        ),
    ] = None


@dataclass(frozen=True)
class PrintOptions(NameOptions):
    """The options of every verb that prints tables of results."""

    format: Annotated[
        str,
        option(
            f"How to print the tables: {', '.join([*FORMATS][:-1])} or {[*FORMATS][-1]}.",
            "--format",
            "-f",
            reads=Literal[tuple(FORMATS)],
            metavar="FORMAT",
        ),
    ] = "terminal"
    notes: NotesOption = False
    tex_label: Annotated[
        str | None,
        option(r"With --format latex: the name for \ref, such as tab:ablation.", metavar="NAME", rare=EVERY_VERB),
    ] = None
    latex_width: Annotated[
        Width | None,
        option(
            "With --format latex: single for one column of a two-column page, double for the page.",
            show_default="single if it fits",
            rare=EVERY_VERB,
        ),
    ] = None

    def __post_init__(self) -> None:
        for flag, value in (("--tex-label", self.tex_label), ("--latex-width", self.latex_width)):
            if value is not None and self.format != "latex":
                raise no_effect(f"{flag} {value}", "without --format latex")

    @property
    def words(self) -> dict[str, list[str]]:
        """The options that differ from their defaults: name of the field to words of the command line."""
        given = {}
        for field in dataclasses.fields(self):
            value, flag = getattr(self, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                values = value if isinstance(value, list) else [value]
                given[field.name] = [flag] if value is True else [word for each in values for word in (flag, each)]
        return given


@dataclass(frozen=True)
class CostsOptions:
    """The options of verbs that can print tables of costs below a table of results."""

    costs: Annotated[
        bool,
        option(
            "Also tabulate costs, with ratios to the first row: parameters, FLOPs, state, time of a training step.",
            "--costs",
            rare="train run sweep",
        ),
    ] = False
    full_square: Annotated[
        bool,
        option(
            "With --costs: count all T pairs of a token, in place of the causal half.",
            "--full-square",
            rare=EVERY_VERB,
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.full_square and not self.costs:
            raise no_effect("--full-square", "without --costs")

    def tables(self, results: Results, rows: Sequence[str] = ()) -> dict[str, Listing]:
        """The table of costs of each suite, by name. Empty unless the user asked for costs.

        ``rows`` are names of rows in the order in which they are shown.
        """
        from madbench.analysis.cost_table import cost_tables

        return cost_tables(results, self.full_square, rows) if self.costs else {}
