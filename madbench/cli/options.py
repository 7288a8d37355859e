"""Options that several verbs share."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from madbench.errors import ConfigError, LabelError

if TYPE_CHECKING:
    from madbench.labels import Variant


class Fidelity(str, enum.Enum):
    corrected = "corrected"
    published = "published"


class Counting(str, enum.Enum):
    strict = "strict"
    published = "published"


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbours)."
)

StoredWordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " All labels in the store by default."),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", "-p", help="quick, full, or a YAML file like those in tasks/profiles.")
]
FidelityOption = Annotated[
    Fidelity, typer.Option(help="corrected: our protocol. published: the reference implementation's, quirks included.")
]
CountingOption = Annotated[
    Counting,
    typer.Option("--budget", help="strict: every parameter counts. published: the tables of R(1), R(2) do not."),
]
ResultsOption = Annotated[Path, typer.Option("--results", help="Folder of the run store.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]
TasksOption = Annotated[
    list[str] | None,
    typer.Option("--tasks", "-t", help="MAD tasks, separated by commas or repeated; all six by default."),
]
StoredTasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        "-t",
        help="MAD tasks and language_model, comma-separated.",
        show_default="all six, and language_model where stored",
    ),
]
LanguageProtocolOption = Annotated[
    str | None,
    typer.Option("--protocol", help="Id of the language model's protocol, as shown where there are runs of several."),
]
CorpusOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of tokens for the language model: of madbench lm prepare, or nanoGPT's train.bin and val.bin.",
        show_default="Python's standard library in bytes",
    ),
]
TokenizerOption = Annotated[
    str | None,
    typer.Option(help="What made the ids of nanoGPT's files: gpt2, bytes or none:N.", show_default="gpt2"),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option("--track", help="Also log to tensorboard, wandb or trackio, comma-separated; each is an extra."),
]

RESULTS = Path("results")


def split_list(values: list[str] | None) -> list[str] | None:
    """``["a,b", "c"]`` -> ``["a", "b", "c"]``."""
    if not values:
        return None
    parts = [part.strip() for value in values for part in value.split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"--tasks {','.join(values)!r}: no task named; without --tasks it is all six")
    return parts


def parse_trackers(values: list[str] | None) -> list[str]:
    """The trackers of ``--track``, each known and named once; none without it."""
    from madbench.trackers.tracking import NAMES, check_names

    names = check_names(part.strip() for value in values or () for part in value.split(",") if part.strip())
    if values and not names:
        raise ConfigError(f"--track {','.join(values)!r}: no tracker named; expected one of: {', '.join(NAMES)}")
    return names


def labels_and_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits ``LABEL... key.path=value...``: a word with '=' is an override of the profile."""
    for word in words:
        if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", word):
            raise ConfigError(f"{word!r} is no label; to change the profile write {word}=VALUE")
    overrides = [word for word in words if "=" in word]
    return [word for word in words if "=" not in word], overrides


def variants_of(labels: list[str]) -> list[Variant]:
    """The variants of a verb that reads letters; a label of another family has none and is a ``LabelError``."""
    from madbench.labels import Variant, expand, parse

    variants = [parse(label) for label in expand(labels)]
    for variant in variants:
        if not isinstance(variant, Variant):
            raise LabelError(f"label {str(variant)!r}: only labels of the S/R/G grammar can be taken apart here")
    return variants
