"""The options that choose trackers, and name the projects and runs in their services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from madbench.config.options import EVERY_VERB, option
from madbench.errors import no_effect
from madbench.trackers import RUN_NAME, Naming, parse_names


@dataclass(frozen=True)
class TrackOptions:
    """The options ``--track...``: the tracking services that log a training, and the names of projects and runs."""

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

    def __post_init__(self) -> None:
        parse_names(self.track)
        self.naming()

    @property
    def names(self) -> list[str]:
        """The names of the trackers. Raises ``ConfigError`` for unknown or repeated names."""
        return parse_names(self.track)

    def naming(self) -> Naming:
        """The names for the tracking services: the name of the project and the format of the names of runs.

        Raises ``ConfigError`` if --track-project or --track-name is given without --track.
        """
        for flag, value in {"--track-project": self.track_project, "--track-name": self.track_name}.items():
            if value is not None and not self.track:
                raise no_effect(f"{flag} {value}", "without --track")
        return Naming(self.track_project or "", self.track_name or RUN_NAME)
