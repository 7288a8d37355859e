"""Options that several verbs share."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Annotated

import typer

from madbench.errors import ConfigError


class Fidelity(str, enum.Enum):
    corrected = "corrected"
    published = "published"


class Budget(str, enum.Enum):
    strict = "strict"
    paper = "paper"


def parse_budget(text: str) -> Budget:
    """The value of ``--budget``; a usage error for any other."""
    try:
        return Budget(text)
    except ValueError:
        hint = "; the paper's way to count parameters is called 'paper'" if text == "published" else ""
        raise typer.BadParameter(f"{text!r} is not one of 'strict', 'paper'{hint}") from None


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
BudgetOption = Annotated[
    Budget,
    typer.Option(
        "--budget",
        parser=parse_budget,
        metavar="[strict|paper]",
        help="strict: every parameter counts. paper: the HyperMLP paper's ranks, the tables of R(1), R(2) not counted.",
    ),
]
ResultsOption = Annotated[Path, typer.Option("--results", help="Folder of the run store.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]
TasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        "-t",
        help="Tasks and language_model, comma-separated or repeated.",
        show_default="the six of MAD and language_model",
    ),
]
StoredTasksOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tasks",
        "-t",
        help="Tasks and language_model, comma-separated or repeated.",
        show_default="the six of MAD, and language_model where stored",
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
SeedsOption = Annotated[
    str, typer.Option(help="Seeds such as 0,1,2 or 0-4; each decides initialisation, data and order.")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
SlotsOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Jobs at a time; language models share the cores.",
        show_default="one a CPU core, one on a GPU, one language model",
    ),
]
MicroBatchOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Sequences in memory at a time; gradients of the rest of a step are accumulated.",
        show_default="the batch, of a language model 12,288 tokens",
    ),
]
CompileOption = Annotated[bool, typer.Option("--compile", help="Compile the model first (needs a C++ compiler).")]
ForceOption = Annotated[bool, typer.Option("--force", help="Train again what the store has already.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show jobs, parameters, FLOPs and a time estimate; train nothing.")
]
DetailsOption = Annotated[
    bool, typer.Option("--details", help="With --dry-run: also memory, and parameters by what they are for.")
]

Counting, CountingOption = Budget, BudgetOption  # until every verb imports the names above

RESULTS = Path("results")


def split_list(values: list[str] | None) -> list[str] | None:
    """``["a,b", "c"]`` -> ``["a", "b", "c"]``."""
    if not values:
        return None
    parts = [part.strip() for value in values for part in value.split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"--tasks {','.join(values)!r}: no task named; without --tasks it is all of them")
    return parts


def parse_trackers(values: list[str] | None) -> list[str]:
    """The trackers of ``--track``, each known and named once; none without it."""
    from madbench.trackers.tracking import NAMES, check_names

    names = check_names(part.strip() for value in values or () for part in value.split(",") if part.strip())
    if values and not names:
        raise ConfigError(f"--track {','.join(values)!r}: no tracker named; expected one of: {', '.join(NAMES)}")
    return names


def labels_and_overrides(words: list[str]) -> tuple[list[str], list[str]]:
    """Splits ``LABEL... key.path=value...``; a label may have a '=' behind its family's colon."""
    labels, overrides = [], []
    for word in words:
        if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", word):
            raise ConfigError(f"{word!r} is no label; to change the profile write {word}=VALUE")
        key, equals, _ = word.partition("=")
        (overrides if equals and ":" not in key else labels).append(word)
    return labels, overrides
