"""The base class of suites. A suite defines tasks, trains labels on them and scores the results.

Packages that add a suite subclass :class:`Suite`.
"""

from __future__ import annotations

import abc
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from madbench.details import Details
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity, J
from madbench.labels import Label
from madbench.labels.budgets import BUDGETS
from madbench.mixers import Check
from madbench.suites.columns import SuiteColumns
from madbench.suites.corpora import CorpusSource, StoredCorpus
from madbench.suites.overrides import Plan
from madbench.suites.planning import PlanOptions
from madbench.suites.suite_profiles import P, SuiteProfiles
from madbench.suites.training import Schedule

if TYPE_CHECKING:
    from madbench.mixers.sequence import MixerSequence
    from madbench.suites.trial import Trial
    from madbench.text.corpus import Corpus


@dataclass(frozen=True)
class JobSize:
    """The size of a job: parameters, steps, tokens and FLOPs, for a run that does not stop early.

    The size is computed without building the model.
    """

    parameters: int
    """Trainable parameters of the whole model."""
    steps: int
    """Optimizer steps."""
    seq_len: int
    """Tokens per input."""
    sequences_per_step: int
    flops_per_token: float
    """Forward FLOPs per token; a multiply-add is two."""
    trained_tokens: int
    evaluated_tokens: int
    mixers: MixerSequence | None = None
    """The allocations of the model's mixers; None if the suite does not state them."""
    is_causal: bool = True
    """False if a token sees all tokens."""

    @property
    def flops(self) -> float:
        """The FLOPs of all training steps and evaluations. A backward pass counts as two forward passes."""
        return self.flops_per_token * (3 * self.trained_tokens + self.evaluated_tokens)


