"""The interactions suite: agents whose values are sums of pairwise or three-way interactions (sections 4 to 7)."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from madbench.config import Override, check_at_least, from_mapping
from madbench.errors import ConfigError, LabelError
from madbench.jobs import NOT_AT_DEFAULT, Budget, Fidelity, Job
from madbench.labels import family_identity, family_of, parse
from madbench.mixers import families_that_see_all, solve
from madbench.mixers.sequence import MixerSequence
from madbench.models.shapes import Cost
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column, ShownMetric
from madbench.suites.overrides import Plan, canonical_job, drop_ineffective_overrides
from madbench.suites.planning import unique
from madbench.suites.profile import Profile, changed_overrides, check_task
from madbench.suites.training import Schedule, Training

if TYPE_CHECKING:
    from madbench.mixers import Allocation, LoadedFamily
    from madbench.papers.interactions.worlds import World

NAME = "interactions"
TASKS = ("colliding", "hunters", "alliances", "plane", "genotype", "pixels", "series")
"""The names of the tasks, one per world, in the order of the suite's table."""
COLLIDING = TASKS[0]
"""The task with one setting per embedding and control of the profile."""
EMBEDDINGS: tuple[Literal["one_hot", "sinusoidal"], ...] = ("one_hot", "sinusoidal")
"""The embeddings of colliding agents' positions: unit vectors, or sines and cosines."""
CONTROLS: tuple[Literal["without_itself", "distinct"], ...] = ("without_itself", "distinct")
"""The controls of colliding agents. Each breaks a condition of the theorem."""
LEAST_ERROR = 1e-30
"""The smallest mean squared error in scores. A smaller error is replaced by it before the logarithm is taken."""


@dataclass(frozen=True)
class InteractionModelConfig:
    """The configuration of the model around the mixer. The model is as wide as the embedding of its task."""

    n_head: int = 1
    """Heads of the mixer. Only in labels with base ``C`` does each head have the full width."""
    relu: bool = field(default=False, metadata=NOT_AT_DEFAULT)
    """True if a dense layer with a ReLU follows the mixer."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n_head")

    def cost(self, label: str, mixer: Allocation, tokens: int, width: int) -> Cost:
        """The parameters and the FLOPs per token of the model with the mixer of ``label``, on ``tokens`` tokens.

        The model is that of :mod:`madbench.papers.interactions.model`. ``mixer`` is the allocation of its mixer, and
        ``width`` is the width of its embedding, which is not trained. ``tokens`` is the length of a sequence. FLOPs are
        those of the bidirectional mixer alone. A full coupling counts with values of width 1 instead of ``width``. Any
        other mixer is followed by a linear map to one number, which adds ``width`` parameters. A ReLU layer adds 4
        parameters.
        """
        has_couplings = getattr(parse(label), "base", "") == "C"
        parameters = mixer.terms["c"] + mixer.terms["w"] // width if has_couplings else mixer.total + width
        return Cost(parameters + (4 if self.relu else 0), cast(Any, mixer).flops_per_token(tokens, causal=False))


@dataclass(frozen=True, kw_only=True)
class InteractionTraining(Training):
    """The training settings of an interactions job. Batches are drawn with replacement from the training samples."""

    recorded = (
        "learning_rate", "weight_decay", "steps", "batch_size", "precision",
    )  # fmt: skip

    learning_rate: float = 0.02
    """AdamW's step size at the start, or at the end of the warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    beta2: float = field(default=0.99, metadata=NOT_AT_DEFAULT)
    """AdamW's decay of the mean squared gradient."""
    precision: Literal["float32", "float64"] = "float64"  # type: ignore[assignment]  # no bfloat16
    """Dtype of the whole computation."""
    steps: int = 4000
    """Optimizer steps."""
    batch_size: int = 128
    """Samples of one optimizer step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "steps", "batch_size")


InteractionJob: TypeAlias = Job[InteractionModelConfig, InteractionTraining]
"""A job of the interactions suite."""


@dataclass(frozen=True)
class InteractionTask:
    """The settings of a profile for one task."""

    setting: dict[str, Any] = field(default_factory=dict)
    """Parameters of the task: its world and its samples."""
    labels: tuple[str, ...] = ()
    """Labels that are trained by default."""
    heads: dict[str, int] = field(default_factory=dict)
    """Heads by label; 1 for labels that are not listed."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings of the task. They replace those of the profile."""
    learning_rates: dict[str, float] = field(default_factory=dict)
    """Learning rates by embedding. They replace the learning rate of ``training``."""
    variants: dict[str, Any] = field(default_factory=dict)
    """Variants of the setting: name to changed fields. Each variant is trained. If empty, only the setting itself is.
    """
    relu: tuple[bool, ...] = (False,)
    """Models that are trained: False for a model without a ReLU layer after the mixer, True for a model with it."""


