"""Options that several verbs share, and the selection of stored runs by these options."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from madbench.cli.shared.parameters import EVERY_VERB, Parameter, argument, option
from madbench.cli.shared.printing import in_words, tracked
from madbench.cli.shared.words import labels_and_overrides, split_list
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity
from madbench.labels.names import with_typed_labels
from madbench.rows import Grid
from madbench.store.runs import RESULTS, Snapshot

if TYPE_CHECKING:
    from madbench.analysis.selection import Selection
    from madbench.execute.base import Policy


BudgetName = Literal["strict", "parameters", "paper", "flops", "state", "compute"]
"""The names of budgets on the command line."""


def parse_group(text: str) -> int | None:
    """The value of ``--group``: a number, or None for auto. Raises a usage error for any other text."""
    if text == "auto":
        return None
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        raise typer.BadParameter(f"{text!r} is neither auto nor a number of jobs above 0")
    return int(text)


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbors)."
)
TASKS_HELP = "Tasks of any suite, or a suite for its default tasks, comma-separated; madbench ls tasks lists them."
BUDGET_HELP = (
    "Quantity matched to softmax attention. parameters: every parameter counts. paper: the ranks of the paper; the "
    "tables of R(1), R(2) do not count. flops: FLOPs per token. state: numbers carried while decoding. compute: "
    "parameters, and training FLOPs by the number of steps. --budget and --match are one option, and strict is "
    "another word for parameters."
)
_STORED_HELP = LABELS_HELP + " All labels in the store by default."

StoredWordsArgument = Annotated[list[str] | None, argument("LABEL|KEY=VALUE", _STORED_HELP)]
ProfileOption = Annotated[
    str | None,
    option(
        "evening, evening-4 (four layers, for hybrids), quick (a first look), full (the paper's size), or a YAML "
        "file like those in tasks/mad. Other suites have other profiles: madbench ls profiles.",
        "--profile",
        "-p",
        completes="PROFILE",
        show_default="evening; tiny for language models",
    ),
]
FidelityOption = Annotated[
    Fidelity,
    option("corrected: our protocol. published: that of the reference implementation, with quirks.", rare=EVERY_VERB),
]


def canonical_budget(name: BudgetName) -> Budget:
    """The budget of a name on the command line."""
    return "strict" if name == "parameters" else name


def budget_option(**settings: Any) -> Parameter:
    """The option ``--budget``, whose other name is ``--match``. Jobs store the value ``parameters`` as ``strict``."""

    def canonical(name: BudgetName | None) -> Budget | None:
        return name and canonical_budget(name)

    return option(BUDGET_HELP, "--budget", "--match", callback=canonical, **settings)


BudgetOption = Annotated[BudgetName, budget_option()]
SpreadOption = Annotated[
    Literal["interval", "sd"],
    option(
        "The number after a mean: half-width of its 95% interval, or standard deviation of the seeds.",
    ),
]
BaselinesOption = Annotated[
    bool,
    option(
        "Also show the chance level, and the best answer that ignores the context, below the labels.", "--baselines"
    ),
]
ResultsOption = Annotated[Path, option("Folder of the run store.")]
ClaimsOption = Annotated[
    str | None,
    option(
        "File of claims (madbench new claim writes one), or the paper whose claims to take.",
        "--claims",
        show_default="every paper with claims on these labels",
        metavar="FILE.yaml|PAPER",
        completes="PAPER",
    ),
]
TasksOption = Annotated[
    list[str] | None,
    option(
        TASKS_HELP,
        "--tasks",
        "-t",
        show_default="the six of MAD and language_model",
        completes="TASK,...",
    ),
]
DeviceOption = Annotated[str, option("auto, cpu, cuda or cuda:N.", completes="DEVICE")]
SeedsOption = Annotated[
    str,
    option("Seeds such as 0,1,2 or 0-4; each has its own initialization, data and order. Use five if a table matters."),
]
SlotsOption = Annotated[int | None, option("Jobs at a time; by default one per CPU core, one on a GPU.", min=1)]
ThreadsOption = Annotated[
    int | None,
    option(
        "Threads per job on a CPU; another number changes the last digits of the results.",
        min=1,
        max=1024,
        show_default="OMP_NUM_THREADS, otherwise 1; all free cores for a long language model",
        rare="run sweep paper",
    ),
]
TokenizerOption = Annotated[
    str | None,
    option(
        "Tokenizer of nanoGPT's files: gpt2, bytes or none:N.",
        show_default="gpt2",
        completes="TOKENIZER",
        rare=EVERY_VERB,
    ),
]
DtypeOption = Annotated[
    str | None,
    option(
        "Type of nanoGPT's ids, such as uint32.",
        show_default="the smallest type for the ids",
        completes="DTYPE",
        rare=EVERY_VERB,
    ),
]
ForceOption = Annotated[bool, option("Train again jobs that are already stored.", "--force", rare="sweep paper")]


@dataclass(frozen=True)
class TrainingOptions:
    """The options of every verb that trains."""

    corpus: Annotated[
        Path | None,
        option(
            "Folder of tokens for the language model: from madbench lm prepare, or train.bin and val.bin of nanoGPT.",
            show_default="Python's standard library as bytes",
            rare="run sweep",
        ),
    ] = None
    tokenizer: TokenizerOption = None
    dtype: DtypeOption = None
    seeds: SeedsOption = "0"
    budget: BudgetOption = "strict"
    device: DeviceOption = "auto"
    results: ResultsOption = RESULTS
    slots: Annotated[
        int | None,
        option(
            "Jobs at a time; by default one per GPU or CPU core. A long language model gets all free cores.",
            min=1,
        ),
    ] = None
    threads: ThreadsOption = None
    micro_batch: Annotated[
        int | None,
        option("Sequences in memory at a time; the gradients of a step are accumulated.", min=1, rare=EVERY_VERB),
    ] = None
    group: Annotated[
        int | None,
        option(
            "Run jobs that differ only in seed and rate in one step, at most N at a time. auto: at most 8 on a GPU, "
            "if a quick timing shows a speed-up; never on a CPU.",
            parser=parse_group,
            metavar="auto|N",
            completes="auto",
            show_default="auto",
            rare=EVERY_VERB,
        ),
    ] = None
    no_cuda_graph: Annotated[
        bool,
        option(
            "On a GPU launch every operation alone instead of one graph per step.", "--no-cuda-graph", rare=EVERY_VERB
        ),
    ] = False
    compile: Annotated[
        Literal["never", "auto", "always"],
        option(
            "torch.compile, which needs a C++ compiler; auto: if five minutes or more are left and a timing test shows "
            "a speed-up.",
            rare=EVERY_VERB,
        ),
    ] = "never"
    track: Annotated[
        list[str] | None,
        option(
            "Also log to tensorboard, wandb or trackio, comma-separated; each is an extra.",
            completes="TRACKER",
            rare=EVERY_VERB,
        ),
    ] = None
    track_project: Annotated[
        str | None,
        option(
            "With --track: name of the project.",
            show_default="WANDB_PROJECT for wandb, otherwise madbench",
            rare=EVERY_VERB,
        ),
    ] = None
    track_name: Annotated[
        str | None,
        option(
            "With --track: format of the names of runs, with {row} (label and changes of the row), {label}, {task}, "
            "{seed} and {id}.",
            show_default="'{row} {task} seed {seed}'",
            rare=EVERY_VERB,
        ),
    ] = None
    force: ForceOption = False
    dry_run: Annotated[
        bool, option("Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run")
    ] = False
    keep_weights: Annotated[
        bool, option("Store the weights with each run. Language models always do.", "--keep-weights", rare=EVERY_VERB)
    ] = False
    details: Annotated[
        bool, option("With --dry-run: also show memory, and parameters by group.", "--details", rare=EVERY_VERB)
    ] = False
    on: Annotated[
        str | None,
        option(
            "Where jobs run: ray, ray:ADDRESS, slurm, or either with a file of options, such as slurm:cluster.yaml.",
            rare=EVERY_VERB,
            show_default="this machine",
        ),
    ] = None
    devices: Annotated[
        str | None,
        option("GPUs such as 0,1 that the slots take in turn; one slot per GPU by default.", rare=EVERY_VERB),
    ] = None
    retry: Annotated[
        bool | None,
        option("Also train the jobs that are stored as failed.", rare=EVERY_VERB, show_default="not in a sweep"),
    ] = None
    fail_fast: Annotated[bool, option("Start no further job after one has failed.", "--fail-fast", rare=EVERY_VERB)] = (
        False
    )
    max_failures: Annotated[
        int | None, option("Start no further job after this many have failed.", min=1, rare=EVERY_VERB)
    ] = None
    time_limit: Annotated[
        str | None,
        option(
            "Stop a job after this time, such as 90s, 30m or 2h; it counts as failed. Unfinished jobs of a group "
            "(--group) then resume alone, with the same limit.",
            metavar="TIME",
            rare=EVERY_VERB,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.fail_fast and self.max_failures not in (None, 1):
            raise ConfigError(f"--max-failures {self.max_failures} contradicts --fail-fast, which is --max-failures 1")
        if self.retry is not None and self.force:
            raise ConfigError("--retry has no effect with --force, which trains every job again")
        if self.details and not self.dry_run:
            raise ConfigError("--details has no effect without --dry-run")
        if self.on and self.dry_run:
            raise ConfigError(f"--dry-run times a few steps on this machine; leave out --on {self.on}")
        if self.on and self.devices:
            raise ConfigError(f"--devices {self.devices}: has no effect with --on {self.on}; its file has gpus_per_job")

    def policy(self, retries: bool) -> Policy:
        """The policy for stored, failed and long jobs. ``retries`` is the default of ``--retry``.

        Raises ``ConfigError`` for an invalid time limit.
        """
        from madbench.cli.shared.machines import seconds_of  # needed only by verbs that train
        from madbench.execute.base import Policy

        most = 1 if self.fail_fast else self.max_failures
        limit = None if self.time_limit is None else seconds_of(self.time_limit)
        retry = retries if self.retry is None else self.retry
        return Policy(redo=self.force, retry=retry, max_failures=most, time_limit=limit)

    def gpus(self) -> list[str] | None:
        """The values of CUDA_VISIBLE_DEVICES for ``--devices``, None without it. Raises ``ConfigError`` if invalid."""
        from madbench.cli.shared.machines import gpus_of

        return None if self.devices is None else gpus_of(self.devices, self.device)


@dataclass(frozen=True)
class GridOptions:
    """Options of run and sweep: what the labels are trained on."""

    profile: ProfileOption = None
    tasks: TasksOption = None
    fidelity: FidelityOption = Grid.fidelity

    def keys(self) -> dict[str, Any]:
        """The keys of a grid with the values of these options (:class:`madbench.grid.GridFile`)."""
        return {"profile": self.profile or "", "tasks": split_list(self.tasks), "fidelity": self.fidelity}


@dataclass(frozen=True)
class StoredOptions:
    """The options of verbs that show stored runs, of any suite."""

    profile: ProfileOption = None
    tasks: Annotated[
        list[str] | None,
        option(
            TASKS_HELP,
            "--tasks",
            "-t",
            show_default="the six of MAD, and language_model where stored",
            completes="TASK,...",
        ),
    ] = None
    fidelity: FidelityOption = Grid.fidelity
    budget: Annotated[BudgetName | None, budget_option(show_default="strict")] = None
    protocol: Annotated[
        str | None,
        option(
            "Id of one protocol, as listed if runs of several protocols are stored.",
            "--protocol",
            rare=EVERY_VERB,
        ),
    ] = None
    corpus: Annotated[str | None, option("Only runs on the corpus of this name, folder or digest.")] = None
    results: ResultsOption = RESULTS

    def selection(self, words: list[str] | None) -> Selection:
        """The stored runs that words and options choose.

        Raises ``LabelError`` for an invalid label, and ``ConfigError`` for an option that is invalid or has no effect.
        """
        from madbench.analysis.query import expand_stored
        from madbench.analysis.selection import Selection

        labels, overrides = labels_and_overrides(words or [])
        settings = vars(self) | {"tasks": split_list(self.tasks), "overrides": overrides}
        settings["budget"] = self.budget or ("strict" if self.protocol is None else None)
        store = open_stored(self.results) if (self.results / "runs").is_dir() else None  # else a selection says so
        expanded = expand_stored(labels, store)
        return Selection(labels=expanded, given_store=store, track=track_reading, warn=warn, **settings)


track_reading = functools.partial(tracked, description="reading runs")
"""Shows a progress bar while runs are read that the index of a store does not have."""


def open_stored(results: Path) -> Snapshot:
    """Open the store for reading, with a progress bar."""
    store = Snapshot.open(results, create=False)
    store.track = track_reading
    return store


def warn(message: str) -> None:
    """Print a warning on stderr."""
    print(in_words(f"warning: {with_typed_labels(message)}", Console(stderr=True)), file=sys.stderr)
