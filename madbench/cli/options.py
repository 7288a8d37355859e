"""Options that several verbs share, alone and in groups."""

from __future__ import annotations

import enum
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

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


def option(type_: Any, help: str, *names: str, **settings: Any) -> Any:
    """The type of a parameter that is an option; a ``bool`` without ``names`` also has a ``--no-`` form."""
    return Annotated[type_, typer.Option(*names, help=help, **settings)]


def argument(type_: Any, metavar: str, help: str, **settings: Any) -> Any:
    """The type of a parameter that is an argument."""
    return Annotated[type_, typer.Argument(metavar=metavar, help=help, **settings)]


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbours)."
)
_TASKS_HELP = "MAD tasks, installed tasks and language_model, comma-separated."
_BUDGET_HELP = "strict: every parameter counts. paper: the paper's ranks, and the tables of R(1), R(2) do not count."

StoredWordsArgument = argument(
    list[str] | None, "LABEL|KEY=VALUE", LABELS_HELP + " All labels in the store by default."
)
ProfileOption = option(str, "quick, full, or a YAML file like those in tasks/profiles.", "--profile", "-p")
FidelityOption = option(
    Fidelity, "corrected: our protocol. published: the reference implementation's, quirks included."
)
BudgetOption = option(Budget, _BUDGET_HELP, parser=parse_budget, metavar="<strict|paper>")
ResultsOption = option(Path, "Folder of the run store.")
JsonOption = option(bool, "Print JSON for a program instead of a table.", "--json")
TasksOption = option(list[str] | None, _TASKS_HELP, "--tasks", "-t", show_default="the six of MAD and language_model")
StoredTasksOption = option(
    list[str] | None, _TASKS_HELP, "--tasks", "-t", show_default="the six of MAD, and language_model where stored"
)
LanguageProtocolOption = option(
    str | None, "Id of the language model's protocol, as shown where there are runs of several.", "--protocol"
)
DeviceOption = option(str, "auto, cpu, cuda or cuda:N.")
DetailsOption = option(bool, "With --dry-run: also memory, and parameters by what they are for.", "--details")

RESULTS = Path("results")


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every verb that trains."""

    corpus: option(
        Path | None,
        "Folder of tokens for the language model: of madbench lm prepare, or nanoGPT's train.bin and val.bin.",
        show_default="Python's standard library in bytes",
    ) = None
    tokenizer: option(
        str | None, "What made the ids of nanoGPT's files: gpt2, bytes or none:N.", show_default="gpt2"
    ) = None
    seeds: option(str, "Seeds such as 0,1,2 or 0-4; each decides initialisation, data and order.") = "0"
    budget: BudgetOption = Budget.strict
    device: DeviceOption = "auto"
    results: ResultsOption = RESULTS
    slots: option(
        int | None, "Jobs at a time; one a CPU core, one on a GPU and one language model by default.", min=1
    ) = None
    micro_batch: option(
        int | None, "Sequences in memory at a time; gradients of a step's rest are accumulated.", min=1
    ) = None
    compile: option(bool, "Compile the model first (needs a C++ compiler).", "--compile") = False
    track: option(list[str] | None, "Also log to tensorboard, wandb or trackio, comma-separated; each is an extra.") = (
        None
    )
    force: option(bool, "Train again what the store has already.", "--force") = False
    dry_run: option(bool, "Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run") = False


def with_groups(verb: Callable) -> Callable:
    """``verb`` with an option for each field of its keyword arguments that are dataclasses."""
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

    @functools.wraps(verb)
    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        verb(**values)

    parameters = []
    for parameter in inspect.signature(verb).parameters.values():
        if group := groups.get(parameter.name):
            types, found = get_type_hints(group, include_extras=True), inspect.signature(group).parameters.values()
        else:
            types, found = hints, [parameter]
        parameters += [one.replace(annotation=types[one.name], kind=parameter.kind) for one in found]
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


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