@dataclass(frozen=True, kw_only=True)
class InteractionProfile(Profile[InteractionModelConfig]):
    """A profile of the interactions suite: the settings of its worlds, its labels, and the training settings."""

    folder = Path(__file__).parent / "profiles" / NAME
    suite_name = NAME
    noun = "interaction profile"
    Model = InteractionModelConfig
    Training = InteractionTraining
    Task = InteractionTask
    stays_comparable = ("embeddings", "controls")

    precision: Literal["float32", "float64"] = "float64"  # type: ignore[assignment]  # no bfloat16
    """Dtype of the whole computation."""
    embeddings: tuple[Literal["one_hot", "sinusoidal"], ...] = EMBEDDINGS
    """Embeddings of the positions of colliding agents. Models are trained with each of them."""
    controls: tuple[Literal["without_itself", "distinct"], ...] = CONTROLS
    """Broken conditions of the theorem on colliding agents. Each is trained in addition to the world that keeps both.
    """
    tasks: dict[str, InteractionTask] = field(default_factory=dict)
    """The setup of each task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.embeddings:
            raise ConfigError(f"embeddings: expected {' or '.join(EMBEDDINGS)} or both, got an empty list")
        for task, plan in self.tasks.items():
            check_task(task, TASKS, "tasks: ")
            for key in {"embedding", "control"} & {*plan.setting}:
                raise ConfigError(
                    f"setting of {task}: {key!r} has no effect: the profile's {key}s say which are trained"
                )
            for embedding in plan.learning_rates:
                if task != COLLIDING or embedding not in EMBEDDINGS:
                    raise ConfigError(
                        f"learning_rates of {task}: {embedding!r} has no effect: this task has no such embedding"
                    )
            if "learning_rate" in plan.training and {*EMBEDDINGS} <= {*plan.learning_rates}:
                raise ConfigError(
                    f"training of {task}: 'learning_rate' has no effect: learning_rates has all embeddings"
                )
            for label in plan.heads:
                parse(label)
            if plan.variants and task == COLLIDING:
                raise ConfigError(
                    f"variants of {task}: have no effect: the profile's embeddings and controls are trained"
                )
            if not plan.relu:
                raise ConfigError(f"relu of {task}: expected false, true or both, got an empty list")
            self.settings(task)
            self.check_training(plan.training, f"training of {task}")

    @staticmethod
    def can_train(family: LoadedFamily) -> bool:
        """True if the mixers of the family can be bidirectional, that is, can see later tokens too."""
        return getattr(family, "is_bidirectional", False)

    def plan(self, task: str) -> InteractionTask:
        """The settings of the profile for a task, or the defaults if the profile does not name the task."""
        return self.tasks.get(task, InteractionTask())

    def world(self, task: str, **changes: Any) -> World:
        """The world of a task. ``changes`` replace fields of the profile's setting."""
        return _world(task, {**self.plan(task).setting, **changes})

    def settings(self, task: str) -> list[dict[str, Any]]:
        """The task settings that the profile trains, each as a mapping of its fields.

        There is one setting per embedding and control of colliding agents, and one per variant of any other task.
        """
        changes: list[dict[str, Any]] = [*self.plan(task).variants.values()] or [{}]
        if task == COLLIDING:
            controls = ("", *self.controls)
            changes = [{"embedding": e, "control": c} for e, c in itertools.product(self.embeddings, controls)]
        settings = [vars(self.world(task, **change)) for change in changes]
        return [{**setting, "test_lengths": list(setting["test_lengths"])} for setting in settings]

    def relu(self, task: str) -> tuple[bool, ...]:
        """The models that are trained on a task: True for a model with a ReLU layer, False for a model without.

        They are given by ``relu`` in the profile's ``model`` if it is there, and otherwise by the task's own ``relu``.
        """
        return (self.model["relu"],) if "relu" in self.model else self.plan(task).relu

    def training_config(self, task: str, setting: Mapping[str, Any]) -> InteractionTraining:
        """The training settings for a task and one of its settings.

        The learning rate may depend on the embedding in ``setting``.
        """
        plan = self.plan(task)
        rate = plan.learning_rates.get(setting.get("embedding", ""))
        own = {"learning_rate": rate} if rate else {}
        values = {**self.training, **plan.training, **own, "precision": self.precision}
        return from_mapping(InteractionTraining, values, f"training of {task}")

    def model_of(self, task: str, label: str, relu: bool) -> InteractionModelConfig:
        """The configuration of the model around the mixer of a label, with or without a ReLU layer."""
        return InteractionModelConfig(self.model.get("n_head", self.plan(task).heads.get(label, 1)), relu)

    def jobs_like(self, job: Job[InteractionModelConfig]) -> list[Job[InteractionModelConfig]]:
        cells = itertools.product(self.settings(job.task), self.relu(job.task))
        return [
            replace(
                job,
                setting=setting,
                model=self.model_of(job.task, job.label, relu),
                training=self.training_config(job.task, setting),
            )
            for setting, relu in cells
        ]

    def changes(self, job: Job[InteractionModelConfig]) -> list[Override]:
        return [*self.training_changes(job), *self.model_changes(job), *self.mixer_changes(job)]

    def training_changes(self, job: Job[InteractionModelConfig]) -> list[Override]:
        variants = itertools.chain.from_iterable(self.plan(job.task).variants.values())
        own = {name: job.setting[name] for name in ("embedding", "control", *variants) if name in job.setting}
        setting = self.settings(job.task)[0] | own
        training = vars(self.training_config(job.task, job.setting)) | {"precision": job.training.precision}
        changes = changed_overrides(f"tasks.{job.task}.setting", job.setting, setting)
        changes += changed_overrides("training", vars(job.training), training)
        if job.training.precision != self.precision:
            changes.append(Override.of("precision", job.training.precision))
        return changes

    def model_changes(self, job: Job[InteractionModelConfig]) -> list[Override]:
        heads = self.plan(job.task).heads.get(job.label, 1)
        changes = changed_overrides("model", {"n_head": job.model.n_head}, {"n_head": heads})
        if job.model.relu not in self.plan(job.task).relu:
            changes.append(Override.of("model.relu", job.model.relu, str(job.model.relu).lower()))
        return changes


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
            raise ConfigError(f"{shown} has no effect without colliding agents")
        section, task, kind, *name = [*key.split(".", 3), "", ""][:4]
        own = [job for job in jobs if job.task == task]
        if section != "tasks" or not own:
            continue
        if kind == "labels" and labels:
            raise ConfigError(f"{shown} has no effect where labels are named: {', '.join(labels)}")
        used: dict[str, list[Any]] = {
            "heads": [job.label for job in own],
            "learning_rates": [job.setting.get("embedding") for job in own],
        }
        configured: Sequence[Any] = ()
        if kind in used:
            configured = [*filter(None, name)] or getattr(profile.plan(task), kind, [])
        if configured and not set(configured) & set(used[kind]):
            raise ConfigError(f"{shown} has no effect: trained are {', '.join(sorted(set(used[kind])))}")


@functools.cache
def _world_content(task: str, setting: str) -> tuple[int, int, Hashable]:
    """The width of a world's vectors, its training length, and a key of everything that affects its samples and tests.

    ``setting`` is the task setting as JSON.
    """
    world = _world(task, json.loads(setting))
    arrays = (hashlib.sha256(array.tobytes()).hexdigest() for array in (world.effects, world.vectors))
    sizes: tuple[Any, ...] = (world.samples, world.test_samples, sorted(world.lengths), getattr(world, "control", ""))
    sizes += (getattr(world, "fewest", 0),)
    return world.vectors.shape[1], world.length, (world.symbols, *arrays, world.length, *sizes)


def world_of(job: Job) -> World:
    """The world of agents that a job is trained and tested on."""
    return _world(job.task, job.setting)


def _world(task: str, setting: Mapping[str, Any]) -> World:
    from madbench.papers.interactions.worlds import WORLDS

    return from_mapping(WORLDS[task], setting, f"setting of {task}")


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
