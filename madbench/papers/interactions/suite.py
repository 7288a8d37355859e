"""The interactions suite: agents whose values are sums of pairwise or three-way interactions (sections 4 to 7)."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from madbench.errors import LabelError, no_effect
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels import family_identity, family_of, parse
from madbench.mixers import families_that_see_all, solve
from madbench.mixers.sequence import MixerSequence
from madbench.papers.interactions.profile import (
    COLLIDING,
    NAME,
    TASKS,
    InteractionJob,
    InteractionProfile,
    make_world,
    world_of,
)
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column, ShownMetric
from madbench.suites.overrides import Plan, canonical_job, drop_ineffective_overrides
from madbench.suites.planning import unique
from madbench.suites.profile import check_task
from madbench.suites.training import Schedule

LEAST_ERROR = 1e-30
"""The smallest mean squared error in scores. A smaller error is replaced by it before the logarithm is taken."""


def _check_read(profile: InteractionProfile, labels: Sequence[str], jobs: Sequence[Job]) -> None:
    """Raise ``ConfigError`` if one of the following overrides of the profile has no effect on ``jobs``.

    - ``embeddings`` and ``controls``: without effect if no job has colliding agents;
    - ``labels`` of a task: without effect if ``labels`` are given;
    - ``heads`` of a task: without effect if no job of the task has a label in ``heads``;
    - ``learning_rates`` of a task: without effect if no job of the task has an embedding in ``learning_rates``.
    """
    is_colliding = any(job.task == COLLIDING for job in jobs)
    for override in profile.overrides:
        key, shown = override.key, override.user_path
        if key in profile.stays_comparable and not is_colliding:
            raise no_effect(shown, "without colliding agents")
        section, task, kind, *name = [*key.split(".", 3), "", ""][:4]
        own = [job for job in jobs if job.task == task]
        if section != "tasks" or not own:
            continue
        if kind == "labels" and labels:
            raise no_effect(shown, "where labels are named", ", ".join(labels))
        used: dict[str, list[Any]] = {
            "heads": [job.label for job in own],
            "learning_rates": [job.setting.get("embedding") for job in own],
        }
        configured: Sequence[Any] = ()
        if kind in used:
            configured = [*filter(None, name)] or getattr(profile.plan(task), kind, [])
        if configured and not set(configured) & set(used[kind]):
            raise no_effect(shown, because=f"trained are {', '.join(sorted(set(used[kind])))}")


@functools.cache
def _world_content(task: str, setting: str) -> tuple[int, int, Hashable]:
    """The width of a world's vectors, its training length, and a key of everything that affects its samples and tests.

    ``setting`` is the task setting as JSON.
    """
    world = make_world(task, json.loads(setting))
    arrays = (hashlib.sha256(array.tobytes()).hexdigest() for array in (world.effects, world.vectors))
    sizes: tuple[Any, ...] = (world.samples, world.test_samples, sorted(world.lengths), getattr(world, "control", ""))
    sizes += (getattr(world, "fewest", 0),)
    return world.vectors.shape[1], world.length, (world.symbols, *arrays, world.length, *sizes)


class InteractionSuite(Suite[InteractionProfile, InteractionJob]):
    """The suite of interacting agents. All agents of a sample see each other.

    Each task has two columns of errors on test samples: at the training length, and at other lengths.
    """

    name = NAME
    title = "Interacting agents"
    Profile = InteractionProfile
    default = "quick"
    trial = "madbench.papers.interactions.trial:InteractionTrial"
    scoring = "madbench.papers.interactions.scores:InteractionScoring"
    sort_order = 2
    file_key = "tasks"
    data_package = "madbench.papers.interactions.worlds"
    not_inspected = "has interacting agents; madbench paper interactions draws the learned effects"
    measure = "log10 of the mean squared error"
    profiles_note = "runs: for one seed"
    shown_metric = ShownMetric("mse", "{:.2g}", "mse {:.2g}")
    budgets = ("strict",)
    keeps_weights = True

    def plan(  # type: ignore[override]  # takes no corpus, because the suite reads no text
        self,
        labels: Iterable[str],
        profile: InteractionProfile,
        *,
        seeds: Sequence[int] = (0,),
        tasks: Iterable[str] | None = None,
        fidelity: Fidelity = "corrected",
        budget: Budget = "strict",
        precision: str = "float64",
    ) -> Plan[InteractionJob]:
        """Plan jobs of the interactions suite in the order task, setting, label, ReLU layer, seed, without duplicates.

        If ``labels`` is empty, the default labels of each task are planned. ``fidelity``, ``budget`` and ``precision``
        have no effect, because the suite has one fidelity and one budget, and the profile sets the precision.

        Raises ``LabelError`` if a label cannot see all tokens, ``BudgetError`` if it has no ranks or too few heads for
        its parts, and ``ConfigError`` for an invalid setting or an override without effect.
        """
        chosen = list(TASKS if tasks is None else tasks)

        def planned(profile: InteractionProfile, labels: Sequence[str]) -> list[InteractionJob]:
            settings = [(task, setting) for task in chosen for setting in profile.settings(task)]
            return unique(
                self._job(profile, task, setting, label, relu)
                for task, setting in settings
                for label in labels or profile.plan(task).labels
                for relu in profile.relu(task)
            )

        for task in chosen:
            check_task(task, TASKS)
        labels = list(map(str, map(parse, labels)))
        planned_jobs = drop_ineffective_overrides(profile, labels, seeds, planned, self.canonical)
        _check_read(profile, labels, planned_jobs.jobs)
        return planned_jobs

    def _job(
        self, profile: InteractionProfile, task: str, setting: dict[str, Any], label: str, relu: bool
    ) -> InteractionJob:
        family = family_of(label)
        if not profile.can_train(family):
            able = families_that_see_all()
            raise LabelError(f"{label} sees only earlier tokens, but agents see each other, as {able} can")
        model = profile.model_of(task, label, relu)
        mixer, training = profile.identifying_settings(label), profile.training_config(task, setting)
        job = Job(NAME, task, label, family_identity(family), setting, model, mixer, training)
        self.size(job)  # checks the heads of the label and the ranks of its budget
        return job

    def canonical(self, job: InteractionJob) -> InteractionJob:
        """The canonical form of a job. See :meth:`madbench.suites.base.Suite.canonical`.

        The task setting is replaced by a key of its world. Settings that give equal worlds have equal keys.
        """
        width, length, setting = _world_content(job.task, json.dumps(job.setting, sort_keys=True))
        training = job.training.canonical(lambda training: training.schedule(training.steps))
        return canonical_job(job, width, length, setting={"world": setting}, training=training)

    def schedule(self, job: InteractionJob) -> Schedule:
        """The learning-rate schedule of a job."""
        return job.training.schedule(job.training.steps, divides_last=True)

    def size(self, job: InteractionJob) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""
        world, config = world_of(job), job.training
        width = world.vectors.shape[1]
        mixer = solve(job.label, width, job.model.n_head, world.length, job.budget, **job.mixer)
        cost = job.model.cost(job.label, mixer, world.length, width)
        return JobSize(
            parameters=cost.parameters,
            steps=config.steps,
            seq_len=world.length,
            sequences_per_step=config.batch_size,
            flops_per_token=cost.flops_per_token,
            trained_tokens=config.steps * config.batch_size * world.length,
            evaluated_tokens=world.test_samples * sum(world.lengths),
            mixers=MixerSequence((mixer,)),
            is_causal=False,
        )

    def tasks(self) -> Sequence[str]:
        return TASKS

    def labels_of(self, profile: InteractionProfile, task: str) -> Sequence[str]:
        return profile.plan(task).labels

    def column(self, name: str) -> Column | None:
        task = name.removesuffix(ELSEWHERE)
        if task not in TASKS:
            return None
        heading, title = task.capitalize(), f"{task} at the length trained on"
        if name != task:
            heading, title = f"{heading}, other L", f"{task} at other lengths"
        return Column(
            name,
            heading,
            digits=1,
            better="lower",
            resolution=0.01,
            title=title,
            axis="log10 of the mean squared error",
            unit="log10_mse",
            difference="factors of ten of a mean squared error",
        )

    def columns(self, tasks: Iterable[str]) -> list[Column]:
        return super().columns(name for task in tasks for name in (task, task + ELSEWHERE))

    def headline(self, tasks: Sequence[str]) -> tuple[str, ...]:
        return tuple(tasks[:1])

    def job_setting(self, job: InteractionJob) -> list[str]:
        nearest, *changes = super().job_setting(job)
        variants = [job.setting[name] for name in ("embedding", "control") if job.setting.get(name)]
        mixed = [f"fewest={fewest}"] if (fewest := job.setting.get("fewest")) else []
        relu = ["ReLU layer"] if job.model.relu else []
        return [nearest, *variants, *mixed, *relu, *changes]

    def about_task(self, task: str) -> str:
        return {
            "colliding": "Discs on a cylinder; the value of a disc is minus its number of collisions.",
            "hunters": "Species, policy and place together decide who catches whom.",
            "alliances": "The number of pairs of allies that are not allied to each other.",
            "plane": "Collisions in a plane cost more between neighbors.",
            "genotype": "An allele is active if its activators are present.",
            "pixels": "The number of black pixels at given offsets from each pixel.",
            "series": "The forecast of every step of a series from earlier steps.",
        }[task]

    def runs_per_label(self, profile: InteractionProfile) -> int:
        """The number of runs of a profile per seed, over the labels of all tasks.

        In other suites it is the number per label. Here, each task has labels of its own.
        """
        return len(self.jobs((), profile))

    def check_profile(self, profile: InteractionProfile) -> tuple[str, set[int]]:
        return f"{self.runs_per_label(profile)} runs per seed", set()


ELSEWHERE = "_elsewhere"
"""The suffix of the name of a task's column with errors at other lengths than the training length."""

SUITE = INTERACTIONS = InteractionSuite()
