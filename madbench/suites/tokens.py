"""The base of suites of token tasks. As in MAD, a run has some number of epochs but ends once the task is solved."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from madbench.config import Override, check_numbers, check_unique, from_mapping
from madbench.errors import ConfigError
from madbench.jobs import Budget, Fidelity, Job, Precision, mapping_text
from madbench.labels.budgets import BUDGETS
from madbench.models.shapes import ModelConfig
from madbench.suites.base import JobSize, Suite
from madbench.suites.columns import Column
from madbench.suites.compute import with_steps
from madbench.suites.overrides import Plan, canonical_job, drop_ineffective_overrides
from madbench.suites.planning import PlannedRun, plan_jobs, solve_mixers
from madbench.suites.profile import Profile, changed_overrides, is_rate_change
from madbench.suites.training import EpochTraining, Schedule
from madbench.tasks import check_task, load_task, make_setting, settings_class, task_source, tasks_of

if TYPE_CHECKING:
    from madbench.tasks.base import Split, TaskSetting

NEVER = 2.0
"""The only ``stop_accuracy`` above 1 that is allowed. No run reaches it.

Other values above 1 would train the same run under another id.
"""
LARGEST_COEFFICIENT = "largest_coefficient"
"""The column of a curve with the largest mixing coefficient |a_ij|, for mixers with the trait ``may_grow``."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(EpochTraining):
    """The training settings of a token task. Training ends once an evaluation has the accuracy ``stop_accuracy``."""

    recorded = (
        "learning_rate", "weight_decay", "epochs", "batch_size", "warmup_steps", "min_learning_rate", "stop_accuracy",
        "precision", "beta2",
    )  # fmt: skip

    learning_rate: float = 5e-4
    """AdamW step size at the start, or at the end of the warm-up."""
    weight_decay: float = 0.0
    """Decoupled weight decay on linear maps; biases, norm gains and the diagonals p of R(1), R(2) decay in the
    published fidelity only."""
    epochs: int = 200
    """Passes over the training examples, unless accuracy stops the run earlier."""
    batch_size: int = 128
    """Examples per optimizer step and, in the published fidelity, per test batch; a last, smaller batch is used too."""
    warmup_steps: int = 0
    """Steps in which the learning rate rises linearly; the published fidelity has none."""
    min_learning_rate: float = 1e-6
    """The learning rate at the end of the cosine; the published fidelity keeps the rate constant."""
    stop_accuracy: float = 0.999
    """Ends the run once an evaluation reaches this accuracy; 2 never does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(self, "stop_accuracy")


TokenJob: TypeAlias = Job[ModelConfig, TrainingConfig]
"""A job of a suite of token tasks."""


@dataclass(frozen=True)
class TaskPlan:
    """The changes that a profile makes to a single task."""

    setting: dict[str, Any] = field(default_factory=dict)
    """Parameters of the task that differ from its baseline."""
    training: dict[str, Any] = field(default_factory=dict)
    """Training settings that differ from the profile's."""
    learning_rates: tuple[float, ...] = ()
    """Learning rates that are tried instead of the profile's."""

    def __post_init__(self) -> None:
        check_unique(self.learning_rates, "learning_rates")


