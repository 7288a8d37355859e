"""The profiles of the interactions suite: its worlds, its labels, and its model and training settings."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from madbench.config import Override, check_at_least, from_mapping
from madbench.errors import ConfigError, no_effect
from madbench.jobs import NOT_AT_DEFAULT, Job
from madbench.labels import parse
from madbench.models.shapes import Cost
from madbench.suites.profile import Profile, changed_overrides, check_task
from madbench.suites.training import Training

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
                raise no_effect(f"setting of {task}: {key!r}", because=f"the profile's {key}s say which are trained")
            for embedding in plan.learning_rates:
                if task != COLLIDING or embedding not in EMBEDDINGS:
                    raise no_effect(
                        f"learning_rates of {task}: {embedding!r}", because="this task has no such embedding"
                    )
            if "learning_rate" in plan.training and {*EMBEDDINGS} <= {*plan.learning_rates}:
                raise no_effect(f"training of {task}: 'learning_rate'", because="learning_rates has all embeddings")
            for label in plan.heads:
                parse(label)
            if plan.variants and task == COLLIDING:
                raise no_effect(f"tasks.{task}.variants", because="the profile's embeddings and controls are trained")
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
        return make_world(task, {**self.plan(task).setting, **changes})

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


def world_of(job: Job) -> World:
    """The world of agents that a job is trained and tested on."""
    return make_world(job.task, job.setting)


def make_world(task: str, setting: Mapping[str, Any]) -> World:
    """The world of a task with the given setting. Raises ``ConfigError`` for an unknown or invalid field."""
    from madbench.papers.interactions.worlds import WORLDS

    return from_mapping(WORLDS[task], setting, f"setting of {task}")
