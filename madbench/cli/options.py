"""Options that several verbs share."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import Annotated, Any

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


def _described(type_: Any, help: str, *names: str, **settings: Any) -> Any:
    return Annotated[type_, typer.Option(*names, help=help, **settings)]


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbours)."
)
_TASKS_HELP = "MAD tasks, installed tasks and language_model, comma-separated."
_BUDGET_HELP = "strict: every parameter counts. paper: the paper's ranks, and the tables of R(1), R(2) do not count."

StoredWordsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " All labels in the store by default."),
]
ProfileOption = _described(str, "quick, full, or a YAML file like those in tasks/profiles.", "--profile", "-p")
FidelityOption = _described(
    Fidelity, "corrected: our protocol. published: the reference implementation's, quirks included."
)
BudgetOption = _described(Budget, _BUDGET_HELP, "--budget", parser=parse_budget, metavar="<strict|paper>")
ResultsOption = _described(Path, "Folder of the run store.", "--results")
JsonOption = _described(bool, "Print JSON for a program instead of a table.", "--json")
TasksOption = _described(
    list[str] | None, _TASKS_HELP, "--tasks", "-t", show_default="the six of MAD and language_model"
)
StoredTasksOption = _described(
    list[str] | None, _TASKS_HELP, "--tasks", "-t", show_default="the six of MAD, and language_model where stored"
)
LanguageProtocolOption = _described(
    str | None, "Id of the language model's protocol, as shown where there are runs of several.", "--protocol"
)
CorpusOption = _described(
    Path | None,
    "Folder of tokens for the language model: of madbench lm prepare, or nanoGPT's train.bin and val.bin.",
    "--corpus",
    show_default="Python's standard library in bytes",
)
TokenizerOption = _described(
    str | None, "What made the ids of nanoGPT's files: gpt2, bytes or none:N.", "--tokenizer", show_default="gpt2"
)
TrackOption = _described(
    list[str] | None, "Also log to tensorboard, wandb or trackio, comma-separated; each is an extra.", "--track"
)
SeedsOption = _described(str, "Seeds such as 0,1,2 or 0-4; each decides initialisation, data and order.", "--seeds")
DeviceOption = _described(str, "auto, cpu, cuda or cuda:N.", "--device")
SlotsOption = _described(
    int | None, "Jobs at a time; one a CPU core, one on a GPU and one language model by default.", "--slots", min=1
)
MicroBatchOption = _described(
    int | None, "Sequences in memory at a time; gradients of a step's rest are accumulated.", "--micro-batch", min=1
)
CompileOption = _described(bool, "Compile the model first (needs a C++ compiler).", "--compile")
ForceOption = _described(bool, "Train again what the store has already.", "--force")
DryRunOption = _described(bool, "Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run")
DetailsOption = _described(bool, "With --dry-run: also memory, and parameters by what they are for.", "--details")

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