@dataclass(frozen=True, kw_only=True)
class TokenProfile(Profile[ModelConfig]):
    """A profile of token tasks: the task settings, the model's size and the training settings.

    A subclass sets ``folder`` and ``noun``. It also sets ``suite_name`` if papers may add profiles.
    """

    Model = ModelConfig
    Training = TrainingConfig
    Task = TaskPlan
    not_training = {"learning_rate": "learning_rates", "weight_decay": "weight_decays", "precision": "precision"}

    learning_rates: tuple[float, ...]
    """Learning rates that are tried on every setting.

    A label's first seed chooses the best one by validation for its other seeds. A single seed uses its own best
    (published fidelity: every seed uses its own best by test).
    """
    weight_decays: tuple[float, ...]
    """Weight decays that are tried on every setting."""
    difficulty: Literal["baseline", "all"]
    """``baseline``: only the baseline of each task. ``all``: also its one-variable changes."""
    tasks: dict[str, TaskPlan] = field(default_factory=dict)
    """Changes for single tasks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("learning_rates", "weight_decays"):
            if not getattr(self, name):
                raise ConfigError(f"{name}: give at least one value")
            check_unique(getattr(self, name), name)
        for name, plan in self.tasks.items():
            check_task(name, "tasks: ")
            make_setting(name, plan.setting, f"tasks: {name}: setting")
            self.check_training(plan.training, f"tasks: {name}: training")
        if self.difficulty == "all" and any(plan.setting for plan in self.tasks.values()):
            raise ConfigError("tasks: a changed setting goes with difficulty: baseline; 'all' takes the task files")

    def check_spelling(self, where: str) -> None:
        own = {f"tasks.{task}.training": plan.training for task, plan in self.tasks.items()}
        for section, training in {"training": self.training, **own}.items():
            if (accuracy := float(training.get("stop_accuracy", NEVER))) > 1 and accuracy != NEVER:
                key = f"{section}.stop_accuracy"
                raise ConfigError(f"{where}: {key}={accuracy:g} trains the same as {key}={NEVER:g}; use {NEVER:g}")

    def settings(self, task: str) -> list[dict[str, Any]]:
        """The settings of a task that the profile trains, each as a mapping of its fields."""
        if self.difficulty == "all":
            return [dataclasses.asdict(setting) for setting in load_task(task).settings]
        changes = self.tasks.get(task, TaskPlan()).setting
        return [dataclasses.asdict(make_setting(task, changes, f"setting of {task}"))]

    def trainings(self, task: str, precision: Precision) -> list[TrainingConfig]:
        """The training settings with which the profile trains every setting of a task.

        There is one for each pair of a learning rate and a weight decay of the profile. Pairs with the same learning
        rate are adjacent.
        """
        plan = self.tasks.get(task, TaskPlan())
        shared = {**self.training, **plan.training, "precision": precision}
        rates_and_decays = itertools.product(plan.learning_rates or self.learning_rates, self.weight_decays)
        configs = ({**shared, "learning_rate": rate, "weight_decay": decay} for rate, decay in rates_and_decays)
        return [from_mapping(TrainingConfig, config, f"training of {task}") for config in configs]

    def runs(self, task: str, precision: Precision) -> list[tuple[dict[str, Any], TrainingConfig]]:
        """Every setting of a task with each of its training settings, without duplicates.

        The pairs are cached, and their mappings are shared by the jobs of all labels.
        """
        if (task, precision) not in self._runs:
            runs = itertools.product(self.settings(task), self.trainings(task, precision))
            once = {(mapping_text(setting), training): (setting, training) for setting, training in runs}
            self._runs[task, precision] = list(once.values())
        return self._runs[task, precision]

    @functools.cached_property
    def _runs(self) -> dict[tuple[str, Precision], list[tuple[dict[str, Any], TrainingConfig]]]:
        return {}

    def training_changes(self, job: Job) -> list[Override]:
        trainings = self.trainings(job.task, job.training.precision)
        rates = {name: getattr(job.training, name) for name in ("learning_rate", "weight_decay")}
        changes = changed_overrides("training", vars(job.training), vars(trainings[0]) | rates)
        for name, value in rates.items():
            if value not in [getattr(training, name) for training in trainings]:
                changes.append(Override.parse(f"{name}s=[{value:g}]"))
        settings = self.settings(job.task)
        if job.setting not in settings:
            changes += changed_overrides(f"tasks.{job.task}.setting", job.setting, settings[0])
        return changes

    def trainings_of(self, job: Job) -> list[TrainingConfig]:
        return self.trainings(job.task, job.training.precision)

    def jobs_like(self, job: Job[ModelConfig]) -> list[Job[ModelConfig]]:
        model = self.model_config()
        runs = self.runs(job.task, job.training.precision)
        return [dataclasses.replace(job, setting=setting, model=model, training=training) for setting, training in runs]

    def job_changes(self, job: Job) -> list[Override]:
        changes = [Override.of("difficulty", "baseline")] if self.difficulty == "all" else []
        if len(self.trainings(job.task, job.training.precision)) > 1:
            changes.append(Override.of(f"tasks.{job.task}.learning_rates", [job.training.learning_rate]))
            changes.append(Override.of("weight_decays", [job.training.weight_decay]))
        return changes


def setting_of(job: Job) -> TaskSetting:
    """The task setting of a job."""
    return make_setting(job.task, job.setting, f"setting of {job.task}")


class TokenSuite(Suite[TokenProfile, TokenJob]):
    """The base class of suites of token tasks (:class:`madbench.tasks.base.TaskSetting`), which are trained as in MAD.

    A subclass sets the name, title, profile class, default profile and averages. By default, the suite has the tasks
    whose ``suite`` is its name.
    """

    Profile = TokenProfile
    trial = "madbench.suites.token_trial:TokenTrial"
    scoring = "madbench.suites.token_scores:TokenScoring"
    figures = {
        "learning": "madbench.analysis.figures.registry:LEARNING",
        "difficulty": "madbench.analysis.figures.registry:DIFFICULTY",
    }
    budgets = tuple(BUDGETS)

    def plan(  # type: ignore[override]  # takes no corpus, because the suite reads no text
        self,
        labels: Iterable[str],
        profile: TokenProfile,
        *,
        tasks: Iterable[str] | None = None,
        seeds: Sequence[int] = (0,),
        fidelity: Fidelity = "corrected",
        budget: Budget = "strict",
        precision: Precision = "float32",
    ) -> Plan[TokenJob]:
        """Plan jobs of token tasks, without duplicates.

        They are in the order label, task, setting, learning rate, weight decay, seed. Raises ``LabelError``,
        ``ConfigError`` or ``BudgetError`` if a job could not be trained.
        """
        chosen = list(self.usual_tasks() if tasks is None else tasks)

        def planned(profile: TokenProfile, labels: Sequence[str]) -> list[TokenJob]:
            runs: list[PlannedRun[TrainingConfig]] = []
            for task in chosen:
                runs_of_task = profile.runs(task, precision)  # reports a fault of the task first
                source = task_source(task)
                runs += [
                    PlannedRun(task, setting, setting["seq_len"], training, source)
                    for setting, training in runs_of_task
                ]
            return with_steps(plan_jobs(self.name, labels, profile, runs, budget, fidelity), self.size)

        return drop_ineffective_overrides(profile, labels, seeds, planned, self.canonical)

    def canonical(self, job: TokenJob) -> TokenJob:
        """The canonical form of a job. See :meth:`madbench.suites.base.Suite.canonical`."""
        setting, model = setting_of(job), job.model
        is_published = job.fidelity == "published"
        training = job.training.canonical(lambda training: self.schedule(dataclasses.replace(job, training=training)))
        batched: list[Split] = (
            ["train", "test"] if is_published else ["train"]
        )  # the test batch affects published scores
        batch_size = min(training.batch_size, max(map(setting.count, batched)))
        stop_accuracy = training.stop_accuracy if training.stop_accuracy <= 1 else NEVER
        return canonical_job(
            job,
            model.d_model,
            setting.seq_len,
            redraws=is_published and setting.model == "language_model",
            is_shorter=setting.input_len < setting.seq_len,
            model=dataclasses.replace(model, mlp_width=model.inner_width),
            training=dataclasses.replace(training, batch_size=batch_size, stop_accuracy=stop_accuracy),
        )

    @staticmethod
    def schedule(job: TokenJob) -> Schedule:
        """The learning-rate schedule of a job. The rate is constant in the published fidelity."""
        config = job.training
        if job.fidelity == "published":
            rate = config.learning_rate
            config = dataclasses.replace(config, warmup_steps=0, min_learning_rate=rate, lr_decay_steps=0)
        return config.schedule(
            config.total_steps(setting_of(job).num_train_examples), divides_last=True, matched=job.steps
        )

    def size(self, job: TokenJob) -> JobSize:
        """The size of a job: its parameters, steps, tokens and FLOPs."""
        setting, config = setting_of(job), job.training
        mixers = solve_mixers(job, setting.seq_len)
        cost = job.model.cost(mixers, setting.input_len, setting.vocab_size, setting.model == "autoencoder")
        judged = setting.count("validation" if job.fidelity == "corrected" else "test")
        examples = setting.num_train_examples
        seen, epochs = config.seen(examples, job.steps)
        return JobSize(
            parameters=cost.parameters,
            steps=self.schedule(job).steps,
            seq_len=setting.input_len,
            sequences_per_step=min(config.batch_size, examples),
            flops_per_token=cost.flops_per_token,
            trained_tokens=seen * setting.input_len,
            evaluated_tokens=(epochs * judged + setting.num_test_examples) * setting.input_len,
            mixers=mixers,
        )

    def batch_sizes(self, job: TokenJob) -> tuple[int, ...]:
        return job.training.batch_sizes(setting_of(job).num_train_examples)

    def tasks(self) -> Sequence[str]:
        return tasks_of(self.name)

    def task_column(self, task: str) -> Column:
        cls = settings_class(task)
        return Column.accuracy(task, cls.heading, title=cls.title)

    def job_setting(self, job: TokenJob) -> list[str]:
        profile, changes = self.nearest(job, most_changes=math.inf)
        profiles = {name: each for name, each in self.shipped().items() if each.difficulty == "baseline"}
        named = {"baseline": self.difficulty(job.task)}
        named |= {name: each.settings(job.task)[0] for name, each in profiles.items()}
        settings = [
            [name, *(f"{key}={value}" for key, value in job.setting.items() if setting.get(key) != value)]
            for name, setting in named.items()
        ]
        others = [change for change in changes if not (change.key.startswith("tasks.") or is_rate_change(change))]
        return [*min(settings, key=len), *map(str, others)]

    def difficulty(self, task: str) -> dict[str, Any]:
        return dataclasses.asdict(load_task(task).baseline)

    def shared_without_rates(self, job: TokenJob) -> dict[str, Any]:
        training = dataclasses.replace(job.training, learning_rate=0.0, weight_decay=0.0)
        without_rates = dataclasses.replace(job, training=training)
        name, changes = self.nearest(without_rates)
        return self.settings_under(without_rates, name, [each for each in changes if not is_rate_change(each)])

    def runs_per_label(self, profile: TokenProfile) -> int:
        tasks = self.usual_tasks()
        return sum(len(profile.settings(task)) * len(profile.trainings(task, "float32")) for task in tasks)

    def check_profile(self, profile: TokenProfile) -> tuple[str, set[int]]:
        usual = self.usual_tasks()
        for task in dict.fromkeys((*usual, *profile.tasks)):
            profile.settings(task), profile.trainings(task, "float32")
        settings = [setting for task in usual for setting in profile.settings(task)]
        words = f"{len(settings)} settings, {self.runs_per_label(profile)} runs per label"
        return words, {setting["seq_len"] for setting in settings}
