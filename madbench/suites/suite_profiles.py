"""The part of a suite about its profiles, and about the profile and the settings of its jobs."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from madbench.config import Override
from madbench.errors import ConfigError
from madbench.jobs import J
from madbench.suites.profile import Profile

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    P = TypeVar("P", bound=Profile, default=Profile)
else:
    from typing import TypeVar

    P = TypeVar("P")

MOST_CHANGES = 6
"""The largest number of changes with which a protocol is still named after a shipped profile."""
OWN_PROFILE = "of its own"
"""The profile name of a protocol with more than ``MOST_CHANGES`` changes."""


class SuiteProfiles(Generic[P, J]):
    """The members of :class:`madbench.suites.base.Suite` about its profiles, and about the profile of a job."""

    Profile: type[P]
    """The class of the suite's profiles, read from YAML files."""
    default: ClassVar[str]
    """The name of the default profile."""
    file_key: ClassVar[str] = ""
    """A YAML key by which a profile file is recognized as one of this suite. If empty, the file has to name its suite.
    """
    profiles_note: ClassVar[str] = "runs: for one label and one seed"
    """The note below the list of its profiles."""

    def labels_of(self, profile: P, task: str) -> Sequence[str]:
        """The labels that a profile lists for a task. Empty if it lists no labels, so that any label can be trained."""
        return ()

    @functools.cache  # noqa: B019  a suite lives as long as the process
    def shipped(self) -> dict[str, P]:
        """The shipped profiles by name."""
        return {name: self.Profile.load(name) for name in self.Profile.names()}

    def nearest(self, job: J, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[Override, ...]]:
        """The name of the shipped profile that trains the job with the fewest overrides, and these overrides.

        The precision does not count. If more than ``most_changes`` overrides are needed, the name is ``of its own`` and
        there are no overrides.
        """
        changes = {name: profile.changes(job) for name, profile in self.shipped().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return (OWN_PROFILE, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))

    def profile_of(self, job: J, name: str, changes: Sequence[Override]) -> P:
        """The profile under which a job was trained, from the result of :meth:`nearest`.

        Raises ``ConfigError`` if no shipped profile is near enough, so that the name is ``of its own``.
        """
        if name == OWN_PROFILE:
            raise ConfigError(
                f"run {job.id} of {job.label} follows no shipped {self.Profile.noun}; name its YAML file with --profile"
            )
        return self.Profile.load(name, changes)

    def shared_settings(self, job: J) -> dict[str, Any]:
        """The settings of a job that all jobs of a table must share."""
        return self.settings_under(job, *self.nearest(job))

    def settings_under(self, job: J, name: str, changes: Iterable[Override]) -> dict[str, Any]:
        """The settings that the jobs of a table must share with ``job``, whose profile and changes are known.

        ``name`` and ``changes`` are the result of ``nearest(job)``: a profile and the overrides of it. The keys are
        profile, changes, fidelity, budget and precision. If no shipped profile is near, the model and training settings
        of the job take the place of profile and changes.
        """
        own = {"profile": name, "changes": tuple(map(str, changes))}
        own = {"model": job.model, "training": job.training} if name == OWN_PROFILE else own
        return own | {"fidelity": job.fidelity, "budget": job.budget, "precision": job.training.precision}

    def shared_without_rates(self, job: J) -> dict[str, Any]:
        """:meth:`shared_settings` without the learning rates and weight decays, if the suite's profiles try several."""
        return self.shared_settings(job)

    def job_setting(self, job: J) -> list[str]:
        """The words for a job's setting in a list of runs: the nearest shipped profile, then the overrides of it."""
        profile, changes = self.nearest(job, most_changes=math.inf)
        return [profile, *map(str, changes)]
