"""Options of verbs that print results: as what, and by which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from madbench.analysis.marked_text import Width
from madbench.cli.parameters import option
from madbench.errors import ConfigError
from madbench.labels import names

Format = Literal["terminal", "markdown", "latex", "csv", "html", "json"]

JsonOption = option(bool, "Print JSON for a program instead of a table.", "--json")
NotesOption = option(bool, "Explain below the table how the numbers were computed and tested.", "--notes")


@dataclass(frozen=True)
class NameOptions:
    """Options of every verb that shows results of labels."""

    name: option(
        list[str] | None, "Show a label by a name: --name 'cd:gdn-cg=Gated DeltaNet'. A set's file may have names too."
    ) = None

    def __post_init__(self):
        names.ask_words(self.name or ())


@dataclass(frozen=True)
class PrintOptions(NameOptions):
    """Options of every verb that prints tables of results."""

    format: option(Format, "How to print the tables.", "--format", "-f") = "terminal"
    as_json: JsonOption = False
    notes: NotesOption = False
    label: option(str | None, r"With --format latex: what \ref names, such as tab:ablation.", metavar="NAME") = None
    latex_width: option(
        Width | None,
        "With --format latex: as wide as a column of a two-column page, or as the page.",
        show_default="a column where it fits",
    ) = None

    def __post_init__(self):
        super().__post_init__()
        if self.as_json and self.format not in ("terminal", "json"):
            raise ConfigError(f"--json has no effect with --format {self.format}; give one of the two")
        for flag, value in (("--label", self.label), ("--latex-width", self.latex_width)):
            if value is not None and self.asked != "latex":
                raise ConfigError(f"{flag} {value}: has no effect without --format latex")

    @property
    def asked(self) -> Format:
        return "json" if self.as_json else self.format
