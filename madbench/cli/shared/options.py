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
from madbench.errors import ConfigError, no_effect
from madbench.execute.base import Policy
from madbench.execute.options import MachineOptions, RunOptions
from madbench.experiment.options import DeviceOption as DeviceOption
from madbench.experiment.options import SharedOptions
from madbench.labels.names import with_typed_labels
from madbench.store.reading import Snapshot
from madbench.store.results_folder import RESULTS as RESULTS
from madbench.store.results_folder import ResultsOption as ResultsOption
from madbench.trackers.options import TrackOptions

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
WithinOption = Annotated[
    str | None,
    option(
        "Also test whether a difference is within a margin: one for all columns in points, or one per column.",
        metavar="NUMBER|COLUMN=NUMBER,...",
        rare="sweep",
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
class TrainingOptions(SharedOptions):
    """The options of every verb that trains."""

    execution: RunOptions = RunOptions()
    machines: MachineOptions = MachineOptions()
    tracking: TrackOptions = TrackOptions()
    policy: Policy = Policy()
    dry_run: Annotated[
        bool, option("Show jobs, parameters, FLOPs and a time estimate; train nothing.", "--dry-run")
    ] = False
    details: Annotated[
        bool, option("With --dry-run: also show memory, and parameters by group.", "--details", rare=EVERY_VERB)
    ] = False
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
            raise no_effect("--retry", "with --force, which trains every job again")
        if self.details and not self.dry_run:
            raise no_effect("--details", "without --dry-run")
        if self.machines.on and self.dry_run:
            raise ConfigError(f"--dry-run times a few steps on this machine; leave out --on {self.machines.on}")

    def policy_of_verb(self, retries: bool) -> Policy:
        """The policy for stored, failed and long jobs.

        ``retries`` is True if the verb trains failed jobs again unless the user says otherwise.
        """
        most = 1 if self.fail_fast else self.policy.max_failures
        return replace(self.policy, retry=retries if self.retry is None else self.retry, max_failures=most)

    def resolve_place(self) -> tuple[RunOptions, str]:
        """The options of execution with the machines or GPUs that the user named, and the device of the jobs."""
        return self.machines.resolve(self.execution, self.device)


@dataclass(frozen=True)
class StoredOptions(Choice):
    """The options of verbs that show stored runs, of any suite."""

    given: Sequence[str] = ()
    """The names of the fields whose options the user gave, even if with the default value."""

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
"""Returns the runs of its argument, and shows a progress bar while they are iterated over and read from their files."""


def open_stored(results: Path) -> Snapshot:
    """Open the store in the folder ``results`` for reading. A progress bar is shown while runs are read."""
    store = Snapshot.open(results)
    store.track = track_reading
    return store


def warn(message: str) -> None:
    """Print a warning on stderr."""
    print(in_words(f"warning: {with_typed_labels(message)}", Console(stderr=True)), file=sys.stderr)
