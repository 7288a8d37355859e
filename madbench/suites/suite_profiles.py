"""The members of suites that concern profiles, or that find the profile and the settings of a given job."""

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
"""The largest number of overrides with which a protocol is still named after a shipped profile."""
OWN_PROFILE = "of its own"
"""The profile name of a protocol that needs more than ``MOST_CHANGES`` overrides of any shipped profile."""


class SuiteProfiles(Generic[P, J]):
    """The members of :class:`madbench.suites.base.Suite` that concern profiles or find the profile of a job."""

    Profile: type[P]
    """The class of the suite's profiles, read from YAML files."""
    default: ClassVar[str]
    """The name of the default profile."""
    file_key: ClassVar[str] = ""
    """A key of YAML files. A file that has it is taken for a profile of this suite, unless the file is recognized
    otherwise: by its key ``suite`` or ``like``, by its folder, or as a file of another kind.

    If a file has the keys of several suites, the first suite by ``sort_order`` counts. If empty, no file is recognized
    by a key.
    """
    profiles_note: ClassVar[str] = "runs: for one label and one seed"
    """The note below the list of the suite's profiles. It explains a column of the list."""

    def labels_of(self, profile: P, task: str) -> Sequence[str]:
        """The only labels that can be trained on a task under ``profile``. Empty if any label can be trained."""
        return ()

    @functools.cache  # noqa: B019  a suite lives as long as the process
    def shipped(self) -> dict[str, P]:
        """The shipped profiles, by name, without overrides. They are sorted by ``sort_order`` and then by name."""
        profiles = {name: self.Profile.load(name) for name in self.Profile.names()}
        return dict(sorted(profiles.items(), key=lambda item: (item[1].sort_order, item[0])))

    def nearest(self, job: J, most_changes: float = MOST_CHANGES) -> tuple[str, tuple[Override, ...]]:
        """The name of the shipped profile that needs the fewest overrides to train ``job``, and these overrides.

        If several profiles need equally many, the first of :meth:`shipped` counts, so that an added profile does not
        rename stored runs. The precision is not among the overrides. If more than ``most_changes`` are needed, the name
        is ``of its own``, and the overrides are empty.
        """
        changes = {name: profile.changes(job) for name, profile in self.shipped().items()}
        nearest = min(changes, key=lambda name: len(changes[name]))
        return (OWN_PROFILE, ()) if len(changes[nearest]) > most_changes else (nearest, tuple(changes[nearest]))

    def profile_of(self, job: J, name: str, changes: Sequence[Override]) -> P:
        """The profile under which a job was trained. ``name`` and ``changes`` are the result of :meth:`nearest`.

        Raises ``ConfigError`` if the name is ``of its own``, since no shipped profile is near enough.
        """
        if name == OWN_PROFILE:
            raise ConfigError(
                f"run {job.id} of {job.label} follows no shipped {self.Profile.noun}; name its YAML file with --profile"
            )
        return self.Profile.load(name, changes)

    def shared_settings(self, job: J) -> dict[str, Any]:
        """The settings in which a job has to agree with all other jobs of its table: name to value."""
        return self.settings_under(job, *self.nearest(job))

    def settings_under(self, job: J, name: str, changes: Iterable[Override]) -> dict[str, Any]:
        """The result of :meth:`shared_settings` for a job whose nearest profile is already known.

        ``name`` and ``changes`` are the result of :meth:`nearest` for ``job``. The keys are profile, changes, fidelity,
        budget and precision. If the name is ``of its own``, model and training replace profile and changes.
        """
        own = {"profile": name, "changes": tuple(map(str, changes))}
        own = {"model": job.model, "training": job.training} if name == OWN_PROFILE else own
        return own | {"fidelity": job.fidelity, "budget": job.budget, "precision": job.training.precision}

    def shared_without_rates(self, job: J) -> dict[str, Any]:
        """The result of :meth:`shared_settings`, without the learning rates and weight decays if profiles try several.

        By default nothing is removed. A suite whose profiles try several has to override this method.
        """
        return self.shared_settings(job)

    def job_setting(self, job: J) -> list[str]:
        """The name of the shipped profile nearest to a job, and the overrides of it as texts, for lists of runs."""
        profile, changes = self.nearest(job, most_changes=math.inf)
        return [profile, *map(str, changes)]