class Suite(SuiteColumns, SuiteProfiles[P, J], abc.ABC):
    """A set of tasks with a way to train labels on them and to score the results.

    ``P`` is the class of the suite's profiles. ``J`` is the type of its jobs, with the suite's classes of ``model`` and
    ``training``. In annotations, plain ``Suite`` is any suite.

    Each suite is an instance of a subclass. The subclass sets ``name``, ``title``, ``Profile``, ``default`` and
    ``trial``, and it defines ``tasks``, ``plan``, ``canonical`` and ``size``. All other members have a default. Members
    about columns are in :class:`madbench.suites.columns.SuiteColumns`, members about profiles in
    :class:`madbench.suites.suite_profiles.SuiteProfiles`.
    """

    # Without a default

    name: ClassVar[str]
    """The suite's name in jobs."""
    trial: ClassVar[str]
    """``module:class`` of the suite's subclass of :class:`madbench.suites.trial.Trial`, imported when used."""

    @abc.abstractmethod
    def plan(self, labels: Iterable[str], profile: P, **options: Unpack[PlanOptions]) -> Plan[J]:
        """Plan the jobs of labels under a profile, without duplicates.

        Raises a ``MadbenchError`` if a job could not be trained, for example because no ranks of a label meet the
        budget.
        """

    @abc.abstractmethod
    def canonical(self, job: J) -> J:
        """The canonical form of a job. Jobs whose forms have the same id train the same model, up to the seed.

        The form is for comparison only: it may have values that no mixer accepts, and its seed is 0. The job itself
        keeps all values of its profile, even those without effect, because they are part of its id. Most suites call
        :func:`madbench.suites.overrides.canonical_job`.
        """

    @abc.abstractmethod
    def size(self, job: J) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""

    # Names and lists

    sort_order: ClassVar[int] = 100
    """The position of the suite among all suites: lower numbers come first."""
    not_inspected: ClassVar[str] = ""
    """The reason why ``madbench inspect`` cannot show the suite's models. Empty if it can."""

    @property
    def override_name(self) -> str:
        """The name of the suite in overrides, and in the key ``beside`` of profiles. By default ``name``.

        It is the prefix of the suite's overrides if another suite is the leading suite
        (:mod:`madbench.suites.addressing`). A subclass may set another text.
        """
        return self.name

    @property
    def short_name(self) -> str:
        """The prefix of some columns of this suite in a table of several suites. By default ``name``.

        These are the columns that every suite has: the budget ratio and the number of seeds. Their names begin with
        this text, and their headings begin with it in capitals.
        """
        return self.name

    def usual_tasks(self) -> Sequence[str]:
        """The tasks that are trained if no task of the suite is named."""
        return self.tasks()

    def about_profile(self, profile: P) -> dict[str, Any]:
        """The row of a profile in the list of ``madbench ls profiles``: heading to value."""
        return {"runs": self.runs_per_label(profile)}

    def runs_per_label(self, profile: P) -> int:
        """The number of runs of a profile per label and seed."""
        return len(self._jobs_of_label(profile))

    def check_profile(self, profile: P) -> tuple[str, set[int]]:
        """Check a profile. Return a description of its runs and the distinct lengths of their inputs in tokens.

        Raises ``ConfigError`` if the profile or one of its tasks is not valid.
        """
        jobs = self._jobs_of_label(profile)
        return f"{len(jobs)} runs per label", {self.size(job).seq_len for job in jobs}

    def _jobs_of_label(self, profile: P) -> Sequence[J]:
        """The jobs of a profile for one label and one seed."""
        return self.plan(["S"], profile, seeds=(0,)).jobs

    # Training

    fidelities: ClassVar[tuple[Fidelity, ...]] = ("corrected",)
    budgets: ClassVar[tuple[Budget, ...]] = tuple(name for name, rule in BUDGETS.items() if not rule.chooses_steps)
    """The budgets under which the suite can train.

    If one of them chooses the number of steps, as ``compute`` does, :meth:`plan` has to call
    :func:`madbench.suites.compute.with_steps`, and :meth:`schedule` and :meth:`size` have to use ``job.steps``.
    """
    data_package: ClassVar[str] = "madbench.tasks"
    """The package whose modules make the data of the suite's jobs."""
    logged: ClassVar[tuple[str, ...]] = ()
    """The columns that every row of a run's curve must have. A stored run without them counts as damaged."""
    keeps_weights: ClassVar[bool] = False
    """True if runs of the suite keep the trained weights by default."""
    uses_all_cores: ClassVar[bool] = False
    """True if a run on the CPU uses all cores, False if it uses one core."""
    reference: ClassVar[str] = ""
    """The module with the reference implementation for ``madbench bench training --peer``. Empty if there is none."""

    @property
    def Trial(self) -> type[Trial[J]]:
        """The suite's subclass of :class:`madbench.suites.trial.Trial`. It is imported, with torch, on first access.

        Raises ``ConfigError`` if the subclass does not define all abstract methods of ``Trial``.
        """
        trial: type[Trial[J]] = pkgutil.resolve_name(self.trial)
        if lacking := sorted(getattr(trial, "__abstractmethods__", ())):
            raise ConfigError(f"suite {self.name!r}: its trial {self.trial} lacks {', '.join(lacking)}")
        return trial

    def jobs(self, labels: Iterable[str], profile: P, **options: Unpack[PlanOptions]) -> list[J]:
        """The jobs of :meth:`plan`.

        Raises ``ConfigError`` also for an override that has no effect on any of them, and for an override whose value
        is not canonical (:meth:`madbench.suites.overrides.Plan.check_spelling`).
        """
        return self.plan(labels, profile, **options).checked()

    def schedule(self, job: J) -> Schedule | None:
        """The learning-rate schedule of a job. None if the suite has no :class:`madbench.suites.training.Schedule`."""
        return None

    def batch_sizes(self, job: J) -> tuple[int, ...]:
        """The distinct numbers of examples per optimizer step, summed over processes.

        There is a second number if the last batch of an epoch is smaller than the others.
        """
        return (self.size(job).sequences_per_step,)

    def check_processes(self, job: J, processes: int) -> None:
        """Raise ``ConfigError`` if a batch of the job has too few examples to be shared by ``processes`` processes."""
        fewest = min(self.batch_sizes(job))
        if fewest < processes:
            raise ConfigError(
                f"{job.task}: {processes} processes cannot share a batch of {fewest} "
                f"example{'s' if fewest > 1 else ''}; start at most {fewest}, or change training.batch_size"
            )

    def fidelity_of(self, asked: Fidelity) -> Fidelity:
        """The fidelity of the suite's jobs: ``asked`` if the suite supports it, otherwise the suite's default."""
        return asked if asked in self.fidelities else self.fidelities[0]

    def checks(self, label: Label) -> Iterable[Check]:
        """The checks that ``madbench verify`` applies to a label's mixer and that use tasks of this suite."""
        return ()

    # Corpora of text

    def lacks_corpus(self, profile: P) -> bool:
        """True if jobs of the profile need a corpus of text and the profile has no default corpus."""
        return False

    def corpus_for(self, profile: P, source: CorpusSource) -> Corpus | None:
        """The corpus, opened by ``source``, that jobs of the profile are trained on. None if the suite reads no text.

        Raises ``ConfigError`` if the profile cannot be trained on the corpus, or if a corpus is needed and not named.
        """
        return None

    def corpus_of(self, job: J, details: Details | None = None) -> StoredCorpus | None:
        """The corpus of a job, as the job and the ``details`` of its record describe it.

        None if the suite reads no text.
        """
        return None

    def check_job(self, job: J, where: str) -> None:
        """Raise ``ConfigError`` if a key that the suite reads is missing from a job's setting or has an invalid value.

        The message begins with ``where``.
        """
