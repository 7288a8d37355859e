"""Options that several verbs share, alone and in groups, and which stored runs they choose."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from madbench.analysis.marked_text import Width
from madbench.cli.parameters import argument, option
from madbench.cli.printing import Format, tracked
from madbench.cli.words import labels_and_overrides, split_list
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity
from madbench.labels import expand, names
from madbench.labels.names import spelled_in
from madbench.store.runs import Snapshot

if TYPE_CHECKING:
    from madbench.analysis.stored import Selection


def parse_group(text: str) -> int | None:
    """The value of ``--group``: a number, or None for auto; a usage error for any other."""
    if text == "auto":
        return None
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise typer.BadParameter(f"{text!r} is neither auto nor a number of jobs above 0")
    return int(text)


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbours)."
)
_TASKS_HELP = "Tasks of any suite, or a suite for its usual ones, comma-separated; madbench ls tasks lists them."
_BUDGET_HELP = "strict: every parameter counts. paper: the paper's ranks, and the tables of R(1), R(2) do not count."
_STORED_HELP = LABELS_HELP + " All labels in the store by default."

StoredWordsArgument = argument(list[str] | None, "LABEL|KEY=VALUE", _STORED_HELP)
ProfileOption = option(
    str | None,
    "quick, full, or a YAML file like those in tasks/profiles; of another suite than MAD's, one of its own.",
    "--profile",
    "-p",
    completes="PROFILE",
    show_default="the usual one of the suite: quick, or tiny of language models",
)
FidelityOption = option(
    Fidelity, "corrected: our protocol. published: the reference implementation's, quirks included."
)
BudgetOption = option(Budget, _BUDGET_HELP)
NotesOption = option(bool, "Say below the table how the numbers came about, and how they were tested.", "--notes")
ResultsOption = option(Path, "Folder of the run store.")
ClaimsOption = option(
    str,
    "File of claims (madbench new claim writes one), or the paper whose claims to take.",
    "--claims",
    metavar="FILE.yaml|PAPER",
    completes="PAPER",
)
JsonOption = option(bool, "Print JSON for a program instead of a table.", "--json")
TasksOption = option(
    list[str] | None,
    _TASKS_HELP,
    "--tasks",
    "-t",
    show_default="the six of MAD and language_model",
    completes="TASK,...",
)
DeviceOption = option(str, "auto, cpu, cuda or cuda:N.", completes="DEVICE")
SeedsOption = option(str, "Seeds such as 0,1,2 or 0-4; each decides initialisation, data and order.")
SlotsOption = option(int | None, "Jobs at a time; one a CPU core, one on a GPU by default.", min=1)
ThreadsOption = option(
    int | None,
    "Threads of a job on a CPU; another number changes the last digits of its results.",
    min=1,
    max=1024,
    show_default="OMP_NUM_THREADS, else 1, and the free cores for a language model that has them to itself",
)
TokenizerOption = option(
    str | None,
    "What made the ids of nanoGPT's files: gpt2, bytes or none:N.",
    show_default="gpt2",
    completes="TOKENIZER",
)
DtypeOption = option(
    str | None, "Type of nanoGPT's ids, such as uint32.", show_default="what the ids fit", completes="DTYPE"
)
ForceOption = option(bool, "Train again what the store has already.", "--force")
KeepWeightsOption = option(
    bool, "Keep the weights of runs with them, as those of language models are anyway.", "--keep-weights"
)
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
    tokenizer: TokenizerOption = None
    dtype: DtypeOption = None
    seeds: SeedsOption = "0"
    budget: BudgetOption = "strict"
    device: DeviceOption = "auto"
    results: ResultsOption = RESULTS
    slots: option(
        int | None,
        "Jobs at a time; by default one on a GPU, and one a CPU core as memory allows, but a language model that takes "
        "longer than all else has the free cores to itself.",
        min=1,
    ) = None
    threads: ThreadsOption = None
    micro_batch: option(
        int | None, "Sequences in memory at a time; gradients of a step's rest are accumulated.", min=1
    ) = None
    group: option(
        int | None,
        "auto or N: jobs that differ in seed and rate alone share a step, at most N at a time. auto: at most 8, and "
        "where a few steps of them are measured to be faster so; nothing is measured that trains in seconds. On the "
        "CPU that is where sequences and batches are tiny, and only sweeps of many jobs a slot have groups.",
        parser=parse_group,
        metavar="auto|N",
        completes="auto",
        show_default="auto",
    ) = None
    no_cuda_graph: option(
        bool, "On a GPU launch every operation by itself, not a step as one graph.", "--no-cuda-graph"
    ) = False
    compile: option(
        Literal["never", "auto", "always"],
        "torch.compile, which needs a C++ compiler; auto: where five minutes or more are left and compiled steps are "
        "measured to be faster.",
    ) = "never"
    track: option(
        list[str] | None,
        "Also log to tensorboard, wandb or trackio, comma-separated; each is an extra.",
        completes="TRACKER",
    ) = None
    force: ForceOption = False
    dry_run: option(bool, "Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run") = False


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


@dataclass(frozen=True)
class StoredOptions:
    """Options of the verbs that show what is stored, of any suite."""

    profile: ProfileOption = None
    tasks: option(
        list[str] | None,
        _TASKS_HELP,
        "--tasks",
        "-t",
        show_default="the six of MAD, and language_model where stored",
        completes="TASK,...",
    ) = None
    fidelity: FidelityOption = "corrected"
    budget: option(Budget | None, _BUDGET_HELP, show_default="strict") = None
    protocol: option(
        str | None, "Id of one protocol, as shown where runs of several are stored side by side.", "--protocol"
    ) = None
    corpus: option(str | None, "Only runs on the corpus of this name, folder or digest.") = None
    results: ResultsOption = RESULTS

    def selection(self, words: list[str] | None) -> Selection:
        """What words and options mean; raises ``LabelError`` and ``ConfigError``, for options without effect too."""
        from madbench.analysis.stored import Selection

        labels, overrides = labels_and_overrides(words or [])
        asked = vars(self) | {"tasks": split_list(self.tasks), "overrides": overrides}
        asked["budget"] = self.budget or ("strict" if self.protocol is None else None)
        return Selection(labels=expand(labels), opened=open_stored, warn=warn, **asked)


def open_stored(results: Path) -> Snapshot:
    """The store for reading, with a bar while many runs are read that its index does not know yet."""
    store = Snapshot.open(results, create=False)
    store.track = functools.partial(tracked, description="reading runs")
    return store


def warn(message: str) -> None:
    """Prints a warning on stderr."""
    print(f"warning: {spelled_in(message)}", file=sys.stderr)
