"""Options that several verbs share, and the selection of stored runs by these options."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console

from madbench.analysis.choice import Choice
from madbench.cli.shared.printing import in_words, track_progress
from madbench.cli.shared.words import labels_and_overrides
from madbench.config.options import EVERY_VERB, argument, option
from madbench.errors import ConfigError
from madbench.execute.base import Policy
from madbench.execute.options import RunOptions
from madbench.experiment.options import DeviceOption as DeviceOption
from madbench.experiment.options import SharedOptions
from madbench.labels.names import with_typed_labels
from madbench.store.runs import RESULTS as RESULTS
from madbench.store.runs import ResultsOption as ResultsOption
from madbench.store.runs import Snapshot
from madbench.trackers import RUN_NAME, Naming

if TYPE_CHECKING:
    from madbench.analysis.selection import Selection


LABELS_HELP = (
    "Labels, e.g. G-cg-q-12o or HyperGLU. Also sets: '{S,R,G}-cg-q-12o', @table1, '~G-cg-q-12o' (its one-factor "
    "neighbors)."
)
_STORED_HELP = LABELS_HELP + " All labels in the store by default."

StoredWordsArgument = Annotated[list[str] | None, argument("LABEL|KEY=VALUE", _STORED_HELP)]
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


@dataclass(frozen=True)
class TrackOptions:
    """The options for tracking services, which also log the progress of runs."""

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

    def naming(self) -> Naming:
        """The names for the tracking services: the name of the project and the format of the names of runs.

        Raises ``ConfigError`` if --track-project or --track-name is given without --track.
        """
        for flag, value in {"--track-project": self.track_project, "--track-name": self.track_name}.items():
            if value is not None and not self.track:
                raise ConfigError(f"{flag} {value}: has no effect without --track")
        return Naming(self.track_project or "", self.track_name or RUN_NAME)


@dataclass(frozen=True)
class TrainingOptions(SharedOptions):
    """The options of every verb that trains."""

    execution: RunOptions = RunOptions()
    tracking: TrackOptions = TrackOptions()
    policy: Policy = Policy()
    dry_run: Annotated[
        bool, option("Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run")
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

    def __post_init__(self) -> None:
        most = self.policy.max_failures
        if self.fail_fast and most not in (None, 1):
            raise ConfigError(f"--max-failures {most} contradicts --fail-fast, which is --max-failures 1")
        if self.retry is not None and self.policy.redo:
            raise ConfigError("--retry has no effect with --force, which trains every job again")
        if self.details and not self.dry_run:
            raise ConfigError("--details has no effect without --dry-run")
        if self.on and self.dry_run:
            raise ConfigError(f"--dry-run times a few steps on this machine; leave out --on {self.on}")
        if self.on and self.devices:
            raise ConfigError(f"--devices {self.devices}: has no effect with --on {self.on}; its file has gpus_per_job")

    def policy_of_verb(self, retries: bool) -> Policy:
        """The policy for stored, failed and long jobs.

        ``retries`` is True if the verb trains failed jobs again unless the user says otherwise.
        """
        most = 1 if self.fail_fast else self.policy.max_failures
        return replace(self.policy, retry=retries if self.retry is None else self.retry, max_failures=most)

    def resolve_place(self) -> tuple[RunOptions, str]:
        """The options of execution and the device of the jobs, after ``--on`` and ``--devices`` have been read.

        The options then have the executor that ``--on`` names or the GPUs that ``--devices`` lists. Raises
        ``ConfigError`` if one of these options is invalid.
        """
        from madbench.cli.shared.machines import executor_of, gpus_of  # needed only by verbs that train

        gpus = None if self.devices is None else gpus_of(self.devices, self.device)
        executor, device = executor_of(self.on, "cuda" if gpus else self.device, self.execution.slots)
        slots = None if executor else self.execution.slots
        return replace(self.execution, slots=slots, devices=gpus, executor=executor), device


@dataclass(frozen=True)
class StoredOptions(Choice):
    """The options of verbs that show stored runs, of any suite."""

    given: Sequence[str] = ()
    """The names of the fields that the command line gives, also of those with the default value."""

    def selection(self, words: list[str] | None) -> Selection:
        """Select the stored runs that ``words``, which are labels and overrides, and the options choose.

        Raises ``LabelError`` for an invalid label, and ``ConfigError`` for an option that is invalid or has no effect.
        """
        from madbench.analysis.query import expand_stored
        from madbench.analysis.selection import Selection

        labels, overrides = labels_and_overrides(words or [])
        store = open_stored(self.results) if (self.results / "runs").is_dir() else None  # else the selection raises
        choice = vars(self) | {"labels": expand_stored(labels, store), "overrides": overrides}
        return Selection(**choice, given_store=store, track=track_reading, warn=warn)


track_reading = functools.partial(track_progress, description="reading runs")
"""Shows a progress bar while runs are read that the index of a store does not have."""


def open_stored(results: Path) -> Snapshot:
    """Open the store in the folder ``results`` for reading. A progress bar is shown while runs are read."""
    store = Snapshot.open(results, create=False)
    store.track = track_reading
    return store


def warn(message: str) -> None:
    """Print a warning on stderr."""
    print(in_words(f"warning: {with_typed_labels(message)}", Console(stderr=True)), file=sys.stderr)
